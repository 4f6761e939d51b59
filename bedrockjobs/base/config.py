"""Every default and every limit of the server, each with its unit and its reason.

The constants are parts of the protocol, the same on every server. ``Settings`` is what an operator may
change, by an option of ``bedrockjobs serve`` or by an environment variable ``BEDROCKJOBS_<NAME>``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

DEFAULT_PORT = 8888
"""The port that Bedrock's documents and clients use."""

PRIORITIES = (1000, 850, 750, 500, 250, 0)
"""The priority classes, highest first. A take seeks each in turn, so their number is fixed."""

PRIORITY_DEFAULT = 500
"""What a job gets that names no priority."""

NAME_CHARS_MAX = 255
"""Length of a job's name, as in Bedrock."""

DECODED_ROWS_MAX = 512
"""Texts of options, and of memory, kept as read: those of the jobs at work; at most 64 KiB each."""

PATTERNS_COMPILED_MAX = 1_024
"""Name patterns kept ready to match: more than workers ask for, pauses hold or a rules file has."""

PATTERN_CHARS_MAX = 8_192
"""Length of a name pattern or of a whole comma list of names in GetJob."""

PATTERNS_MAX = 100
"""Patterns or names one GetJob may list: each is matched against every name that becomes ready."""

REPEAT_CHARS_MAX = 1_000
"""Length of a repeat expression."""

REPEAT_MODIFIERS_MAX = 20
"""Modifiers of one repeat expression; each is a function call for SQLite."""

DATA_BYTES_MAX = 4 * 1024 * 1024
"""Size of one job's data as UTF-8. Clients of the original store 2 MB; larger things belong in a file."""

JSON_DEPTH_MAX = 64
"""Levels of objects and arrays in data. A parser's stack is the reason: 100,000 levels end the original."""

JOBS_PER_CREATE_MAX = 1_000
"""Jobs in one CreateJobs or FinishJobs, or ids in one RequeueJobs: all of them share one transaction."""

JOBS_PER_GET_MAX = 1_000
"""Jobs that one GetJobs may take."""

DELAY_S_MAX = 99_999_999
"""Seconds of a RetryJob's delay: eight digits, as in Bedrock's grammar."""

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Data that one GetJobs or ListJobs hands out: it answers with fewer jobs rather than with more bytes."""

LOST_RUNS_MAX = 10
"""Deliveries of a retryAfter job that may be lost before it is FAILED."""

WAIT_MS_MAX = 600_000
"""How long a waiting GetJob may wait. A client that wants longer asks again."""

WAIT_MS_DEFAULT = 60_000
"""How long a waiting GetJob waits that names no timeout."""

ERROR_CHARS_MAX = 10_000
"""Length of the error text that FailJob keeps with a job; the rest is cut."""

WORKER_CHARS_MAX = 255
"""Length of a worker's name."""

QUERY_CHARS_MAX = 100_000
"""Length of one SQL text."""

CRASH_PATTERNS_MAX = 1_000
"""Patterns that CrashBedrockJob may hold at once; each is matched against every job that is taken."""

CRASHED_PER_TAKE_MAX = 1_000
"""Jobs that one take may fail on its way, so that a long crash list never holds up a commit."""

RECENT_ROWS_MAX = 4_096
"""Rows that the writer keeps in memory after it wrote them."""

RECENT_DATA_CHARS_MAX = 4_096
"""Length of the data of such a row, which bounds their memory to 16 MiB of plain text."""

HEADS_REMEMBERED_MAX = 1_024
"""Raw GetJobs and GetJobs of which it is remembered what they mean: workers ask in the same words again."""

HEAD_REMEMBERED_BYTES_MAX = 1_024
"""Size of such a request, which bounds their memory to a few MiB."""

DURATION_S_MAX = 10 * 365 * 86_400
"""Seconds of any duration in a job's options: ten years."""

RETRIES_MAX = 1_000
"""Retries a job may ask for."""

ARGV_MAX = 1_000
"""Words of a command that a job brings along."""

TAGS_MAX = 20
"""Tags of one job."""

TAG_CHARS_MAX = 100
"""Length of one tag."""

JOB_ID_MAX = 2**63 - 1
"""The largest jobID: that of SQLite."""

WHOLE_MAX = 10**18 - 1
"""The largest whole number that is taken: all of its digits fit into 64 bits."""

NOTE_CHARS_MAX = 1_000
"""Length of a job's note: a paragraph, for it comes with each answer about the job."""

HISTORY_MAX = 10_000
"""Runs of one kind that a job may ask to be kept."""

HISTORY_DEFAULT = 100
"""Successful runs, and other runs, kept for each name."""

OUTPUT_TAIL_MAX = 1_000
"""Last lines of output that a job may ask to be kept with a run."""

OUTPUT_TAIL_DEFAULT = 10
"""Last lines of output kept with a run, as Cronken's `max_finalized_output_lines`."""

OUTPUT_LINES_PER_APPEND_MAX = 1_000
"""Lines of one AppendOutput."""

OUTPUT_LINE_CHARS_MAX = 4_096
"""Length of one line of output; the rest is cut."""

OUTPUT_LINES_PER_RUN_MAX = 100_000
"""Lines kept of one run; further ones are counted and dropped, and AppendOutput says so."""

OUTPUT_KEPT_S = 86_400
"""Time output is kept after its run ended."""

KEYS_KEPT_S = 86_400
"""Time an idempotency key is remembered."""

KEY_CHARS_MAX = 255
"""Length of an idempotency key."""

IF_MATCH_CHARS_MAX = 1_000
"""Length of the entity tags in UpdateJob's ifMatch."""

EVENTS_KEPT_MAX = 100_000
"""Events kept; the oldest go first."""

RUNS_KEPT_MAX = 1_000_000
"""Runs kept in all, about 300 bytes each: a server whose every job has a name of its own must not fill up."""

STATS_KEPT_S = 8 * 86_400
"""Time the counts of a minute are kept, for charts of a week."""

TICK_ROWS_MAX = 1_000
"""Rows of the tick ledger kept for each schedule."""

CATCHUP_MAX = 1_000
"""Missed ticks that `catchup: all` makes up for; older ones are skipped."""

LEASE_S_DEFAULT = 45
"""Seconds a worker may be silent, as Cronken's `ttl`."""

HEARTBEAT_S = 10
"""Seconds between two heartbeats of bedrock-worker."""

GRACE_S_DEFAULT = 60
"""Seconds between TERM and KILL of a run over its time, as FTL's 1 min."""

TAKE_BACK_S = 10
"""Seconds after KILL until the server takes a run's job back, whatever its worker says."""

BACKOFF_S_DEFAULT = 10
"""Seconds before the first retry."""

BACKOFF_S_MAX_DEFAULT = 3_600
"""The longest seconds before a retry."""

RUNS_PER_HEARTBEAT_MAX = 1_000
"""Runs one Heartbeat may name."""

PAUSES_MAX = 1_000
"""Patterns that may be paused at once: each is matched against names that are taken."""

REASON_CHARS_MAX = 1_000
"""Length of the reason a person gives for a pause."""

LIST_MAX = 1_000
"""Rows of one page of a list."""

SCHEDULES_PER_SYNC_MAX = 10_000
"""Schedules of one source."""

MOMENTS_PER_ADVANCE_MAX = 100_000
"""Moments that one AdvanceClock stops at; then it goes to its end at once."""

Durability = Literal["full", "claims-lazy", "relaxed"]
Compatibility = Literal["document", "current"]
LogFormat = Literal["text", "json"]


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
    database: str = Field("jobs.db", description="SQLite file, as a path or as sqlite:///path.")
    durability: Durability = Field(
        "full",
        description="full: every acknowledged command is on disk. claims-lazy: a power cut may forget a take"
        " that would be repeated anyway. relaxed: it may lose all since the last checkpoint.",
    )
    compatibility: Compatibility = Field(
        "document",
        description="Which Bedrock to follow where they differ: its Jobs document or its current server.",
    )
    log_format: LogFormat = Field(
        "text", description="Log lines for people, or one JSON object an event; never with a job's data."
    )
    standby: bool = Field(False, description="Wait for the database while another server owns it.")
    test_clock: bool = Field(
        False, description="Let the date stand still until AdvanceClock moves it: for tests of schedules."
    )
    insecure: bool = Field(
        False, description="Allow an address beyond loopback although nobody has to log in."
    )

    connections_max: int = Field(20_000, ge=1, description="Open connections; one more is refused with 503.")
    connections_per_address_max: int = Field(
        1_000, ge=1, description="Open connections of one address other than loopback."
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
    head_s: float = Field(10.0, gt=0, description="Time to send a whole head once it has begun.")
    first_byte_s: float = Field(75.0, gt=0, description="Time a new connection may stay silent.")
    body_s: float = Field(30.0, gt=0, description="Time to send a whole body.")
    write_s: float = Field(30.0, gt=0, description="Time a client may leave an answer unread.")
    idle_http_s: float = Field(
        75.0, gt=0, description="Time an HTTP connection may stay idle between requests."
    )
    drain_s: float = Field(10.0, gt=0, description="Time a stopping server gives its connections.")

    query_s: float = Field(1.0, gt=0, description="Time one Query may run.")
    query_rows_max: int = Field(10_000, ge=1, description="Rows one Query may return.")
    query_bytes_max: int = Field(1024 * 1024, ge=1_024, description="Size of one Query's answer.")
    query_waiting_max: int = Field(64, ge=1, description="Queries that may run or wait; one more is refused.")
    patterns_cached_max: int = Field(
        256, ge=1, description="Name patterns whose next jobs the writer remembers; the oldest is forgotten."
    )
    groups_remembered_max: int = Field(
        500_000,
        ge=1,
        description="Names, times their priorities, remembered for all patterns together, 400 bytes each;"
        " a pattern with more of them looks through the queue at each take.",
    )
    wal_bytes: int = Field(
        8 * 1024 * 1024,
        ge=0,
        description="Size the write-ahead log is grown to at start, so that a commit need not extend it: a"
        " commit then takes half as long.",
    )
    ballast_bytes: int = Field(
        4 * 1024 * 1024,
        ge=0,
        description="Size of a file kept beside the database; on a full disk it is removed, so that runs can"
        " still be ended.",
    )
    busy_s: float = Field(5.0, gt=0, description="Time the writer waits for another process's lock.")

    def database_path(self) -> Path:
        """Return the database as a file path; raises ValueError for a URL of another kind."""
        text = self.database
        if text.startswith("sqlite:///"):
            text = text.removeprefix("sqlite:///")
        elif "://" in text:
            raise ValueError(f"database: expected a path or sqlite:///path, got {text!r}")
        if not text:
            raise ValueError("database: the path is empty")
        return Path(text)
