-- The complete schema of a bedrockjobs database, and the only place where tables are defined; the server
-- applies it to a new file. `PRAGMA user_version` holds the version, which migrations raise.
--
-- Timestamps are UTC text, `YYYY-MM-DD HH:MM:SS`; nextRun has `.mmm` if it comes from the clock. Sorting the
-- text sorts by time.
--
-- The comments inside a CREATE statement are stored with it, and `bedrockjobs doctor` compares them: do not
-- reword them.

CREATE TABLE jobs (
    -- Bedrock's eleven columns, in Bedrock's order.
    created     TEXT    NOT NULL,               -- when CreateJob was done
    jobID       INTEGER NOT NULL PRIMARY KEY,   -- counts up from 1, never used twice
    state       TEXT    NOT NULL                -- see docs/explanation/life-cycle.md
        CHECK (state = 'QUEUED' OR state = 'RUNNING' OR state = 'RUNQUEUED' OR state = 'PAUSED'
            OR state = 'FINISHED' OR state = 'FAILED' OR state = 'CANCELLED'),
    name        TEXT    NOT NULL CHECK (name <> ''),
    nextRun     TEXT    NOT NULL,               -- due from this moment on; RUNQUEUED: lost from then on
    lastRun     TEXT    NOT NULL DEFAULT '',    -- when it was last taken; '' before the first time
    repeat      TEXT    NOT NULL DEFAULT '',    -- as it was typed
    data        TEXT    NOT NULL DEFAULT '{}',  -- a JSON object, as it was spelled
    priority    INTEGER NOT NULL DEFAULT 500    -- IN with more than two values would cost a take 2 us
        CHECK (priority = 500 OR priority = 0 OR priority = 250 OR priority = 750 OR priority = 850
            OR priority = 1000),
    parentJobID INTEGER NOT NULL DEFAULT 0,     -- 0: no parent
    retryAfter  TEXT    NOT NULL DEFAULT '',    -- as it was typed
    -- Ours.
    attempt     INTEGER NOT NULL DEFAULT 0,     -- how often it was taken
    runID       INTEGER NOT NULL DEFAULT 0,     -- the current run, if a worker opened one; fences late answers
    expires     TEXT    NOT NULL DEFAULT '',    -- when the current run is over whatever the worker says
    lane        TEXT    NOT NULL DEFAULT '',    -- '': any worker may take it; else who may, see bedrockjobs/job/lanes.py
    options     TEXT    NOT NULL DEFAULT '{}',  -- what a user gave beside the above: a JSON object, retries, cmd, ...
    memory      TEXT    NOT NULL DEFAULT '{}',  -- what the server notes: a JSON object, see bedrockjobs/job/memory.py
    checksum    INTEGER,                        -- CRC-32 of data as the server wrote it; null: not known
    fingerprint TEXT    NOT NULL DEFAULT ''     -- of its error when it became FAILED, see bedrockjobs/base/failure_text.py
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
        AS deployment_id,                       -- the source that brought it; '': made by hand
    substr(name, instr(name, '.') + 1) AS verb, -- of module.verb
    trim(substr(ltrim(repeat, char(9, 10, 13, 32)), 6), char(9, 10, 13, 32))
        AS schedule,                            -- with TZ=... where it has a zone
    CASE WHEN lastRun = '' THEN created ELSE lastRun END
        AS start_time,                          -- of its last run; before the first: when it was made
    CASE WHEN json_valid(memory) AND memory ->> '$.trigger' <> '' THEN memory ->> '$.trigger' ELSE nextRun END
        AS next_execution,                      -- its own, also while a run that somebody asked for comes first
    CASE state WHEN 'QUEUED' THEN 'idle' ELSE 'executing' END AS state,
    substr(name, 1, max(instr(name, '.') - 1, 0)) AS module_name
FROM jobs
WHERE repeat <> '' AND ltrim(repeat, char(9, 10, 13, 32)) LIKE 'CRON %'
    AND state IN ('QUEUED', 'RUNNING', 'RUNQUEUED', 'PAUSED');

-- One attempt of a job by one worker, started by a GetJob with the name of the worker.
CREATE TABLE runs (
    runID        INTEGER NOT NULL PRIMARY KEY,  -- counts up from 1, never used twice
    jobID        INTEGER NOT NULL,
    name         TEXT    NOT NULL,              -- the job's, which may be gone
    attempt      INTEGER NOT NULL,
    cause        TEXT    NOT NULL,              -- schedule, manual, retry or lost
    scheduledFor TEXT    NOT NULL,              -- when it should have begun
    started      TEXT    NOT NULL,
    ended        TEXT    NOT NULL DEFAULT '',
    worker       TEXT    NOT NULL,
    host         TEXT    NOT NULL DEFAULT '',
    pid          INTEGER NOT NULL DEFAULT 0,
    status       TEXT    NOT NULL DEFAULT 'running',
    exitCode     INTEGER,
    error        TEXT    NOT NULL DEFAULT '',
    result       TEXT    NOT NULL DEFAULT '',   -- the data that its end gave, a JSON object
    progress     TEXT    NOT NULL DEFAULT '',   -- a JSON value
    output       TEXT    NOT NULL DEFAULT '[]', -- its last lines, a JSON array
    lease        INTEGER NOT NULL DEFAULT 0,    -- seconds it may be without a heartbeat; 0: as long as it likes
    stop         TEXT    NOT NULL DEFAULT '',   -- TERM or KILL: what its worker is told
    data         TEXT    NOT NULL DEFAULT '',   -- the job's data as the run was given it; '': not known
    options      TEXT    NOT NULL DEFAULT '{}', -- the job's options then, a JSON object
    priority     INTEGER NOT NULL DEFAULT 500,  -- the job's then
    kept         TEXT    NOT NULL DEFAULT '',   -- stays until then, see keepFinished; '': one of the last of its name
    created      TEXT    NOT NULL DEFAULT '',   -- when its job was made, where kept is not ''
    fingerprint  TEXT    NOT NULL DEFAULT ''    -- of its error, of a run that failed, was lost or took too long; else ''
) STRICT;

CREATE INDEX runsByName ON runs (name, runID);
CREATE INDEX runsByJob ON runs (jobID, runID);
CREATE INDEX runsOpen ON runs (runID) WHERE status = 'running';
CREATE INDEX runsKept ON runs (kept) WHERE kept <> '';

-- Failed runs by fingerprint.
CREATE INDEX runsFailedAlike ON runs (fingerprint, name, runID, jobID) WHERE fingerprint <> '';

-- The output of a run, kept for a day: consecutive lines in one row. The numbers of omitted lines are
-- missing.
CREATE TABLE output (
    runID    INTEGER NOT NULL,
    firstSeq INTEGER NOT NULL,                  -- the number of its first line; they count up from 1 in each run
    lastSeq  INTEGER NOT NULL,
    at       TEXT    NOT NULL,                  -- when the first of them came
    codec    TEXT    NOT NULL,                  -- '': JSON, see bedrockjobs/store/chunks.py; zlib: packed
    start    INTEGER NOT NULL,                  -- bytes that the run had printed before them
    size     INTEGER NOT NULL,                  -- bytes of them, each with its end
    bytes    BLOB    NOT NULL,
    PRIMARY KEY (runID, firstSeq)
) STRICT;

-- The tick history of each schedule; consecutive ticks with the same outcome share a row.
CREATE TABLE ticks (
    jobID   INTEGER NOT NULL,
    tick    TEXT    NOT NULL,                   -- the first of them
    until   TEXT    NOT NULL,                   -- the last of them
    count   INTEGER NOT NULL,
    outcome TEXT    NOT NULL,                   -- fired, caught up or skipped
    reason  TEXT    NOT NULL DEFAULT '',        -- why it was skipped
    late    INTEGER NOT NULL DEFAULT 0,         -- seconds between the tick and its run
    runID   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (jobID, tick)
) STRICT, WITHOUT ROWID;

-- Keys of CreateJob: idempotency keys for a day, unique keys while they are held.
CREATE TABLE keys (
    key     TEXT    NOT NULL PRIMARY KEY,
    jobID   INTEGER NOT NULL,
    created TEXT    NOT NULL,
    name    TEXT    NOT NULL DEFAULT '',        -- of the job; '': a server before version 6 noted none
    holds   TEXT    NOT NULL DEFAULT ''         -- '': an idempotency key; of a unique key finished or started: until
                                                -- its job is; else the timestamp until which it is held
) STRICT, WITHOUT ROWID;

CREATE INDEX keysByAge ON keys (created) WHERE holds = '';

-- Paused names.
CREATE TABLE pauses (
    pattern TEXT NOT NULL PRIMARY KEY,          -- GLOB
    by      TEXT NOT NULL DEFAULT '',
    reason  TEXT NOT NULL DEFAULT '',
    since   TEXT NOT NULL,
    until   TEXT NOT NULL DEFAULT ''            -- '': until somebody resumes them
) STRICT, WITHOUT ROWID;

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
    name   TEXT    NOT NULL DEFAULT '',         -- a job's, a worker's or a pattern
    jobID  INTEGER NOT NULL DEFAULT 0,
    runID  INTEGER NOT NULL DEFAULT 0,
    by     TEXT    NOT NULL DEFAULT '',
    detail TEXT    NOT NULL DEFAULT ''
) STRICT;

-- Tokens. Revoked ones keep their row: a server without any token is open to all programs on its host.
CREATE TABLE tokens (
    name     TEXT    NOT NULL PRIMARY KEY,
    digest   TEXT    NOT NULL,                  -- SHA-256 of the token, in hexadecimal
    role     TEXT    NOT NULL,                  -- read, produce, work, operate, admin: a comma list
    names    TEXT    NOT NULL DEFAULT '[]',     -- the names it sees, a JSON array of GLOB patterns; none: all
    noData   INTEGER NOT NULL DEFAULT 0,        -- 1: it sees no data, results and output of jobs
    by       TEXT    NOT NULL DEFAULT '',
    created  TEXT    NOT NULL,
    expires  TEXT    NOT NULL DEFAULT '',       -- '': never
    lastUsed TEXT    NOT NULL DEFAULT '',       -- to the minute
    revoked  TEXT    NOT NULL DEFAULT '',       -- when it was; '': it was not
    addresses TEXT   NOT NULL DEFAULT '[]'      -- it was used from, the newest last, a JSON array
) STRICT, WITHOUT ROWID;

-- Login sessions of the pages.
CREATE TABLE logins (
    digest  TEXT NOT NULL PRIMARY KEY,          -- SHA-256 of the session in the cookie
    token   TEXT NOT NULL,                      -- the name of the token it was made with
    created TEXT NOT NULL,
    expires TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The audit log, kept for 90 days by default.
CREATE TABLE audit (
    seq     INTEGER NOT NULL PRIMARY KEY,       -- counts up
    at      TEXT    NOT NULL,
    by      TEXT    NOT NULL,                   -- the token's name; without tokens what the caller says
    address TEXT    NOT NULL,
    command TEXT    NOT NULL,
    name    TEXT    NOT NULL DEFAULT '',        -- a job's, a worker's, a token's or a pattern
    jobID   INTEGER NOT NULL DEFAULT 0,
    detail  TEXT    NOT NULL DEFAULT '{}',      -- the parameters, a JSON object
    before  TEXT    NOT NULL DEFAULT '',        -- a schedule as it was, a JSON object; '': there was none
    after   TEXT    NOT NULL DEFAULT ''
) STRICT;

-- Notification rules. All events up to the cursor have been handled.
CREATE TABLE rules (
    name    TEXT    NOT NULL PRIMARY KEY,
    rule    TEXT    NOT NULL,                   -- what is told to whom: a JSON object, as it was given
    by      TEXT    NOT NULL DEFAULT '',
    created TEXT    NOT NULL,
    cursor  INTEGER NOT NULL,                   -- a seq of events
    state   TEXT    NOT NULL DEFAULT '{}'       -- how its delivery stands: a JSON object, see bedrockjobs/job/rules.py
) STRICT, WITHOUT ROWID;

-- Acknowledged failures.
CREATE TABLE seen (
    kind   TEXT    NOT NULL,                    -- job: one that is FAILED; run: one that failed
    number INTEGER NOT NULL,                    -- its jobID or runID
    by     TEXT    NOT NULL DEFAULT '',
    at     TEXT    NOT NULL,
    PRIMARY KEY (kind, number)
) STRICT, WITHOUT ROWID;

-- Counters of each minute for charts, written when the minute is over.
CREATE TABLE stats (
    minute   TEXT    NOT NULL PRIMARY KEY,      -- YYYY-MM-DD HH:MM:00
    created  INTEGER NOT NULL,
    taken    INTEGER NOT NULL,
    finished INTEGER NOT NULL,
    failed   INTEGER NOT NULL,
    retried  INTEGER NOT NULL,
    lost     INTEGER NOT NULL,
    waits    INTEGER NOT NULL,                  -- takes of which waitMs is the sum
    waitMs   INTEGER NOT NULL                   -- how long their jobs had been due
) STRICT, WITHOUT ROWID;

-- State of the server: nextJobID, nextRunID, crashPatterns (a JSON array), and its last heartbeat (seen).
CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('nextJobID', 1), ('nextRunID', 1), ('crashPatterns', '[]');
