-- The statements on jobs, locks and numbers that a unit on PostgreSQL sends, each with a name and a sentence. `{row}`
-- stands for the columns of a job, its checksum, and whether it had a child.

-- name: begin
-- Begin a unit.
BEGIN;

-- name: commit
-- End it.
COMMIT;

-- name: rollback
-- Undo it.
ROLLBACK;

-- name: savepoint
-- Begin a part that can be undone by itself.
SAVEPOINT part;

-- name: release
-- Keep the part.
RELEASE SAVEPOINT part;

-- name: undo_part
-- Undo the part.
ROLLBACK TO SAVEPOINT part;

-- name: lock_shared
-- Lock something together with others that only read it.
SELECT pg_advisory_xact_lock_shared($1::bigint);

-- name: lock_alone
-- Lock something for who changes it.
SELECT pg_advisory_xact_lock($1::bigint);

-- name: lock_each
-- Lock several things in their order.
SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS keys (key);

-- name: try_lock
-- Lock something unless somebody else has it.
SELECT pg_try_advisory_xact_lock($1::bigint);

-- name: epoch
-- How often pauses, drains or the crash list were changed, what the test clock shows, the oldest version of servers, and
-- whether any job is queued outside of the open lane, and any with a lock.
SELECT epoch, clock, (SELECT value FROM meta WHERE key = 'schemaVersion'),
    (SELECT true FROM jobs WHERE {queued} AND found > '' ORDER BY found, name LIMIT 1),
    (SELECT true FROM jobs WHERE {queued} AND lock > '' ORDER BY found, name, priority DESC, lock LIMIT 1) FROM control;

-- name: raise_epoch
-- Note that they were changed.
UPDATE control SET epoch = epoch + 1;

-- name: end_jobs
-- Remove jobs if that is all their end takes, by jobID: the index gives them in that order.
DELETE FROM jobs WHERE jobID = ANY ($1::bigint[]) AND {plain_end} RETURNING {row};

-- name: lock_jobs
-- Jobs without a parent, locked by jobID: some jobs, and the parents of others. Here and below numbers are an array and not
-- joined: where statistics know of no rows, a join reads all of the key.
SELECT {row} FROM jobs WHERE parentJobID = 0 AND jobID = ANY (ARRAY(
    SELECT unnest($1::bigint[])
    UNION SELECT child.parentJobID FROM jobs AS child WHERE child.jobID = ANY ($1::bigint[])
)) ORDER BY jobID FOR UPDATE;

-- name: lock_children
-- Jobs with a parent, locked by jobID after the parents. With `+ 0` the planner does not read the index of all children.
SELECT {row} FROM jobs WHERE parentJobID + 0 <> 0 AND jobID = ANY ($1::bigint[]) ORDER BY jobID FOR UPDATE;

-- name: lock_jobs_and_firsts
-- Jobs without a parent, locked by jobID: of some jobs, of the first ones of some names, and of the parents of all these.
WITH named AS MATERIALIZED ({named})
SELECT {row} FROM jobs WHERE parentJobID = 0 AND jobID = ANY (ARRAY(
    SELECT jobID FROM named
    UNION SELECT child.parentJobID FROM jobs AS child WHERE child.jobID = ANY (ARRAY(SELECT jobID FROM named))
)) ORDER BY jobID FOR UPDATE;

-- name: lock_children_and_firsts
-- Jobs with a parent, locked by jobID after the parents: of some jobs, and of the first ones of some names.
WITH named AS MATERIALIZED ({named})
SELECT {row} FROM jobs WHERE parentJobID + 0 <> 0 AND jobID = ANY (ARRAY(SELECT jobID FROM named))
    ORDER BY jobID FOR UPDATE;

-- name: firsts
-- The first jobs of some names, real and mocked: asked for after they were locked, as one may have gone meanwhile.
SELECT asked.name, {first:real}, {first:mocked} FROM unnest($1::text[]) AS asked (name);

-- name: runs_ahead
-- Some runs, and those of some jobs, each with the number of its last line, the bytes that it has printed, and all of its
-- output where that is one chunk of $3 bytes at the most.
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
-- The jobs of some idempotency keys and unique keys.
SELECT key, jobID, created, name, holds FROM keys WHERE key = ANY ($1::text[]);

-- name: jobs_by_id
-- Some jobs.
SELECT {row} FROM jobs WHERE jobID = ANY ($1::bigint[]) ORDER BY (parentJobID <> 0), jobID FOR UPDATE;

-- name: shown_job
-- A job that is only looked at.
SELECT {row} FROM jobs WHERE jobID = $1;

-- name: insert_jobs
-- Add jobs.
INSERT INTO jobs ({columns}, parental) SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[],
    $6::text[], $7::text[], $8::text[], $9::bigint[], $10::bigint[], $11::text[], $12::bigint[], $13::bigint[],
    $14::text[], $15::text[], $16::text[], $17::text[], $18::bigint[], $19::boolean[]);

-- name: insert_plain_jobs
-- Add jobs of which nothing was said but their names and data: all were created, and become due, at the same moment.
INSERT INTO jobs (created, state, nextRun, jobID, name, data, checksum)
    SELECT $1, 'QUEUED', $2, * FROM unnest($3::bigint[], $4::text[], $5::text[], $6::bigint[]);

-- name: claim_jobs
-- Mark plain jobs as taken. Here and below the numbers are asked for twice: where statistics know of no rows, a join alone
-- would read the whole index for each.
UPDATE jobs SET state = 'RUNNING', lastRun = claim.lastRun, attempt = claim.attempt, runID = claim.runID
    FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[]) AS claim (jobID, lastRun, attempt, runID)
    WHERE jobs.jobID = claim.jobID AND jobs.jobID = ANY ($1::bigint[]);

-- name: save_jobs
-- Write all that can change in some jobs but their data.
UPDATE jobs SET state = new.state, name = new.name, nextRun = new.nextRun, lastRun = new.lastRun, repeat = new.repeat,
    priority = new.priority, retryAfter = new.retryAfter, attempt = new.attempt, runID = new.runID,
    expires = new.expires, lane = new.lane, options = new.options, memory = new.memory
    FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[],
        $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::text[], $14::text[])
        AS new (jobID, state, name, nextRun, lastRun, repeat, priority, retryAfter, attempt, runID, expires, lane,
            options, memory)
    WHERE jobs.jobID = new.jobID AND jobs.jobID = ANY ($1::bigint[]);

-- name: save_data
-- Write the data of some jobs.
UPDATE jobs SET data = new.data, checksum = new.checksum
    FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS new (jobID, data, checksum)
    WHERE jobs.jobID = new.jobID AND jobs.jobID = ANY ($1::bigint[]);

-- name: insert_runs
-- Open runs. Where their start is told by a test clock, their leases still begin by the clock of the database.
INSERT INTO runs (runID, jobID, name, attempt, cause, scheduledFor, started, worker, host, pid, lease, data, options,
    priority, beat)
    SELECT new.*, CASE WHEN clock = '' THEN '' ELSE {database_now} END
    FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[],
        $8::text[], $9::text[], $10::bigint[], $11::bigint[], $12::text[], $13::text[], $14::bigint[]) AS new, control;

-- name: end_runs
-- Close runs.
UPDATE runs SET status = new.status, ended = new.ended, exitCode = new.exitCode, error = new.error,
    result = new.result, output = new.output, kept = new.kept, created = new.created
    FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::text[]) AS new (runID, status, ended, exitCode, error, result, output, kept, created)
    WHERE runs.runID = new.runID;

-- name: fingerprint_jobs
-- Note what FAILED jobs are grouped by.
UPDATE jobs SET fingerprint = new.fingerprint FROM unnest($1::bigint[], $2::text[]) AS new (jobID, fingerprint)
    WHERE jobs.jobID = new.jobID;

-- name: fingerprint_runs
-- Note what failed runs are grouped by.
UPDATE runs SET fingerprint = new.fingerprint FROM unnest($1::bigint[], $2::text[]) AS new (runID, fingerprint)
    WHERE runs.runID = new.runID;

-- name: add_events
-- Tell what happened, in the order of the set.
INSERT INTO events (at, kind, name, jobID, runID, by, detail) SELECT * FROM unnest($1::text[], $2::text[], $3::text[],
    $4::bigint[], $5::bigint[], $6::text[], $7::text[]);

-- name: append_chunks
-- Add lines of output.
INSERT INTO output (runID, firstSeq, lastSeq, at, codec, start, size, bytes) SELECT * FROM unnest($1::bigint[],
    $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bytea[]);

-- name: note_parents
-- Note that some jobs have a child.
UPDATE jobs SET parental = true WHERE jobID = ANY ($1::bigint[]) AND NOT parental;

-- name: delete_jobs
-- Remove jobs.
DELETE FROM jobs WHERE jobID = ANY ($1::bigint[]);

-- name: take_by_name
-- The next due jobs without a lock of some names, class by class, locked unless another unit has them. $1: now, $2:
-- lanes, $3: names, $4: how many of each, $5: the only priority, null for all, $6: jobs to leave out, $7 to $12: of each,
-- for each class, a timestamp before which no job of the open lane is queued.
WITH {open_lanes},
asked AS MATERIALIZED (
    SELECT *, {paused} FROM unnest($3::text[], $4::bigint[], {floors:$7}) AS names (name, wanted, {floor_names})
) {next_by_name};

-- name: claim_by_name
-- The same, of which those that are plain are marked as taken at $13; each row says, last of all, whether it was.
WITH {open_lanes},
asked AS MATERIALIZED (
    SELECT *, {paused} FROM unnest($3::text[], $4::bigint[], {floors:$7}) AS names (name, wanted, {floor_names})
),
next AS MATERIALIZED (SELECT found.*, {plain_take} AS plain FROM ({next_by_name}) AS found),
claimed AS (UPDATE jobs SET state = 'RUNNING', lastRun = $13, attempt = attempt + 1
    WHERE jobID = ANY (ARRAY(SELECT jobID FROM next WHERE plain)))
SELECT * FROM next;

-- name: take_in_open_lane
-- The same as `take_by_name` where nothing is queued in other lanes: less work for each name. $1: now, $2: the only priority,
-- null for all, $3: names, $4: how many of each, $5 to $10: of each, for each class, a timestamp before which no job is queued.
WITH asked AS MATERIALIZED (
    SELECT *, {paused} FROM unnest($3::text[], $4::bigint[], {floors:$5}) AS names (name, wanted, {floor_names})
) {next_in_open_lane};

-- name: claim_in_open_lane
-- The same, of which those that are plain are marked as taken at $11; each row says, last of all, whether it was.
WITH asked AS MATERIALIZED (
    SELECT *, {paused} FROM unnest($3::text[], $4::bigint[], {floors:$5}) AS names (name, wanted, {floor_names})
),
next AS MATERIALIZED (SELECT found.*, {plain_take} AS plain FROM ({next_in_open_lane}) AS found),
claimed AS (UPDATE jobs SET state = 'RUNNING', lastRun = $11, attempt = attempt + 1
    WHERE jobID = ANY (ARRAY(SELECT jobID FROM next WHERE plain)))
SELECT * FROM next;

-- name: take_with_lock
-- The next due jobs with a lock that nobody holds. $7: locks to leave out, $8: how many jobs of a name and class are
-- walked past whose lock is held, $9: of how many locks the first job is looked for then; where there are more of them, a
-- row without a jobID says so. The rest as in `take_by_name`.
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
-- The next due jobs of names that match $3, null for all. $4: how many, $7: locks to leave out, $8 to $13: for each class,
-- a timestamp before which no job of the open lane is queued; the rest as in `take_by_name`. Where jobs may be passed over, no
-- more than $14 of a class and lane are looked at: a row without a jobID stands where that ended, with the
-- jobID up to which was looked as its runID.
WITH lanes AS MATERIALIZED ({lanes:$2})
SELECT job.* FROM (VALUES {priorities}) AS class (priority) CROSS JOIN LATERAL (
    SELECT job.* FROM lanes CROSS JOIN ({floors}) AS asked LEFT JOIN LATERAL (
        SELECT nextRun, jobID FROM jobs WHERE found = lanes.lane AND priority = class.priority AND nextRun <= $1
        AND {in_order} AND nextRun >= {floor}
        AND ($3::text IS NOT NULL OR lanes.lane <> '' OR EXISTS (SELECT 1 FROM pauses))
        ORDER BY nextRun, jobID OFFSET $14::bigint LIMIT 1
    ) AS stop ON true CROSS JOIN LATERAL (SELECT * FROM (
        SELECT {row} FROM jobs WHERE found = lanes.lane AND priority = class.priority
        AND (nextRun, jobID) <= (coalesce(stop.nextRun, $1), coalesce(stop.jobID, 9223372036854775807))
        AND nextRun >= {floor} AND ($3::text IS NULL OR name ~ $3::text) AND {in_order} AND {open}
        ORDER BY nextRun, jobID LIMIT $4::bigint FOR UPDATE SKIP LOCKED
    ) AS job UNION ALL SELECT {stop} WHERE stop.jobID IS NOT NULL) AS job
    ORDER BY job.nextRun, job.jobID LIMIT $4::bigint
) AS job WHERE class.priority = coalesce($5::bigint, class.priority) LIMIT $4::bigint;

-- name: heads_behind
-- The first job of each of the next names and classes of some lanes, due or not, by name: the lane, name, class, nextRun,
-- jobID, and its number among the jobs of the lane; and the last job that was looked at. $1 to $3: lanes, each with the name
-- and class behind which it begins, $4: what the names begin with, $5: how many jobs of each lane are looked at.
WITH seen AS MATERIALIZED (
    SELECT asked.lane, job.*, row_number() OVER (PARTITION BY asked.lane ORDER BY name, priority DESC, nextRun, jobID) AS number,
        lag(job.name) OVER (PARTITION BY asked.lane ORDER BY name, priority DESC, nextRun, jobID) AS before,
        lag(job.priority) OVER (PARTITION BY asked.lane ORDER BY name, priority DESC, nextRun, jobID) AS class
    FROM unnest($1::text[], $2::text[], $3::bigint[]) AS asked (lane, after, below) CROSS JOIN LATERAL (
        (SELECT name, priority, nextRun, jobID FROM jobs WHERE found = asked.lane AND name = asked.after
            AND priority < asked.below AND {queued} ORDER BY name, priority DESC, nextRun, jobID LIMIT $5::bigint)
        UNION ALL (SELECT name, priority, nextRun, jobID FROM jobs WHERE found = asked.lane AND name > asked.after
            AND {queued} ORDER BY name, priority DESC, nextRun, jobID LIMIT $5::bigint) LIMIT $5::bigint
    ) AS job
)
SELECT lane, name, priority, nextRun, jobID, number FROM seen WHERE starts_with(name, $4)
    AND (before IS NULL OR name <> before OR priority <> class OR number = $5::bigint) ORDER BY number;

-- name: heads_by_seeks
-- The same, a seek or two for each of them: if many jobs of each would be looked at. $5 and the number are of heads.
WITH RECURSIVE heads (lane, name, priority, nextRun, jobID, number) AS (
    SELECT asked.lane, next.*, 1::bigint FROM unnest($1::text[], $2::text[], $3::bigint[]) AS asked (lane, name, priority)
        CROSS JOIN LATERAL ({next_head:asked}) AS next WHERE starts_with(next.name, $4)
    UNION ALL
    SELECT heads.lane, next.*, heads.number + 1 FROM heads CROSS JOIN LATERAL ({next_head:heads}) AS next
        WHERE heads.number < $5::bigint AND starts_with(next.name, $4)
)
SELECT * FROM heads ORDER BY number;

-- name: jobs_behind
-- The next due jobs of a class behind a place whose names match and are not paused, and the last one that was looked at: its
-- nextRun, jobID, name, whether it matches, and its number. $1: now, $2: lanes, $3: what names match, $4: the class, $5 and
-- $6: nextRun and jobID of the place, $7: how many are looked at.
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
-- The first job of some names in a class each, due or not: the class below zero, nextRun, jobID, name, and whether there
-- may be one that no pause holds. $1: lanes, $2: names, $3 to $5: of each, the class, and the nextRun and jobID before which
-- there is none: ended rows are walked past once.
WITH lanes AS MATERIALIZED ({lanes:$1})
SELECT DISTINCT ON (asked.name, asked.priority) -asked.priority, head.nextRun, head.jobID, asked.name,
    bool_or(lanes.lane LIKE 'now%') OVER (PARTITION BY asked.name, asked.priority)
    FROM lanes CROSS JOIN unnest($2::text[], $3::bigint[], $4::text[], $5::bigint[])
        AS asked (name, priority, nextRun, jobID) CROSS JOIN LATERAL (
        SELECT nextRun, jobID FROM jobs WHERE {of_asked} AND (nextRun, jobID) >= (asked.nextRun, asked.jobID)
        ORDER BY nextRun, jobID LIMIT 1
    ) AS head ORDER BY asked.name, asked.priority, head.nextRun, head.jobID;

-- name: take_behind_heads
-- The next due jobs of some names in a class each, in the order of takes, locked unless another unit has them: then only
-- what stands behind its columns is told, its class, nextRun, jobID and name. $1: now, $2: lanes, $3: names, $4 to $6: of
-- each, the class, and the nextRun and jobID before which there is none, $7: how many of each, $8: how many of all.
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
-- The same where nothing is queued outside of the open lane. Those that are plain are marked as taken at $8; before what
-- stands behind its columns, each job says whether it was. $1: now, $2: names, $3 to $6: as $4 to $7 above, $7: how many of all.
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
-- The nextRun of the first job of the open lane in each class, of some names, or, for an empty one, of all. $1: names, $2
-- to $7: of each, for each class, a timestamp before which there is none.
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
-- Those of some names of which a job is due that may be taken, as far as its pause and, of the first ones, its lock tell.
-- $1: now, $2: names, $3: how many jobs with a lock are looked at of each name and class.
WITH RECURSIVE {every_lane}
SELECT asked.name FROM unnest($2::text[]) AS asked (name) WHERE (
    SELECT true FROM lanes WHERE (SELECT true FROM jobs WHERE found = lanes.lane AND name = asked.name AND {queued} LIMIT 1)
    AND (SELECT true FROM (VALUES {priorities}) AS class (priority) CROSS JOIN LATERAL (
        SELECT lock FROM jobs WHERE {of_class} AND nextRun <= $1 ORDER BY nextRun, jobID LIMIT $3::bigint
    ) AS job WHERE lock = '' OR (SELECT true FROM jobs AS holder
        WHERE holder.lock = job.lock AND holder.lock <> '' AND holder.state = 'RUNNING' LIMIT 1) IS NULL LIMIT 1)
    AND (lanes.lane LIKE 'now%' OR NOT EXISTS (SELECT 1 FROM pauses WHERE asked.name ~ pauses.regex)) LIMIT 1
);

-- name: due_lately
-- The names of jobs that became due between $2 and $1, of the last $3 of each lane and class.
WITH RECURSIVE {every_lane}
SELECT DISTINCT job.name FROM lanes CROSS JOIN (VALUES {priorities}) AS class (priority) CROSS JOIN LATERAL (
    SELECT name FROM jobs WHERE found = lanes.lane AND priority = class.priority AND nextRun <= $1 AND nextRun > $2
    AND {in_order} ORDER BY nextRun DESC, jobID DESC LIMIT $3::bigint
) AS job;

-- name: bound_lanes
-- The lanes of jobs that are queued for one worker each.
WITH RECURSIVE lanes (lane) AS (
    SELECT (SELECT min(found) FROM jobs WHERE {queued} AND found > '')
    UNION ALL
    SELECT (SELECT min(jobs.found) FROM jobs WHERE jobs.found > lanes.lane AND {queued})
        FROM lanes WHERE lanes.lane IS NOT NULL
)
SELECT lane FROM lanes WHERE lane LIKE '%for %';

-- name: queued_in_lane
-- The jobs that are queued in a lane, unless another unit has them.
SELECT {row} FROM jobs WHERE found = $1 AND {queued} AND nextRun <= $2 ORDER BY nextRun, jobID FOR UPDATE SKIP LOCKED;

-- name: next_in_lane
-- The queued jobs of a lane, to be looked at only.
SELECT {row} FROM jobs WHERE found = $1 AND {queued};

-- name: holders_of
-- The running jobs that hold a lock, and since when.
SELECT jobID, lastRun FROM jobs WHERE lock = $1 AND lock <> '' AND state = 'RUNNING';

-- name: expired
-- Jobs whose time is over, unless another unit has them.
SELECT {row} FROM jobs WHERE expires <> '' AND expires <= $1 ORDER BY expires LIMIT $2::bigint FOR UPDATE SKIP LOCKED;

-- name: next_expiry
-- When the next job's time is over.
SELECT min(expires) FROM jobs WHERE expires <> '';

-- name: repeating
-- All that repeats.
SELECT jobID FROM jobs WHERE repeat <> '' ORDER BY name, jobID;

-- name: repeating_due
-- What repeats, is queued and is due.
SELECT jobID FROM jobs WHERE repeat <> '' AND state = 'QUEUED' AND nextRun <= $1 ORDER BY name, jobID;

-- name: named
-- The first jobs of a name. Here and below a name stands between itself and itself: so an index has the order that is asked
-- for, and the key has not, which seems as cheap to read from one end to the other where a vacuum has seen no row.
SELECT {row} FROM jobs WHERE name BETWEEN $1 AND $1 ORDER BY name, jobID LIMIT $2::bigint FOR UPDATE;

-- name: bound_of_name
-- The jobs of a name that only one worker may take.
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
-- Whether a job has any child.
SELECT 1 FROM jobs WHERE parentJobID = $1 AND parentJobID <> 0 LIMIT 1;

-- name: has_pending_children
-- Whether a job has a child that has not ended.
SELECT 1 FROM jobs WHERE parentJobID = $1 AND parentJobID <> 0
    AND state IN ('QUEUED', 'RUNNING', 'RUNQUEUED', 'PAUSED') LIMIT 1;

-- name: draw_jobs
-- Draw jobIDs. Each is looked up by itself: a join may read all of an index in which ended rows stand.
SELECT drawn.jobID FROM (SELECT nextval('jobIDs') AS jobID FROM generate_series(1, $1::bigint)) AS drawn
    WHERE (SELECT true FROM jobs WHERE jobs.jobID = drawn.jobID) IS NULL;

-- name: draw_runs
-- Draw runIDs.
SELECT nextval('runIDs') FROM generate_series(1, $1::bigint);

-- name: get_meta
-- One of the things that servers remember.
SELECT value FROM meta WHERE key = $1;

-- name: set_meta
-- Remember one.
INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: count_running
-- How many runs are in progress of names that match $1.
SELECT count(*) FROM runs WHERE status = 'running' AND name ~ $1;

-- name: count_queued
-- How many jobs are queued of the names from $1 to before $2 that match $3, counted up to $4.
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE name >= $1 AND name < $2 AND name ~ $3 AND state = 'QUEUED'
    LIMIT $4::bigint) AS queued;

-- name: pause_regex
-- Note the regular expression of a pause.
UPDATE pauses SET regex = $2 WHERE pattern = $1;

-- name: note_unit
-- Note the number of the unit that is being committed, and its moment.
INSERT INTO sessions (session, unit, at) VALUES ($1, $2, $3)
    ON CONFLICT (session) DO UPDATE SET unit = excluded.unit, at = excluded.at;

-- name: ask_for_unit
-- Whether unit $2 was committed; if not, it never will be: $2 + 1 stands in its place. Waits for one that has noted its
-- number already. As it writes, its own commit waits for the synchronous standby, which then has that unit too.
INSERT INTO sessions (session, unit, at, fence) VALUES ($1, $2::bigint + 1, '', $2::bigint)
    ON CONFLICT (session) DO UPDATE SET
        unit = CASE WHEN sessions.unit = $2::bigint THEN sessions.unit ELSE $2::bigint + 1 END,
        fence = CASE WHEN sessions.unit = $2::bigint THEN sessions.fence ELSE $2::bigint END
    RETURNING unit = $2::bigint;

-- name: close_session
-- Forget the session, and those of servers that were killed long ago.
DELETE FROM sessions WHERE starts_with(session, $1) OR at < $2;

-- name: where
-- Which database this is, and what it promises: whether it can only be read, its number and its timeline, whether it
-- syncs, what a commit waits for, and whether this role sees the standbys.
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
    (SELECT system_identifier FROM pg_control_system()),
    CASE WHEN pg_is_in_recovery() THEN 0
        ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint END,
    current_setting('fsync'), current_setting('synchronous_commit'),
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE');

-- name: standby
-- Whether commits wait for a synchronous standby that is there.
SELECT current_setting('synchronous_standby_names') <> ''
    AND EXISTS (SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum'));

-- name: control
-- Where servers have last found this database.
SELECT system, timeline FROM control;

-- name: control_locked
-- The same, for who is going to change it.
SELECT system, timeline FROM control FOR UPDATE;

-- name: raise_numbers
-- Leave out some numbers of jobs, runs, events and what operators changed.
SELECT setval('jobIDs', nextval('jobIDs') + $1::bigint), setval('runIDs', nextval('runIDs') + $1::bigint),
    setval(event, nextval(event) + $1::bigint), setval(change, nextval(change) + $1::bigint)
FROM CAST(pg_get_serial_sequence('events', 'seq') AS regclass) AS event,
    CAST(pg_get_serial_sequence('audit', 'seq') AS regclass) AS change;

-- name: raise_far
-- Let all servers read pauses, drains, tokens and the crash list anew, whatever they have counted.
UPDATE control SET epoch = epoch + $1::bigint;

-- name: note_place
-- Note where the database is.
UPDATE control SET system = $1, timeline = $2;

-- name: clock
-- What the test clock shows; empty: there is none.
SELECT clock FROM control;

-- name: clock_and_servers
-- The same, and the servers that have told within $1 seconds that they live.
SELECT clock, ARRAY(SELECT name FROM servers WHERE pulse > to_char(clock_timestamp() AT TIME ZONE 'UTC'
    - $1::bigint * interval '1 s', 'YYYY-MM-DD HH24:MI:SS') ORDER BY name) FROM control;

-- name: set_clock
-- Set the test clock, or take it away.
UPDATE control SET clock = $1;

-- name: watch
-- Be the one server that does what time asks for, if none is; when one last did so, and when none was there.
SELECT pg_try_advisory_xact_lock($1::bigint), (SELECT value FROM meta WHERE key = 'seen'),
    (SELECT value FROM meta WHERE key = 'away');

-- name: renew_leases
-- Give each run in progress a new lease, from $1 on; null: from now on, by the clock of the database.
UPDATE runs SET beat = coalesce($1::text, {database_now}) WHERE status = 'running';

-- name: leases_over
-- Runs whose workers gave no sign of life for longer than they may. The start of a run is told in whole seconds.
SELECT runID FROM runs WHERE status = 'running' AND lease > 0
    AND CASE WHEN beat = '' THEN started::timestamp + interval '1 second' ELSE beat::timestamp END
        + lease * interval '1 second' < $1::timestamp
    ORDER BY runID LIMIT $2;

-- name: leave
-- Be one of the servers no more.
DELETE FROM servers WHERE session = $1 RETURNING name;

-- name: servers_there
-- The servers that are alive.
SELECT name FROM servers ORDER BY name;
