"""The default client: one per process, created on first use."""

from __future__ import annotations

import atexit
import os
import threading

from bedrockjobs.client.address import (
    CA_VARIABLE,
    CERT_VARIABLE,
    KEY_VARIABLE,
    RUN_SERVER_VARIABLE,
    RUN_TOKEN_VARIABLE,
    SERVER_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
)
from bedrockjobs.client.blocking import Client

VARIABLES = (
    SERVER_VARIABLE,
    RUN_SERVER_VARIABLE,
    TOKEN_VARIABLE,
    TOKEN_FILE_VARIABLE,
    RUN_TOKEN_VARIABLE,
    CA_VARIABLE,
    CERT_VARIABLE,
    KEY_VARIABLE,
)
"""The variables that configure the client; if one changes, another client is created."""

_lock = threading.Lock()
_made: tuple[tuple[int, tuple[str | None, ...]], Client] | None = None


def shared_client() -> Client:
    """Return the process's client for the server that the environment names; threads share it.

    After a fork or a change of the environment it is a new one. It need not be closed. Raises InvalidArgument
    for an invalid environment.
    """
    global _made
    wanted = (os.getpid(), tuple(os.environ.get(name) for name in VARIABLES))
    with _lock:
        if _made is None or _made[0] != wanted:
            made = (wanted, Client())
            _close()
            _made = made
        return _made[1]


def _close() -> None:
    if _made is not None:
        _made[1].close()


def _unlock() -> None:
    """Replace a lock that another thread may have held during the fork."""
    global _lock
    _lock = threading.Lock()


atexit.register(_close)
os.register_at_fork(after_in_child=_unlock)
