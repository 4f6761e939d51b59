"""The engine of a PostgreSQL database: many servers may open units on it at the same time."""
