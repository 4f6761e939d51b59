"""What comes from the server: jobs, their leases, and whether it answers at all."""
