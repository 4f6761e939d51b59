-- The whole of a bedrockjobs database. This is the only place where a table is defined; the server applies
-- it to a new file. `PRAGMA user_version` holds the version, which migrations raise.
--
-- Times are UTC text, `YYYY-MM-DD HH:MM:SS`; nextRun has `.mmm` where it comes from the clock. Text order is
-- then time order.

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
    lane        TEXT    NOT NULL DEFAULT '',    -- '': any worker may take it; 'mock': a mocked job
    options     TEXT    NOT NULL DEFAULT '{}'   -- a JSON object with all that is not hot: error, exitCode
) STRICT;

-- A take by name: the first entry of each (lane, name, priority) is the next job of that name.
CREATE INDEX jobsByName ON jobs (lane, name, priority DESC, nextRun) WHERE state IN ('QUEUED', 'RUNQUEUED');

-- A take by `*`: the first entry of each (lane, priority). A name in here would break the promised order.
CREATE INDEX jobsByPriority ON jobs (lane, priority DESC, nextRun) WHERE state IN ('QUEUED', 'RUNQUEUED');

-- `unique`, which looks at jobs in any state, and lists by name.
CREATE INDEX jobsAnyState ON jobs (name);

-- The children of a job.
CREATE INDEX jobsByParent ON jobs (parentJobID) WHERE parentJobID <> 0;

-- What the server must remember beside the jobs: nextJobID, nextRunID, crashPatterns (a JSON array).
CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('nextJobID', 1), ('nextRunID', 1), ('crashPatterns', '[]');
