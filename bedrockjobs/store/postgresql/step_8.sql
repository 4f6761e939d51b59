-- From version 7 to 8: the inbox of jobs that applications create in their own transactions.

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
