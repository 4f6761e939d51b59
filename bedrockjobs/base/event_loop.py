"""What runs the event loop of a program, the server or the worker. Knows neither of them."""

from __future__ import annotations

import asyncio


def runner() -> asyncio.Runner:
    """Return what runs an event loop: the quicker one where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
