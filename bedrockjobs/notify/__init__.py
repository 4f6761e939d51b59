"""Notifications about events: by mail, HTTP, a program, or Apprise."""
