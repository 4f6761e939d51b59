"""Observability: logs, metrics, statistics, traces, the heartbeat and the watchdog of the event loop."""
