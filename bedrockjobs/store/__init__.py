"""The rows, and who may touch them: all SQL but the repeat evaluator's is below here."""
