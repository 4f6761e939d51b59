"""Readers of other systems' schedules: text in, definitions of ours out.

Each module knows one system's format and dialect. None of them knows files, commands or servers.
"""
