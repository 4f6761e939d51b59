"""The engine: commands become commits, by authorization, handlers, waiters and maintenance."""
