"""The client of those who name none: one a process, made when it is first asked for."""

from __future__ import annotations

import atexit
import os
import threading

from bedrockjobs.client.address import RUN_SERVER_VARIABLE, SERVER_VARIABLE
from bedrockjobs.client.blocking import Client
from bedrockjobs.client.credentials import (
    CA_VARIABLE,
    CERT_VARIABLE,
    KEY_VARIABLE,
    RUN_TOKEN_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
)

VARIABLES = (
    SERVER_VARIABLE, RUN_SERVER_VARIABLE, TOKEN_VARIABLE, TOKEN_FILE_VARIABLE, RUN_TOKEN_VARIABLE,
    CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE,
)  # fmt: skip
"""What a client is made of; where one of them changes, another client is made."""

_lock = threading.Lock()
_made: tuple[tuple[int, tuple[str | None, ...]], Client] | None = None


def shared_client() -> Client:
    """Return the process's client for the server that the environment names; threads share it.

    After a fork, or where the environment has changed, it is another one. Nobody has to close it. Raises
    InvalidArgument for an environment that no client can be made of.
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
    """Forget a lock that another thread held when the process was forked."""
    global _lock
    _lock = threading.Lock()


atexit.register(_close)
os.register_at_fork(after_in_child=_unlock)
