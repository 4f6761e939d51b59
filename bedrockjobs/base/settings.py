"""What an operator may set, each with its unit and its reason.

It is set by an option of ``bedrockjobs serve``, by an environment variable ``BEDROCKJOBS_<NAME>`` or by a
settings file.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from bedrockjobs.base.config import (
    AUDIT_KEPT_S,
    DEFAULT_PORT,
    DURATION_S_MAX,
    KEYS_KEPT_S,
    OUTPUT_BYTES_DEFAULT,
)

Durability = Literal["full", "replicated", "relaxed"]
Isolation = Literal["units", "serial"]
Compatibility = Literal["document", "current"]
LogFormat = Literal["text", "json"]

SCHEMA_NAME = "[a-z_][a-z0-9_]{0,62}"
"""What a schema of a PostgreSQL database may be called here, so that it needs no quotes."""

OF_A_FILE = {
    "wal_bytes": "PostgreSQL keeps a log of its own",
    "ballast_bytes": "room on its disk is PostgreSQL's affair",
    "migration_backup": "PostgreSQL's tables are changed in one transaction",
    "standby": "servers on PostgreSQL work beside each other, and none waits for another to end",
}
"""Settings that mean nothing where the database is no file, and why."""


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
"""What a text among the settings looks like, as a help says it."""


def is_duration(field: str) -> bool:
    """Tell whether a setting is a time in seconds, which may be written as a duration."""
    return field.endswith(("_s", "_s_max")) or field == "keep_finished"


def _hidden(found: re.Match[str]) -> str:
    return "***" if found[1] is None else f"{found[1]}:***@"


def without_passwords(text: str) -> str:
    """Return a text as it may be shown: the passwords of URLs and of connection strings are stars.

    A password ends at the last ``@``, whatever marks are in it: rather too much is hidden than too little.
    """
    return re.sub(r"(?s)(?<=://)([^/?:@]*):.*@|(?<=password=)[^&]*", _hidden, text)


_ROLE = "(read|produce|work|operate|admin)"


class Settings(BaseSettings):
    """What an operator may set. Units are the last word of a name: ``_s`` seconds, ``_bytes`` bytes."""

    model_config = SettingsConfigDict(env_prefix="BEDROCKJOBS_", extra="forbid", frozen=True)

    host: str = Field("127.0.0.1", description="Address to listen on. The default also listens on ::1.")
    port: int = Field(
        DEFAULT_PORT, ge=0, le=65_535, description="Port of both protocols; 0 takes a free one."
    )
    unix: str = Field(
        "", max_length=100, description="Unix socket to listen on as well, with mode 0660; none if empty."
    )
    tls_cert: str = Field(
        "",
        max_length=4_000,
        description="Certificate of the server with what leads to its root (PEM): connections may then begin"
        " with TLS, on the same port, and have to from other machines. Read again on HUP.",
    )
    tls_key: str = Field(
        "",
        max_length=4_000,
        description="Key of that certificate (PEM), without a passphrase, where it is not in the same file.",
    )
    tls_client_ca: str = Field(
        "",
        max_length=4_000,
        description="Certificates (PEM) of who signs those of clients: one that a client shows must be good,"
        " and its name is that of a token.",
    )
    unix_role: str = Field(
        "",
        pattern=f"^({_ROLE}(,{_ROLE})*)?$",
        description="What whoever comes by the unix socket may do without a token, where there are tokens: a"
        " comma list of read, produce, work, operate, admin; nothing if empty.",
    )
    trusted_proxies: str = Field(
        "",
        max_length=4_000,
        pattern=r"^[0-9A-Fa-f.:/, ]*(unix)?$",
        description="Addresses and networks of the proxies in front, a comma list such as 10.0.0.2,fd00::/64;"
        " the unix socket is unix, as the last. What they say of who asks, and from where, is believed.",
    )
    proxy_user_header: str = Field(
        "",
        max_length=100,
        pattern=r"^[A-Za-z0-9-]*$",
        description="Header in which a trusted proxy says who has logged in at it, such as X-Forwarded-User;"
        " from others it means nothing.",
    )
    proxy_role: str = Field(
        "read",
        pattern=f"^{_ROLE}(,{_ROLE})*$",
        description="What whoever is named in that header may do: a comma list of roles.",
    )
    root_path: str = Field(
        "",
        pattern=r"^(/[A-Za-z0-9._~-]+)*$",
        description="Path below which a proxy has the server, such as /queue; links begin with it.",
    )
    public_hosts: str = Field(
        "",
        max_length=4_000,
        pattern=r"^[A-Za-z0-9.:\[\], -]*$",
        description="Names under which browsers reach the server through a proxy, a comma list of hosts.",
    )
    database: str = Field(
        "jobs.db",
        description="SQLite file, as a path or as sqlite:///path; or a PostgreSQL database that any number of"
        " servers may share, as postgresql://host/name.",
    )
    database_schema: str = Field(
        "bedrockjobs",
        pattern=f"^{SCHEMA_NAME}$",
        description="Schema of the tables in a PostgreSQL database, which is made where there is none.",
    )
    database_read: str = Field(
        "",
        pattern=r"^(postgres(ql)?://.*)?$",
        description="URL of a standby of the PostgreSQL database, for what may look at much: lists, searches,"
        " pages, metrics and Query. While it is away or over 5 s behind, the primary is read.",
    )
    database_direct: str = Field(
        "",
        description="URL of the same PostgreSQL database without a pooler between, for reads and what servers"
        " tell each other; a pooler in transaction mode passes none of it on. The database's own if empty.",
    )
    server_name: str = Field(
        "%h-%p",
        pattern=r"^[A-Za-z0-9._%@:-]{1,100}$",
        description="Name of the server among those that share a PostgreSQL database: %h is the host's name,"
        " %p the number of the process.",
    )
    durability: Durability = Field(
        "full",
        description="full: every acknowledged command is on disk. replicated: on that of a synchronous"
        " standby too; PostgreSQL alone. relaxed: a power cut may lose all since the last checkpoint.",
    )
    isolation: Isolation = Field(
        "units",
        description="units: servers of one PostgreSQL database work at the same time, and a take passes over"
        " jobs that another server is at. serial: one after the other, in exact order, where all have it.",
    )
    compatibility: Compatibility = Field(
        "document",
        description="Which Bedrock to follow where they differ: its Jobs document or its current server.",
    )
    log_format: LogFormat = Field(
        "text", description="Log lines for people, or one JSON object an event; never with a job's data."
    )
    heartbeat_url: str = Field(
        "",
        max_length=2_000,
        pattern=r"^(https?://.+)?$",
        description="URL that the server calls (GET) each minute while it takes commands and nothing is held,"
        " so that somebody else's watch tells when it is gone; none if empty. It is not shown.",
    )
    standby: bool = Field(False, description="Wait for the database while another server owns it.")
    test_clock: bool = Field(
        False,
        description="Let the date stand still until AdvanceClock moves it: for tests of schedules. Servers"
        " of one database all have it, or none.",
    )
    accept_loss: bool = Field(
        False,
        description="Start although the database or its log is gone, or was cut to nothing, since the last"
        " server ended. What was in it is lost.",
    )
    migration_backup: bool = Field(
        True,
        description="Copy the database file beside itself before its schema is changed; the last two such"
        " copies are kept. Without room for one the server does not start, and nothing is changed.",
    )
    insecure: bool = Field(
        False,
        description="Listen beyond loopback without TLS, and let everybody in as long as there is no token.",
    )
    behind_proxy: bool = Field(
        False,
        description="A proxy in front ends TLS: listen beyond loopback without it, and tell browsers to keep"
        " their session to TLS. It needs trusted_proxies; over HTTP everybody needs a token.",
    )

    public_url: str = Field(
        "",
        pattern=r"^(https?://[!-~]+)?$",
        description="Where people find the pages, such as https://jobs.example.com: for links in messages.",
    )
    smtp: str = Field(
        "",
        pattern=r"^((smtp|smtps|smtp\+starttls)://[!-~]+)?$",
        description="The mail server that messages go through: smtp://host:25, smtps://user:password@host:465"
        " or smtp+starttls://...; ${BEDROCKJOBS_NOTIFY_...} in it stands for a variable.",
    )
    mail_from: str = Field(
        "", pattern=r"^([^\r\n]*[^@\s<>]+@[^@\s<>]+>?)?$", description="The address that mail comes from."
    )
    notify_commands: str = Field(
        "",
        description="Folder with programs that rules may name (`to: command:NAME`); none if empty. The server"
        " runs them as itself, so nobody else should be able to write there.",
    )

    connections_max: int = Field(20_000, ge=1, description="Open connections; one more is refused with 503.")
    connections_per_address_max: int = Field(
        1_000, ge=1, description="Open connections of one address other than loopback; of IPv6, of one /64."
    )
    connections_per_address_s_max: int = Field(
        500,
        ge=1,
        description="New connections of one address other than loopback, or of one /64 of IPv6, in a second;"
        " connections_per_address_max may come at once. More are closed.",
    )
    pipelined_max: int = Field(
        64, ge=1, description="Requests of one raw connection that may be under way; reading pauses beyond."
    )
    pending_max: int = Field(
        100_000, ge=1, description="Commands waiting for the writer; beyond it a command is refused with 503."
    )
    batch_max: int = Field(
        1_000, ge=1, description="Commands in one commit: bounds how long the first of them waits."
    )
    head_bytes_max: int = Field(16_384, ge=1_024, description="Head of one HTTP request.")
    body_bytes_max: int = Field(
        16 * 1024 * 1024,
        ge=1_024,
        description="Body of a request; also a raw request's head, which carries the data in its lines.",
    )
    headers_max: int = Field(100, ge=8, description="Header lines of one request.")
    memory_bytes: int = Field(
        256 * 1024 * 1024,
        ge=16 * 1024 * 1024,
        description="Memory that requests and answers of all connections may add to the process: beyond it"
        " those who do not read their answers are closed, and what is sent is refused with 503.",
    )
    head_s: float = Field(10.0, gt=0, description="Time to send a whole head once it has begun.")
    first_byte_s: float = Field(75.0, gt=0, description="Time a new connection may stay silent.")
    handshake_s: float = Field(10.0, gt=0, description="Time for a handshake of TLS.")
    body_s: float = Field(30.0, gt=0, description="Time to send a whole body.")
    write_s: float = Field(30.0, gt=0, description="Time a client may leave an answer unread.")
    idle_http_s: float = Field(
        75.0, gt=0, description="Time an HTTP connection may stay idle between requests."
    )
    drain_s: float = Field(
        5.0, gt=0, description="Time a stopping server gives its connections; it has ended 4 s later."
    )

    query_s: float = Field(1.0, gt=0, description="Time one Query may run.")
    query_rows_max: int = Field(10_000, ge=1, description="Rows one Query may return.")
    query_bytes_max: int = Field(1024 * 1024, ge=1_024, description="Size of one Query's answer.")
    query_waiting_max: int = Field(64, ge=1, description="Queries that may run or wait; one more is refused.")
    patterns_cached_max: int = Field(
        10_000,
        ge=1,
        description="Name patterns whose next jobs the writer remembers, each of a list counted; those not"
        " used for the longest time are forgotten.",
    )
    patterns_waiting_max: int = Field(
        50,
        ge=1,
        description="Patterns without a fixed part of their own that may be waited for at once, each of a"
        " list counted, such as the ninth of `?*`, `??*` and so on: every new job is compared with all of"
        " them. A GetJob with more is refused with 503. Patterns such as `jobs/*/host-17` are indexed and"
        " do not count.",
    )
    groups_remembered_max: int = Field(
        500_000,
        ge=1,
        description="Names, times their priorities, remembered for all patterns together, 400 bytes each;"
        " a pattern with more of them looks through the queue at each take.",
    )
    wal_bytes: int = Field(
        20 * 1024 * 1024,
        ge=0,
        description="Size the write-ahead log is grown to at start, so that a commit need not extend it: a"
        " commit then takes half as long.",
    )
    ballast_bytes: int = Field(
        16 * 1024 * 1024,
        ge=0,
        description="Size of a file kept beside the database; on a full disk it is removed, so that runs can"
        " still be ended. It has room for what the write-ahead log holds.",
    )
    keep_finished: float = Field(
        0.0,
        ge=0,
        le=DURATION_S_MAX,
        description="Time that a job which ended well, and does not repeat, is kept as a run, with its data"
        " and result, also where no worker gave its name; 0: only as keepSuccess says. A job's own `keep`"
        " goes before.",
    )
    keep_keys_s: float = Field(
        KEYS_KEPT_S, ge=60, le=DURATION_S_MAX, description="Time an idempotency key is remembered."
    )
    keep_audit_s: float = Field(
        AUDIT_KEPT_S,
        ge=60,
        le=DURATION_S_MAX,
        description="Time it is kept what operators and admins changed.",
    )
    output_bytes: int = Field(
        OUTPUT_BYTES_DEFAULT,
        ge=64 * 1024,
        description="Output kept of one run: half of it from the beginning and half from the end; what is"
        " between is counted.",
    )
    busy_s: float = Field(
        5.0,
        gt=0,
        description="Time the writer waits for another process's lock, also at its start, or for a PostgreSQL"
        " that is short of connections or memory.",
    )
    command_s: float = Field(
        10.0, gt=0, description="Time a command waits for a PostgreSQL that is away; then it gets a 503."
    )
    unit_s_max: float = Field(
        5.0,
        ge=1,
        description="Time PostgreSQL waits for a server that has begun a transaction and is not heard of:"
        " then the jobs that it has locked are free.",
    )

    def resolved_server_name(self) -> str:
        """Return the name of the server in this process on this host."""
        return self.server_name.replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))

    @property
    def shown_database(self) -> str:
        """Return the database as it may be shown: without a password."""
        if not self.on_postgresql:
            return self.database
        return without_passwords(self.database)

    @property
    def on_postgresql(self) -> bool:
        """Tell whether the database is PostgreSQL's, and not a file."""
        return self.database.startswith(("postgresql://", "postgres://"))

    def check_postgresql(self) -> None:
        """Raise ValueError for a setting that is for a file, where the database is PostgreSQL's."""
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


# Which settings may change while a server runs, and how it takes them: those that are looked at each time.
#
# All parts of a server share one ``Settings``, so what is taken here counts for all of them. It reads no
# file.


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
