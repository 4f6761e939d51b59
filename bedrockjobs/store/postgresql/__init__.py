"""The PostgreSQL engine: a database shared by several servers, each with open units at the same time."""
