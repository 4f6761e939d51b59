"""Running one job on this machine: its process, lease, time limits and watchdog."""
