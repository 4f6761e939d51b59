-- From version 8 to 9: workflows.

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
