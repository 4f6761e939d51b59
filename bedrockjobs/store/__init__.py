"""Storage: the tables on SQLite and PostgreSQL, and all SQL except that of the repeat evaluator."""
