BEGIN TRANSACTION;
CREATE TABLE drains (
    worker TEXT NOT NULL PRIMARY KEY,
    by     TEXT NOT NULL DEFAULT '',
    since  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "drains" VALUES('host-2','ann','2026-11-21 03:31:06');
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
INSERT INTO "events" VALUES(1,'2026-11-21 03:29:56.332','server started','',0,0,'','');
INSERT INTO "events" VALUES(2,'2026-11-21 03:29:56.332','worker joined','w',0,0,'','1 worker(s) now running [w]');
INSERT INTO "events" VALUES(3,'2026-11-21 03:29:56.332','triggered','again',3,0,'ann','');
INSERT INTO "events" VALUES(4,'2026-11-21 03:29:56.332','triggered','pending',4,0,'','');
INSERT INTO "events" VALUES(5,'2026-11-21 03:29:56.332','triggered','pending',4,0,'','');
INSERT INTO "events" VALUES(6,'2026-11-21 03:29:56.332','failed','failed',9,3,'','no disk');
INSERT INTO "events" VALUES(7,'2026-11-21 03:29:56.332','synced','ops',0,0,'','2 added, 0 changed, 0 removed');
INSERT INTO "events" VALUES(8,'2026-11-21 03:29:56.332','triggered','ops/gone',12,0,'','');
INSERT INTO "events" VALUES(9,'2026-11-21 03:29:56.332','deleted','ops/gone',12,0,'','removed from its source');
INSERT INTO "events" VALUES(10,'2026-11-21 03:29:56.332','synced','ops',0,0,'','0 added, 0 changed, 1 removed');
INSERT INTO "events" VALUES(11,'2026-11-21 03:29:56.332','worker joined','host-1',0,0,'','2 worker(s) now running [host-1 w]');
INSERT INTO "events" VALUES(12,'2026-11-21 03:29:56.332','worker joined','host-2',0,0,'','3 worker(s) now running [host-1 host-2 w]');
INSERT INTO "events" VALUES(13,'2026-11-21 03:31:06.332','lost','pending',4,2,'w','Run lost: worker w was silent for 45 s');
INSERT INTO "events" VALUES(14,'2026-11-21 03:31:06.332','lost','ops/gone',12,4,'w','Run lost: worker w was silent for 45 s');
INSERT INTO "events" VALUES(15,'2026-11-21 03:31:06.332','failed','ops/gone',12,4,'','Run lost: worker w was silent for 45 s');
INSERT INTO "events" VALUES(16,'2026-11-21 03:31:06.332','worker left','w',0,0,'','2 worker(s) now running [host-1 host-2]');
INSERT INTO "events" VALUES(17,'2026-11-21 03:31:06.332','worker left','host-1',0,0,'','1 worker(s) now running [host-2]');
INSERT INTO "events" VALUES(18,'2026-11-21 03:31:06.332','worker left','host-2',0,0,'','0 worker(s) now running []');
INSERT INTO "events" VALUES(19,'2026-11-21 03:31:06.332','worker joined','w',0,0,'','1 worker(s) now running [w]');
INSERT INTO "events" VALUES(20,'2026-11-21 03:31:06.332','lost','locked',14,5,'w','Run lost: worker w was silent for 45 s');
INSERT INTO "events" VALUES(21,'2026-11-21 03:31:06.332','lost','lostrun',19,6,'w','Run lost: worker w was silent for 45 s');
INSERT INTO "events" VALUES(22,'2026-11-21 03:31:06.332','worker left','w',0,0,'','0 worker(s) now running []');
INSERT INTO "events" VALUES(23,'2026-11-21 03:31:06.332','worker joined','w',0,0,'','1 worker(s) now running [w]');
INSERT INTO "events" VALUES(24,'2026-11-21 03:31:06.332','paused','pause/*',0,0,'ann','disks');
INSERT INTO "events" VALUES(25,'2026-11-21 03:31:06.332','worker joined','host-2',0,0,'','2 worker(s) now running [host-2 w]');
INSERT INTO "events" VALUES(26,'2026-11-21 03:31:06.332','drained','host-2',0,0,'ann','');
INSERT INTO "events" VALUES(27,'2026-11-21 03:32:16.332','lost','own',16,7,'w','Run lost: worker w was silent for 45 s');
INSERT INTO "events" VALUES(28,'2026-11-21 03:32:16.332','worker left','w',0,0,'','1 worker(s) now running [host-2]');
INSERT INTO "events" VALUES(29,'2026-11-21 03:32:16.332','worker left','host-2',0,0,'','0 worker(s) now running []');
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
    lane        TEXT    NOT NULL DEFAULT '',    -- '': any worker may take it; else who may, see store/lanes.py
    options     TEXT    NOT NULL DEFAULT '{}'   -- a JSON object with all that is not hot: error, retries, ...
) STRICT;
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',1,'QUEUED','plain','2026-11-21 03:29:56.332','','','{"n": 1}',500,0,'',0,0,'','','{}');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',2,'QUEUED','retried','2026-11-21 03:30:58.912','2026-11-21 03:29:56','','{}',500,0,'',1,0,'','','{"backoff":60,"retries":3,"tags":["a"],"error":"first try","exitCode":3,"failures":1,"cause":"retry"}');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',3,'QUEUED','again','2026-11-21 03:29:56.332','','CRON 0 4 * * *','{}',500,0,'',0,0,'','now','{"trigger":{"nextRun":"2026-11-21 04:00:00"}}');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',4,'QUEUED','pending','2026-11-21 03:31:06.332','2026-11-21 03:29:56','CRON */5 * * * *','{}',500,0,'',1,0,'','now','{"error":"Run lost: worker w was silent for 45 s","trigger":{"nextRun":"2026-11-21 03:35:00"}}');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',5,'RUNQUEUED','lost','2026-11-21 03:34:56.332','2026-11-21 03:29:56','','{"k":2.5,"retryAfterCount":1}',500,0,'+5 MINUTES',1,0,'','','{"before":{"nextRun":"2026-11-21 03:29:56.332","lastRun":""}}');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',6,'PAUSED','parent','2026-11-21 03:29:56','2026-11-21 03:29:56','','{}',500,0,'',1,0,'','','{}');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',7,'FINISHED','child','2026-11-21 03:29:56.332','2026-11-21 03:29:56','','{"done": true}',500,6,'',1,0,'','','{}');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',8,'QUEUED','child','2026-11-21 03:29:56.332','','','{}',500,6,'',0,0,'','','{}');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',9,'FAILED','failed','2026-11-21 03:29:56.332','2026-11-21 03:29:56','','{}',500,0,'',1,0,'','','{"error":"no disk","exitCode":4}');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',10,'QUEUED','mocked','2026-11-21 03:29:56.332','','','{"mockRequest":true}',500,0,'',0,0,'','mock','{}');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',11,'QUEUED','ops/clean','2026-11-21 04:00:59','','CRON @hourly','{"days": 7}',500,0,'',0,0,'','argv','{"argv":["true"],"jitter":60,"source":"ops","defined":{"days": 7},"tick":"2026-11-21 04:00:00"}');
INSERT INTO "jobs" VALUES('2026-11-21 03:29:56',13,'QUEUED','everywhere','2026-11-21 03:33:00','2026-11-21 03:32:16','CRON * * * * *','{}',500,0,'',2,0,'','every','{"hosts":"all"}');
INSERT INTO "jobs" VALUES('2026-11-21 03:31:06',14,'QUEUED','locked','2026-11-21 03:31:06.332','2026-11-21 03:31:06','','{}',500,0,'',1,0,'','lock locked','{"lock":true,"error":"Run lost: worker w was silent for 45 s","losses":1,"cause":"lost"}');
INSERT INTO "jobs" VALUES('2026-11-21 03:31:06',15,'QUEUED','locked','2026-11-21 03:31:06.332','','','{}',500,0,'',0,0,'','lock locked','{"lock":true}');
INSERT INTO "jobs" VALUES('2026-11-21 03:31:06',16,'QUEUED','own','2026-11-21 03:32:16.332','2026-11-21 03:31:06','','{}',500,0,'',1,0,'','cmd','{"cmd":"echo hello","grace":5,"runTimeout":300,"error":"Run lost: worker w was silent for 45 s","losses":1,"cause":"lost"}');
INSERT INTO "jobs" VALUES('2026-11-21 03:31:06',17,'QUEUED','key','2026-11-21 03:31:06.332','','','{}',500,0,'',0,0,'','','{}');
INSERT INTO "jobs" VALUES('2026-11-21 03:31:06',18,'QUEUED','bedrock','2026-11-21 04:31:06','2026-11-21 03:31:06','SCHEDULED, +1 HOUR','{}',500,0,'',1,0,'','','{}');
INSERT INTO "jobs" VALUES('2026-11-21 03:31:06',19,'QUEUED','lostrun','2026-11-21 03:31:06.332','2026-11-21 03:31:06','','{}',500,0,'',1,0,'','','{"error":"Run lost: worker w was silent for 45 s","losses":1,"cause":"lost"}');
INSERT INTO "jobs" VALUES('2026-11-21 03:31:06',20,'QUEUED','zone','2026-11-22 00:30:00','','CRON TZ=Europe/Berlin 30 1 * * *','{}',500,0,'',0,0,'','','{"catchup":"skip"}');
INSERT INTO "jobs" VALUES('2026-11-21 03:32:16',21,'QUEUED','last','2026-11-21 03:32:16.332','','','{}',500,0,'',0,0,'','','{}');
CREATE TABLE keys (
    key     TEXT    NOT NULL PRIMARY KEY,
    jobID   INTEGER NOT NULL,
    created TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "keys" VALUES('k1',17,'2026-11-21 03:31:06.332');
CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('crashPatterns','["bad*"]');
INSERT INTO "meta" VALUES('nextJobID',22);
INSERT INTO "meta" VALUES('nextRunID',8);
INSERT INTO "meta" VALUES('seen','2026-11-21 03:32:16');
CREATE TABLE output (
    runID  INTEGER NOT NULL,
    seq    INTEGER NOT NULL,                    -- counts up from 1 in each run
    at     TEXT    NOT NULL,
    stream TEXT    NOT NULL,                    -- out or err
    line   TEXT    NOT NULL,
    PRIMARY KEY (runID, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO "output" VALUES(7,1,'2026-11-21 03:31:06.332','out','hello');
INSERT INTO "output" VALUES(7,2,'2026-11-21 03:31:06.332','err','oops');
CREATE TABLE pauses (
    pattern TEXT NOT NULL PRIMARY KEY,          -- GLOB
    by      TEXT NOT NULL DEFAULT '',
    reason  TEXT NOT NULL DEFAULT '',
    since   TEXT NOT NULL,
    until   TEXT NOT NULL DEFAULT ''            -- '': until somebody resumes them
) STRICT, WITHOUT ROWID;
INSERT INTO "pauses" VALUES('pause/*','ann','disks','2026-11-21 03:31:06','');
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
    stop         TEXT    NOT NULL DEFAULT ''    -- TERM or KILL: what its worker is told
) STRICT;
INSERT INTO "runs" VALUES(1,2,'retried',1,'schedule','2026-11-21 03:29:56.332','2026-11-21 03:29:56.332','2026-11-21 03:29:56.332','w','',0,'fail',3,'first try','','','[]',0,'');
INSERT INTO "runs" VALUES(2,4,'pending',1,'manual','2026-11-21 03:29:56','2026-11-21 03:29:56.332','2026-11-21 03:31:06.332','w','',0,'frozen',NULL,'Run lost: worker w was silent for 45 s','','','[]',45,'');
INSERT INTO "runs" VALUES(3,9,'failed',1,'schedule','2026-11-21 03:29:56.332','2026-11-21 03:29:56.332','2026-11-21 03:29:56.332','w','',0,'fail',4,'no disk','','','[]',0,'');
INSERT INTO "runs" VALUES(4,12,'ops/gone',1,'manual','2026-11-21 03:29:56','2026-11-21 03:29:56.332','2026-11-21 03:31:06.332','w','',0,'frozen',NULL,'Run lost: worker w was silent for 45 s','','','[]',45,'');
INSERT INTO "runs" VALUES(5,14,'locked',1,'schedule','2026-11-21 03:31:06.332','2026-11-21 03:31:06.332','2026-11-21 03:31:06.332','w','',0,'frozen',NULL,'Run lost: worker w was silent for 45 s','','','[]',45,'');
INSERT INTO "runs" VALUES(6,19,'lostrun',1,'schedule','2026-11-21 03:31:06.332','2026-11-21 03:31:06.332','2026-11-21 03:31:06.332','w','',0,'frozen',NULL,'Run lost: worker w was silent for 45 s','','','[]',45,'');
INSERT INTO "runs" VALUES(7,16,'own',1,'schedule','2026-11-21 03:31:06.332','2026-11-21 03:31:06.332','2026-11-21 03:32:16.332','w','',0,'frozen',NULL,'Run lost: worker w was silent for 45 s','','','["hello","oops"]',45,'');
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
INSERT INTO "stats" VALUES('2026-11-21 03:29:00',11,7,2,2,1,0,7,0);
INSERT INTO "stats" VALUES('2026-11-21 03:31:00',7,4,1,0,0,4,4,0);
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
INSERT INTO "ticks" VALUES(4,'2026-11-21 03:30:00','2026-11-21 03:30:00',1,'skipped','running',0,0);
INSERT INTO "ticks" VALUES(13,'2026-11-21 03:30:00','2026-11-21 03:32:00',3,'skipped','no worker',0,0);
CREATE INDEX jobsByName ON jobs (lane, name, priority DESC, nextRun) WHERE state IN ('QUEUED', 'RUNQUEUED');
CREATE INDEX jobsByPriority ON jobs (lane, priority DESC, nextRun) WHERE state IN ('QUEUED', 'RUNQUEUED');
CREATE INDEX jobsAnyState ON jobs (name);
CREATE INDEX jobsByParent ON jobs (parentJobID) WHERE parentJobID <> 0;
CREATE INDEX jobsByExpires ON jobs (expires) WHERE expires <> '';
CREATE INDEX jobsHolding ON jobs (lane) WHERE state = 'RUNNING' AND lane <> '';
CREATE INDEX jobsAside ON jobs (state) WHERE state = 'FAILED' OR state = 'PAUSED';
CREATE INDEX jobsRepeating ON jobs (name) WHERE repeat <> '';
CREATE INDEX runsByName ON runs (name, runID);
CREATE INDEX runsByJob ON runs (jobID, runID);
CREATE INDEX runsOpen ON runs (runID) WHERE status = 'running';
CREATE INDEX keysByAge ON keys (created);
COMMIT;
