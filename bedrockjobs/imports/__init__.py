"""Parsers for the schedules of other systems: each turns text into definitions of bedrockjobs.

Each module handles the format and the cron dialect of one system. No module here accesses files or servers.
"""
