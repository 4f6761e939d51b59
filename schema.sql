-- The complete schema of a bedrockjobs database, and the only place where tables are defined; the server
-- applies it to a new file. `PRAGMA user_version` holds the version, which migrations raise.
--
-- Timestamps are UTC text, `YYYY-MM-DD HH:MM:SS`; nextRun has `.mmm` if it comes from the clock. Sorting the
-- text sorts by time.
--
-- SQLite stores the comments inside a CREATE statement with it; `bedrockjobs doctor` ignores them.

CREATE TABLE jobs (
    -- Bedrock's eleven columns, in Bedrock's order.
    created     TEXT    NOT NULL,               -- time of CreateJob
    jobID       INTEGER NOT NULL PRIMARY KEY,   -- counts up from 1, never reused
    state       TEXT    NOT NULL                -- see docs/explanation/life-cycle.md
        CHECK (state = 'QUEUED' OR state = 'RUNNING' OR state = 'RUNQUEUED' OR state = 'PAUSED'
            OR state = 'FINISHED' OR state = 'FAILED' OR state = 'CANCELLED'),
    name        TEXT    NOT NULL CHECK (name <> ''),
    nextRun     TEXT    NOT NULL,               -- time from which it is due; RUNQUEUED: lost from then on
    lastRun     TEXT    NOT NULL DEFAULT '',    -- time of the last take; '': never taken
    repeat      TEXT    NOT NULL DEFAULT '',    -- as the client sent it
    data        TEXT    NOT NULL DEFAULT '{}',  -- a JSON object, as the client sent it
    priority    INTEGER NOT NULL DEFAULT 500    -- IN with more than two values would cost a take 2 us
        CHECK (priority = 500 OR priority = 0 OR priority = 250 OR priority = 750 OR priority = 850
            OR priority = 1000),
    parentJobID INTEGER NOT NULL DEFAULT 0,     -- 0: no parent
    retryAfter  TEXT    NOT NULL DEFAULT '',    -- as the client sent it
    -- Columns that Bedrock does not have.
    attempt     INTEGER NOT NULL DEFAULT 0,     -- number of takes
    runID       INTEGER NOT NULL DEFAULT 0,     -- the current run, if any; fences late reports
    expires     TEXT    NOT NULL DEFAULT '',    -- deadline of the current run
    lane        TEXT    NOT NULL DEFAULT '',    -- partition of the queued jobs; '': any worker may take it, see Lane in bedrockjobs/job/rows.py
    options     TEXT    NOT NULL DEFAULT '{}',  -- the user's other attributes, a JSON object: retries, cmd, ...
    memory      TEXT    NOT NULL DEFAULT '{}',  -- the server's notes, a JSON object, see Memory in bedrockjobs/job/rows.py
    checksum    INTEGER,                        -- CRC-32 of data as the server wrote it; null: unknown
    fingerprint TEXT    NOT NULL DEFAULT ''     -- of the error of a FAILED job, see bedrockjobs/base/errors.py
) STRICT;

-- A manual change of data does not update its checksum, and a missing checksum is better than a wrong one.
CREATE TRIGGER jobsDataByHand AFTER UPDATE OF data ON jobs
    WHEN new.checksum IS old.checksum AND new.checksum IS NOT NULL AND new.data IS NOT old.data
BEGIN
    UPDATE jobs SET checksum = NULL WHERE jobID = new.jobID;
END;

-- A take by name: the first entry of each (lane, name, priority) is the next job of that name.
CREATE INDEX jobsByName ON jobs (lane, name, priority DESC, nextRun) WHERE state IN ('QUEUED', 'RUNQUEUED');

-- A take by `*`: the first entry of each (lane, priority). A name in this index would break the order of
-- takes.
CREATE INDEX jobsByPriority ON jobs (lane, priority DESC, nextRun) WHERE state IN ('QUEUED', 'RUNQUEUED');

-- For `unique`, which checks jobs in any state, and for lists by name.
CREATE INDEX jobsAnyState ON jobs (name);

-- The children of a job.
CREATE INDEX jobsByParent ON jobs (parentJobID) WHERE parentJobID <> 0;

-- Jobs with a deadline: a run with a timeout, or a job that must start in time.
CREATE INDEX jobsByExpires ON jobs (expires) WHERE expires <> '';

-- Running jobs, which may hold a lock.
CREATE INDEX jobsHolding ON jobs (lane) WHERE state = 'RUNNING' AND lane <> '';

-- Jobs that wait for a person or for their children: few, and takes do not touch them.
CREATE INDEX jobsAside ON jobs (state) WHERE state = 'FAILED' OR state = 'PAUSED';

-- The same by name, for callers with a limited scope.
CREATE INDEX jobsAsideByName ON jobs (state, name) WHERE state = 'FAILED' OR state = 'PAUSED';

-- FAILED jobs by fingerprint, with the columns that are needed to count them.
CREATE INDEX jobsFailedAlike ON jobs (fingerprint, name, jobID) WHERE state = 'FAILED';

-- Jobs with a repeat, including schedules.
CREATE INDEX jobsRepeating ON jobs (name) WHERE repeat <> '';

-- The active schedules, in the columns of FTL's table of this name, for use by Query. Options or memory that
-- were changed manually to invalid JSON are ignored.
CREATE VIEW cron_jobs AS
SELECT
    jobID AS id,
    CASE WHEN json_valid(options) THEN coalesce(options ->> '$.source', '') ELSE '' END
        AS deployment_id,                       -- the source it belongs to; '': created manually
    substr(name, instr(name, '.') + 1) AS verb, -- of module.verb
    trim(substr(ltrim(repeat, char(9, 10, 13, 32)), 6), char(9, 10, 13, 32))
        AS schedule,                            -- with TZ=... if it has a time zone
    CASE WHEN lastRun = '' THEN created ELSE lastRun END
        AS start_time,                          -- start of its last run; its creation before the first run
    CASE WHEN json_valid(memory) AND memory ->> '$.trigger' <> '' THEN memory ->> '$.trigger' ELSE nextRun END
        AS next_execution,                      -- its next tick, even if a triggered run comes first
    CASE state WHEN 'QUEUED' THEN 'idle' ELSE 'executing' END AS state,
    substr(name, 1, max(instr(name, '.') - 1, 0)) AS module_name
FROM jobs
WHERE repeat <> '' AND ltrim(repeat, char(9, 10, 13, 32)) LIKE 'CRON %'
    AND state IN ('QUEUED', 'RUNNING', 'RUNQUEUED', 'PAUSED');

-- One attempt of a job by one worker, started by a GetJob with the name of the worker.
CREATE TABLE runs (
    runID        INTEGER NOT NULL PRIMARY KEY,  -- counts up from 1, never reused
    jobID        INTEGER NOT NULL,
    name         TEXT    NOT NULL,              -- name of the job, which may be deleted
    attempt      INTEGER NOT NULL,
    cause        TEXT    NOT NULL,              -- schedule, manual, retry or lost
    scheduledFor TEXT    NOT NULL,              -- time at which it was due
    started      TEXT    NOT NULL,
    ended        TEXT    NOT NULL DEFAULT '',
    worker       TEXT    NOT NULL,
    host         TEXT    NOT NULL DEFAULT '',
    pid          INTEGER NOT NULL DEFAULT 0,
    status       TEXT    NOT NULL DEFAULT 'running',
    exitCode     INTEGER,
    error        TEXT    NOT NULL DEFAULT '',
    result       TEXT    NOT NULL DEFAULT '',   -- data reported with its end, a JSON object
    progress     TEXT    NOT NULL DEFAULT '',   -- a JSON value
    output       TEXT    NOT NULL DEFAULT '[]', -- the last lines, a JSON array
    lease        INTEGER NOT NULL DEFAULT 0,    -- max seconds without a heartbeat; 0: unlimited
    stop         TEXT    NOT NULL DEFAULT '',   -- signal sent to its worker: TERM or KILL
    data         TEXT    NOT NULL DEFAULT '',   -- data of the job when the run started; '': unknown
    options      TEXT    NOT NULL DEFAULT '{}', -- options of the job then, a JSON object
    priority     INTEGER NOT NULL DEFAULT 500,  -- priority of the job then
    kept         TEXT    NOT NULL DEFAULT '',   -- retained until then, see keepFinished; '': one of the last of its name
    created      TEXT    NOT NULL DEFAULT '',   -- creation of its job, if kept is not ''
    fingerprint  TEXT    NOT NULL DEFAULT ''    -- of the error of a run that failed, was lost or timed out; else ''
) STRICT;

CREATE INDEX runsByName ON runs (name, runID);
CREATE INDEX runsByJob ON runs (jobID, runID);
CREATE INDEX runsOpen ON runs (runID) WHERE status = 'running';
CREATE INDEX runsKept ON runs (kept) WHERE kept <> '';

-- Failed runs by fingerprint, with the columns that are needed to count them.
CREATE INDEX runsFailedAlike ON runs (fingerprint, runID, name, jobID) WHERE fingerprint <> '';

-- The output of a run, kept for a day: consecutive lines in one row. The numbers of omitted lines are
-- missing.
CREATE TABLE output (
    runID    INTEGER NOT NULL,
    firstSeq INTEGER NOT NULL,                  -- number of the first line; lines count up from 1 in each run
    lastSeq  INTEGER NOT NULL,
    at       TEXT    NOT NULL,                  -- time of the first line
    codec    TEXT    NOT NULL,                  -- '': JSON, see bedrockjobs/store/chunks.py; zlib: compressed
    start    INTEGER NOT NULL,                  -- bytes printed before the first line
    size     INTEGER NOT NULL,                  -- bytes of the lines with their line ends
    bytes    BLOB    NOT NULL,
    PRIMARY KEY (runID, firstSeq)
) STRICT;

-- The tick history of each schedule; consecutive ticks with the same outcome share a row.
CREATE TABLE ticks (
    jobID   INTEGER NOT NULL,
    tick    TEXT    NOT NULL,                   -- the first tick
    until   TEXT    NOT NULL,                   -- the last tick
    count   INTEGER NOT NULL,
    outcome TEXT    NOT NULL,                   -- fired, caught up or skipped
    reason  TEXT    NOT NULL DEFAULT '',        -- reason for skipping
    late    INTEGER NOT NULL DEFAULT 0,         -- seconds between the tick and its run
    runID   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (jobID, tick)
) STRICT, WITHOUT ROWID;

-- Keys of CreateJob: idempotency keys for a day, unique keys while they are held.
CREATE TABLE keys (
    key     TEXT    NOT NULL PRIMARY KEY,
    jobID   INTEGER NOT NULL,
    created TEXT    NOT NULL,
    name    TEXT    NOT NULL DEFAULT '',        -- of the job; '': written before schema version 6
    holds   TEXT    NOT NULL DEFAULT ''         -- '': an idempotency key; for a unique key: finished, started, or
                                                -- the timestamp until which it is held
) STRICT, WITHOUT ROWID;

CREATE INDEX keysByAge ON keys (created) WHERE holds = '';

-- The unique key of a job.
CREATE INDEX keysByJob ON keys (jobID) WHERE holds <> '';

-- Jobs that applications created in transactions of their own, until a server takes them in.
CREATE TABLE inbox (
    jobID   INTEGER NOT NULL PRIMARY KEY,       -- of the job that it becomes
    at      TEXT    NOT NULL,                   -- when it was written
    name    TEXT    NOT NULL,
    data    TEXT    NOT NULL DEFAULT '{}',
    options TEXT    NOT NULL DEFAULT '{}',      -- the other attributes of CreateJob, a JSON object
    by      TEXT    NOT NULL DEFAULT '',        -- the role of the application
    again   TEXT    NOT NULL DEFAULT ''         -- not before this time, after a limit has refused it
) STRICT;

CREATE INDEX inboxByAgain ON inbox (again, jobID);

-- Workflows: jobs of which some start after others have ended.
CREATE TABLE workflows (
    workflowID INTEGER NOT NULL PRIMARY KEY,    -- from the sequence of jobIDs
    name       TEXT    NOT NULL,
    state      TEXT    NOT NULL DEFAULT 'RUNNING', -- RUNNING, FINISHED, FAILED or CANCELLED
    created    TEXT    NOT NULL,
    ended      TEXT    NOT NULL DEFAULT '',     -- '': not yet
    keep       INTEGER NOT NULL,                -- seconds for which it is kept after its end
    kept       TEXT    NOT NULL DEFAULT '',     -- kept until then; '': it runs, or it failed
    open       INTEGER NOT NULL DEFAULT 0,      -- jobs that have not ended
    failed     INTEGER NOT NULL DEFAULT 0,      -- jobs that ended badly and whose onFailure is not ignore
    cancelled  INTEGER NOT NULL DEFAULT 0,      -- 1: CancelWorkflow ended it
    by         TEXT    NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX workflowsByState ON workflows (state, workflowID);
CREATE INDEX workflowsKept ON workflows (kept) WHERE kept <> '';

-- The jobs of workflows, which are kept when the jobs themselves are gone.
CREATE TABLE workflowJobs (
    jobID      INTEGER NOT NULL PRIMARY KEY,
    workflowID INTEGER NOT NULL,
    ref        TEXT    NOT NULL,                -- its name within the workflow
    name       TEXT    NOT NULL,                -- of the job
    onFailure  TEXT    NOT NULL,                -- cancel, continue or ignore
    waits      INTEGER NOT NULL DEFAULT 0,      -- jobs that it waits for; after an end: it was cancelled with them
    state      TEXT    NOT NULL DEFAULT '',     -- '': not ended; else FINISHED, FAILED or CANCELLED
    started    TEXT    NOT NULL DEFAULT '',     -- its last take, once it has ended
    ended      TEXT    NOT NULL DEFAULT '',
    reason     TEXT    NOT NULL DEFAULT '',     -- why it was cancelled or failed
    result     TEXT    NOT NULL DEFAULT ''      -- what it reported, a JSON object; '': nothing
) STRICT;

CREATE UNIQUE INDEX workflowJobsByRef ON workflowJobs (workflowID, ref);
CREATE INDEX workflowJobsInOrder ON workflowJobs (workflowID, jobID, name);

-- The edges of workflows: the first job has to end before the second one starts.
CREATE TABLE workflowEdges (
    before INTEGER NOT NULL,                    -- a jobID
    jobID  INTEGER NOT NULL,
    PRIMARY KEY (before, jobID)
) STRICT, WITHOUT ROWID;

CREATE INDEX workflowEdgesByJob ON workflowEdges (jobID, before);

-- Paused names.
CREATE TABLE pauses (
    pattern TEXT NOT NULL PRIMARY KEY,          -- GLOB
    by      TEXT NOT NULL DEFAULT '',
    reason  TEXT NOT NULL DEFAULT '',
    since   TEXT NOT NULL,
    until   TEXT NOT NULL DEFAULT ''            -- '': until resumed manually
) STRICT, WITHOUT ROWID;

-- Token buckets of the limits of starts that are not full, see `bedrockjobs/job/limits.py`.
CREATE TABLE paced (
    key     TEXT    NOT NULL,                   -- concurrencyKey, if the limit is per key; else ''
    pattern TEXT    NOT NULL,                   -- of the limit
    until   INTEGER NOT NULL,                   -- the starts so far use up the rate until then, in microseconds
                                                -- since 1970
    PRIMARY KEY (key, pattern)
) STRICT, WITHOUT ROWID;

CREATE INDEX pacedByUntil ON paced (pattern, until);

-- Drained workers, which take no new jobs.
CREATE TABLE drains (
    worker TEXT NOT NULL PRIMARY KEY,
    by     TEXT NOT NULL DEFAULT '',
    since  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Events, for people and programs that follow them.
CREATE TABLE events (
    seq    INTEGER NOT NULL PRIMARY KEY,        -- counts up
    at     TEXT    NOT NULL,
    kind   TEXT    NOT NULL,
    name   TEXT    NOT NULL DEFAULT '',         -- of a job or worker, or a pattern
    jobID  INTEGER NOT NULL DEFAULT 0,
    runID  INTEGER NOT NULL DEFAULT 0,
    by     TEXT    NOT NULL DEFAULT '',
    detail TEXT    NOT NULL DEFAULT ''
) STRICT;

-- Tokens. Revoked ones keep their row: a server without any token is open to all programs on its host.
CREATE TABLE tokens (
    name     TEXT    NOT NULL PRIMARY KEY,
    digest   TEXT    NOT NULL,                  -- SHA-256 of the token, in hexadecimal
    role     TEXT    NOT NULL,                  -- comma-separated: read, produce, work, operate, admin
    names    TEXT    NOT NULL DEFAULT '[]',     -- scope: a JSON array of GLOB patterns; empty: all names
    noData   INTEGER NOT NULL DEFAULT 0,        -- 1: data, results and output of jobs are hidden
    by       TEXT    NOT NULL DEFAULT '',
    created  TEXT    NOT NULL,
    expires  TEXT    NOT NULL DEFAULT '',       -- '': never
    lastUsed TEXT    NOT NULL DEFAULT '',       -- in whole minutes
    revoked  TEXT    NOT NULL DEFAULT '',       -- time of revocation; '': not revoked
    addresses TEXT   NOT NULL DEFAULT '[]'      -- where it was used from, newest last, a JSON array
) STRICT, WITHOUT ROWID;

-- Login sessions of the pages.
CREATE TABLE logins (
    digest  TEXT NOT NULL PRIMARY KEY,          -- SHA-256 of the session in the cookie
    token   TEXT NOT NULL,                      -- name of the token used to log in
    created TEXT NOT NULL,
    expires TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The audit log, kept for 90 days by default.
CREATE TABLE audit (
    seq     INTEGER NOT NULL PRIMARY KEY,       -- counts up
    at      TEXT    NOT NULL,
    by      TEXT    NOT NULL,                   -- name of the token; without tokens as given by the client
    address TEXT    NOT NULL,
    command TEXT    NOT NULL,
    name    TEXT    NOT NULL DEFAULT '',        -- of a job, worker or token, or a pattern
    jobID   INTEGER NOT NULL DEFAULT 0,
    detail  TEXT    NOT NULL DEFAULT '{}',      -- the parameters, a JSON object
    before  TEXT    NOT NULL DEFAULT '',        -- the schedule before, a JSON object; '': did not exist
    after   TEXT    NOT NULL DEFAULT ''
) STRICT;

-- Notification rules. All events up to the cursor have been handled.
CREATE TABLE rules (
    name    TEXT    NOT NULL PRIMARY KEY,
    rule    TEXT    NOT NULL,                   -- a JSON object, as the client sent it
    by      TEXT    NOT NULL DEFAULT '',
    created TEXT    NOT NULL,
    cursor  INTEGER NOT NULL,                   -- a seq of events
    state   TEXT    NOT NULL DEFAULT '{}'       -- state of delivery, a JSON object, see bedrockjobs/job/delivery.py
) STRICT, WITHOUT ROWID;

-- Acknowledged failures.
CREATE TABLE seen (
    kind   TEXT    NOT NULL,                    -- job: a FAILED job; run: a failed run
    number INTEGER NOT NULL,                    -- jobID or runID
    by     TEXT    NOT NULL DEFAULT '',
    at     TEXT    NOT NULL,
    PRIMARY KEY (kind, number)
) STRICT, WITHOUT ROWID;

-- Counters for charts, by name and together: for each minute and each hour in which something happened. Takes are
-- also counted by the time since the job was due, and runs by their duration, in the buckets of SPAN_S in
-- bedrockjobs/observe/stats.py.
CREATE TABLE stats (
    name     TEXT    NOT NULL,                  -- of jobs; '': all names together
    step     INTEGER NOT NULL,                  -- 60 or 3600 seconds
    at       TEXT    NOT NULL,                  -- the start of the step
    created  INTEGER NOT NULL,
    taken    INTEGER NOT NULL,
    finished INTEGER NOT NULL,
    failed   INTEGER NOT NULL,
    retried  INTEGER NOT NULL,
    lost     INTEGER NOT NULL,
    wait0 INTEGER NOT NULL, wait1 INTEGER NOT NULL, wait2 INTEGER NOT NULL, wait3 INTEGER NOT NULL,
    wait4 INTEGER NOT NULL, wait5 INTEGER NOT NULL, wait6 INTEGER NOT NULL, wait7 INTEGER NOT NULL,
    wait8 INTEGER NOT NULL, wait9 INTEGER NOT NULL, wait10 INTEGER NOT NULL,
    wait11 INTEGER NOT NULL, wait12 INTEGER NOT NULL, wait13 INTEGER NOT NULL,
    wait14 INTEGER NOT NULL, took0 INTEGER NOT NULL, took1 INTEGER NOT NULL,
    took2 INTEGER NOT NULL, took3 INTEGER NOT NULL, took4 INTEGER NOT NULL, took5 INTEGER NOT NULL,
    took6 INTEGER NOT NULL, took7 INTEGER NOT NULL, took8 INTEGER NOT NULL, took9 INTEGER NOT NULL,
    took10 INTEGER NOT NULL, took11 INTEGER NOT NULL, took12 INTEGER NOT NULL,
    took13 INTEGER NOT NULL, took14 INTEGER NOT NULL,
    depth    INTEGER,                           -- queued jobs, when last counted; null: they were not
    PRIMARY KEY (name, step, at)
) STRICT, WITHOUT ROWID;

-- State of the server: nextJobID, nextRunID, crashPatterns (a JSON array), and its last heartbeat (seen).
CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('nextJobID', 1), ('nextRunID', 1), ('crashPatterns', '[]');
