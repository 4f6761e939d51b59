"""Which settings may change while a server runs, and how it takes them: those that are looked at each time.

All parts of a server share one ``Settings``, so what is taken here counts for all of them. It reads no file.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

from bedrockjobs.base.settings import Settings

READ_AGAIN = frozenset(
    {
        *("public_url", "smtp", "mail_from", "notify_commands", "heartbeat_url"),
        *("connections_max", "connections_per_address_max", "connections_per_address_s_max", "pending_max"),
        *("batch_max", "patterns_waiting_max"),
        *("first_byte_s", "handshake_s", "head_s", "body_s", "write_s", "drain_s"),
        *("keep_finished", "keep_keys_s", "keep_audit_s", "output_bytes"),
    }
)
"""Settings that count from HUP on: where messages go, limits of connections and commands, and what is kept.

The others are what a server was built with: its sockets, its database, the size of its buffers.
"""

CERTIFICATES = frozenset({"tls_cert", "tls_key", "tls_client_ca"})
"""Settings that count from HUP on where a server has TLS and goes on to have it."""


class Difference(NamedTuple):
    """What is different in settings that were read again, by name."""

    taken: list[str]
    waiting: list[str]
    """What counts after a restart only."""

    def __str__(self) -> str:
        words = [f"changed: {', '.join(self.taken) or 'nothing'}"]
        if self.waiting:
            words.append(f"different, but only after a restart: {', '.join(self.waiting)}")
        return "; ".join(words)


def different(settings: Settings, found: Settings, names: Iterable[str]) -> list[str]:
    """Return those of some settings that are not as ``found``."""
    return [name for name in names if getattr(settings, name) != getattr(found, name)]


def take_again(settings: Settings, found: Settings, readable: Container[str] = READ_AGAIN) -> Difference:
    """Let those of ``settings`` that are ``readable`` again be as ``found``; return what is different.

    Values are not told: some are secrets.
    """
    names = different(settings, found, Settings.model_fields)
    taken = [name for name in names if name in readable]
    vars(settings).update({name: getattr(found, name) for name in taken})  # whom it was given to keeps it
    return Difference(taken, [name for name in names if name not in readable])
