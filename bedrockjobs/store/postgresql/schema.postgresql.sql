-- The complete schema on PostgreSQL: the tables and columns of schema.sql, which explains each column, and
-- what several servers need in addition. The search path selects the schema.
--
-- Text is compared byte for byte (COLLATE "C"), as on SQLite. Timestamps are text in the same format.

CREATE TABLE jobs (
    created     text   COLLATE "C" NOT NULL,
    jobID       bigint NOT NULL PRIMARY KEY,
    state       text   COLLATE "C" NOT NULL
        CHECK (state IN ('QUEUED', 'RUNNING', 'RUNQUEUED', 'PAUSED', 'FINISHED', 'FAILED', 'CANCELLED')),
    name        text   COLLATE "C" NOT NULL CHECK (name <> ''),
    nextRun     text   COLLATE "C" NOT NULL,
    lastRun     text   COLLATE "C" NOT NULL DEFAULT '',
    repeat      text   COLLATE "C" NOT NULL DEFAULT '',
    data        text   COLLATE "C" NOT NULL DEFAULT '{}',
    priority    bigint NOT NULL DEFAULT 500 CHECK (priority IN (0, 250, 500, 750, 850, 1000)),
    parentJobID bigint NOT NULL DEFAULT 0,
    retryAfter  text   COLLATE "C" NOT NULL DEFAULT '',
    attempt     bigint NOT NULL DEFAULT 0,
    runID       bigint NOT NULL DEFAULT 0,
    expires     text   COLLATE "C" NOT NULL DEFAULT '',
    lane        text   COLLATE "C" NOT NULL DEFAULT '',
    options     text   COLLATE "C" NOT NULL DEFAULT '{}',
    memory      text   COLLATE "C" NOT NULL DEFAULT '{}',
    checksum    bigint,
    -- On PostgreSQL only.
    parental    boolean NOT NULL DEFAULT false,  -- it ever had a child, so ending it must check for children
    found       text   COLLATE "C" NOT NULL GENERATED ALWAYS AS (CASE WHEN lane = '' THEN '' ELSE
        coalesce(substring(lane FROM '^((?:now )?(?:(?:cmd|argv|url) )?lock) .'), lane) END)
        STORED,                                  -- the lane that a take reads: one for all locks of a kind
    lock        text   COLLATE "C" NOT NULL GENERATED ALWAYS AS (CASE WHEN lane = '' THEN '' ELSE
        coalesce(substring(lane FROM '^(?:now )?(?:(?:cmd|argv|url) )?lock (.+)$'), '') END)
        STORED,                                  -- the lock that it holds while RUNNING; '': none
    fingerprint text   COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0);

-- A manual change of data does not update its checksum, and a missing checksum is better than a wrong one.
CREATE FUNCTION forget_checksum() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    new.checksum := NULL;
    RETURN new;
END $$;

CREATE TRIGGER jobsDataByHand BEFORE UPDATE OF data ON jobs FOR EACH ROW
    WHEN (new.checksum = old.checksum AND new.data <> old.data) EXECUTE FUNCTION forget_checksum();

-- A take by name, and a take of any name: the first entries of each priority are the next jobs. The condition
-- on `created` is always true; it keeps the planner from using the second index for statements without it,
-- which it might do for a small table.
CREATE INDEX jobsByName ON jobs (found, name, priority DESC, nextRun, jobID)
    WHERE state IN ('QUEUED', 'RUNQUEUED');
CREATE INDEX jobsByPriority ON jobs (found, priority DESC, nextRun, jobID)
    WHERE state IN ('QUEUED', 'RUNQUEUED') AND length(created) >= 0;

-- The same by lock, for jobs with a lock, in case most locks are held.
CREATE INDEX jobsByLock ON jobs (found, name, priority DESC, lock, nextRun, jobID)
    WHERE state IN ('QUEUED', 'RUNQUEUED') AND lock > '';

-- For `unique`, which checks jobs in any state, mocked ones separately, and for lists by name. No name is
-- null; the condition keeps the planner from using the index for a jobID alone, which seems as cheap as the
-- primary key if the statistics were made of ended rows only.
CREATE INDEX jobsAnyState ON jobs (name, jobID) WHERE name IS NOT NULL;
CREATE INDEX jobsMocked ON jobs (name, jobID) WHERE lane = 'mock';

CREATE INDEX jobsByParent ON jobs (parentJobID, jobID) WHERE parentJobID <> 0;
CREATE INDEX jobsByExpires ON jobs (expires) WHERE expires <> '';
CREATE INDEX jobsHolding ON jobs (lock) WHERE state = 'RUNNING' AND lock <> '';
CREATE INDEX jobsAside ON jobs (state) WHERE state = 'FAILED' OR state = 'PAUSED';
CREATE INDEX jobsAsideByName ON jobs (state, name) WHERE state = 'FAILED' OR state = 'PAUSED';
CREATE INDEX jobsFailedAlike ON jobs (fingerprint, name, jobID) WHERE state = 'FAILED';
CREATE INDEX jobsRepeating ON jobs (name) WHERE repeat <> '';

-- Names with many jobs and with few come and go, so old statistics would mislead the planner.
ALTER TABLE jobs ALTER COLUMN name SET (n_distinct = -1);
ALTER TABLE jobs ALTER COLUMN name SET STATISTICS 0;

-- A value that was changed manually may not be JSON; it then has no members.
CREATE FUNCTION members_of(value text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN value::jsonb;
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$;

-- See schema.sql.
CREATE VIEW cron_jobs AS
SELECT
    jobID AS id,
    coalesce(members_of(options) ->> 'source', '') AS deployment_id,
    substr(name, strpos(name, '.') + 1) AS verb,
    btrim(substr(ltrim(repeat, E'\t\n\r '), 6), E'\t\n\r ') AS schedule,
    CASE WHEN lastRun = '' THEN created ELSE lastRun END AS start_time,
    coalesce(nullif(members_of(memory) ->> 'trigger', ''), nextRun) AS next_execution,
    CASE state WHEN 'QUEUED' THEN 'idle' ELSE 'executing' END AS state,
    substr(name, 1, greatest(strpos(name, '.') - 1, 0)) AS module_name
FROM jobs
WHERE repeat <> '' AND ltrim(repeat, E'\t\n\r ') ILIKE 'CRON %'
    AND state IN ('QUEUED', 'RUNNING', 'RUNQUEUED', 'PAUSED');

CREATE SEQUENCE jobIDs;
CREATE SEQUENCE runIDs;

CREATE TABLE runs (
    runID        bigint NOT NULL PRIMARY KEY,
    jobID        bigint NOT NULL,
    name         text   COLLATE "C" NOT NULL,
    attempt      bigint NOT NULL,
    cause        text   COLLATE "C" NOT NULL,
    scheduledFor text   COLLATE "C" NOT NULL,
    started      text   COLLATE "C" NOT NULL,
    ended        text   COLLATE "C" NOT NULL DEFAULT '',
    worker       text   COLLATE "C" NOT NULL,
    host         text   COLLATE "C" NOT NULL DEFAULT '',
    pid          bigint NOT NULL DEFAULT 0,
    status       text   COLLATE "C" NOT NULL DEFAULT 'running',
    exitCode     bigint,
    error        text   COLLATE "C" NOT NULL DEFAULT '',
    result       text   COLLATE "C" NOT NULL DEFAULT '',
    progress     text   COLLATE "C" NOT NULL DEFAULT '',
    output       text   COLLATE "C" NOT NULL DEFAULT '[]',
    lease        bigint NOT NULL DEFAULT 0,
    stop         text   COLLATE "C" NOT NULL DEFAULT '',
    beat         text   COLLATE "C" NOT NULL DEFAULT '', -- on PostgreSQL only: the last heartbeat; not indexed
    data         text   COLLATE "C" NOT NULL DEFAULT '',
    options      text   COLLATE "C" NOT NULL DEFAULT '{}',
    priority     bigint NOT NULL DEFAULT 500,
    kept         text   COLLATE "C" NOT NULL DEFAULT '',
    created      text   COLLATE "C" NOT NULL DEFAULT '',
    fingerprint  text   COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 80);

CREATE INDEX runsByName ON runs (name, runID);
CREATE INDEX runsByJob ON runs (jobID, runID);
CREATE INDEX runsOpen ON runs (runID) WHERE status = 'running';
CREATE INDEX runsKept ON runs (kept) WHERE kept <> '';
CREATE INDEX runsFailedAlike ON runs (fingerprint, runID, name, jobID) WHERE fingerprint <> '';

CREATE TABLE output (
    runID    bigint NOT NULL,
    firstSeq bigint NOT NULL,
    lastSeq  bigint NOT NULL,
    at       text   COLLATE "C" NOT NULL,
    codec    text   COLLATE "C" NOT NULL,
    start    bigint NOT NULL,
    size     bigint NOT NULL,
    bytes    bytea  NOT NULL,
    PRIMARY KEY (runID, firstSeq)
);

CREATE TABLE ticks (
    jobID   bigint NOT NULL,
    tick    text   COLLATE "C" NOT NULL,
    until   text   COLLATE "C" NOT NULL,
    count   bigint NOT NULL,
    outcome text   COLLATE "C" NOT NULL,
    reason  text   COLLATE "C" NOT NULL DEFAULT '',
    late    bigint NOT NULL DEFAULT 0,
    runID   bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (jobID, tick)
);

CREATE TABLE keys (
    key     text   COLLATE "C" NOT NULL PRIMARY KEY,
    jobID   bigint NOT NULL,
    created text   COLLATE "C" NOT NULL,
    name    text   COLLATE "C" NOT NULL DEFAULT '',
    holds   text   COLLATE "C" NOT NULL DEFAULT ''
);

CREATE INDEX keysByAge ON keys (created) WHERE holds = '';
CREATE INDEX keysByJob ON keys (jobID) WHERE holds <> '';

CREATE TABLE inbox (
    jobID   bigint NOT NULL PRIMARY KEY,
    at      text   COLLATE "C" NOT NULL,
    name    text   COLLATE "C" NOT NULL,
    data    text   COLLATE "C" NOT NULL DEFAULT '{}',
    options text   COLLATE "C" NOT NULL DEFAULT '{}',
    by      text   COLLATE "C" NOT NULL DEFAULT '',
    again   text   COLLATE "C" NOT NULL DEFAULT ''
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0);

CREATE INDEX inboxByAgain ON inbox (again, jobID);

CREATE TABLE workflows (
    workflowID bigint NOT NULL PRIMARY KEY,
    name       text   COLLATE "C" NOT NULL,
    state      text   COLLATE "C" NOT NULL DEFAULT 'RUNNING',
    created    text   COLLATE "C" NOT NULL,
    ended      text   COLLATE "C" NOT NULL DEFAULT '',
    keep       bigint NOT NULL,
    kept       text   COLLATE "C" NOT NULL DEFAULT '',
    open       bigint NOT NULL DEFAULT 0,
    failed     bigint NOT NULL DEFAULT 0,
    cancelled  bigint NOT NULL DEFAULT 0,
    by         text   COLLATE "C" NOT NULL DEFAULT ''
);

CREATE INDEX workflowsByState ON workflows (state, workflowID);
CREATE INDEX workflowsKept ON workflows (kept) WHERE kept <> '';

CREATE TABLE workflowJobs (
    jobID      bigint NOT NULL PRIMARY KEY,
    workflowID bigint NOT NULL,
    ref        text   COLLATE "C" NOT NULL,
    name       text   COLLATE "C" NOT NULL,
    onFailure  text   COLLATE "C" NOT NULL,
    waits      bigint NOT NULL DEFAULT 0,
    state      text   COLLATE "C" NOT NULL DEFAULT '',
    started    text   COLLATE "C" NOT NULL DEFAULT '',
    ended      text   COLLATE "C" NOT NULL DEFAULT '',
    reason     text   COLLATE "C" NOT NULL DEFAULT '',
    result     text   COLLATE "C" NOT NULL DEFAULT ''
);

CREATE UNIQUE INDEX workflowJobsByRef ON workflowJobs (workflowID, ref);
CREATE INDEX workflowJobsInOrder ON workflowJobs (workflowID, jobID, name);

CREATE TABLE workflowEdges (
    before bigint NOT NULL,
    jobID  bigint NOT NULL,
    PRIMARY KEY (before, jobID)
);

CREATE INDEX workflowEdgesByJob ON workflowEdges (jobID, before);

CREATE TABLE pauses (
    pattern text COLLATE "C" NOT NULL PRIMARY KEY,
    by      text COLLATE "C" NOT NULL DEFAULT '',
    reason  text COLLATE "C" NOT NULL DEFAULT '',
    since   text COLLATE "C" NOT NULL,
    until   text COLLATE "C" NOT NULL DEFAULT '',
    regex   text COLLATE "C" NOT NULL DEFAULT 'x^'  -- the pattern as a regular expression; default: no match
);

-- Token buckets of the limits of starts that are not full; until is in microseconds since 1970.
CREATE TABLE paced (
    key     text   COLLATE "C" NOT NULL,
    pattern text   COLLATE "C" NOT NULL,
    until   bigint NOT NULL,
    PRIMARY KEY (key, pattern)
);

CREATE INDEX pacedByUntil ON paced (pattern, until);

CREATE TABLE drains (
    worker text COLLATE "C" NOT NULL PRIMARY KEY,
    by     text COLLATE "C" NOT NULL DEFAULT '',
    since  text COLLATE "C" NOT NULL
);

CREATE TABLE events (
    seq    bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    at     text   COLLATE "C" NOT NULL,
    kind   text   COLLATE "C" NOT NULL,
    name   text   COLLATE "C" NOT NULL DEFAULT '',
    jobID  bigint NOT NULL DEFAULT 0,
    runID  bigint NOT NULL DEFAULT 0,
    by     text   COLLATE "C" NOT NULL DEFAULT '',
    detail text   COLLATE "C" NOT NULL DEFAULT ''
);

CREATE TABLE tokens (
    name     text   COLLATE "C" NOT NULL PRIMARY KEY,
    digest   text   COLLATE "C" NOT NULL,
    role     text   COLLATE "C" NOT NULL,
    names    text   COLLATE "C" NOT NULL DEFAULT '[]',
    noData   bigint NOT NULL DEFAULT 0,
    by       text   COLLATE "C" NOT NULL DEFAULT '',
    created  text   COLLATE "C" NOT NULL,
    expires  text   COLLATE "C" NOT NULL DEFAULT '',
    lastUsed text   COLLATE "C" NOT NULL DEFAULT '',
    revoked  text   COLLATE "C" NOT NULL DEFAULT '',
    addresses text  COLLATE "C" NOT NULL DEFAULT '[]'
);

CREATE TABLE logins (
    digest  text COLLATE "C" NOT NULL PRIMARY KEY,
    token   text COLLATE "C" NOT NULL,
    created text COLLATE "C" NOT NULL,
    expires text COLLATE "C" NOT NULL
);

CREATE TABLE audit (
    seq     bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    at      text   COLLATE "C" NOT NULL,
    by      text   COLLATE "C" NOT NULL,
    address text   COLLATE "C" NOT NULL,
    command text   COLLATE "C" NOT NULL,
    name    text   COLLATE "C" NOT NULL DEFAULT '',
    jobID   bigint NOT NULL DEFAULT 0,
    detail  text   COLLATE "C" NOT NULL DEFAULT '{}',
    before  text   COLLATE "C" NOT NULL DEFAULT '',
    after   text   COLLATE "C" NOT NULL DEFAULT ''
);

CREATE TABLE rules (
    name    text   COLLATE "C" NOT NULL PRIMARY KEY,
    rule    text   COLLATE "C" NOT NULL,
    by      text   COLLATE "C" NOT NULL DEFAULT '',
    created text   COLLATE "C" NOT NULL,
    cursor  bigint NOT NULL,
    state   text   COLLATE "C" NOT NULL DEFAULT '{}'
);

CREATE TABLE seen (
    kind   text   COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    by     text   COLLATE "C" NOT NULL DEFAULT '',
    at     text   COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, number)
);

CREATE TABLE stats (
    name     text   COLLATE "C" NOT NULL,
    step     bigint NOT NULL,
    at       text   COLLATE "C" NOT NULL,
    created  bigint NOT NULL,
    taken    bigint NOT NULL,
    finished bigint NOT NULL,
    failed   bigint NOT NULL,
    retried  bigint NOT NULL,
    lost     bigint NOT NULL,
    wait0 bigint NOT NULL, wait1 bigint NOT NULL, wait2 bigint NOT NULL, wait3 bigint NOT NULL,
    wait4 bigint NOT NULL, wait5 bigint NOT NULL, wait6 bigint NOT NULL, wait7 bigint NOT NULL,
    wait8 bigint NOT NULL, wait9 bigint NOT NULL, wait10 bigint NOT NULL, wait11 bigint NOT NULL,
    wait12 bigint NOT NULL, wait13 bigint NOT NULL, wait14 bigint NOT NULL, took0 bigint NOT NULL,
    took1 bigint NOT NULL, took2 bigint NOT NULL, took3 bigint NOT NULL, took4 bigint NOT NULL,
    took5 bigint NOT NULL, took6 bigint NOT NULL, took7 bigint NOT NULL, took8 bigint NOT NULL,
    took9 bigint NOT NULL, took10 bigint NOT NULL, took11 bigint NOT NULL, took12 bigint NOT NULL,
    took13 bigint NOT NULL, took14 bigint NOT NULL,
    depth    bigint,
    PRIMARY KEY (name, step, at)
);

-- State of the servers: crashPatterns (a JSON array), the last heartbeat of any server (seen), the last
-- outage of all servers (away), the oldest schema version that a server must support (schemaVersion), and the
-- secret of the advisory lock keys (lockSalt).
CREATE TABLE meta (
    key   text COLLATE "C" NOT NULL PRIMARY KEY,
    value text COLLATE "C"
);

-- epoch: counts changes of pauses, drains, tokens and the crash list; servers cache these while it is
-- unchanged. system, timeline: the cluster and its timeline, as last seen by a server. clock: the test clock
-- of all servers; empty: they use the clock of the database. version: that of the tables.
CREATE TABLE control (
    epoch    bigint NOT NULL,
    system   text   COLLATE "C" NOT NULL DEFAULT '',
    timeline bigint NOT NULL DEFAULT 0,
    clock    text   COLLATE "C" NOT NULL DEFAULT '',
    version  bigint NOT NULL
) WITH (fillfactor = 10);

-- The number and timestamp of the last unit committed by each server, to determine the outcome of a commit
-- whose answer was lost. A commit that arrives after the check violates the fence and fails, since the unit
-- may have been retried by then.
CREATE TABLE sessions (
    session text   COLLATE "C" NOT NULL PRIMARY KEY,
    unit    bigint NOT NULL,
    at      text   COLLATE "C" NOT NULL,
    fence   bigint NOT NULL DEFAULT 0 CHECK (unit > fence)
) WITH (fillfactor = 10);  -- each server uses several rows in turn

-- The live servers, with the schema version that each supports.
CREATE TABLE servers (
    name    text COLLATE "C" NOT NULL PRIMARY KEY,
    session text COLLATE "C" NOT NULL,
    started text COLLATE "C" NOT NULL,
    pulse   text COLLATE "C" NOT NULL,
    address text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    knows   bigint NOT NULL,
    workers bigint NOT NULL DEFAULT 0,
    state   text COLLATE "C" NOT NULL DEFAULT 'starting'
) WITH (fillfactor = 50);

-- The live workers of all servers.
CREATE TABLE workers (
    name      text    COLLATE "C" NOT NULL PRIMARY KEY,
    joined    text    COLLATE "C" NOT NULL,
    heartbeat text    COLLATE "C" NOT NULL,
    until     text    COLLATE "C" NOT NULL,
    host      text    COLLATE "C" NOT NULL,
    pid       bigint  NOT NULL,
    version   text    COLLATE "C" NOT NULL,
    asked     text[]  COLLATE "C" NOT NULL,
    accepts   text[]  COLLATE "C" NOT NULL,
    slots     bigint  NOT NULL,
    quiet     boolean NOT NULL,
    by        text    COLLATE "C"
) WITH (fillfactor = 50);

INSERT INTO control (epoch, version) VALUES (1, 13);
INSERT INTO meta (key, value) VALUES ('crashPatterns', '[]'), ('schemaVersion', '13'),
    ('lockSalt', gen_random_uuid()::text);
