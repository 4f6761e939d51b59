BEGIN TRANSACTION;
CREATE TABLE audit (
    seq     INTEGER NOT NULL PRIMARY KEY,
    at      TEXT    NOT NULL,
    by      TEXT    NOT NULL,
    address TEXT    NOT NULL,
    command TEXT    NOT NULL,
    name    TEXT    NOT NULL DEFAULT '',
    jobID   INTEGER NOT NULL DEFAULT 0,
    detail  TEXT    NOT NULL DEFAULT '{}',
    before  TEXT    NOT NULL DEFAULT '',
    after   TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE drains (
    worker TEXT NOT NULL PRIMARY KEY,
    by     TEXT NOT NULL DEFAULT '',
    since  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE events (
    seq    INTEGER NOT NULL PRIMARY KEY,
    at     TEXT    NOT NULL,
    kind   TEXT    NOT NULL,
    name   TEXT    NOT NULL DEFAULT '',
    jobID  INTEGER NOT NULL DEFAULT 0,
    runID  INTEGER NOT NULL DEFAULT 0,
    by     TEXT    NOT NULL DEFAULT '',
    detail TEXT    NOT NULL DEFAULT ''
) STRICT;
INSERT INTO "events" VALUES(1,'2026-11-21 03:29:56.332','server started','',0,0,'','');
INSERT INTO "events" VALUES(2,'2026-11-21 03:29:56.332','worker joined','w',0,0,'','1 worker(s) now running [w]');
INSERT INTO "events" VALUES(3,'2026-11-21 03:29:56.332','failed','failed',8,4,'','no disk');
CREATE TABLE inbox (
    jobID   INTEGER NOT NULL PRIMARY KEY,
    at      TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    data    TEXT    NOT NULL DEFAULT '{}',
    options TEXT    NOT NULL DEFAULT '{}',
    by      TEXT    NOT NULL DEFAULT '',
    again   TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE jobs (
    created     TEXT    NOT NULL,
    jobID       INTEGER NOT NULL PRIMARY KEY,
    state       TEXT    NOT NULL
        CHECK (state = 'QUEUED' OR state = 'RUNNING' OR state = 'RUNQUEUED' OR state = 'PAUSED'
            OR state = 'FINISHED' OR state = 'FAILED' OR state = 'CANCELLED'),
    name        TEXT    NOT NULL CHECK (name <> ''),
    nextRun     TEXT    NOT NULL,
    lastRun     TEXT    NOT NULL DEFAULT '',
    repeat      TEXT    NOT NULL DEFAULT '',
    data        TEXT    NOT NULL DEFAULT '{}',
    priority    INTEGER NOT NULL DEFAULT 500
        CHECK (priority = 500 OR priority = 0 OR priority = 250 OR priority = 750 OR priority = 850
            OR priority = 1000),
    parentJobID INTEGER NOT NULL DEFAULT 0,
    retryAfter  TEXT    NOT NULL DEFAULT '',
    attempt     INTEGER NOT NULL DEFAULT 0,
    runID       INTEGER NOT NULL DEFAULT 0,
    expires     TEXT    NOT NULL DEFAULT '',
    lane        TEXT    NOT NULL DEFAULT '',
    options     TEXT    NOT NULL DEFAULT '{}',
    memory      TEXT    NOT NULL DEFAULT '{}',
    checksum    INTEGER,
    fingerprint TEXT    NOT NULL DEFAULT ''
) STRICT;
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',1,'QUEUED','plain','2026-11-21 03:29:56.332','','','{"n": 1}',500,0,'',0,0,'','','{}','{}',183974978,'');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',2,'RUNNING','running','2026-11-21 03:29:56.332','2026-11-21 03:29:56','','{}',500,0,'',1,1,'','','{}','{}',2745614147,'');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',3,'PAUSED','parent','2026-11-21 03:29:56','2026-11-21 03:29:56','','{}',500,0,'',1,0,'','','{}','{}',2745614147,'');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',4,'FINISHED','child/a','2026-11-21 03:29:56.332','2026-11-21 03:29:56','','{"a": 1}',500,3,'',1,0,'','','{}','{}',4221669015,'');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',5,'QUEUED','child/b','2026-11-21 03:29:56.332','','','{}',500,3,'',0,0,'','','{}','{}',2745614147,'');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',6,'QUEUED','cron','2026-11-21 03:30:00','','CRON * * * * *','{}',500,0,'',0,0,'','','{}','{}',2745614147,'');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',7,'QUEUED','keyed','2026-11-21 03:29:56.332','','','{}',500,0,'',0,0,'','','{}','{}',2745614147,'');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',8,'FAILED','failed','2026-11-21 03:29:56.332','2026-11-21 03:29:56','','{}',500,0,'',1,0,'','','{}','{"error":"no disk","exitCode":3,"failed":true}',2745614147,'fcaa2c6395a755e0');
CREATE TABLE keys (
    key     TEXT    NOT NULL PRIMARY KEY,
    jobID   INTEGER NOT NULL,
    created TEXT    NOT NULL,
    name    TEXT    NOT NULL DEFAULT '',
    holds   TEXT    NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
INSERT INTO "keys" VALUES('uniquekeyedk',7,'2026-11-21 03:29:56.332','','finished');
CREATE TABLE logins (
    digest  TEXT NOT NULL PRIMARY KEY,
    token   TEXT NOT NULL,
    created TEXT NOT NULL,
    expires TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('crashPatterns','[]');
INSERT INTO "meta" VALUES('nextJobID',9);
INSERT INTO "meta" VALUES('nextRunID',5);
INSERT INTO "meta" VALUES('runKey','fd8f0914de1833953bbf392b64b6678e5f82a3af22353ddc12630fc84e57b631');
INSERT INTO "meta" VALUES('seen','2026-11-21 03:29:56');
CREATE TABLE output (
    runID    INTEGER NOT NULL,
    firstSeq INTEGER NOT NULL,
    lastSeq  INTEGER NOT NULL,
    at       TEXT    NOT NULL,
    codec    TEXT    NOT NULL,
    start    INTEGER NOT NULL,
    size     INTEGER NOT NULL,
    bytes    BLOB    NOT NULL,
    PRIMARY KEY (runID, firstSeq)
) STRICT;
CREATE TABLE pauses (
    pattern TEXT NOT NULL PRIMARY KEY,
    by      TEXT NOT NULL DEFAULT '',
    reason  TEXT NOT NULL DEFAULT '',
    since   TEXT NOT NULL,
    until   TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE TABLE rules (
    name    TEXT    NOT NULL PRIMARY KEY,
    rule    TEXT    NOT NULL,
    by      TEXT    NOT NULL DEFAULT '',
    created TEXT    NOT NULL,
    cursor  INTEGER NOT NULL,
    state   TEXT    NOT NULL DEFAULT '{}'
) STRICT, WITHOUT ROWID;
CREATE TABLE runs (
    runID        INTEGER NOT NULL PRIMARY KEY,
    jobID        INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    attempt      INTEGER NOT NULL,
    cause        TEXT    NOT NULL,
    scheduledFor TEXT    NOT NULL,
    started      TEXT    NOT NULL,
    ended        TEXT    NOT NULL DEFAULT '',
    worker       TEXT    NOT NULL,
    host         TEXT    NOT NULL DEFAULT '',
    pid          INTEGER NOT NULL DEFAULT 0,
    status       TEXT    NOT NULL DEFAULT 'running',
    exitCode     INTEGER,
    error        TEXT    NOT NULL DEFAULT '',
    result       TEXT    NOT NULL DEFAULT '',
    progress     TEXT    NOT NULL DEFAULT '',
    output       TEXT    NOT NULL DEFAULT '[]',
    lease        INTEGER NOT NULL DEFAULT 0,
    stop         TEXT    NOT NULL DEFAULT '',
    data         TEXT    NOT NULL DEFAULT '',
    options      TEXT    NOT NULL DEFAULT '{}',
    priority     INTEGER NOT NULL DEFAULT 500,
    kept         TEXT    NOT NULL DEFAULT '',
    created      TEXT    NOT NULL DEFAULT '',
    fingerprint  TEXT    NOT NULL DEFAULT ''
) STRICT;
INSERT INTO "runs" VALUES(1,2,'running',1,'queue','2026-11-21 03:29:56.332','2026-11-21 03:29:56.332','','w','',0,'running',NULL,'','','','[]',0,'','{}','{}',500,'','','');
INSERT INTO "runs" VALUES(2,3,'parent',1,'queue','2026-11-21 03:29:56.332','2026-11-21 03:29:56.332','2026-11-21 03:29:56.332','w','',0,'success',NULL,'','','','[]',0,'','{}','{}',500,'','','');
INSERT INTO "runs" VALUES(3,4,'child/a',1,'queue','2026-11-21 03:29:56.332','2026-11-21 03:29:56.332','2026-11-21 03:29:56.332','w','',0,'success',NULL,'','{"a": 1}','','[]',0,'','{}','{}',500,'','','');
INSERT INTO "runs" VALUES(4,8,'failed',1,'queue','2026-11-21 03:29:56.332','2026-11-21 03:29:56.332','2026-11-21 03:29:56.332','w','',0,'fail',3,'no disk','','','[]',0,'','{}','{}',500,'','','fcaa2c6395a755e0');
CREATE TABLE seen (
    kind   TEXT    NOT NULL,
    number INTEGER NOT NULL,
    by     TEXT    NOT NULL DEFAULT '',
    at     TEXT    NOT NULL,
    PRIMARY KEY (kind, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE stats (
    minute   TEXT    NOT NULL PRIMARY KEY,
    created  INTEGER NOT NULL,
    taken    INTEGER NOT NULL,
    finished INTEGER NOT NULL,
    failed   INTEGER NOT NULL,
    retried  INTEGER NOT NULL,
    lost     INTEGER NOT NULL,
    waits    INTEGER NOT NULL,
    waitMs   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE ticks (
    jobID   INTEGER NOT NULL,
    tick    TEXT    NOT NULL,
    until   TEXT    NOT NULL,
    count   INTEGER NOT NULL,
    outcome TEXT    NOT NULL,
    reason  TEXT    NOT NULL DEFAULT '',
    late    INTEGER NOT NULL DEFAULT 0,
    runID   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (jobID, tick)
) STRICT, WITHOUT ROWID;
CREATE TABLE tokens (
    name     TEXT    NOT NULL PRIMARY KEY,
    digest   TEXT    NOT NULL,
    role     TEXT    NOT NULL,
    names    TEXT    NOT NULL DEFAULT '[]',
    noData   INTEGER NOT NULL DEFAULT 0,
    by       TEXT    NOT NULL DEFAULT '',
    created  TEXT    NOT NULL,
    expires  TEXT    NOT NULL DEFAULT '',
    lastUsed TEXT    NOT NULL DEFAULT '',
    revoked  TEXT    NOT NULL DEFAULT '',
    addresses TEXT   NOT NULL DEFAULT '[]'
) STRICT, WITHOUT ROWID;
CREATE TRIGGER jobsDataByHand AFTER UPDATE OF data ON jobs
    WHEN new.checksum IS old.checksum AND new.checksum IS NOT NULL AND new.data IS NOT old.data
BEGIN
    UPDATE jobs SET checksum = NULL WHERE jobID = new.jobID;
END;
CREATE INDEX jobsByName ON jobs (lane, name, priority DESC, nextRun) WHERE state IN ('QUEUED', 'RUNQUEUED');
CREATE INDEX jobsByPriority ON jobs (lane, priority DESC, nextRun) WHERE state IN ('QUEUED', 'RUNQUEUED');
CREATE INDEX jobsAnyState ON jobs (name);
CREATE INDEX jobsByParent ON jobs (parentJobID) WHERE parentJobID <> 0;
CREATE INDEX jobsByExpires ON jobs (expires) WHERE expires <> '';
CREATE INDEX jobsHolding ON jobs (lane) WHERE state = 'RUNNING' AND lane <> '';
CREATE INDEX jobsAside ON jobs (state) WHERE state = 'FAILED' OR state = 'PAUSED';
CREATE INDEX jobsAsideByName ON jobs (state, name) WHERE state = 'FAILED' OR state = 'PAUSED';
CREATE INDEX jobsFailedAlike ON jobs (fingerprint, name, jobID) WHERE state = 'FAILED';
CREATE INDEX jobsRepeating ON jobs (name) WHERE repeat <> '';
CREATE VIEW cron_jobs AS
SELECT
    jobID AS id,
    CASE WHEN json_valid(options) THEN coalesce(options ->> '$.source', '') ELSE '' END
        AS deployment_id,
    substr(name, instr(name, '.') + 1) AS verb,
    trim(substr(ltrim(repeat, char(9, 10, 13, 32)), 6), char(9, 10, 13, 32))
        AS schedule,
    CASE WHEN lastRun = '' THEN created ELSE lastRun END
        AS start_time,
    CASE WHEN json_valid(memory) AND memory ->> '$.trigger' <> '' THEN memory ->> '$.trigger' ELSE nextRun END
        AS next_execution,
    CASE state WHEN 'QUEUED' THEN 'idle' ELSE 'executing' END AS state,
    substr(name, 1, max(instr(name, '.') - 1, 0)) AS module_name
FROM jobs
WHERE repeat <> '' AND ltrim(repeat, char(9, 10, 13, 32)) LIKE 'CRON %'
    AND state IN ('QUEUED', 'RUNNING', 'RUNQUEUED', 'PAUSED');
CREATE INDEX runsByName ON runs (name, runID);
CREATE INDEX runsByJob ON runs (jobID, runID);
CREATE INDEX runsOpen ON runs (runID) WHERE status = 'running';
CREATE INDEX runsKept ON runs (kept) WHERE kept <> '';
CREATE INDEX runsFailedAlike ON runs (fingerprint, name, runID, jobID) WHERE fingerprint <> '';
CREATE INDEX keysByAge ON keys (created) WHERE holds = '';
CREATE INDEX keysByJob ON keys (jobID) WHERE holds <> '';
CREATE INDEX inboxByAgain ON inbox (again, jobID);
COMMIT;
