-- Statements on jobs, locks and IDs in a unit on PostgreSQL. `{row}` is the list of the columns of a job, its
-- checksum, and whether it ever had a child.

-- name: begin
-- Begin a unit.
BEGIN;

-- name: commit
-- Commit a unit.
COMMIT;

-- name: rollback
-- Roll back a unit.
ROLLBACK;

-- name: savepoint
-- Begin a savepoint.
SAVEPOINT part;

-- name: release
-- Release the savepoint.
RELEASE SAVEPOINT part;

-- name: undo_part
-- Roll back to the savepoint and release it.
ROLLBACK TO SAVEPOINT part;

-- name: lock_shared
-- Take an advisory lock in shared mode, as a reader.
SELECT pg_advisory_xact_lock_shared($1::bigint);

-- name: lock_alone
-- Take an advisory lock exclusively, to change what it protects.
SELECT pg_advisory_xact_lock($1::bigint);

-- name: lock_each
-- Take several advisory locks in the given order.
SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS keys (key);

-- name: try_lock
-- Take an advisory lock unless another session holds it.
SELECT pg_try_advisory_xact_lock($1::bigint);

-- name: epoch
-- The epoch of pauses, drains and the crash list, the time of the test clock, the oldest supported server
-- version, whether any job is queued outside of the open lane, and whether any has a lock.
SELECT epoch, clock, (SELECT value FROM meta WHERE key = 'schemaVersion'),
    (SELECT true FROM jobs WHERE {queued} AND found > '' ORDER BY found, name LIMIT 1),
    (SELECT true FROM jobs WHERE {queued} AND lock > '' ORDER BY found, name, priority DESC, lock LIMIT 1) FROM control;

-- name: raise_epoch
-- Raise the epoch after a change.
UPDATE control SET epoch = epoch + 1;

-- name: lock_workflows
-- Lock some workflows, and those of some jobs and of their parents, by workflowID.
SELECT {workflow} FROM workflows WHERE workflowID = ANY (ARRAY(
    SELECT unnest($1::bigint[])
    UNION SELECT workflowID FROM workflowJobs WHERE jobID = ANY (ARRAY(
        SELECT unnest($2::bigint[])
        UNION SELECT child.parentJobID FROM jobs AS child WHERE child.jobID = ANY ($2::bigint[])
    ))
)) ORDER BY workflowID FOR UPDATE;

-- name: lock_workflow
-- Lock a workflow.
SELECT {workflow} FROM workflows WHERE workflowID = $1 FOR UPDATE;

-- name: end_jobs
-- Delete jobs if nothing else is needed to finish them. The index yields them by jobID, as the lock order
-- requires.
DELETE FROM jobs WHERE jobID = ANY ($1::bigint[]) AND {plain_end} RETURNING {row};

-- name: lock_jobs
-- Lock jobs without a parent by jobID: some jobs, and the parents of others. Here and below, IDs are passed
-- as an array and not joined, as a join without statistics reads the whole primary key.
SELECT {row} FROM jobs WHERE parentJobID = 0 AND jobID = ANY (ARRAY(
    SELECT unnest($1::bigint[])
    UNION SELECT child.parentJobID FROM jobs AS child WHERE child.jobID = ANY ($1::bigint[])
)) ORDER BY jobID FOR UPDATE;

-- name: lock_children
-- Lock jobs with a parent by jobID, after the parents. `+ 0` keeps the planner from reading the index of all
-- children.
SELECT {row} FROM jobs WHERE parentJobID + 0 <> 0 AND jobID = ANY ($1::bigint[]) ORDER BY jobID FOR UPDATE;

-- name: lock_jobs_and_firsts
-- Lock jobs without a parent by jobID: some jobs, the first jobs of some names, and the parents of all these.
WITH named AS MATERIALIZED ({named})
SELECT {row} FROM jobs WHERE parentJobID = 0 AND jobID = ANY (ARRAY(
    SELECT jobID FROM named
    UNION SELECT child.parentJobID FROM jobs AS child WHERE child.jobID = ANY (ARRAY(SELECT jobID FROM named))
)) ORDER BY jobID FOR UPDATE;

-- name: lock_children_and_firsts
-- Lock jobs with a parent by jobID, after the parents: some jobs, and the first jobs of some names.
WITH named AS MATERIALIZED ({named})
SELECT {row} FROM jobs WHERE parentJobID + 0 <> 0 AND jobID = ANY (ARRAY(SELECT jobID FROM named))
    ORDER BY jobID FOR UPDATE;

-- name: firsts
-- The first jobs of some names, real and mocked; read after locking, as one may have been deleted meanwhile.
SELECT asked.name, {first:real}, {first:mocked} FROM unnest($1::text[]) AS asked (name);

-- name: runs_ahead
-- Some runs, and those of some jobs, each with its last line number, bytes printed, and its output if that is
-- one chunk of at most $3 bytes.
SELECT {run}, coalesce(last.lastSeq, 0), coalesce(last.start + last.size, 0),
    CASE WHEN last.firstSeq = 1 AND last.codec = '' AND octet_length(last.bytes) <= $3::bigint THEN last.bytes END
FROM runs LEFT JOIN LATERAL (
    SELECT firstSeq, lastSeq, codec, start, size, bytes FROM output WHERE output.runID = runs.runID
    ORDER BY firstSeq DESC LIMIT 1
) AS last ON true WHERE runs.runID IN (
    SELECT unnest($1::bigint[])
    UNION SELECT jobs.runID FROM jobs WHERE jobs.jobID = ANY ($2::bigint[]) AND jobs.runID <> 0
);

-- name: keys_ahead
-- The jobs of some idempotency keys and unique keys, and the unique keys of some jobs.
SELECT key, jobID, created, name, holds FROM keys WHERE key = ANY ($1::text[])
UNION ALL
SELECT key, jobID, created, name, holds FROM keys WHERE jobID = ANY ($2::bigint[]) AND holds <> '';

-- name: jobs_by_id
-- Some jobs.
SELECT {row} FROM jobs WHERE jobID = ANY ($1::bigint[]) ORDER BY (parentJobID <> 0), jobID FOR UPDATE;

-- name: begin_reading
-- Begin a transaction whose statements all see the same committed rows.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: shown_jobs
-- Some jobs, without locks.
SELECT {row} FROM jobs WHERE jobID = ANY ($1::bigint[]);

-- name: kept_of_jobs
-- The last runs of those of some jobs that are gone, with their input, if they are kept.
SELECT run.* FROM unnest($1::bigint[]) AS asked (gone) CROSS JOIN LATERAL (
    SELECT {run}, data, options, priority FROM runs WHERE jobID = asked.gone ORDER BY runID DESC LIMIT 1
) AS run WHERE run.kept <> '' AND (SELECT true FROM jobs WHERE jobs.jobID = asked.gone) IS NULL;

-- name: in_inbox
-- Those of some jobs that are still in the inbox.
SELECT jobID, at, name, data, options, by, again FROM inbox WHERE jobID = ANY ($1::bigint[]);

-- name: claim_in_inbox
-- Lock those of some jobs that are still in the inbox and that no other server takes in.
SELECT jobID, at, name, data, options, by, again FROM inbox WHERE jobID = ANY ($1::bigint[])
    ORDER BY jobID FOR UPDATE SKIP LOCKED;

-- name: inbox_or_job
-- A job of the inbox; only its jobID if it was taken in since the unit looked for the job.
SELECT jobID, at, name, data, options, by, again FROM inbox WHERE jobID = $1
UNION ALL SELECT jobID, '', '', '', '', '', '' FROM jobs WHERE jobID = $1;

-- name: shown_job
-- A job, without a lock.
SELECT {row} FROM jobs WHERE jobID = $1;

-- name: insert_jobs
-- Insert jobs.
INSERT INTO jobs ({columns}, parental) SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[],
    $6::text[], $7::text[], $8::text[], $9::bigint[], $10::bigint[], $11::text[], $12::bigint[], $13::bigint[],
    $14::text[], $15::text[], $16::text[], $17::text[], $18::bigint[], $19::boolean[]);

-- name: insert_plain_jobs
-- Insert jobs with only a name and data; they have the same creation time and nextRun.
INSERT INTO jobs (created, state, nextRun, jobID, name, data, checksum)
    SELECT $1, 'QUEUED', $2, * FROM unnest($3::bigint[], $4::text[], $5::text[], $6::bigint[]);

-- name: claim_jobs
-- Mark plain jobs as taken. Here and below, the IDs are also passed as an array, as a join without statistics
-- reads the whole index for each.
UPDATE jobs SET state = 'RUNNING', lastRun = claim.lastRun, attempt = claim.attempt, runID = claim.runID
    FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[]) AS claim (jobID, lastRun, attempt, runID)
    WHERE jobs.jobID = claim.jobID AND jobs.jobID = ANY ($1::bigint[]);

-- name: save_jobs
-- Update all columns of some jobs that can change, except the data.
UPDATE jobs SET state = new.state, name = new.name, nextRun = new.nextRun, lastRun = new.lastRun, repeat = new.repeat,
    priority = new.priority, retryAfter = new.retryAfter, attempt = new.attempt, runID = new.runID,
    expires = new.expires, lane = new.lane, options = new.options, memory = new.memory
    FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[],
        $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::text[], $14::text[])
        AS new (jobID, state, name, nextRun, lastRun, repeat, priority, retryAfter, attempt, runID, expires, lane,
            options, memory)
    WHERE jobs.jobID = new.jobID AND jobs.jobID = ANY ($1::bigint[]);

-- name: save_data
-- Update the data of some jobs.
UPDATE jobs SET data = new.data, checksum = new.checksum
    FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS new (jobID, data, checksum)
    WHERE jobs.jobID = new.jobID AND jobs.jobID = ANY ($1::bigint[]);

-- name: insert_runs
-- Insert runs in progress. Under a test clock, their leases still begin by the clock of the database.
INSERT INTO runs (runID, jobID, name, attempt, cause, scheduledFor, started, worker, host, pid, lease, data, options,
    priority, beat)
    SELECT new.*, CASE WHEN clock = '' THEN '' ELSE {database_now} END
    FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[],
        $8::text[], $9::text[], $10::bigint[], $11::bigint[], $12::text[], $13::text[], $14::bigint[]) AS new, control;

-- name: end_runs
-- Write the end of runs.
UPDATE runs SET status = new.status, ended = new.ended, exitCode = new.exitCode, error = new.error,
    result = new.result, output = new.output, kept = new.kept, created = new.created
    FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::text[]) AS new (runID, status, ended, exitCode, error, result, output, kept, created)
    WHERE runs.runID = new.runID;

-- name: fingerprint_jobs
-- Store the fingerprints of FAILED jobs.
UPDATE jobs SET fingerprint = new.fingerprint FROM unnest($1::bigint[], $2::text[]) AS new (jobID, fingerprint)
    WHERE jobs.jobID = new.jobID;

-- name: fingerprint_runs
-- Store the fingerprints of failed runs.
UPDATE runs SET fingerprint = new.fingerprint FROM unnest($1::bigint[], $2::text[]) AS new (runID, fingerprint)
    WHERE runs.runID = new.runID;

-- name: put_keys
-- Store idempotency keys and unique keys.
INSERT INTO keys (key, jobID, created, name, holds) SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[],
    $4::text[], $5::text[])
    ON CONFLICT (key) DO UPDATE
    SET jobID = excluded.jobID, created = excluded.created, name = excluded.name, holds = excluded.holds;

-- name: add_events
-- Insert events in the given order.
INSERT INTO events (at, kind, name, jobID, runID, by, detail) SELECT * FROM unnest($1::text[], $2::text[], $3::text[],
    $4::bigint[], $5::bigint[], $6::text[], $7::text[]);

-- name: append_chunks
-- Insert chunks of output.
INSERT INTO output (runID, firstSeq, lastSeq, at, codec, start, size, bytes) SELECT * FROM unnest($1::bigint[],
    $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bytea[]);

-- name: insert_workflow_jobs
-- Add jobs to a workflow.
INSERT INTO workflowJobs (jobID, workflowID, ref, name, onFailure, waits) SELECT * FROM unnest($1::bigint[],
    $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[]);

-- name: insert_workflow_edges
-- Add edges to a workflow.
INSERT INTO workflowEdges (before, jobID) SELECT * FROM unnest($1::bigint[], $2::bigint[]);

-- name: note_parents
-- Mark jobs as having had a child.
UPDATE jobs SET parental = true WHERE jobID = ANY ($1::bigint[]) AND NOT parental;

-- name: delete_jobs
-- Delete jobs.
DELETE FROM jobs WHERE jobID = ANY ($1::bigint[]);

-- name: take_by_name
-- Lock the next due jobs without a lock of some names, by priority, skipping those locked by other units. $1:
-- now, $2: lanes, $3: names, $4: how many of each, $5: the only priority, or null, $6: jobs to exclude, $7 to
-- $12: for each name, the low-water mark of each priority in the open lane.
WITH {open_lanes},
asked AS MATERIALIZED (
    SELECT *, {paused} FROM unnest($3::text[], $4::bigint[], {floors:$7}) AS names (name, wanted, {floor_names})
) {next_by_name};

-- name: claim_by_name
-- `take_by_name`, which also marks plain jobs as taken at $13; the last column is whether a row was marked.
WITH {open_lanes},
asked AS MATERIALIZED (
    SELECT *, {paused} FROM unnest($3::text[], $4::bigint[], {floors:$7}) AS names (name, wanted, {floor_names})
),
next AS MATERIALIZED (SELECT found.*, {plain_take} AS plain FROM ({next_by_name}) AS found),
claimed AS (UPDATE jobs SET state = 'RUNNING', lastRun = $13, attempt = attempt + 1
    WHERE jobID = ANY (ARRAY(SELECT jobID FROM next WHERE plain)))
SELECT * FROM next;

-- name: take_in_open_lane
-- A cheaper form of `take_by_name`, for when no jobs are queued in other lanes. $1: now, $2: the only
-- priority, or null, $3: names, $4: how many of each, $5 to $10: for each name, the low-water mark of each
-- priority.
WITH asked AS MATERIALIZED (
    SELECT *, {paused} FROM unnest($3::text[], $4::bigint[], {floors:$5}) AS names (name, wanted, {floor_names})
) {next_in_open_lane};

-- name: claim_in_open_lane
-- `take_in_open_lane`, which also marks plain jobs as taken at $11; the last column is whether a row was marked.
WITH asked AS MATERIALIZED (
    SELECT *, {paused} FROM unnest($3::text[], $4::bigint[], {floors:$5}) AS names (name, wanted, {floor_names})
),
next AS MATERIALIZED (SELECT found.*, {plain_take} AS plain FROM ({next_in_open_lane}) AS found),
claimed AS (UPDATE jobs SET state = 'RUNNING', lastRun = $11, attempt = attempt + 1
    WHERE jobID = ANY (ARRAY(SELECT jobID FROM next WHERE plain)))
SELECT * FROM next;

-- name: take_with_lock
-- Lock the next due jobs whose lock is free. $7: locks to exclude, $8: max jobs with held locks to walk past
-- for each name and priority, $9: max locks checked after that; if there are more, a row without a jobID is
-- returned. The other parameters are those of `take_by_name`.
WITH {open_lanes}
SELECT job.* FROM lanes CROSS JOIN (
    SELECT *, {paused} FROM unnest($3::text[], $4::bigint[]) AS names (name, wanted)
) AS asked CROSS JOIN LATERAL (
    SELECT job.* FROM (VALUES {priorities}) AS class (priority) LEFT JOIN LATERAL (
        SELECT nextRun, jobID FROM jobs WHERE {of_class} AND nextRun <= $1
        ORDER BY nextRun, jobID OFFSET $8::bigint LIMIT 1
    ) AS stop ON true CROSS JOIN LATERAL ({next_with_lock}) AS job
    WHERE class.priority = coalesce($5::bigint, class.priority) LIMIT asked.wanted
) AS job WHERE (lanes.always OR NOT asked.paused)
    AND (SELECT true FROM jobs WHERE found = lanes.lane AND name = asked.name AND {queued} AND lock > '' LIMIT 1);

-- name: take_in_order
-- Lock the next due jobs whose names match $3, or any name if null. $4: how many, $7: locks to exclude, $8 to
-- $13: the low-water mark of each priority in the open lane, $14: max jobs examined for each priority and
-- lane if jobs may be skipped; a row without a jobID marks where the scan stopped, with the last jobID as its
-- runID. The other parameters are those of `take_by_name`.
--
-- A comparison of (nextRun, jobID) as an upper bound would read all jobs of the same nextRun.
WITH lanes AS MATERIALIZED ({lanes:$2})
SELECT job.* FROM (VALUES {priorities}) AS class (priority) CROSS JOIN LATERAL (
    SELECT job.* FROM lanes CROSS JOIN ({floors}) AS asked LEFT JOIN LATERAL (
        SELECT nextRun, jobID FROM jobs WHERE found = lanes.lane AND priority = class.priority AND nextRun <= $1
        AND {in_order} AND nextRun >= {floor}
        AND ($3::text IS NOT NULL OR lanes.lane <> '' OR EXISTS (SELECT 1 FROM pauses))
        ORDER BY nextRun, jobID OFFSET $14::bigint LIMIT 1
    ) AS stop ON true CROSS JOIN LATERAL (
        WITH sooner AS MATERIALIZED (SELECT * FROM (
            SELECT {row} FROM jobs WHERE found = lanes.lane AND priority = class.priority
            AND nextRun < coalesce(stop.nextRun, $1 || ' ')
            AND nextRun >= {floor} AND ($3::text IS NULL OR name ~ $3::text) AND {in_order} AND {open}
            ORDER BY nextRun, jobID LIMIT $4::bigint FOR UPDATE SKIP LOCKED
        ) AS job)
        SELECT * FROM sooner UNION ALL SELECT * FROM (
            SELECT {row} FROM jobs WHERE found = lanes.lane AND priority = class.priority
            AND nextRun = stop.nextRun AND jobID <= stop.jobID
            AND ($3::text IS NULL OR name ~ $3::text) AND {in_order} AND {open}
            ORDER BY nextRun, jobID LIMIT $4::bigint - (SELECT count(*) FROM sooner) FOR UPDATE SKIP LOCKED
        ) AS job UNION ALL SELECT {stop} WHERE stop.jobID IS NOT NULL) AS job
    ORDER BY job.nextRun, job.jobID LIMIT $4::bigint
) AS job WHERE class.priority = coalesce($5::bigint, class.priority) LIMIT $4::bigint;

-- name: names_after
-- The next names of a lane from $2 on that begin with $3. $4: how many. Comparing only the name could use an index
-- that has all lanes.
WITH RECURSIVE names (name, number) AS (
    SELECT (SELECT name FROM jobs WHERE found = $1 AND (found, name) >= ($1, $2) AND {queued}
        ORDER BY name, priority DESC, nextRun, jobID LIMIT 1), 1::bigint
    UNION ALL SELECT (SELECT jobs.name FROM jobs WHERE found = $1 AND (found, jobs.name) > ($1, names.name) AND {queued}
        ORDER BY jobs.name, priority DESC, nextRun, jobID LIMIT 1), number + 1
        FROM names WHERE starts_with(names.name, $3) AND number < $4::bigint
)
SELECT name FROM names WHERE starts_with(name, $3);

-- name: take_by_keys
-- Lock the first due job of each of the next locks after $5, among the jobs of some names. $1: now, $2: the lane, $3:
-- names, $4: priority, $6: how many locks.
WITH RECURSIVE keys (lock, number) AS (
    SELECT ({next_key:$5}), 1::bigint
    UNION ALL SELECT ({next_key:keys.lock}), number + 1 FROM keys WHERE keys.lock IS NOT NULL AND number < $6::bigint
)
SELECT job.* FROM keys CROSS JOIN LATERAL (
    SELECT {row} FROM jobs WHERE {queued} AND jobID = (
        SELECT one.jobID FROM unnest($3::text[]) AS names (name) CROSS JOIN LATERAL (
            SELECT nextRun, jobID FROM jobs WHERE found = $2 AND jobs.name = names.name AND priority = $4
            AND lock = keys.lock AND lock > '' AND nextRun <= $1 AND {queued} ORDER BY nextRun, jobID LIMIT 1
        ) AS one ORDER BY one.nextRun, one.jobID LIMIT 1
    ) FOR UPDATE SKIP LOCKED
) AS job ORDER BY keys.number;

-- name: heads_behind
-- The next jobs of some lanes, due or not, by name and priority: lane, name, priority, nextRun, jobID. $1 to
-- $3: lanes, each with the name and priority after which to start, $4: prefix of the names, $5: how many jobs
-- to read in each lane.
SELECT asked.lane, job.* FROM unnest($1::text[], $2::text[], $3::bigint[]) AS asked (lane, after, below)
CROSS JOIN LATERAL (
    (SELECT name, priority, nextRun, jobID FROM jobs WHERE found = asked.lane AND name = asked.after
        AND priority < asked.below AND {queued} ORDER BY name, priority DESC, nextRun, jobID LIMIT $5::bigint)
    UNION ALL (SELECT name, priority, nextRun, jobID FROM jobs WHERE found = asked.lane AND name > asked.after
        AND name <= $4 || {highest_name} AND {queued} ORDER BY name, priority DESC, nextRun, jobID LIMIT $5::bigint)
    LIMIT $5::bigint
) AS job;

-- name: heads_by_seeks
-- Of the jobs of `heads_behind`, only the first of each name and priority (its head), by one or two seeks each:
-- for names with many jobs. $5: how many heads to read in each lane.
WITH RECURSIVE heads (lane, name, priority, nextRun, jobID, number) AS (
    SELECT asked.lane, next.*, 1::bigint FROM unnest($1::text[], $2::text[], $3::bigint[]) AS asked (lane, name, priority)
        CROSS JOIN LATERAL ({next_head:asked}) AS next WHERE starts_with(next.name, $4)
    UNION ALL
    SELECT heads.lane, next.*, heads.number + 1 FROM heads CROSS JOIN LATERAL ({next_head:heads}) AS next
        WHERE heads.number < $5::bigint AND starts_with(next.name, $4)
)
SELECT lane, name, priority, nextRun, jobID FROM heads;

-- name: jobs_behind
-- The next due jobs of a priority after a position, if their names match and are not paused, and the last job
-- read: nextRun, jobID, name, whether it matches, and row number. $1: now, $2: lanes, $3: a regular
-- expression for names, $4: priority, $5 and $6: nextRun and jobID of the position, $7: how many jobs to
-- read.
WITH lanes AS MATERIALIZED ({lanes:$2}),
seen AS MATERIALIZED (
    SELECT job.*, row_number() OVER (ORDER BY job.nextRun, job.jobID) AS number FROM (
        SELECT job.* FROM lanes CROSS JOIN LATERAL (
            SELECT nextRun, jobID, name, found FROM jobs WHERE found = lanes.lane AND priority = $4::bigint
            AND nextRun <= $1 AND (nextRun, jobID) > ($5::text, $6::bigint) AND {in_order}
            ORDER BY nextRun, jobID LIMIT $7::bigint
        ) AS job ORDER BY job.nextRun, job.jobID LIMIT $7::bigint
    ) AS job
)
SELECT * FROM (
    SELECT nextRun, jobID, name, name ~ $3::text AND (
        found LIKE 'now%' OR NOT EXISTS (SELECT 1 FROM pauses WHERE seen.name ~ pauses.regex)
    ) AS matches, number FROM seen
) AS job WHERE matches OR number = $7::bigint ORDER BY number;

-- name: heads_of_names
-- The heads of some names and priorities, due or not: negated priority, nextRun, jobID, name, and whether a
-- job may be exempt from pauses. $1: lanes, $2: names, $3 to $5: for each name, the priority, and the nextRun
-- and jobID at which to start, past the dead index entries.
WITH lanes AS MATERIALIZED ({lanes:$1})
SELECT DISTINCT ON (asked.name, asked.priority) -asked.priority, head.nextRun, head.jobID, asked.name,
    bool_or(lanes.lane LIKE 'now%') OVER (PARTITION BY asked.name, asked.priority)
    FROM lanes CROSS JOIN unnest($2::text[], $3::bigint[], $4::text[], $5::bigint[])
        AS asked (name, priority, nextRun, jobID) CROSS JOIN LATERAL (
        SELECT nextRun, jobID FROM jobs WHERE {of_asked} AND (nextRun, jobID) >= (asked.nextRun, asked.jobID)
        ORDER BY nextRun, jobID LIMIT 1
    ) AS head ORDER BY asked.name, asked.priority, head.nextRun, head.jobID;

-- name: take_behind_heads
-- Lock the next due jobs of some names and priorities, in the order of takes. A job locked by another unit is
-- returned without its columns, only with the last four: priority, nextRun, jobID and name. $1: now, $2:
-- lanes, $3: names, $4 to $6: for each name, the priority, and the nextRun and jobID at which to start, $7:
-- how many of each, $8: how many in total.
WITH lanes AS MATERIALIZED ({lanes:$2}),
first AS MATERIALIZED (
    SELECT asked.name, asked.priority, job.nextRun, job.jobID
    FROM unnest($3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[])
        AS asked (name, priority, nextRun, jobID, wanted)
    CROSS JOIN LATERAL (
        SELECT job.* FROM lanes CROSS JOIN LATERAL (
            SELECT nextRun, jobID FROM jobs WHERE {of_asked} AND nextRun <= $1
            AND (nextRun, jobID) >= (asked.nextRun, asked.jobID)
            ORDER BY nextRun, jobID LIMIT asked.wanted
        ) AS job ORDER BY nextRun, jobID LIMIT asked.wanted
    ) AS job ORDER BY asked.priority DESC, job.nextRun, job.jobID LIMIT $8::bigint
),
job AS MATERIALIZED (
    SELECT {row} FROM jobs WHERE jobID = ANY (ARRAY(SELECT jobID FROM first)) AND {queued} FOR UPDATE SKIP LOCKED
)
SELECT job.*, first.priority, first.nextRun, first.jobID, first.name FROM first LEFT JOIN job USING (jobID)
    ORDER BY first.priority DESC, first.nextRun, first.jobID;

-- name: claim_behind_heads
-- `take_behind_heads` for when no jobs are queued in other lanes; it also marks plain jobs as taken at $8. The
-- column before the last four is whether a row was marked. $1: now, $2: names, $3 to $6: as $4 to $7 of
-- `take_behind_heads`, $7: how many in total.
WITH first AS MATERIALIZED (
    SELECT asked.name, asked.priority, job.nextRun, job.jobID
    FROM unnest($2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[])
        AS asked (name, priority, nextRun, jobID, wanted)
    CROSS JOIN LATERAL (
        SELECT nextRun, jobID FROM jobs WHERE found = '' AND name = asked.name AND priority = asked.priority AND {queued}
        AND nextRun <= $1 AND (nextRun, jobID) >= (asked.nextRun, asked.jobID)
        ORDER BY nextRun, jobID LIMIT asked.wanted
    ) AS job ORDER BY asked.priority DESC, job.nextRun, job.jobID LIMIT $7::bigint
),
job AS MATERIALIZED (
    SELECT {row}, {plain_take} AS plain FROM jobs
    WHERE jobID = ANY (ARRAY(SELECT jobID FROM first)) AND {queued} FOR UPDATE SKIP LOCKED
),
claimed AS (UPDATE jobs SET state = 'RUNNING', lastRun = $8, attempt = attempt + 1
    WHERE jobID = ANY (ARRAY(SELECT jobID FROM job WHERE plain)))
SELECT job.*, first.priority, first.nextRun, first.jobID, first.name FROM first LEFT JOIN job USING (jobID)
    ORDER BY first.priority DESC, first.nextRun, first.jobID;

-- name: floors_of_names
-- The nextRun of the first job of each priority in the open lane, for some names; an empty name means all.
-- $1: names, $2 to $7: for each name, the known low-water mark of each priority.
SELECT asked.name, {first_timestamps} FROM unnest($1::text[], {floors:$2}) AS asked (name, {floor_names});

-- name: soonest_by_name
-- When the next job of some names becomes due. $1: now, $2: lanes, $3: names.
WITH lanes AS MATERIALIZED ({lanes:$2})
SELECT min(first.nextRun) FROM lanes CROSS JOIN unnest($3::text[]) AS asked (name)
    CROSS JOIN (VALUES {priorities}) AS class (priority) CROSS JOIN LATERAL (
        SELECT nextRun FROM jobs WHERE found = lanes.lane AND name = asked.name AND priority = class.priority
        AND nextRun > $1 AND {queued} ORDER BY nextRun, jobID LIMIT 1
    ) AS first;

-- name: soonest_of_any
-- When the next job of any name becomes due. $1: now, $2: lanes.
WITH lanes AS MATERIALIZED ({lanes:$2})
SELECT min(first.nextRun) FROM lanes CROSS JOIN (VALUES {priorities}) AS class (priority) CROSS JOIN LATERAL (
    SELECT nextRun FROM jobs WHERE found = lanes.lane AND priority = class.priority AND nextRun > $1 AND {in_order}
    ORDER BY nextRun, jobID LIMIT 1
) AS first;

-- name: soonest_of_all
-- When the next job of any lane becomes due. $1: now.
WITH RECURSIVE {every_lane}
SELECT min(first.nextRun) FROM lanes CROSS JOIN (VALUES {priorities}) AS class (priority) CROSS JOIN LATERAL (
    SELECT nextRun FROM jobs WHERE found = lanes.lane AND priority = class.priority AND nextRun > $1 AND {in_order}
    ORDER BY nextRun, jobID LIMIT 1
) AS first;

-- name: due_of_names
-- Those of some names with a due job that is not paused and, among the first jobs with a lock, whose lock is
-- free. $1: now, $2: names, $3: max jobs checked for each name and priority.
WITH RECURSIVE {every_lane}
SELECT asked.name FROM unnest($2::text[]) AS asked (name) WHERE (
    SELECT true FROM lanes WHERE (SELECT true FROM jobs WHERE found = lanes.lane AND name = asked.name AND {queued} LIMIT 1)
    AND (SELECT true FROM (VALUES {priorities}) AS class (priority) CROSS JOIN LATERAL (
        SELECT lock, {waits} AS waits FROM jobs WHERE {of_class} AND nextRun <= $1
        ORDER BY nextRun, jobID LIMIT $3::bigint
    ) AS job WHERE lock = '' OR (NOT waits AND (SELECT true FROM jobs AS holder
        WHERE holder.lock = job.lock AND holder.lock <> '' AND holder.state = 'RUNNING' LIMIT 1) IS NULL) LIMIT 1)
    AND (lanes.lane LIKE 'now%' OR NOT EXISTS (SELECT 1 FROM pauses WHERE asked.name ~ pauses.regex)) LIMIT 1
);

-- name: due_lately
-- The names of jobs that became due between $2 and $1, at most the last $3 of each lane and priority.
WITH RECURSIVE {every_lane}
SELECT DISTINCT job.name FROM lanes CROSS JOIN (VALUES {priorities}) AS class (priority) CROSS JOIN LATERAL (
    SELECT name FROM jobs WHERE found = lanes.lane AND priority = class.priority AND nextRun <= $1 AND nextRun > $2
    AND {in_order} ORDER BY nextRun DESC, jobID DESC LIMIT $3::bigint
) AS job;

-- name: bound_lanes
-- The lanes of queued jobs that are bound to a worker.
WITH RECURSIVE lanes (lane) AS (
    SELECT (SELECT min(found) FROM jobs WHERE {queued} AND found > '')
    UNION ALL
    SELECT (SELECT min(jobs.found) FROM jobs WHERE jobs.found > lanes.lane AND {queued})
        FROM lanes WHERE lanes.lane IS NOT NULL
)
SELECT lane FROM lanes WHERE lane LIKE '%for %';

-- name: queued_in_lane
-- Lock the jobs queued in a lane, skipping those locked by other units.
SELECT {row} FROM jobs WHERE found = $1 AND {queued} AND nextRun <= $2 ORDER BY nextRun, jobID FOR UPDATE SKIP LOCKED;

-- name: next_in_lane
-- The queued jobs of a lane, without locks.
SELECT {row} FROM jobs WHERE found = $1 AND {queued};

-- name: holders_of
-- The running jobs that hold a lock, and since when.
SELECT jobID, lastRun FROM jobs WHERE lock = $1 AND lock <> '' AND state = 'RUNNING';

-- name: expired
-- Lock expired jobs, skipping those locked by other units.
SELECT {row} FROM jobs WHERE expires <> '' AND expires <= $1 ORDER BY expires LIMIT $2::bigint FOR UPDATE SKIP LOCKED;

-- name: next_expiry
-- When the next job expires.
SELECT min(expires) FROM jobs WHERE expires <> '';

-- name: repeating
-- All jobs with a repeat.
SELECT jobID FROM jobs WHERE repeat <> '' ORDER BY name, jobID;

-- name: repeating_due
-- Jobs with a repeat that are queued and due.
SELECT jobID FROM jobs WHERE repeat <> '' AND state = 'QUEUED' AND nextRun <= $1 ORDER BY name, jobID;

-- name: named
-- The first jobs of a name. Here and below, `BETWEEN $1 AND $1` makes the planner use an index in the order
-- requested: with `=`, a scan of the whole primary key seems as cheap before the first vacuum.
SELECT {row} FROM jobs WHERE name BETWEEN $1 AND $1 ORDER BY name, jobID LIMIT $2::bigint FOR UPDATE;

-- name: bound_of_name
-- The jobs of a name that are bound to a worker.
SELECT {row} FROM jobs WHERE name BETWEEN $1 AND $1 AND lane LIKE '%for %' ORDER BY name, jobID FOR UPDATE;

-- name: first_of_name
-- The oldest job of a name among the real ones.
SELECT {row} FROM jobs WHERE name BETWEEN $1 AND $1 AND lane <> 'mock' ORDER BY name, jobID LIMIT 1 FOR UPDATE;

-- name: first_mocked_of_name
-- The oldest job of a name among the mocked ones.
SELECT {row} FROM jobs WHERE name BETWEEN $1 AND $1 AND lane = 'mock' ORDER BY name, jobID LIMIT 1 FOR UPDATE;

-- name: children_of
-- The children of a job.
SELECT {row} FROM jobs WHERE parentJobID BETWEEN $1 AND $1 AND parentJobID <> 0 ORDER BY parentJobID, jobID FOR UPDATE;

-- name: has_children
-- Whether a job has children.
SELECT 1 FROM jobs WHERE parentJobID = $1 AND parentJobID <> 0 LIMIT 1;

-- name: has_pending_children
-- Whether a job has unfinished children.
SELECT 1 FROM jobs WHERE parentJobID = $1 AND parentJobID <> 0
    AND state IN ('QUEUED', 'RUNNING', 'RUNQUEUED', 'PAUSED') LIMIT 1;

-- name: draw_jobs
-- Draw jobIDs, skipping those in use. One lookup for each, as a join may read an index full of dead entries.
SELECT drawn.jobID FROM (SELECT nextval('jobIDs') AS jobID FROM generate_series(1, $1::bigint)) AS drawn
    WHERE (SELECT true FROM jobs WHERE jobs.jobID = drawn.jobID) IS NULL;

-- name: draw_runs
-- Draw runIDs.
SELECT nextval('runIDs') FROM generate_series(1, $1::bigint);

-- name: get_meta
-- A value of `meta`.
SELECT value FROM meta WHERE key = $1;

-- name: set_meta
-- Insert or replace a value of `meta`.
INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: count_running
-- The number of runs in progress whose names match $1.
SELECT count(*) FROM runs WHERE status = 'running' AND name ~ $1;

-- name: count_queued
-- The number of queued jobs with names from $1 to before $2 that match $3, up to $4.
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE name >= $1 AND name < $2 AND name ~ $3 AND state = 'QUEUED'
    LIMIT $4::bigint) AS queued;

-- name: see_jobs_alike
-- Acknowledge by $1 at $2 the FAILED jobs of the fingerprint $3 whose names match $4, up to $5.
INSERT INTO seen (kind, number, by, at)
    SELECT 'job', jobID, $1, $2 FROM jobs
        WHERE state = 'FAILED' AND fingerprint = $3 AND name ~ $4 LIMIT $5::bigint
    ON CONFLICT (kind, number) DO NOTHING;

-- name: see_runs_alike
-- Acknowledge by $1 at $2 the failed runs of the fingerprint $3 whose names match $4, up to $5.
INSERT INTO seen (kind, number, by, at)
    SELECT 'run', runID, $1, $2 FROM runs
        WHERE fingerprint <> '' AND fingerprint = $3 AND name ~ $4 LIMIT $5::bigint
    ON CONFLICT (kind, number) DO NOTHING;

-- name: pause_regex
-- Store the regular expression of a pause.
UPDATE pauses SET regex = $2 WHERE pattern = $1;

-- name: note_unit
-- Store the number and timestamp of the unit that is being committed.
INSERT INTO sessions (session, unit, at) VALUES ($1, $2, $3)
    ON CONFLICT (session) DO UPDATE SET unit = excluded.unit, at = excluded.at;

-- name: ask_for_unit
-- Whether unit $2 was committed; if not, its row gets $2 + 1, so that it never can be. Waits for a commit in
-- progress. As it writes, its own commit waits for the synchronous standby, which then has that unit too.
INSERT INTO sessions (session, unit, at, fence) VALUES ($1, $2::bigint + 1, '', $2::bigint)
    ON CONFLICT (session) DO UPDATE SET
        unit = CASE WHEN sessions.unit = $2::bigint THEN sessions.unit ELSE $2::bigint + 1 END,
        fence = CASE WHEN sessions.unit = $2::bigint THEN sessions.fence ELSE $2::bigint END
    RETURNING unit = $2::bigint;

-- name: close_session
-- Delete the rows of this server, and those of servers killed long ago.
DELETE FROM sessions WHERE starts_with(session, $1) OR at < $2;

-- name: where
-- The identity and guarantees of the database: whether it is read-only, its system identifier and timeline,
-- fsync, synchronous_commit, and whether this role can see the standbys.
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
    (SELECT system_identifier FROM pg_control_system()),
    CASE WHEN pg_is_in_recovery() THEN 0
        ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint END,
    current_setting('fsync'), current_setting('synchronous_commit'),
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE');

-- name: standby
-- Whether commits wait for a synchronous standby that is connected.
SELECT current_setting('synchronous_standby_names') <> ''
    AND EXISTS (SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum'));

-- name: control
-- The system identifier and timeline last seen by a server.
SELECT system, timeline FROM control;

-- name: control_locked
-- The system identifier and timeline last seen by a server, locked for an update.
SELECT system, timeline FROM control FOR UPDATE;

-- name: raise_numbers
-- Skip a range of jobIDs, runIDs, and the numbers of events and of the audit log.
SELECT setval('jobIDs', nextval('jobIDs') + $1::bigint), setval('runIDs', nextval('runIDs') + $1::bigint),
    setval(event, nextval(event) + $1::bigint), setval(change, nextval(change) + $1::bigint)
FROM CAST(pg_get_serial_sequence('events', 'seq') AS regclass) AS event,
    CAST(pg_get_serial_sequence('audit', 'seq') AS regclass) AS change;

-- name: raise_far
-- Raise the epoch so far that all servers drop their caches, whichever epoch they have seen.
UPDATE control SET epoch = epoch + $1::bigint;

-- name: note_place
-- Store the system identifier and timeline.
UPDATE control SET system = $1, timeline = $2;

-- name: clock
-- The time of the test clock; empty: none.
SELECT clock FROM control;

-- name: clock_and_servers
-- The time of the test clock, and the servers with a heartbeat within the last $1 seconds.
SELECT clock, ARRAY(SELECT name FROM servers WHERE pulse > to_char(clock_timestamp() AT TIME ZONE 'UTC'
    - $1::bigint * interval '1 s', 'YYYY-MM-DD HH24:MI:SS') ORDER BY name) FROM control;

-- name: set_clock
-- Set or remove the test clock.
UPDATE control SET clock = $1;

-- name: watch
-- Try to become the maintenance leader; when maintenance last ran, and the last outage of all servers.
SELECT pg_try_advisory_xact_lock($1::bigint), (SELECT value FROM meta WHERE key = 'seen'),
    (SELECT value FROM meta WHERE key = 'away');

-- name: renew_leases
-- Renew the lease of each run in progress from $1, or if null, from now by the clock of the database.
UPDATE runs SET beat = coalesce($1::text, {database_now}) WHERE status = 'running';

-- name: leases_over
-- Runs with an expired lease. A run without a heartbeat gets one more second, since its start is in whole
-- seconds.
SELECT runID FROM runs WHERE status = 'running' AND lease > 0
    AND CASE WHEN beat = '' THEN started::timestamp + interval '1 second' ELSE beat::timestamp END
        + lease * interval '1 second' < $1::timestamp
    ORDER BY runID LIMIT $2;

-- name: leave
-- Remove this server from the servers of the database.
DELETE FROM servers WHERE session = $1 RETURNING name;

-- name: servers_there
-- The live servers.
SELECT name FROM servers ORDER BY name;
