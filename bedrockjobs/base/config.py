"""Every default and every limit that is the same on every server, each with its unit and its reason.

What an operator may change stands in ``settings``.
"""

from __future__ import annotations

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
"""Length of a comma list of names in GetJob."""

PATTERNS_MAX = 100
"""Patterns or names one GetJob may list: each is matched against every name that becomes ready."""

GLOB_CHARS_MAX = 255
"""Length of one name pattern, as of a name: to make one with ``?`` or ``[`` ready costs 5 us a character."""

GLOB_STARS_MAX = 20
"""Stars in one name pattern: each is another search in every name."""

GRAM_CHARS = 4
"""Characters under which a pattern is indexed if its ends do not tell it from others: four of the 30 of a
usual name lead to a handful of patterns, even if 5,000 differ only in the number of a host."""

PATTERNS_PER_KEY_MAX = 8
"""Patterns under one key of an index: a name that has the key is compared with all of them."""

LENGTHS_INDEXED_MAX = 32
"""Lengths of fixed beginnings in one index of patterns, and of fixed ends behind one beginning: a name is
looked up once for each, so at most 1,024 times, in 0.1 ms."""

NAMES_AT_ONCE = 8
"""Names and patterns of a GetJobs that is done in its turn. To index more takes longer than to do any other
command, so one with more is done after those that came with it."""

NAMES_PER_COMMIT_MAX = 500
"""Names and patterns of such GetJobs in one transaction: 20 ms, for which all others wait."""

NAMES_PER_SHARED_COMMIT_MAX = PATTERNS_MAX
"""The same if servers share a database: PostgreSQL reads them all before it looks for their jobs."""

NAMES_QUEUED_MAX = 100_000
"""Names and patterns of such GetJobs that wait for the writer: 5,000 workers that restart with 20 each. One
more is refused with 503, since the texts would take more than 60 MB."""

NAMES_KEPT_MAX = 512
"""What GetJobs asked for that is kept as read: up to 26 kB each, in two caches."""

REPEAT_CHARS_MAX = 1_000
"""Length of a repeat expression."""

REPEAT_MODIFIERS_MAX = 20
"""Modifiers of one repeat expression; each is a function call for SQLite."""

DATA_BYTES_MAX = 4 * 1024 * 1024
"""Size of one job's data as UTF-8. Clients of the original store 2 MB; larger things belong in a file."""

JSON_DEPTH_MAX = 64
"""Levels of objects and arrays in data. A parser's stack is the reason: 100,000 levels end the original."""

MERGE_BYTES_MAX = 32 * 1024 * 1024
"""Size of the objects that one command merges into the data of jobs, each counted again at each level in
which others are merged: up to 3 ns a byte. It is four levels of the largest data there may be."""

JSON_CONTAINERS_MAX = 500_000
"""Objects and arrays in data: their levels are counted one by one, 30 ms for as many."""

JSON_HUGE_NUMBERS_MAX = 10_000
"""Numbers in data with an exponent of three digits or more: each is tried whether a double can hold it."""

JSON_VALUES_MAX = 100_000
"""Values of a list or an object that is read and not only kept: lists have smaller limits of their own."""

FORM_FIELDS_MAX = 100
"""Fields of a form: no command has as many parameters."""

CHUNKS_MAX = 65_536
"""Chunks of a raw request's body: each costs the same, however small it is."""

ESCAPES_MAX = 4_000_000
"""Backslashes in one line of a raw request: more than a batch of 16 MB of PHP has, 40 ns each."""

OTHER_ESCAPES_MAX = 1_000_000
"""Backslashes in a line, but for those before a quote or a backslash: no client writes them. 80 ns each."""

JOBS_PER_CREATE_MAX = 1_000
"""Jobs in one CreateJobs or FinishJobs, or ids in one RequeueJobs: all of them share one transaction."""

JOBS_PER_GET_MAX = 1_000
"""Jobs that one GetJobs may take."""

DATA_CHARS_PER_COMMAND_MAX = 64 * 1024 * 1024
"""Characters of the data of jobs that one FinishJobs, RequeueJobs or CreateJobs reads: 50 ms from memory. The
jobs beyond are refused with 503, in CreateJobs all of them."""

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

WORKERS_MAX = 10_000
"""Workers that a server remembers. Beyond it, those are forgotten first that are gone and never got a job."""

WORKERS_BYTES_MAX = 48 * 1024 * 1024
"""Memory for all workers that a server remembers, with the patterns they ask for: 5 kB for each of 10,000."""

WORKER_BYTES = 1_500
"""Memory that a worker takes without its texts, as the budget counts it."""

PATTERN_BYTES = 400
"""Memory that a pattern a worker asks for takes beside its text, as the budget counts it."""

ASKED_PER_WORKER_MAX = 16
"""Different lists of names that are remembered of one worker at a time; the oldest is forgotten."""

WORKER_EVENTS_A_MINUTE = 120
"""Events of one kind about single workers in a minute; the others are counted in one event."""

HOSTS_PER_CALLER_MAX = 1_000
"""Workers of one token that get a job of one tick of a schedule on all hosts: names are free to invent."""

QUERY_CHARS_MAX = 100_000
"""Length of one SQL text."""

QUERY_PROCESSES = 2
"""Processes that run Queries: one that is slow, or is being replaced, keeps no other waiting."""

QUERY_OVERTIME_S = 0.25
"""Seconds beyond query_s after which a Query's process is ended: one function of SQL may not stop by itself.

The process sees to it; the server does once as much has passed again. So every Query has ended 1.5 s after
its start, where query_s is 1.
"""

QUERY_MEMORY_BYTES_MAX = 256 * 1024 * 1024
"""Address space of a process that runs Queries, beside its answers: a few of the longest values."""

LOOP_STALL_S = 0.1
"""Seconds that nothing may keep the event loop; what does is named in the log and in ``/metrics``."""

READS_DRAINED_S = 2.0
"""Seconds that a stopping server gives reads that were begun: more than they take where query_s is 1."""

STOP_MORE_S = 4.0
"""Seconds beyond drain_s after which a stopping server ends as it is: 9 s after SIGTERM by default."""

CRASH_PATTERNS_MAX = 1_000
"""Patterns that CrashBedrockJob may hold at once; each is matched against every job that is taken."""

CRASHED_PER_TAKE_MAX = 1_000
"""Jobs that one take may fail on its way, so that a long crash list never holds up a commit."""

RECENT_ROWS_MAX = 4_096
"""Rows that the writer keeps in memory after it wrote them."""

RECENT_DATA_CHARS_MAX = 4_096
"""Length of the data of such a row, which bounds their memory to 16 MiB of plain text."""

LOCKS_REMEMBERED_MAX = 10_000
"""Locks of which the server remembers when they were held last; a few hundred bytes each."""

HEADS_REMEMBERED_MAX = 1_024
"""Raw requests of which it is remembered what they mean, as many again but for their last value."""

HEAD_REMEMBERED_BYTES_MAX = 1_024
"""Size of such a request, which bounds their memory to a few MiB."""

SLIPS_LOOKED_AT_MAX = 5
"""Unknown headers of a raw request that are compared with the names of parameters, at up to 20 us each."""

CONNECTION_BYTES_FREE = 16 * 1024
"""What a connection may hold without being counted in the budget of memory: a head, or a small answer."""

MEMORY_RESERVE_BYTES = 88 * 1024 * 1024
"""Part of the budget of memory for what cannot be counted one by one: copies while a request is read and an
answer is made, and what the allocator keeps. A small budget has less of it, or none."""

MEMORY_COUNTED_LEAST_BYTES = 64 * 1024 * 1024
"""Part of the budget of memory that is counted, if the reserve would leave less: all of a small budget."""

LOOKS_PIPELINED_MAX = 4
"""Looks at single jobs that one raw connection has under way: each answer may have 4 MB that nobody reads."""

TOKEN_SHARE = 2
"""A token may use the part 1/2 of a limit for everybody: one that takes all it can leaves others as much."""

ARRIVALS_REMEMBERED_MAX = 10_000
"""Addresses whose rate of new connections is remembered; beyond, those are forgotten that came first."""

TRIM_BYTES = 16 * 1024 * 1024
"""Use of the budget of memory after which what was freed is given back to the system."""

STREAM_BYTES_MAX = 64 * 1024
"""Text of the rows that a stream writes in one go, kept twice while its client does not read: a thousand such
clients take half of the budget of memory that there is by default."""

BATCH_ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""Answers of one commit: a thousand looks at large jobs are not in memory together, the rest comes next. Each
megabyte of answers keeps the event loop for some milliseconds."""

LARGE_BYTES = 1024 * 1024
"""Size of what is given memory of its own by the system, and gives it back as soon as it is freed: large
requests and answers would else leave holes that nothing small fills."""

PAGE_BYTES = 4_096
"""Size of a page of the database, as SQLite chooses it."""

CHECKPOINT_PAGES_MIN = 1_000
"""Pages in the write-ahead log at which a commit copies it into the database at the earliest: it does when
four fifths of ``wal_bytes`` are full. The more often, the more commits take ten times as long as others."""

LOOKS_NICE = 10
"""Nice value of what looks at the database beside the commands, which then wait half as long."""

TURN_S = 0.001
"""Seconds that a thread may compute before another has its turn: Python's own 5 ms are several commits."""

QUICK_COMMIT_S = 0.002
"""Seconds of a usual commit that does not keep the event loop noticeably: a few requests take as long."""

QUICK_COMMITS = 10
"""Commits that the usual time of one is averaged over: the loop does them itself where that is quick. A log
that is copied now and then does not count for long, a disk that is slow does at once."""

SLEEP_S_MAX = 1.0
"""The dispatcher's longest sleep: a change of the file by others, or of the system's clock, is seen then."""

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

ID_BLOCK = 100
"""Numbers of jobs, and of runs, reserved at a time: to store the next one costs a small commit 6 us. A server
that is killed leaves out as many at most."""

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

NAMES_RUNS_MAX = 25_000
"""Newest runs of a name that are looked through for those beyond its history: HISTORY_MAX twice and more."""

OUTPUT_TAIL_MAX = 1_000
"""Last lines of output that a job may ask to be kept with a run."""

OUTPUT_TAIL_DEFAULT = 10
"""Last lines of output kept with a run, as Cronken's `max_finalized_output_lines`."""

OUTPUT_LINES_PER_APPEND_MAX = 1_000
"""Lines of one AppendOutput."""

OUTPUT_LINE_CHARS_MAX = 4_096
"""Length of one line of output; the rest is cut."""

OUTPUT_BYTES_DEFAULT = 10 * 1024 * 1024
"""Output kept of one run, half of it from its beginning and half from its end: a person reads no more."""

OUTPUT_KEPT_S = 86_400
"""Time output is kept after its run ended."""

KEYS_KEPT_S = 86_400
"""Time an idempotency key is remembered."""

KEY_CHARS_MAX = 255
"""Length of an idempotency key or a unique key."""

UNIQUE_KEY_AGE_S_MIN = 60
"""Age at which a unique key that is no longer held is deleted: longer than any transaction takes."""

IF_MATCH_CHARS_MAX = 1_000
"""Length of the entity tags in UpdateJob's ifMatch."""

EVENTS_KEPT_MAX = 100_000
"""Events kept; the oldest go first."""

RUNS_KEPT_MAX = 1_000_000
"""Runs kept in all, about 300 bytes each: a server whose every job has a name of its own must not fill up."""

STATS_KEPT_S = 8 * 86_400
"""Time the counts of a minute are kept, for charts of a week."""

TICK_ROWS_MAX = 1_000
"""Rows of the history of ticks kept for each schedule."""

CATCHUP_MAX = 1_000
"""Missed ticks that `catchup: all` makes up for; older ones are skipped."""

FORMER_REPEATS_MAX = 10
"""Earlier repeats that a schedule keeps while a tick of theirs is due; each has up to 1,000 characters."""

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
"""Schedules of one source: to read as many takes 0.2 s, all else of it is done in slices."""

SCHEDULE_GRACE_S = 600
"""Seconds between the moment when no live worker declares a schedule and its removal: a worker that restarts,
or a host that reboots, is back by then, and somebody who follows events can still act."""

DECLARE_AGAIN_S = 60
"""Seconds after which a worker declares its schedules again, so that one that is missing comes back."""

DECLARE_AGAIN_S_MAX = 600
"""The longest of these times. It grows by a second with each live worker, so that even many workers declare
once a second together."""

DECLARERS_SETTLE_S = 60
"""Seconds after its start in which a server takes the workers it remembers for alive: longer than their
lease, so that each has said by then that it is there."""

DECLARERS_KEPT_MAX = 20
"""Live workers remembered of each version of a module: one is enough, the others stand in if it ends."""

VERSIONS_KEPT_MAX = 20
"""Versions of a module that are remembered after their last worker has ended: more than anybody goes back."""

RESULT_KEPT_S = 3_600
"""Seconds that the result of a function's job is kept, unless it says otherwise: few wait longer."""

UNFIT_MAX = 20
"""Times that workers give a job back for which their code is too old or too new, before it has failed: with
the pauses between them about a quarter of an hour, longer than a rolling restart."""

UNFIT_DELAY_S_MAX = 60
"""The longest pause after a job was given back so; the first is a second, and then they double."""

JOBS_COUNTED_MAX = 10_000
"""Jobs of one state that the page of jobs counts, `10,000+` where there are more: some 5 ms each."""

FINGERPRINT_CHARS_MAX = 64
"""Length of a fingerprint that failures are asked for by: those of this version have 16."""

SEEN_MAX = 10_000
"""Failed jobs, and failed runs, that are known as seen; of more the oldest count as new again."""

SEEN_AT_ONCE_MAX = 200
"""Failures that one MarkSeen names: a group of a page."""

RUNS_DELETED_AT_ONCE_MAX = 200
"""Runs that one DeleteRuns names, or looks at: more would make its transaction long."""

RUN_BYTES_DELETED_AT_ONCE = 4_000_000
"""Data and output after which a DeleteRuns leaves the rest to the next one: some 20 ms of search."""

DELETED_TEXT_CHARS_MAX = 1_000
"""Length of the text by which DeleteRuns finds runs: of a longer secret, one line is enough."""

PAGE_TURN_S = 0.00025
"""Seconds for which a page is made before others have a turn of the event loop: half of a small commit."""

TEMPLATES_S_MAX = 30.0
"""Seconds that a process may take to compile the templates of the pages: thirty times what it takes. Where it
does not end, the server compiles each when it is first looked at."""

SEARCHED_AT_ONCE = 1_000
"""Rows that a walk through names looks at before others have their transactions: 2 to 3 ms."""

SEARCHED_UNIT_MAX = 1_000
"""Steps beyond the usual few that all takes of one transaction may need, 1 to 5 us each."""

STEPS_FREE = 50
"""Steps of one take that are usual: stale entries, and names that were paused a moment ago."""

SEARCH_BURST = 5_000_000
"""Rows that walks for one token may look at before they are slowed down: five new patterns at a million
names."""

SEARCHED_PER_S_MAX = 100_000
"""Rows a second that they may look at then: a fifth of the event loop's time."""

SEARCH_S_MAX = 60.0
"""Time that a GetJob which does not wait is kept while very many names are searched for its pattern: twenty
times what a million take."""

SLICE = 200
"""Rows or schedules that are dealt with before others have a turn, where a command is long: some 10 ms."""

SCHEDULE_FILE_CHARS_MAX = 2 * 1024 * 1024
"""Length of a file with schedules, ours or another system's: 10,000 of them, with 200 characters each."""

IMPORT_TOKENS_MAX = 500_000
"""Words, texts and marks in a file of another system: reading that many takes half a second."""

YAML_NODES_MAX = 50_000
"""Values in a YAML file, for reading one takes some 40 us: 7,000 schedules. TOML and JSON are faster."""

YAML_VALUES_PER_CHAR_MAX = 4
"""Values in a YAML file for each of its characters, with what aliases stand for: a line may mean millions."""

TOML_KEY_PARTS_MAX = 64
"""Parts of a dotted key in TOML, as deep as JSON may nest: reading a key of n parts costs n * n."""

CRONTAB_VARIABLES_CHARS_MAX = 8_192
"""Length of what a crontab's variables become: it stands in the command of every line below them."""

CRONKEN_EVENT_CHARS_MAX = 512 * 1024
"""Length of one of Cronken's events: a definition with the longest command there may be, escaped."""

MOMENTS_PER_ADVANCE_MAX = 100_000
"""Moments that one AdvanceClock stops at; then it goes to its end at once."""

PG_CONNECT_S_MAX = 5
"""Time to connect to each host of PostgreSQL, and for what was sent to reach it: slower ones are gone."""

PG_ANSWER_S_MAX = 10
"""Time in which PostgreSQL answers what a unit sends, waits for rows included: units take milliseconds.
Beyond it the connection counts as broken; PostgreSQL ends a statement by itself then."""

PG_LOOK_S = 0.05
"""Time between two tries to reach a database that is away: a standby is promoted in some 300 ms."""

PG_LOOK_S_MAX = 2.0
"""The longest time between two tries: a try costs milliseconds of a processor, and may go on for days."""

OUTCOME_S_MAX = 600
"""Time in which a server finds out about a commit whose answer was lost: a failover by hand takes minutes."""

TIMELINE_STEP = 1_000_000
"""Numbers left out after a standby was promoted: more than a primary gives out that it did not tell it of."""

SESSION_KEPT_S = 86_400
"""Time that the last unit of a server is remembered: longer than it may ask for it."""

LOCK_WAIT_S_MAX = 2
"""Time that a unit on PostgreSQL waits for rows of another: units take milliseconds."""

WALKED_MAX = 1_000
"""Jobs of a class that a take by patterns walks on PostgreSQL before it asks names: half a millisecond."""

WALKED_EACH = 10
"""The same for each job that is wanted, where that is more."""

LOOKS_AGAIN_MAX = 10
"""How often a take is done again that other servers passed over: of 50,000, two tries left one or none."""

TAKEN_AT_ONCE = 8
"""Jobs that a take on PostgreSQL locks which no plan foresaw: each look costs a round trip."""

SERVER_GONE_S = 10
"""Time after which a server that other servers hear nothing of counts as gone."""

WATCH_EVERY_S = 0.5
"""Time between two looks of a server at what time asks for, where others may have written it."""

WATCHED_EVERY_S = 2.0
"""Time between two notes that some server does look."""

AWAY_S = 5.0
"""Time without such a note after which no server worked: leases begin anew, and ticks count as missed."""


# How far limits by name pattern and limits of what is kept may go, each with its reason.


LIMITS_MAX = 100
"""Patterns with a limit: the name of each job that is created is matched with all of them."""

QUEUED_LIMIT_MAX = 100_000
"""Jobs that a limit may let be queued: they are counted within a transaction, 40 ms for so many."""

RUNNING_LIMIT_MAX = 10_000
"""Runs at once that a limit may let through: all runs in progress are counted with each take of its names."""

PER_SECOND_MAX = 100_000
"""Creates a second that a limit may let through: more than a server does."""

KEPT_BYTES_MAX = 2**50
"""Room that a limit of what is kept may give: more than a disk has."""

RUN_OUTPUT_BYTES_MIN = 64 * 1024
"""Output of one run that is kept at the least: a chunk at its beginning, and one at its end."""

EVENTS_KEPT_S_MIN = 86_400
"""Time in which events are kept at the least: messages are made of them, and are tried for a day."""

COUNTED_KEPT_MAX = 50_000
"""Rows of one kind and pattern that are counted to show how much is kept: a fifth of a second."""

AUDIT_KEPT_S = 90 * 86_400
"""How long it is kept what operators changed: until the end of a quarter is looked back at."""
