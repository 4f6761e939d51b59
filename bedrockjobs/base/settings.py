"""The settings of the server, each with its unit and its reason.

A setting comes from an option of ``bedrockjobs serve``, an environment variable ``BEDROCKJOBS_<NAME>`` or a
settings file.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from bedrockjobs.base.config import DEFAULT_PORT, DURATION_S_MAX

Durability = Literal["full", "replicated", "relaxed"]
Isolation = Literal["units", "serial"]
Compatibility = Literal["document", "current"]
LogFormat = Literal["text", "json"]

SCHEMA_NAME = "[a-z_][a-z0-9_]{0,62}"
"""Permitted names of a PostgreSQL schema, which need no quotes."""

OF_A_FILE = {
    "wal_bytes": "PostgreSQL keeps a log of its own",
    "ballast_bytes": "PostgreSQL manages its own disk",
    "migration_backup": "PostgreSQL's tables are changed in one transaction",
    "standby": "servers on PostgreSQL run at the same time, and none waits for another to end",
}
"""Settings for SQLite files, which a server on PostgreSQL refuses, with the reason."""


FORMS = {
    "host": "ADDRESS",
    "unix": "FILE",
    "tls_cert": "FILE",
    "tls_key": "FILE",
    "tls_client_ca": "FILE",
    "unix_role": "ROLE[,ROLE]",
    "trusted_proxies": "ADDRESS[,ADDRESS]",
    "proxy_user_header": "HEADER",
    "proxy_role": "ROLE[,ROLE]",
    "root_path": "PATH",
    "public_hosts": "HOST[,HOST]",
    "database": "FILE|URL",
    "database_schema": "NAME",
    "database_read": "URL",
    "database_direct": "URL",
    "server_name": "NAME",
    "heartbeat_url": "URL",
    "public_url": "URL",
    "smtp": "URL",
    "mail_from": "ADDRESS",
    "notify_commands": "DIR",
}
"""Placeholders of settings with text values, as shown in help texts."""


def is_duration(field: str) -> bool:
    """Return whether a setting is a time in seconds, which may be written as a duration."""
    return field.endswith(("_s", "_s_max")) or field == "keep_finished"


def _hidden(match: re.Match[str]) -> str:
    return "***" if match[1] is None else f"{match[1]}:***@"


def without_passwords(text: str) -> str:
    """Return a text for display: the passwords in URLs and connection strings are replaced by stars.

    A password extends to the last ``@``: hiding too much is safer than hiding too little.
    """
    return re.sub(r"(?s)(?<=://)([^/?:@]*):.*@|(?<=password=)[^&]*", _hidden, text)


_ROLE = "(read|produce|work|operate|admin)"


class Settings(BaseModel):
    """The settings of the server. Names end in their units: ``_s`` seconds, ``_bytes`` bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    host: str = Field("127.0.0.1", description="Address to listen on. The default also listens on ::1.")
    port: int = Field(
        DEFAULT_PORT, ge=0, le=65_535, description="Port of both protocols; 0 takes a free one."
    )
    unix: str = Field(
        "", max_length=100, description="Unix socket to listen on in addition, with mode 0660; none if empty."
    )
    tls_cert: str = Field(
        "",
        max_length=4_000,
        description="Certificate chain of the server (PEM). With it, connections may use TLS on the same"
        " port, and must from other machines. Read again on HUP.",
    )
    tls_key: str = Field(
        "",
        max_length=4_000,
        description="Private key of that certificate (PEM), without a passphrase, if it is not in the same"
        " file.",
    )
    tls_client_ca: str = Field(
        "",
        max_length=4_000,
        description="CA bundle (PEM) for client certificates: a certificate that a client presents must be"
        " valid, and its name is matched to a token.",
    )
    unix_role: str = Field(
        "",
        pattern=f"^({_ROLE}(,{_ROLE})*)?$",
        description="Roles of clients on the unix socket without a token, once tokens exist: a comma list"
        " of read, produce, work, operate, admin; none if empty.",
    )
    trusted_proxies: str = Field(
        "",
        max_length=4_000,
        pattern=r"^[0-9A-Fa-f.:/, ]*(unix)?$",
        description="Addresses and networks of trusted proxies, a comma list such as 10.0.0.2,fd00::/64;"
        " for the unix socket add unix at the end. Their headers on the client's address and user are"
        " trusted.",
    )
    proxy_user_header: str = Field(
        "",
        max_length=100,
        pattern=r"^[A-Za-z0-9-]*$",
        description="Header in which a trusted proxy names its user, such as X-Forwarded-User; it is ignored"
        " from other clients.",
    )
    proxy_role: str = Field(
        "read",
        pattern=f"^{_ROLE}(,{_ROLE})*$",
        description="Roles of users named in that header: a comma list.",
    )
    root_path: str = Field(
        "",
        pattern=r"^(/[A-Za-z0-9._~-]+)*$",
        description="Path prefix under which a proxy serves the pages, such as /queue; links begin with it.",
    )
    public_hosts: str = Field(
        "",
        max_length=4_000,
        pattern=r"^[A-Za-z0-9.:\[\], -]*$",
        description="Host names under which browsers reach the server through a proxy, a comma list.",
    )
    database: str = Field(
        "jobs.db",
        description="SQLite file, as a path or as sqlite:///path; or a PostgreSQL database that any number of"
        " servers may share, as postgresql://host/name.",
    )
    database_schema: str = Field(
        "bedrockjobs",
        pattern=f"^{SCHEMA_NAME}$",
        description="Schema of the tables in a PostgreSQL database; created if it does not exist.",
    )
    database_read: str = Field(
        "",
        pattern=r"^(postgres(ql)?://.*)?$",
        description="URL of a standby of the PostgreSQL database, for large reads: lists, searches, pages,"
        " metrics and Query. While it is down or lags by over 5 s, the primary is read.",
    )
    database_direct: str = Field(
        "",
        description="URL of the same PostgreSQL database without a pooler, for reads and for notifications"
        " between servers, which a pooler in transaction mode does not support. The database's own URL if"
        " empty.",
    )
    server_name: str = Field(
        "%h-%p",
        pattern=r"^[A-Za-z0-9._%@:-]{1,100}$",
        description="Name of the server among those that share a PostgreSQL database: %h is the host name,"
        " %p the process id.",
    )
    durability: Durability = Field(
        "full",
        description="full: every acknowledged command is on disk. replicated: also on the disk of a"
        " synchronous standby; PostgreSQL only. relaxed: a power failure may lose everything since the"
        " last checkpoint.",
    )
    isolation: Isolation = Field(
        "units",
        description="units: servers on one PostgreSQL database work concurrently, and a take skips jobs"
        " locked by another server. serial: one transaction at a time, in exact order, if all servers use"
        " it.",
    )
    compatibility: Compatibility = Field(
        "document",
        description="Which Bedrock to follow if they differ: its Jobs document or its current server.",
    )
    log_format: LogFormat = Field(
        "text", description="Log lines as text, or one JSON object per event; never with a job's data."
    )
    heartbeat_url: str = Field(
        "",
        max_length=2_000,
        pattern=r"^(https?://.+)?$",
        description="URL that the server calls (GET) each minute while it accepts commands and is not"
        " held, so that an external monitor notices when the server is down; none if empty. It is never"
        " displayed.",
    )
    standby: bool = Field(False, description="Wait for the database while another server owns it.")
    test_clock: bool = Field(
        False,
        description="Stop the date; only AdvanceClock moves it. For tests of schedules. Either all servers"
        " of a database use it, or none.",
    )
    accept_loss: bool = Field(
        False,
        description="Start even if the database or its log is missing or truncated since the last server"
        " stopped. Its contents are lost.",
    )
    migration_backup: bool = Field(
        True,
        description="Copy the database file next to itself before its schema is upgraded; the last two"
        " copies are kept. If there is no room for a copy, the server does not start and nothing is"
        " changed.",
    )
    insecure: bool = Field(
        False, description="Listen beyond loopback without TLS, and admit every client while no token exists."
    )
    behind_proxy: bool = Field(
        False,
        description="A proxy in front terminates TLS: listen beyond loopback without TLS, and mark session"
        " cookies as secure. It needs trusted_proxies; over HTTP every client needs a token.",
    )

    public_url: str = Field(
        "",
        pattern=r"^(https?://[!-~]+)?$",
        description="URL at which people reach the pages, such as https://jobs.example.com, for links in"
        " messages.",
    )
    smtp: str = Field(
        "",
        pattern=r"^((smtp|smtps|smtp\+starttls)://[!-~]+)?$",
        description="The mail server for messages: smtp://host:25, smtps://user:password@host:465 or"
        " smtp+starttls://...; ${BEDROCKJOBS_NOTIFY_...} in it is replaced by that environment variable.",
    )
    mail_from: str = Field(
        "", pattern=r"^([^\r\n]*[^@\s<>]+@[^@\s<>]+>?)?$", description="The sender address of mail."
    )
    notify_commands: str = Field(
        "",
        description="Folder with programs that rules may name (`to: command:NAME`); none if empty. The"
        " server runs them as its own user, so no other user may write there.",
    )

    connections_max: int = Field(
        20_000, ge=1, description="Open connections; further ones are refused with 503."
    )
    connections_per_address_max: int = Field(
        1_000, ge=1, description="Open connections per address other than loopback; for IPv6, per /64."
    )
    new_connections_per_address_max: int = Field(
        500,
        ge=1,
        description="New connections per second and address other than loopback, or per /64 of IPv6; bursts"
        " of up to connections_per_address_max are accepted. Further ones are closed.",
    )
    pipelined_max: int = Field(
        64, ge=1, description="Requests in progress on one raw connection; reading pauses beyond that."
    )
    pending_max: int = Field(
        100_000, ge=1, description="Commands waiting for the writer; further ones are refused with 503."
    )
    batch_max: int = Field(
        1_000, ge=1, description="Commands in one commit; bounds how long the first of them waits."
    )
    head_bytes_max: int = Field(16_384, ge=1_024, description="Size of the head of one HTTP request.")
    body_bytes_max: int = Field(
        16 * 1024 * 1024,
        ge=1_024,
        description="Size of the body of a request; also of a raw request's head, which carries the data in"
        " its lines.",
    )
    headers_max: int = Field(100, ge=8, description="Header lines of one request.")
    memory_bytes: int = Field(
        256 * 1024 * 1024,
        ge=16 * 1024 * 1024,
        description="Memory that requests and replies of all connections may add to the process. Beyond it,"
        " connections that do not read their replies are closed, and new requests are refused with 503.",
    )
    head_s: float = Field(10.0, gt=0, description="Time to send a complete head once it has begun.")
    first_byte_s: float = Field(75.0, gt=0, description="Time a new connection may stay silent.")
    handshake_s: float = Field(10.0, gt=0, description="Time for a TLS handshake.")
    body_s: float = Field(30.0, gt=0, description="Time to send a complete body.")
    write_s: float = Field(30.0, gt=0, description="Time a client may leave a reply unread.")
    idle_http_s: float = Field(
        75.0, gt=0, description="Time an HTTP connection may stay idle between requests."
    )
    drain_s: float = Field(
        5.0, gt=0, description="Time a stopping server gives its connections; it exits at most 4 s later."
    )

    query_s: float = Field(
        1.0, gt=0, description="Time one Query may run; on SQLite also the CPU time of other reads."
    )
    query_rows_max: int = Field(10_000, ge=1, description="Rows one Query may return.")
    query_bytes_max: int = Field(1024 * 1024, ge=1_024, description="Size of one Query's reply.")
    query_waiting_max: int = Field(
        64, ge=1, description="Queries that may run or wait; further ones are refused."
    )
    patterns_cached_max: int = Field(
        10_000,
        ge=1,
        description="Name patterns whose next jobs the writer caches, counting each pattern of a list; the"
        " least recently used are evicted.",
    )
    patterns_waiting_max: int = Field(
        50,
        ge=1,
        description="Patterns without a distinct fixed part that may be waited for at once, counting each"
        " pattern of a list, such as the ninth of `?*`, `??*` and so on: every new job is compared with"
        " all of them. A GetJob with more is refused with 503, or with 429 if its token alone waits for half"
        " of them. Patterns such as `jobs/*/host-17` are indexed and do not count.",
    )
    groups_remembered_max: int = Field(
        500_000,
        ge=1,
        description="Names, times their priorities, cached for all patterns together, 400 bytes each; a"
        " pattern with more of them scans the queue at each take.",
    )
    wal_bytes: int = Field(
        20 * 1024 * 1024,
        ge=0,
        description="Size that the write-ahead log is preallocated to at start: commits that need not"
        " extend it take half as long.",
    )
    ballast_bytes: int = Field(
        16 * 1024 * 1024,
        ge=0,
        description="Size of a reserve file next to the database. It is removed when the disk is full, so"
        " that runs can still be ended. It should have room for the contents of the write-ahead log.",
    )
    keep_finished: float = Field(
        0.0,
        ge=0,
        le=DURATION_S_MAX,
        description="Time for which a successful job that does not repeat is kept as a run with its data"
        " and result, even if no worker gave its name; 0: as keepSuccess says. A job's own `keep` takes"
        " precedence.",
    )
    keep_keys_s: float = Field(
        86_400, ge=60, le=DURATION_S_MAX, description="Time an idempotency key is kept."
    )
    # Until the end of a quarter can be reviewed
    keep_audit_s: float = Field(
        90 * 86_400,
        ge=60,
        le=DURATION_S_MAX,
        description="Time the audit of operators' and admins' changes is kept.",
    )
    output_bytes: int = Field(
        10 * 1024 * 1024,
        ge=64 * 1024,
        description="Output kept of one run: half of it from the beginning and half from the end; the"
        " middle is dropped and counted.",
    )
    busy_s: float = Field(
        5.0,
        gt=0,
        description="Time the writer waits for another process's lock before commands are refused, also at"
        " start, or for a PostgreSQL that is short of connections or memory.",
    )
    command_s: float = Field(
        10.0,
        gt=0,
        description="Time a command waits while PostgreSQL is unreachable; then it is refused with 503.",
    )
    unit_s_max: float = Field(
        5.0,
        ge=1,
        description="Time after which PostgreSQL ends an idle transaction of a silent server and releases"
        " its locked jobs.",
    )

    def resolved_server_name(self) -> str:
        """Return the server's name with its host and process filled in."""
        return self.server_name.replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))

    @property
    def shown_database(self) -> str:
        """Return the database for display, without its password."""
        if not self.on_postgresql:
            return self.database
        return without_passwords(self.database)

    @property
    def on_postgresql(self) -> bool:
        """Return whether the database is on PostgreSQL instead of in a file."""
        return self.database.startswith(("postgresql://", "postgres://"))

    def check_postgresql(self) -> None:
        """Raise ValueError if a setting for SQLite files was changed from its default."""
        for name, why in OF_A_FILE.items():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: is for a file; {why}")

    def database_path(self) -> Path:
        """Return the database as a file path; raises ValueError for a URL of another kind."""
        text = self.database
        if text.startswith("sqlite:///"):
            text = text.removeprefix("sqlite:///")
        elif "://" in text:
            raise ValueError(
                "database: expected a path, sqlite:///path or postgresql://host/name, got"
                f" {without_passwords(text)!r}"
            )
        if not text:
            raise ValueError("database: the path is empty")
        if self.database_read:
            raise ValueError("database_read: a standby needs PostgreSQL, a file has none")
        if self.durability == "replicated":
            raise ValueError("durability: replicated needs PostgreSQL, a file has no standby")
        if self.isolation == "serial":
            raise ValueError("isolation: serial is for PostgreSQL, a file has one server")
        return Path(text)


# Reloading settings on HUP.
#
# All parts of a server share one ``Settings`` object and read these settings at each use, so a change applies
# everywhere.


RELOADABLE = frozenset(
    {
        *("public_url", "smtp", "mail_from", "notify_commands", "heartbeat_url"),
        *("connections_max", "connections_per_address_max", "new_connections_per_address_max", "pending_max"),
        *("batch_max", "patterns_waiting_max"),
        *("first_byte_s", "handshake_s", "head_s", "body_s", "write_s", "drain_s"),
        *("keep_finished", "keep_keys_s", "keep_audit_s", "output_bytes"),
    }
)
"""Settings that are applied on HUP: notification channels, limits of connections and commands, and retention.

All other settings are fixed at start, such as sockets, the database and buffer sizes."""

CERTIFICATES = frozenset({"tls_cert", "tls_key", "tls_client_ca"})
"""Settings that are also applied on HUP if TLS is on both before and after the reload."""


class Difference(NamedTuple):
    """The names of the settings that a reload of the settings file found changed."""

    taken: list[str]
    waiting: list[str]
    """Settings that need a restart."""

    def __str__(self) -> str:
        parts = [f"changed: {', '.join(self.taken) or 'nothing'}"]
        if self.waiting:
            parts.append(f"different, but only after a restart: {', '.join(self.waiting)}")
        return "; ".join(parts)


def different(settings: Settings, other: Settings, names: Iterable[str]) -> list[str]:
    """Return the names of settings whose values differ between ``settings`` and ``other``."""
    return [name for name in names if getattr(settings, name) != getattr(other, name)]


def apply_reloaded(
    settings: Settings, reloaded: Settings, readable: Container[str] = RELOADABLE
) -> Difference:
    """Copy the settings in ``readable`` from ``reloaded`` to ``settings``; return what differs between both.

    The result has names without values, since some are secrets.
    """
    names = different(settings, reloaded, Settings.model_fields)
    taken = [name for name in names if name in readable]
    # updated in place, since all parts share the object
    vars(settings).update({name: getattr(reloaded, name) for name in taken})
    return Difference(taken, [name for name in names if name not in readable])
