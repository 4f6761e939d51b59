"""The engine executes commands in transactions: authorization, handlers, waiters, commits and maintenance."""
