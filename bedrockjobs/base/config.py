"""Defaults and limits that are the same on every server, each with its unit and its reason.

Settings that an operator may change are in ``settings``.
"""

from __future__ import annotations

DEFAULT_PORT = 8888
"""The port that Bedrock's documents and clients use."""

PRIORITIES = (1000, 850, 750, 500, 250, 0)
"""The priority levels, highest first. A take queries each in turn, so their number is fixed."""

PRIORITY_DEFAULT = 500
"""Priority of a job created without one."""

NAME_CHARS_MAX = 255
"""Length of a job's name, as in Bedrock."""

DECODED_ROWS_MAX = 512
"""Parsed options and memory of jobs in the cache: enough for the jobs in progress, at most 64 KiB each."""

PATTERNS_COMPILED_MAX = 1_024
"""Compiled name patterns in the cache: more than workers ask for, pauses hold or a rules file has."""

PATTERN_CHARS_MAX = 8_192
"""Length of a comma list of names in GetJob."""

PATTERNS_MAX = 100
"""Patterns or names in one GetJob: each is matched against every name that becomes ready."""

GLOB_CHARS_MAX = 255
"""Length of one name pattern, as of a name: compiling one with ``?`` or ``[`` takes 5 us a character."""

GLOB_STARS_MAX = 20
"""Stars in one name pattern: each is another search in every name."""

GRAM_CHARS = 4
"""Length of the substrings that index patterns if many have the same beginning and end. Four characters are
enough: they select a handful of 5,000 patterns that differ only in the number of a host."""

PATTERNS_PER_KEY_MAX = 8
"""Patterns under one key of an index: a name that has the key is compared with all of them."""

LENGTHS_INDEXED_MAX = 32
"""Lengths of fixed prefixes in one pattern index, and of fixed suffixes after one prefix: a name is looked up
once for each pair, so at most 1,024 times, in 0.1 ms."""

NAMES_AT_ONCE = 8
"""Names and patterns up to which a GetJobs keeps its place among other commands. Indexing more of them takes
longer than any other command, so such a GetJobs runs after the commands that arrived with it."""

NAMES_PER_COMMIT_MAX = 500
"""Names and patterns of such GetJobs in one transaction: 20 ms, during which all other commands wait."""

NAMES_PER_SHARED_COMMIT_MAX = PATTERNS_MAX
"""The same if servers share a database: PostgreSQL reads all names before it searches for their jobs."""

NAMES_QUEUED_MAX = 100_000
"""Names and patterns of such GetJobs that wait for the writer: those of 5,000 workers that restart with 20
each. Beyond it GetJobs is refused with 503, since the texts would take more than 60 MB."""

NAMES_KEPT_MAX = 512
"""Parsed name lists of GetJobs in the cache: up to 26 kB each, in two caches."""

REPEAT_CHARS_MAX = 1_000
"""Length of a repeat expression."""

REPEAT_MODIFIERS_MAX = 20
"""Modifiers of one repeat expression; each is a function call for SQLite."""

DATA_BYTES_MAX = 4 * 1024 * 1024
"""Size of one job's data as UTF-8. Clients of Bedrock store 2 MB; larger things belong in a file."""

JSON_DEPTH_MAX = 64
"""Nesting of objects and arrays in data, since parsers recurse: 100,000 levels crash Bedrock."""

MERGE_BYTES_MAX = 32 * 1024 * 1024
"""Size of the objects that one command merges into the data of jobs, counted again at each level of nesting:
up to 3 ns a byte. The limit allows four levels of the largest data."""

JSON_CONTAINERS_MAX = 500_000
"""Maximum number of objects and arrays in data: checking the nesting of this many takes 30 ms."""

JSON_HUGE_NUMBERS_MAX = 10_000
"""Numbers in data with an exponent of three digits or more: each is checked against the range of a double."""

JSON_VALUES_MAX = 100_000
"""Values of a list or object that is parsed instead of stored as text; lists have smaller limits of their
own."""

FORM_FIELDS_MAX = 100
"""Fields of a form: no command has as many parameters."""

CHUNKS_MAX = 65_536
"""Chunks of a raw request's body: each costs the same, however small it is."""

ESCAPES_MAX = 4_000_000
"""Backslashes in one line of a raw request: more than a batch of 16 MB from PHP has, 40 ns each."""

OTHER_ESCAPES_MAX = 1_000_000
"""Backslashes in a line before any character but a quote or a backslash: no client sends them. 80 ns each."""

JOBS_PER_CREATE_MAX = 1_000
"""Jobs in one CreateJobs or FinishJobs, or ids in one RequeueJobs: all of them share one transaction."""

JOBS_PER_GET_MAX = 1_000
"""Jobs that one GetJobs may take."""

DATA_CHARS_PER_COMMAND_MAX = 64 * 1024 * 1024
"""Characters of job data that one FinishJobs, RequeueJobs or CreateJobs reads: 50 ms from memory. Jobs beyond
are refused with 503; CreateJobs refuses all its jobs."""

DELAY_S_MAX = 99_999_999
"""Seconds of a RetryJob's delay: eight digits, as in Bedrock's grammar."""

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Job data in one reply of GetJobs or ListJobs; beyond it, the reply has fewer jobs."""

LOST_RUNS_MAX = 10
"""Deliveries of a retryAfter job that may be lost before it is FAILED."""

WAIT_MS_MAX = 600_000
"""How long a GetJob may wait. A client that wants to wait longer sends it again."""

WAIT_MS_DEFAULT = 60_000
"""How long a waiting GetJob without a timeout waits."""

ERROR_CHARS_MAX = 10_000
"""Length of the error text stored by FailJob; the rest is cut."""

WORKER_CHARS_MAX = 255
"""Length of a worker's name."""

WORKERS_MAX = 10_000
"""Workers in the registry. Beyond it, workers that are gone and never got a job are evicted first."""

WORKERS_BYTES_MAX = 48 * 1024 * 1024
"""Memory for all workers in the registry, with the patterns they ask for: 5 kB for each of 10,000."""

WORKER_BYTES = 1_500
"""Memory of a worker without its texts, as the budget counts it."""

PATTERN_BYTES = 400
"""Memory of a worker's pattern in addition to its text, as the budget counts it."""

ASKED_PER_WORKER_MAX = 16
"""Different lists of names remembered for one worker; the oldest is dropped."""

WORKER_EVENTS_A_MINUTE = 120
"""Events of one kind about single workers in a minute; further ones are counted in one event."""

HOSTS_PER_CALLER_MAX = 1_000
"""Workers of one token that get a job for one tick of a schedule on all hosts: a token may invent names."""

QUERY_CHARS_MAX = 100_000
"""Length of one SQL text."""

QUERY_PROCESSES = 2
"""Query processes: with two, a slow one or one being replaced does not block the next Query."""

QUERY_OVERTIME_S = 0.25
"""Seconds beyond query_s after which the process of a Query is ended, since a single SQL function may not be
interruptible.

The process ends itself; if it does not, the server kills it after the same time again. So every Query has
ended 1.5 s after its start if query_s is 1."""

QUERY_MEMORY_BYTES_MAX = 256 * 1024 * 1024
"""Address space of a Query process in addition to its replies: a few of the longest values."""

LOOP_STALL_S = 0.1
"""Seconds for which nothing may block the event loop; longer blocks are logged and counted in
``/metrics``."""

READS_DRAINED_S = 2.0
"""Seconds that a stopping server gives reads in progress: more than they take if query_s is 1."""

STOP_MORE_S = 4.0
"""Seconds beyond drain_s after which a stopping server exits in any case: 9 s after SIGTERM by default."""

CRASH_PATTERNS_MAX = 1_000
"""Patterns in CrashBedrockJob's list; each is matched against every job that is taken."""

CRASHED_PER_TAKE_MAX = 1_000
"""Jobs that one take may fail on its way, so that a long crash list never delays a commit."""

RECENT_ROWS_MAX = 4_096
"""Rows in the writer's cache of recently written rows."""

RECENT_DATA_CHARS_MAX = 4_096
"""Length of the data of such a row, which bounds the cache to 16 MiB of plain text."""

SET_ROWS = 32
"""Rows written by one statement; more of them cost no less each."""

ROWS_AHEAD = 16
"""Jobs whose rows are read together if the next one to be taken is not cached."""

HEADS_READ_MAX = 64
"""Maximum number of next jobs of a name that one statement finds: the first statement finds one job, and each
further one twice as many."""

HEADS_KEPT_MAX = 2 * HEADS_READ_MAX
"""Next jobs cached for a name, at some 170 bytes each."""

NAMES_CACHED_MAX = 1_000
"""Names whose next jobs are cached, in at most 23 MB. Jobs of other names cost one seek for each take."""

LOCKS_CACHED_MAX = 10_000
"""Locks whose last use is cached; a few hundred bytes each."""

REQUESTS_CACHED_MAX = 1_024
"""Parsed raw requests in the cache, and as many again that match except for their last value."""

REQUEST_CACHED_BYTES_MAX = 1_024
"""Size of such a request, which bounds the cache to a few MiB."""

TYPOS_COMPARED_MAX = 5
"""Unknown headers of a raw request that are compared with parameter names, at up to 20 us each."""

CONNECTION_BYTES_FREE = 16 * 1024
"""Memory of a connection that is not counted in the memory budget: a request head, or a small reply."""

MEMORY_RESERVE_BYTES = 88 * 1024 * 1024
"""Part of the memory budget for what cannot be counted individually: copies while requests are parsed and
replies are built, and the allocator's reserve. A small budget has less of it, or none."""

MEMORY_COUNTED_LEAST_BYTES = 64 * 1024 * 1024
"""Minimum budget for what is counted: a total budget below this and the reserve has a smaller reserve."""

READS_PIPELINED_MAX = 4
"""Reads of single jobs in progress on one raw connection: each reply may have 4 MB and stay unread."""

TOKEN_SHARE = 2
"""A token may use 1/2 of a limit that all tokens share, so that a greedy one leaves as much to the others."""

ADDRESSES_TRACKED_MAX = 10_000
"""Addresses whose rate of new connections is tracked; beyond it, the oldest are dropped."""

TRIM_BYTES = 16 * 1024 * 1024
"""Use of the memory budget after which freed memory is returned to the system."""

STREAM_BYTES_MAX = 64 * 1024
"""Text of the rows that a stream writes at once, held twice while its client does not read: a thousand such
clients take half of the default memory budget."""

BATCH_ANSWER_BYTES_MAX = 1024 * 1024
"""Replies of one commit in memory: the rest of a thousand reads of large jobs is sent afterwards. Each
megabyte of replies occupies the event loop for up to ten milliseconds, most of them for new memory."""

LOOKUPS_PAUSE_S = 1.0
"""Time for which the writer reads single jobs after their own connection failed: an outage costs one attempt
a second."""

LARGE_BYTES = 1024 * 1024
"""Size from which the allocator maps memory separately and returns it as soon as it is freed: large requests
and replies would otherwise leave holes that small objects cannot fill."""

PAGE_BYTES = 4_096
"""SQLite's default page size."""

CHECKPOINT_PAGES_MIN = 1_000
"""Minimum number of pages in the write-ahead log before a commit checkpoints it; usually it does when four
fifths of ``wal_bytes`` are full. A commit that checkpoints takes ten times as long, so it should be rare."""

READS_NICE = 10
"""Nice value of reads of the database in the background: commands then wait half as long."""

TURN_S = 0.001
"""Python's thread switch interval, in seconds: its default of 5 ms is as long as several commits."""

QUICK_COMMIT_S = 0.002
"""Duration of a commit that may run in the event loop: about as long as a few requests."""

QUICK_COMMITS = 10
"""Commits over whose durations the average is taken; if it is short, the event loop runs commits itself. An
occasional checkpoint does not affect the average for long, a slow disk does at once."""

SLEEP_S_MAX = 1.0
"""The dispatcher's longest sleep, after which it notices external changes of the file or the system clock."""

DURATION_S_MAX = 10 * 365 * 86_400
"""Seconds of any duration in a job's options: ten years."""

RETRIES_MAX = 1_000
"""Retries a job may ask for."""

ARGV_MAX = 1_000
"""Words of a job's own command."""

TAGS_MAX = 20
"""Tags of one job."""

TAG_CHARS_MAX = 100
"""Length of one tag."""

ID_BLOCK = 100
"""jobIDs, and runIDs, reserved at a time: storing each one separately would take 6 us of a small commit. A
server that is killed skips at most this many."""

JOB_ID_MAX = 2**63 - 1
"""The largest jobID, as in SQLite."""

WHOLE_MAX = 10**18 - 1
"""The largest whole number that is accepted: all of its digits fit into 64 bits."""

NOTE_CHARS_MAX = 1_000
"""Length of a job's note: a paragraph, since it is part of each reply about the job."""

HISTORY_MAX = 10_000
"""Maximum number of runs of one kind in a job's history."""

HISTORY_DEFAULT = 100
"""Successful runs, and other runs, kept for each name."""

NAMES_RUNS_MAX = 25_000
"""Newest runs of a name that are searched for those beyond its history: a little over twice HISTORY_MAX."""

OUTPUT_TAIL_MAX = 1_000
"""Maximum number of last output lines kept with a run."""

OUTPUT_TAIL_DEFAULT = 10
"""Last lines of output kept with a run, as Cronken's `max_finalized_output_lines`."""

OUTPUT_LINES_PER_APPEND_MAX = 1_000
"""Lines of one AppendOutput."""

OUTPUT_LINE_CHARS_MAX = 4_096
"""Length of one line of output; the rest is cut."""

OUTPUT_BYTES_DEFAULT = 10 * 1024 * 1024
"""Output kept of one run, half from its beginning and half from its end; few people read more."""

OUTPUT_KEPT_S = 86_400
"""Time output is kept after its run ended."""

KEYS_KEPT_S = 86_400
"""Time an idempotency key is kept."""

KEY_CHARS_MAX = 255
"""Length of an idempotency key or a unique key."""

UNIQUE_KEY_AGE_S_MIN = 60
"""Age at which a unique key that is no longer held is deleted: longer than any transaction takes."""

IF_MATCH_CHARS_MAX = 1_000
"""Length of the entity tags in UpdateJob's ifMatch."""

EVENTS_KEPT_MAX = 100_000
"""Events kept; the oldest are deleted first."""

RUNS_KEPT_MAX = 1_000_000
"""Runs kept in total, about 300 bytes each: a server whose jobs all have different names must not fill up."""

STATS_NAMES_MAX = 1_000
"""Names with counters of their own in one hour: 270 MB if all of them are always busy."""

STATS_AT_ONCE = 100
"""Rows of counters written with one transaction: a millisecond."""

STATS_PENDING_MAX = 20_000
"""Rows of counters that wait to be written, about 10 MB: ten minutes with as many names as possible."""

MINUTES_KEPT_S = 86_400
"""Time the counters of minutes are kept."""

HOURS_KEPT_S = 90 * 86_400
"""Time the counters of hours are kept."""

TICK_ROWS_MAX = 1_000
"""Rows of the tick history kept for each schedule."""

CATCHUP_MAX = 1_000
"""Missed ticks that `catchup: all` runs; older ones are skipped."""

FORMER_REPEATS_MAX = 10
"""Earlier repeats that a schedule keeps while a tick of theirs is due; each has up to 1,000 characters."""

LEASE_S_DEFAULT = 45
"""Seconds a worker may be silent, as Cronken's `ttl`."""

HEARTBEAT_S = 10
"""Seconds between two heartbeats of bedrock-worker."""

GRACE_S_DEFAULT = 60
"""Seconds between TERM and KILL when a run is stopped, as FTL's 1 min."""

TAKE_BACK_S = 10
"""Seconds after KILL until the server ends the run, whatever its worker reports."""

BACKOFF_S_DEFAULT = 10
"""Seconds before the first retry."""

BACKOFF_S_MAX_DEFAULT = 3_600
"""Maximum seconds before a retry."""

RUNS_PER_HEARTBEAT_MAX = 1_000
"""Runs that one Heartbeat may list."""

PAUSES_MAX = 1_000
"""Patterns that may be paused at once: each is matched against names that are taken."""

REASON_CHARS_MAX = 1_000
"""Length of the reason for a pause."""

LIST_MAX = 1_000
"""Rows of one page of a list."""

SCHEDULES_PER_SYNC_MAX = 10_000
"""Schedules of one source: reading this many takes 0.2 s, everything else is done in slices."""

SCHEDULE_GRACE_S = 600
"""Seconds after which a schedule that live workers no longer declare is removed: by then a restarted worker
or a rebooted host is back, and people who follow events have had time to act."""

REDECLARE_S = 60
"""Seconds after which a worker declares its schedules again, so that a missing one is restored."""

REDECLARE_S_MAX = 600
"""Maximum of that interval, which grows by a second with each live worker, so that many workers together send
about one declaration a second."""

DECLARERS_SETTLE_S = 60
"""Seconds after its start during which a server counts all known workers as alive: longer than their lease,
so that each has sent a heartbeat by then."""

DECLARERS_KEPT_MAX = 20
"""Live workers recorded for each version of a module: one is enough, the others are spares."""

VERSIONS_KEPT_MAX = 20
"""Versions of a module that are recorded after their last worker has ended: more than any rollback needs."""

WORKFLOW_JOBS_MAX = 10_000
"""Jobs in a workflow: a page can still draw their layers, and RetryWorkflow reads all of them."""

WORKFLOW_EDGES_MAX = 100_000
"""Edges of a workflow: read within 100 ms, and ten for each job."""

REF_CHARS_MAX = 100
"""Length of a job's name within its workflow: results are listed by it, and pages print it into boxes."""

WORKFLOW_KEPT_S = 24 * 3_600
"""Default seconds for which a workflow is kept after its end: a nightly one until the next."""

BEFORE_BYTES_MAX = 16 * 1024 * 1024
"""Results that a job gets from those before it: four of the largest. More belongs in a file."""

RESULT_KEPT_S = 3_600
"""Default seconds for which the result of a function's job is kept: few callers wait longer."""

UNFIT_MAX = 20
"""Times that workers may return a job because their code is too old or too new, before it fails: about a
quarter of an hour with the delays between them, longer than a rolling restart."""

UNFIT_DELAY_S_MAX = 60
"""Maximum delay after such a return; the first is one second, and each doubles."""

JOBS_COUNTED_MAX = 10_000
"""Jobs of one state that the page of jobs counts, in some 5 ms; beyond it the page shows `10,000+`."""

FINGERPRINT_CHARS_MAX = 64
"""Length of a fingerprint in a filter of failures; fingerprints of this version have 16 characters."""

SEEN_MAX = 10_000
"""Failed jobs, and failed runs, that are marked as seen; beyond it the oldest count as unseen again."""

MUTES_MAX = 100
"""Mutes of failures; each failure is compared with all, in 5 µs, and in 1 ms if they are read again."""

MUTED_RELEASES_MAX = 20
"""Versions of live workers that a mute remembers, 100 characters each: with all mutes, 220 kB."""

SEEN_AT_ONCE_MAX = 200
"""Failures that one MarkSeen may list: a group of a page."""

RUNS_DELETED_AT_ONCE_MAX = 200
"""Runs that one DeleteRuns may list or search, so that its transaction stays short."""

RUN_BYTES_DELETED_AT_ONCE = 4_000_000
"""Data and output searched by one DeleteRuns before it leaves the rest to the next one: some 20 ms."""

DELETED_TEXT_CHARS_MAX = 1_000
"""Length of the text by which DeleteRuns finds runs; one line of a longer secret is enough."""

PAGE_TURN_S = 0.00025
"""Seconds of rendering a page before the event loop gets a turn: half of a small commit."""

TEMPLATES_S_MAX = 30.0
"""Seconds that the process that compiles page templates may take: thirty times the usual. If it takes longer,
the server compiles each template at first use."""

SEARCHED_AT_ONCE = 1_000
"""Most rows that scans of names read before other transactions get a turn: 2 to 3 ms on a machine with
nothing else to do."""

SEARCHED_S = 0.002
"""Time after which scans let others have a turn anyway, on a machine that is slower or busy."""

SEARCHED_BETWEEN = 100
"""Rows that a scan reads between two looks at the clock."""

SEARCHED_UNIT_MAX = 500
"""Steps that all takes of one transaction may make beyond the usual few, 1 to 10 us each."""

STEPS_FREE = 50
"""Usual steps of one take, for stale entries and recently paused names."""

SEARCH_BURST = 5_000_000
"""Rows that scans for one token may read before they are throttled: those of five new patterns among a
million names."""

SEARCHED_PER_S_MAX = 100_000
"""Rows a second that throttled scans may read: a fifth of the event loop's time."""

SEARCH_S_MAX = 60.0
"""Time for which a GetJob that does not wait may scan very many names for its pattern: twenty times the time
for a million names."""

SLICE = 200
"""Rows or schedules that a long command processes before others get a turn: some 10 ms."""

SCHEDULE_FILE_CHARS_MAX = 2 * 1024 * 1024
"""Length of a file with schedules, ours or another system's: 10,000 of them, with 200 characters each."""

IMPORT_TOKENS_MAX = 500_000
"""Tokens in a file of another system: parsing this many takes half a second."""

YAML_NODES_MAX = 50_000
"""Values in a YAML file, since parsing one takes some 40 us: 7,000 schedules. TOML and JSON are faster."""

YAML_VALUES_PER_CHAR_MAX = 4
"""Values in a YAML file per character, with aliases expanded: one line could expand to millions."""

TOML_KEY_PARTS_MAX = 64
"""Parts of a dotted key in TOML, as deep as JSON may nest: parsing a key takes quadratic time."""

CRONTAB_VARIABLES_CHARS_MAX = 8_192
"""Length of a crontab's expanded variables, which are copied into the command of every line below them."""

CRONKEN_EVENT_CHARS_MAX = 512 * 1024
"""Length of one Cronken event: a definition with the longest possible command, escaped."""

MOMENTS_PER_ADVANCE_MAX = 100_000
"""Times at which one AdvanceClock stops on its way; beyond it, it jumps to its end."""

PG_CONNECT_S_MAX = 5
"""Time to connect to each host of PostgreSQL, and for sent data to be acknowledged; slower hosts count as
down."""

PG_ANSWER_S_MAX = 10
"""Time for PostgreSQL to answer a statement of a transaction, lock waits included: transactions take
milliseconds. After it the connection counts as broken; PostgreSQL then ends the statement by itself."""

DATABASE_RETRY_S = 0.05
"""First delay between attempts to use a database that is unreachable, locked or full: a standby is promoted
in some 300 ms."""

DATABASE_RETRY_S_MAX = 2.0
"""Maximum delay between attempts: each takes milliseconds of CPU, and they may continue for days."""

OUTCOME_S_MAX = 600
"""Time in which a server resolves a commit whose reply was lost: a manual failover takes minutes."""

TIMELINE_STEP = 1_000_000
"""Ids skipped after a standby was promoted: more than a primary assigns without replicating them."""

SESSION_KEPT_S = 86_400
"""Time for which the last transaction of a server is recorded: longer than the server may ask for its
outcome."""

LOCK_WAIT_S_MAX = 2
"""Time for which a transaction on PostgreSQL waits for locked rows: transactions take milliseconds."""

SCANNED_MAX = 100
"""Jobs of a priority level that a take by patterns scans on PostgreSQL before it queries by name: a quarter
of a millisecond."""

SCANNED_EACH = 10
"""The same for each requested job, if that is more."""

TAKEN_AT_ONCE = 8
"""Jobs that a take on PostgreSQL locks in addition to its access set: each query costs a round trip."""

SERVER_GONE_S = 10
"""Time after which a silent server counts as gone for its peers."""

WATCH_EVERY_S = 0.5
"""Interval at which a server checks for due maintenance that other servers may have written."""

WATCHED_EVERY_S = 2.0
"""Interval at which the servers record that one of them performs maintenance."""

AWAY_S = 5.0
"""Time without such a record after which all servers count as having been down: leases restart, and ticks
count as missed."""


# Bounds of limits by name pattern and of retention, each with its reason.


LIMITS_MAX = 100
"""Patterns with a limit: the name of each created job is matched against all of them."""

QUEUED_LIMIT_MAX = 100_000
"""Maximum limit of queued jobs: they are counted within a transaction, 40 ms for this many."""

RUNNING_LIMIT_MAX = 10_000
"""Maximum limit of concurrent runs: all runs in progress are counted with each take of its names."""

STARTS_MAX = 1_000_000
"""Maximum number of starts in the period of a rate: more than a server hands out in a minute."""

STARTS_S_MAX = 31 * 86_400
"""Maximum period of a rate in seconds, for quotas by the month."""

STARTS_PER_S_MAX = 10_000
"""Maximum rate of starts: faster ones cannot be told from no limit."""

STARTS_TOGETHER_S = 0.05
"""Starts due within this time may come together: each pause of a pattern takes a few transactions."""

PER_SECOND_MAX = 100_000
"""Maximum limit of jobs created per second: more than a server can create."""

KEPT_BYTES_MAX = 2**50
"""Maximum size in retention rules: more than a disk has."""

RUN_OUTPUT_BYTES_MIN = 64 * 1024
"""Minimum output kept of one run: a chunk at its beginning, and one at its end."""

EVENTS_KEPT_S_MIN = 86_400
"""Minimum time events are kept: messages are made of them, and are retried for a day."""

COUNTED_KEPT_MAX = 50_000
"""Rows of one kind and pattern that are counted to show what is stored: a fifth of a second."""

AUDIT_KEPT_S = 90 * 86_400
"""Time the audit is kept: until the end of a quarter can be reviewed."""

INBOX_ROWS_MAX = 100
"""Jobs of the inbox that are taken in together: a commit of milliseconds."""

INBOX_BYTES_MAX = 8 * 1024 * 1024
"""Size of their data, beyond the first: as much as two jobs may have."""

INBOX_AGAIN_S_MIN, INBOX_AGAIN_S_MAX = 1.0, 60.0
"""Seconds until a job that a limit refused is tried again: as long as it has waited, within these bounds."""

OUTBOX_LOOK_S = 1.0
"""Seconds between two looks of a relay into an empty outbox."""

OUTBOX_AGAIN_S = 1.0
"""Seconds until a row of an outbox is sent again at first; doubled with each attempt."""

OUTBOX_AGAIN_S_MAX = 60.0
"""Maximum seconds until a row of an outbox is sent again."""
