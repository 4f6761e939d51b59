"""Defaults and limits that are the same on every server, each with its unit and its reason.

Settings that an operator may change are in ``settings``.
"""

from __future__ import annotations

DEFAULT_PORT = 8888
"""The port that Bedrock's documents and clients use."""

PRIORITIES = (1000, 850, 750, 500, 250, 0)
"""The priority levels, highest first. A take searches one level after the other, so the number of levels is
fixed."""

PRIORITY_DEFAULT = 500
"""Priority of a job created without one."""

NAME_CHARS_MAX = 255
"""Maximum length of a job's name, as in Bedrock."""

DECODED_ROWS_MAX = 512
"""Maximum number of jobs whose parsed options and memory are cached: enough for the jobs in progress, at most
64 KiB each."""

PATTERNS_COMPILED_MAX = 1_024
"""Maximum number of compiled name patterns in the cache: more than workers ask for, pauses hold or a rules
file has."""

PATTERN_CHARS_MAX = 8_192
"""Maximum length of the comma list of names in a GetJob."""

PATTERNS_MAX = 100
"""Maximum number of patterns or names in one GetJob: each is matched against every name that becomes
ready."""

GLOB_CHARS_MAX = 255
"""Maximum length of one name pattern, the same as of a name: compiling a pattern with ``?`` or ``[`` takes 5
us a character."""

GLOB_STARS_MAX = 20
"""Maximum number of stars in one name pattern: each star is another search in every name."""

PATTERNS_PER_KEY_MAX = 8
"""Maximum number of patterns under one key of a pattern index: a name that has the key is compared with all
of them."""

LENGTHS_INDEXED_MAX = 32
"""Maximum number of different lengths of fixed prefixes in one pattern index, and of fixed suffixes after one
prefix. A name is looked up once for each pair of lengths: at most 1,024 times, in 0.1 ms."""

IN_TURN_MAX = 32
"""Maximum number of names or keys that a take with a fair limit examines to find one with a due job; if none
has, it takes the first job in order. On PostgreSQL it locks the first job of as many keys."""

NAMES_AT_ONCE = 8
"""Maximum number of names and patterns with which a GetJobs is executed in the order of arrival. Indexing
more names takes longer than any other command, so a GetJobs with more runs after the commands that arrived
with it."""

NAMES_PER_COMMIT_MAX = 500
"""Maximum number of names and patterns of long GetJobs (see NAMES_AT_ONCE) in one transaction. This many take
20 ms, during which all other commands wait."""

NAMES_PER_SHARED_COMMIT_MAX = PATTERNS_MAX
"""Maximum number of names and patterns of long GetJobs in one transaction if servers share a database. It is
lower than NAMES_PER_COMMIT_MAX because PostgreSQL reads all names before it searches for their jobs."""

NAMES_QUEUED_MAX = 100_000
"""Maximum number of names and patterns of long GetJobs that wait for the writer: as many as 5,000 restarting
workers with 20 names each ask for. A GetJobs beyond it is refused with 503, since the texts of more names
would take over 60 MB."""

NAMES_KEPT_MAX = 512
"""Maximum number of parsed name lists of GetJobs in one cache, at up to 26 kB for a list."""

REPEAT_CHARS_MAX = 1_000
"""Maximum length of a repeat expression."""

REPEAT_MODIFIERS_MAX = 20
"""Maximum number of modifiers in one repeat expression: SQLite calls a function for each."""

DATA_BYTES_MAX = 4 * 1024 * 1024
"""Maximum size of one job's data as UTF-8. Clients of Bedrock store 2 MB; larger things belong in a file."""

JSON_DEPTH_MAX = 64
"""Maximum nesting of objects and arrays in data, since parsers recurse: 100,000 levels crash Bedrock."""

MERGE_BYTES_MAX = 32 * 1024 * 1024
"""Maximum size of the objects that one command merges into the data of jobs. The bytes are counted again at
each level of nesting, and cost up to 3 ns each; the limit allows four levels of the largest data."""

JSON_CONTAINERS_MAX = 500_000
"""Maximum number of objects and arrays in data: checking the nesting of this many takes 30 ms."""

JSON_HUGE_NUMBERS_MAX = 10_000
"""Maximum number of numbers in data with an exponent of three digits or more: each is checked against the
range of a double."""

JSON_VALUES_MAX = 100_000
"""Maximum number of values in a list or object that is parsed instead of stored as text. Most lists have a
lower limit of their own."""

FORM_FIELDS_MAX = 100
"""Maximum number of fields in a form: no command has as many parameters."""

CHUNKS_MAX = 65_536
"""Maximum number of chunks in the body of a raw request, since even a tiny chunk costs as much as a large
one."""

ESCAPES_MAX = 4_000_000
"""Maximum number of backslashes in one line of a raw request, at 40 ns each: a batch of 16 MB from PHP has
fewer."""

OTHER_ESCAPES_MAX = 1_000_000
"""Maximum number of backslashes in one line that precede neither a quote nor a backslash, at 80 ns each: no
client sends them."""

JOBS_PER_CREATE_MAX = 1_000
"""Maximum number of jobs in one CreateJobs or FinishJobs, or of IDs in one RequeueJobs, since one transaction
handles all of them."""

JOBS_PER_GET_MAX = 1_000
"""Maximum number of jobs that one GetJobs takes."""

DATA_CHARS_PER_COMMAND_MAX = 64 * 1024 * 1024
"""Maximum number of characters of job data that one FinishJobs, RequeueJobs or CreateJobs reads: 50 ms from
memory. Further jobs are refused with 503; CreateJobs then refuses all its jobs."""

DELAY_S_MAX = 99_999_999
"""Maximum delay of a RetryJob in seconds: eight digits, as in Bedrock's grammar."""

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Maximum size of the job data in one reply of GetJobs or ListJobs. If more jobs match, the reply has fewer
of them."""

LOST_RUNS_MAX = 10
"""Maximum number of lost deliveries of a job with retryAfter before it becomes FAILED."""

WAIT_MS_MAX = 600_000
"""Maximum wait of a GetJob in milliseconds. A client that wants to wait longer sends the command again."""

WAIT_MS_DEFAULT = 60_000
"""Milliseconds that a waiting GetJob without a timeout waits."""

ERROR_CHARS_MAX = 10_000
"""Maximum length of the error text that FailJob stores; a longer text is cut in the middle."""

WORKER_CHARS_MAX = 255
"""Maximum length of a worker's name."""

WORKERS_MAX = 10_000
"""Maximum number of workers in the registry. To make room for another one, workers that are gone and never
got a job are evicted first."""

WORKERS_BYTES_MAX = 48 * 1024 * 1024
"""Maximum memory of all workers in the registry, including the patterns they ask for: 5 kB for each of
10,000."""

ASKED_PER_WORKER_MAX = 16
"""Maximum number of different lists of names remembered for one worker; the oldest is dropped."""

WORKER_EVENTS_A_MINUTE = 120
"""Maximum number of events of one kind about single workers in a minute. The remaining ones of that minute
are counted in one further event."""

HOSTS_PER_CALLER_MAX = 1_000
"""Maximum number of workers of one token that get a job for one tick of a schedule on all hosts: the owner of
a token may invent worker names."""

QUERY_CHARS_MAX = 100_000
"""Maximum length of the SQL text of one Query."""

QUERY_PROCESSES = 2
"""Number of Query processes: with two, a slow or restarting one does not block the next Query."""

QUERY_OVERTIME_S = 0.25
"""Seconds beyond query_s after which the process of a Query ends itself, since a single SQL function may not
be interruptible. If the process is still running after this time has passed once more, the server kills it.
With query_s = 1, every Query has thus ended 1.5 s after its start."""

QUERY_MEMORY_BYTES_MAX = 256 * 1024 * 1024
"""Maximum address space of a Query process in addition to its replies: enough for a few values of the maximum
length."""

LOOP_STALL_S = 0.1
"""Maximum seconds for which anything should block the event loop; longer blocks are logged and counted in
``/metrics``."""

READS_DRAINED_S = 2.0
"""Maximum seconds for which a stopping server waits for reads in progress: longer than reads take if query_s
is 1."""

STOP_MORE_S = 4.0
"""Maximum seconds between the end of drain_s and the exit of a stopping server, which then exits in any case:
by default 9 s after SIGTERM."""

CRASH_PATTERNS_MAX = 1_000
"""Maximum number of patterns in CrashBedrockJob's list; each is matched against every job that is taken."""

CRASHED_PER_TAKE_MAX = 1_000
"""Maximum number of jobs that one take fails because the crash list names them, so that a long list never
delays a commit."""

RECENT_ROWS_MAX = 4_096
"""Maximum number of rows in the writer's cache of recently written rows."""

RECENT_DATA_CHARS_MAX = 4_096
"""Maximum length of a row's data in the cache of RECENT_ROWS_MAX rows, which bounds the cache to 16 MiB of
plain text."""

SET_ROWS = 32
"""Number of rows written by one statement; with more rows the cost per row would not be lower."""

HEADS_READ_MAX = 64
"""Maximum number of next jobs of a name that one statement finds. The first statement finds one job, and each
further statement twice as many as the one before."""

HEADS_KEPT_MAX = 2 * HEADS_READ_MAX
"""Maximum number of next jobs cached for a name, at some 170 bytes each."""

NAMES_CACHED_MAX = 1_000
"""Maximum number of names whose next jobs are cached, in at most 23 MB. A take of any other name costs one
seek."""

LOCKS_CACHED_MAX = 10_000
"""Maximum number of locks whose last use is cached, at a few hundred bytes each."""

REQUESTS_CACHED_MAX = 1_024
"""Maximum number of parsed raw requests in the cache. As many again are cached without their last value, for
requests that differ only in that value."""

REQUEST_CACHED_BYTES_MAX = 1_024
"""Maximum size of a raw request that is cached parsed, which bounds that cache to a few MiB."""

TYPOS_COMPARED_MAX = 5
"""Maximum number of unknown headers of a raw request that are compared with parameter names, at up to 20 us
each."""

CONNECTION_BYTES_FREE = 16 * 1024
"""Memory of a connection that is not counted in the memory budget: a request head, or a small reply."""

MEMORY_RESERVE_BYTES = 88 * 1024 * 1024
"""Part of the memory budget for what cannot be counted individually: copies while requests are parsed and
replies are built, and the allocator's reserve. A small budget has less of it, or none."""

MEMORY_COUNTED_LEAST_BYTES = 64 * 1024 * 1024
"""Minimum part of the memory budget for requests and replies that are counted individually. If the whole
budget is less than this plus MEMORY_RESERVE_BYTES, the reserve is smaller."""

READS_PIPELINED_MAX = 4
"""Maximum number of reads of single jobs in progress on one raw connection: each reply may have 4 MB and
remain unread by the client."""

TOKEN_SHARE = 2
"""Share of a common limit that one token may use, as a divisor: with 2, a greedy token leaves half of the
limit to the other tokens."""

ADDRESSES_TRACKED_MAX = 10_000
"""Maximum number of addresses whose rate of new connections is tracked; the oldest are dropped."""

TRIM_BYTES = 16 * 1024 * 1024
"""Number of bytes of the memory budget that must have been used and freed before freed memory is returned to
the system."""

STREAM_BYTES_MAX = 64 * 1024
"""Maximum size of the text that a stream writes at a time. While the client does not read, the text is in
memory twice: for a thousand such clients, half of the default memory budget."""

BATCH_ANSWER_BYTES_MAX = 1024 * 1024
"""Size of the replies of one transaction after which its remaining commands go into the next transaction, as
with a thousand reads of large jobs. Each megabyte of replies occupies the event loop for up to ten
milliseconds, most of them to allocate memory."""

CHECKPOINT_PAGES_MIN = 1_000
"""Minimum number of pages in the write-ahead log before a commit checkpoints it; usually a commit does so
when four fifths of ``wal_bytes`` are full. A commit that checkpoints takes ten times as long, so it should be
rare."""

TURN_S = 0.001
"""Python's thread switch interval, in seconds: its default of 5 ms is as long as several commits."""

QUICK_COMMIT_S = 0.002
"""Maximum average duration of commits, in seconds, for which commits run in the event loop: about as long as
a few requests take."""

QUICK_COMMITS = 10
"""Number of commits over which the duration is averaged for QUICK_COMMIT_S. An occasional checkpoint raises
the average only briefly, a slow disk for as long as the disk is slow."""

SLEEP_S_MAX = 1.0
"""Maximum sleep of the dispatcher in seconds. After it, the dispatcher checks whether another process changed
the file or the system clock."""

DURATION_S_MAX = 10 * 365 * 86_400
"""Maximum duration in a job's options, in seconds: ten years."""

RETRIES_MAX = 1_000
"""Maximum number of retries a job may ask for."""

ARGV_MAX = 1_000
"""Maximum number of words in a job's own command."""

TAGS_MAX = 20
"""Maximum number of tags of one job."""

TAG_CHARS_MAX = 100
"""Maximum length of one tag."""

ID_BLOCK = 100
"""Number of jobIDs, and of runIDs, reserved at a time: storing each one separately would take 6 us of a small
commit. A server that is killed skips at most this many."""

JOB_ID_MAX = 2**63 - 1
"""The largest jobID, as in SQLite."""

WHOLE_MAX = 10**18 - 1
"""The largest whole number that is accepted: every number of 18 digits fits into 64 bits."""

NOTE_CHARS_MAX = 1_000
"""Maximum length of a job's note: a paragraph, since it is part of each reply about the job."""

HISTORY_MAX = 10_000
"""Maximum number of runs kept for each name, separately for successful and for other runs."""

HISTORY_DEFAULT = 100
"""Default number of runs kept for each name, separately for successful and for other runs."""

NAMES_RUNS_MAX = 25_000
"""Maximum number of newest runs of a name that are searched for runs beyond its history: a little over twice
HISTORY_MAX."""

OUTPUT_TAIL_MAX = 1_000
"""Maximum number of last output lines kept with a run."""

OUTPUT_LINES_PER_APPEND_MAX = 1_000
"""Maximum number of lines in one AppendOutput."""

OUTPUT_LINE_CHARS_MAX = 4_096
"""Maximum length of one line of output; the rest is cut."""

OUTPUT_KEPT_S = 86_400
"""Seconds for which output is kept after its run ended."""

KEY_CHARS_MAX = 255
"""Maximum length of an idempotency key or a unique key."""

UNIQUE_KEY_AGE_S_MIN = 60
"""Minimum age in seconds at which a unique key that is no longer held is deleted: longer than any transaction
takes."""

IF_MATCH_CHARS_MAX = 1_000
"""Maximum length of the entity tags in UpdateJob's ifMatch."""

EVENTS_KEPT_MAX = 100_000
"""Maximum number of events kept; the oldest are deleted first."""

RUNS_KEPT_MAX = 1_000_000
"""Maximum number of runs kept in total, about 300 bytes each: without it, a server whose jobs all have
different names would fill up."""

STATS_NAMES_MAX = 1_000
"""Maximum number of names that have counters of their own in one hour: 270 MB if all these names are always
busy."""

STATS_AT_ONCE = 100
"""Maximum number of rows of counters that one transaction writes, in a millisecond. If more than ten times as
many rows wait, it writes a tenth of them."""

STATS_COUNTED_MAX = 10_000
"""Maximum number of names with counters of their own within a minute, 5 MB; names with the most jobs are
kept."""

STATS_PENDING_MAX = 20_000
"""Maximum number of rows of counters that wait to be written, about 10 MB: the rows of ten minutes in which
as many names as possible are in use."""

TICK_ROWS_MAX = 1_000
"""Maximum number of rows of the tick history kept for each schedule."""

CATCHUP_MAX = 1_000
"""Maximum number of missed ticks that `catchup: all` runs; older ticks are skipped."""

FORMER_REPEATS_MAX = 10
"""Maximum number of earlier repeats that a schedule keeps because a tick planned by the repeat is still due;
a repeat has up to 1,000 characters."""

LEASE_S_DEFAULT = 45
"""Default lease in seconds, for which a worker may be silent, as in Cronken (`ttl`)."""

HEARTBEAT_S = 10
"""Seconds between two heartbeats of bedrock-worker."""

GRACE_S_DEFAULT = 60
"""Default number of seconds between SIGTERM and SIGKILL when a run is stopped, as FTL's 1 min."""

TAKE_BACK_S = 10
"""Seconds that a worker has to end a run after the server asked for SIGKILL; then the server ends the run
itself."""

BACKOFF_S_DEFAULT = 10
"""Default number of seconds before the first retry."""

BACKOFF_S_MAX_DEFAULT = 3_600
"""Default maximum of seconds before a retry."""

RUNS_PER_HEARTBEAT_MAX = 1_000
"""Maximum number of runs in one Heartbeat."""

PAUSES_MAX = 1_000
"""Maximum number of paused patterns: each is matched against the names that are taken."""

REASON_CHARS_MAX = 1_000
"""Maximum length of the reason for a pause."""

LIST_MAX = 1_000
"""Maximum number of rows in one page of a list."""

SCHEDULES_PER_SYNC_MAX = 10_000
"""Maximum number of schedules of one source: reading this many takes 0.2 s, and all other work of the sync is
done in slices."""

SCHEDULE_GRACE_S = 600
"""Seconds after which a schedule that live workers no longer declare is removed: by then a restarted worker
or a rebooted host is back, and people who follow events have had time to act."""

REDECLARE_S = 60
"""Seconds after which a worker declares its schedules again, so that a missing schedule is restored."""

DECLARERS_KEPT_MAX = 20
"""Maximum number of live workers recorded for each version of a module: one is enough to keep the version
alive, the others are spares."""

VERSIONS_KEPT_MAX = 20
"""Maximum number of versions of a module that stay recorded after their last worker has ended: more than any
rollback needs."""

WORKFLOW_JOBS_MAX = 10_000
"""Maximum number of jobs in a workflow: a page can still draw the layers of this many, and RetryWorkflow
reads all of them."""

WORKFLOW_EDGES_MAX = 100_000
"""Maximum number of edges of a workflow, ten for each job: this many are read within 100 ms."""

REF_CHARS_MAX = 100
"""Maximum length of a job's ref, its name within its workflow: results are listed by ref, and pages print it
into boxes."""

BEFORE_BYTES_MAX = 16 * 1024 * 1024
"""Maximum size of the results that a job of a workflow gets from the jobs before it: as much as four of the
largest results. Larger data belongs in a file."""

RESULT_KEPT_S = 3_600
"""Default seconds for which the result of a function's job is kept: few callers wait longer."""

UNFIT_MAX = 20
"""Maximum number of times that workers may return a job because their code is too old or too new for it; then
the job fails. With the delays in between it takes about a quarter of an hour, longer than a rolling
restart."""

JOBS_COUNTED_MAX = 10_000
"""Maximum number of jobs of one state that the page of jobs counts, in some 5 ms. If there are more, the page
shows `10,000+`."""

TEXT_CHARS_MAX = 200
"""Maximum length of a text that is searched for in errors, output and data: a line of a message."""

FINGERPRINT_CHARS_MAX = 64
"""Maximum length of a fingerprint in a filter of failures; fingerprints of this version have 16
characters."""

SEEN_MAX = 10_000
"""Maximum number of failed jobs, and of failed runs, that are marked as seen; beyond it the oldest count as
unseen again, and a rule sends those of them that it has not yet left out as muted."""

MUTES_MAX = 100
"""Maximum number of mutes of failures. Each failure is compared with all mutes, in 5 µs, or in 1 ms if they
have to be read again."""

MUTED_RELEASES_MAX = 20
"""Maximum number of versions of live workers that a mute remembers, 100 characters each: 220 kB for all
mutes."""

SEEN_AT_ONCE_MAX = 200
"""Maximum number of failed jobs, and of failed runs, in one MarkSeen."""

RUNS_DELETED_AT_ONCE_MAX = 200
"""Maximum number of runs that one DeleteRuns lists or searches, so that its transaction stays short."""

RUN_BYTES_DELETED_AT_ONCE = 4_000_000
"""Maximum size of the data and output that one DeleteRuns searches, in some 20 ms; the next DeleteRuns
continues."""

DELETED_TEXT_CHARS_MAX = 1_000
"""Maximum length of the text by which DeleteRuns finds runs; one line of a longer secret is enough."""

PAGE_TURN_S = 0.00025
"""Seconds of rendering a page before the event loop gets a turn: half as long as a small commit takes."""

TEMPLATES_S_MAX = 30.0
"""Maximum seconds for the process that compiles page templates: thirty times the usual. If it takes longer,
the server compiles each template at first use."""

SEARCHED_AT_ONCE = 1_000
"""Maximum number of rows that scans of names read before other transactions get a turn: 2 to 3 ms on an idle
machine."""

SEARCHED_S = 0.002
"""Seconds after which scans of names let other transactions run, even if fewer than SEARCHED_AT_ONCE rows
have been read, as on a slow or busy machine."""

SEARCHED_BETWEEN = 100
"""Number of rows that a scan reads before it checks the time again."""

SEARCHED_UNIT_MAX = 500
"""Maximum number of queue entries, at 1 to 10 us each, that all takes of one transaction together may
examine. The first STEPS_FREE entries of each take do not count."""

STEPS_FREE = 50
"""Number of queue entries that each take may examine without being limited: enough for stale entries and
recently paused names."""

SEARCH_BURST = 5_000_000
"""Maximum number of rows that scans for one token may read before they are slowed down: enough for five new
patterns, each of which reads a million names."""

SEARCHED_PER_S_MAX = 100_000
"""Maximum number of rows a second that scans for one token may read after the first SEARCH_BURST rows: a
fifth of the event loop's time."""

SEARCH_S_MAX = 60.0
"""Maximum seconds for which a GetJob that does not wait may scan names for its pattern: twenty times the time
for a million names."""

SLICE = 200
"""Number of rows or schedules that a long command processes before the event loop runs other tasks: some 10
ms."""

SCHEDULE_FILE_CHARS_MAX = 2 * 1024 * 1024
"""Maximum length of a file with schedules, ours or another system's: 10,000 of them, with 200 characters
each."""

IMPORT_TOKENS_MAX = 500_000
"""Maximum number of tokens in a file of another system: parsing this many takes half a second."""

YAML_NODES_MAX = 50_000
"""Maximum number of values in a YAML file, about as many as 7,000 schedules have. Parsing a value takes some
40 us; TOML and JSON are faster."""

YAML_VALUES_PER_CHAR_MAX = 4
"""Maximum number of values in a YAML file per character, with aliases expanded: one line could expand to
millions."""

TOML_KEY_PARTS_MAX = 64
"""Maximum number of parts of a dotted key in TOML, as deep as JSON may nest: parsing a key takes quadratic
time."""

CRONTAB_VARIABLES_CHARS_MAX = 8_192
"""Maximum length of a crontab's expanded variables, which are copied into the command of every line below
them."""

CRONKEN_EVENT_CHARS_MAX = 512 * 1024
"""Maximum length of one Cronken event: a definition with the longest possible command, escaped."""

MOMENTS_PER_ADVANCE_MAX = 100_000
"""Maximum number of due times at which one AdvanceClock stops on its way; after them it jumps to its
target."""

PG_CONNECT_S_MAX = 5
"""Maximum seconds for connecting to each host of PostgreSQL, and until sent data is acknowledged; slower
hosts count as down."""

PG_ANSWER_S_MAX = 10
"""Maximum seconds for PostgreSQL to answer a statement of a transaction, lock waits included: transactions
take milliseconds. After that the connection counts as broken, and PostgreSQL ends the statement by itself."""

DATABASE_RETRY_S = 0.05
"""Seconds before the first new attempt to use a database that is unreachable, locked or full: short compared
with the 300 ms in which a standby is promoted."""

DATABASE_RETRY_S_MAX = 2.0
"""Maximum seconds between two attempts to use an unavailable database: each attempt takes milliseconds of
CPU, and an outage may last for days."""

OUTCOME_S_MAX = 600
"""Maximum seconds for which a server tries to find out the outcome of a commit whose reply was lost: a manual
failover takes minutes."""

LOCK_WAIT_S_MAX = 2
"""Maximum seconds for which a transaction on PostgreSQL waits for locked rows: transactions take
milliseconds."""

SCANNED_MAX = 100
"""Maximum number of jobs of a priority level that a take by patterns scans on PostgreSQL before it queries by
name: a quarter of a millisecond."""

TAKEN_AT_ONCE = 8
"""Number of jobs that a take on PostgreSQL locks in addition to its access set, since each further query
costs a round trip."""

SERVER_GONE_S = 10
"""Seconds without a heartbeat after which the other servers count a server as gone."""

WATCH_EVERY_S = 0.5
"""Seconds between two checks with which a server notices that other servers' writes made maintenance due."""

WATCHED_EVERY_S = 2.0
"""Seconds after which a server that performs maintenance records again, in the shared database, that
maintenance is alive."""

AWAY_S = 5.0
"""Seconds after the last such record (see WATCHED_EVERY_S) after which all servers count as having been down:
leases restart, and ticks count as missed."""


# Bounds of limits by name pattern and of retention, each with its reason.


LIMITS_MAX = 100
"""Maximum number of patterns with a limit: the name of each created job is matched against all of them."""

QUEUED_LIMIT_MAX = 100_000
"""Maximum limit of queued jobs, since they are counted within a transaction: 40 ms for this many."""

RUNNING_LIMIT_MAX = 10_000
"""Maximum limit of concurrent runs, since each take of a limited name counts all runs in progress."""

STARTS_MAX = 1_000_000
"""Maximum number of starts in the period of a rate: more than a server hands out in a minute."""

STARTS_S_MAX = 31 * 86_400
"""Maximum period of a rate in seconds, for quotas by the month."""

STARTS_PER_S_MAX = 10_000
"""Maximum rate of starts, per second; beyond it, a limit would hold nothing back."""

PER_SECOND_MAX = 100_000
"""Maximum limit of jobs created per second: more than a server can create."""

KEPT_BYTES_MAX = 2**50
"""Maximum size in retention rules: more than a disk has."""

RUN_OUTPUT_BYTES_MIN = 64 * 1024
"""Minimum output kept of one run: a chunk at its beginning, and one at its end."""

EVENTS_KEPT_S_MIN = 86_400
"""Minimum seconds for which events are kept, since messages are made from events and retried for a day."""

COUNTED_KEPT_MAX = 50_000
"""Maximum number of stored rows of one kind and pattern that ListRetention counts: in a fifth of a second."""

INBOX_ROWS_MAX = 100
"""Maximum number of jobs of the inbox that are taken in by one transaction: a commit of milliseconds."""

INBOX_BYTES_MAX = 8 * 1024 * 1024
"""Maximum size of the data of all jobs that one transaction takes from the inbox, not counting the first job:
as much as two jobs may have."""

INBOX_AGAIN_S_MIN, INBOX_AGAIN_S_MAX = 1.0, 60.0
"""Minimum and maximum seconds until a job of the inbox that a limit refused is tried again. Between these
bounds it is as long as the job has waited."""

OUTBOX_AGAIN_S = 1.0
"""Seconds before a row of an outbox is sent a second time; doubled with each further attempt."""

OUTBOX_AGAIN_S_MAX = 60.0
"""Maximum seconds before a row of an outbox is sent again."""
