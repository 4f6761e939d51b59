"""What happens to one job on this machine: its process, its lease, its time, its watchdog."""
