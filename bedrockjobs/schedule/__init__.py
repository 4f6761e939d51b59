"""When a job runs next."""
