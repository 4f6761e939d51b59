"""Repeats and cron schedules: when a job runs next."""
