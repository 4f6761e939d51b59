"""Jobs: their rows, life cycle, eligibility for takes, and limits. Pure functions without I/O."""
