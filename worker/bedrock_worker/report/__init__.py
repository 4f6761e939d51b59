"""What the server is told of a run: its output, its progress and its end."""
