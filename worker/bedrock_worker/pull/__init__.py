"""Pulling: jobs, their leases, and the state of the server."""
