"""Parsers for the schedules of other systems: each turns text into definitions of bedrockjobs.

Each module handles the format and the cron dialect of one system. They do not access files or servers.
"""
