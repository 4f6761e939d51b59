-- The state of the queues: queued jobs by lane and name, and what decides whether they may be taken, in the
-- terms of `bedrockjobs/job/eligibility.py`. Each statement reads a bounded number of index entries, however
-- long the queue is; `:limit` bounds its rows.

-- name: queue_lanes
-- The lanes with queued jobs.
WITH RECURSIVE found (lane) AS (
    SELECT (SELECT lane FROM jobs WHERE {queued} ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT (SELECT jobs.lane FROM jobs WHERE jobs.lane > found.lane AND {queued} ORDER BY jobs.lane LIMIT 1)
        FROM found WHERE found.lane IS NOT NULL LIMIT :limit
)
SELECT lane FROM found WHERE lane IS NOT NULL;

-- name: queue_groups
-- The queued names of some lanes, taking one name of each lane in turn so that no lane hides another, with
-- the lowest nextRun of each. At most `:alike` names with the same prefix up to a slash are listed; the row
-- after them, marked by 1, is the first of the rest.
WITH RECURSIVE walk (lane, name, before, counted) AS (
    SELECT value, (SELECT jobs.name FROM jobs WHERE jobs.lane = value AND {queued} ORDER BY jobs.name LIMIT 1),
        '', 0 FROM json_each(:lanes)
    UNION ALL
    SELECT walk.lane, (
        SELECT jobs.name FROM jobs WHERE jobs.lane = walk.lane AND {queued} AND jobs.name >=
            CASE WHEN {alike} > :alike THEN {prefix} || '0' ELSE walk.name || char(1) END
            ORDER BY jobs.name LIMIT 1
    ), {prefix}, {alike} FROM walk WHERE walk.name IS NOT NULL LIMIT :walked
)
SELECT lane, name, {alike} > :alike, CASE WHEN {alike} <= :alike THEN {oldest:walk.lane:walk.name} END
    FROM walk WHERE name IS NOT NULL LIMIT :limit;

-- name: queue_groups_of_names
-- The queued names of some lanes, as `queue_groups`, but only the given names.
SELECT lanes.value, names.value, 0, {oldest:lanes.value:names.value}
    FROM json_each(:names) AS names CROSS JOIN json_each(:lanes) AS lanes
    WHERE EXISTS (SELECT 1 FROM jobs WHERE jobs.lane = lanes.value AND jobs.name = names.value AND {queued})
    LIMIT :limit;

-- name: count_groups
-- For pairs of a lane and a name: the number of due jobs and of later ones, each up to `:most`. A RUNQUEUED
-- job that is not due is running.
WITH groups AS MATERIALIZED (SELECT key, value ->> 0 AS lane, value ->> 1 AS name FROM json_each(:groups))
SELECT groups.key,
    (SELECT count(*) FROM (SELECT 1 FROM (VALUES {priorities}) AS classes CROSS JOIN jobs
        WHERE jobs.lane = groups.lane AND jobs.name = groups.name
        AND jobs.priority = classes.column1 AND jobs.nextRun <= :now AND {queued} LIMIT :most)),
    (SELECT count(*) FROM (SELECT 1 FROM (VALUES {priorities}) AS classes CROSS JOIN jobs
        WHERE jobs.lane = groups.lane AND jobs.name = groups.name
        AND jobs.priority = classes.column1 AND jobs.nextRun > :now AND {queued} AND jobs.state = 'QUEUED'
        LIMIT :most))
    FROM groups LIMIT :limit;

-- name: count_all_groups
-- For the next lanes and names after one: the number of due jobs and of later ones, and the lowest nextRun. A
-- RUNQUEUED job that is not due is running; reading its state needs the table.
SELECT lane, name, count(*) FILTER (WHERE nextRun <= :now),
    sum(CASE WHEN nextRun <= :now THEN 0 WHEN state = 'QUEUED' THEN 1 ELSE 0 END), min(nextRun)
    FROM jobs INDEXED BY jobsByName WHERE (lane, name) > (:lane, :name) AND {queued}
    GROUP BY lane, name ORDER BY lane, name LIMIT :limit;

-- name: count_rests
-- For a lane and all names with a prefix, from one name on: the number of due jobs and of later jobs, the
-- lowest nextRun, and the number of jobs examined, at most `:most`.
SELECT rests.key, (
    SELECT json_array(total(nextRun <= :now), total(nextRun > :now AND state = 'QUEUED'), min(nextRun), count(*))
        FROM (SELECT nextRun, state FROM jobs WHERE jobs.lane = rests.value ->> 0
            AND jobs.name >= rests.value ->> 1 AND jobs.name < rests.value ->> 2 AND {queued} LIMIT :most)
) FROM json_each(:rests) AS rests LIMIT :limit;

-- name: lanes_at_once
-- For some lanes and all names: the number of due jobs, up to `:most`, and the lowest nextRun.
WITH classes (lane, priority) AS (SELECT value, column1 FROM json_each(:lanes) CROSS JOIN (VALUES {priorities}))
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM classes CROSS JOIN jobs WHERE jobs.lane = classes.lane
        AND jobs.priority = classes.priority AND jobs.nextRun <= :now AND {queued} LIMIT :most)),
    (SELECT min((SELECT nextRun FROM jobs WHERE jobs.lane = classes.lane
        AND jobs.priority = classes.priority AND {queued} ORDER BY nextRun LIMIT 1)) FROM classes)
LIMIT :limit;

-- name: pauses_held
-- The active pauses, by pattern.
SELECT pattern, "by", reason, since, "until" FROM pauses WHERE "until" = '' OR "until" > :now
    ORDER BY pattern LIMIT :limit;

-- name: limits_set
-- The limits of names.
SELECT value FROM meta WHERE key = 'limits' LIMIT :limit;

-- name: keys_that_wait
-- The concurrency keys for whose next start by a limit jobs have to wait, and until when its rate is used up.
SELECT key, "until" FROM paced WHERE pattern = :pattern AND "until" > :above AND key <> ''
    ORDER BY "until" DESC LIMIT :limit;

-- name: drained_workers
-- The drained workers.
SELECT worker, "by", since FROM drains ORDER BY worker LIMIT :limit;

-- name: lanes_held
-- The lanes of running jobs, with the first of these jobs, which may hold a lock, their number, and its name and
-- options.
SELECT held.lane, first, running, name, options FROM (
    SELECT lane, min(jobID) AS first, count(*) AS running FROM jobs INDEXED BY jobsHolding
        WHERE state = 'RUNNING' AND lane <> '' GROUP BY lane LIMIT :limit
) AS held CROSS JOIN jobs ON jobs.jobID = first;

-- name: schedules_on_all_hosts
-- The broadcast schedules.
SELECT name, options FROM jobs WHERE lane = 'every' AND {queued} ORDER BY name LIMIT :limit;

-- name: running_by_name
-- The number of runs in progress by name, and of jobs running without a run among the `:oldest` jobs.
SELECT name, count(*) FROM (SELECT name FROM runs INDEXED BY runsOpen WHERE status = 'running' LIMIT :most) AS open
    GROUP BY name
UNION ALL
SELECT name, count(*) FROM (SELECT name, state, nextRun, runID FROM jobs ORDER BY jobID LIMIT :oldest) AS oldest
    WHERE runID = 0 AND (state = 'RUNNING' OR (state = 'RUNQUEUED' AND nextRun > :now)) GROUP BY name
LIMIT :limit;

-- name: failed_by_name
-- The number of failed jobs by name, among the first `:most`.
SELECT name, count(*) FROM (SELECT name FROM jobs INDEXED BY jobsAsideByName WHERE state = 'FAILED' LIMIT :most) AS failed
    GROUP BY name LIMIT :limit;

-- name: failed_by_name_of_visible
-- The number of failed jobs by name in scope, among the first `:looked` with the common prefix of the scope.
SELECT name, count(*) FROM (SELECT name FROM jobs INDEXED BY jobsAsideByName
    WHERE state = 'FAILED' AND name BETWEEN :low AND :high LIMIT :looked) AS failed
    WHERE {visible} GROUP BY name LIMIT :limit;

-- name: newest_jobs
-- The newest jobs, and whether each waits for its first run.
SELECT name, created, CASE WHEN state = 'QUEUED' AND attempt = 0 AND repeat = '' THEN 1 ELSE 0 END
    FROM jobs ORDER BY jobID DESC LIMIT :limit;

-- name: newest_runs
-- The planned, start and end times of the newest runs.
SELECT name, attempt, scheduledFor, started, ended FROM runs ORDER BY runID DESC LIMIT :limit;

-- name: set_aside
-- The number of failed jobs, of unacknowledged ones among them, of jobs that wait for their children, and of
-- jobs with a repeat; and the newest event.
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobsAside WHERE state = 'FAILED' LIMIT :most) AS failed),
    (SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobsAside WHERE state = 'FAILED' LIMIT :most) AS failed)
        - (SELECT count(*) FROM seen CROSS JOIN jobs
            WHERE jobs.jobID = seen.number AND seen.kind = 'job' AND jobs.state = 'FAILED'),
    (SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobsAside WHERE state = 'PAUSED' LIMIT :most) AS paused),
    (SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobsRepeating WHERE repeat <> '' LIMIT :most) AS repeating),
    (SELECT coalesce(max(seq), 0) FROM events)
LIMIT :limit;

-- name: set_aside_of_visible
-- The numbers of `set_aside` for the names in scope, without the newest event. For failed and waiting jobs,
-- the first `:looked` with the common prefix of the scope are examined.
SELECT
    (SELECT count(*) FROM (SELECT name FROM jobs INDEXED BY jobsAsideByName
        WHERE state = 'FAILED' AND name BETWEEN :low AND :high LIMIT :looked) AS failed WHERE {visible}),
    (SELECT count(*) FROM (SELECT name FROM jobs INDEXED BY jobsAsideByName
        WHERE state = 'FAILED' AND name BETWEEN :low AND :high AND NOT EXISTS (
        SELECT 1 FROM seen WHERE kind = 'job' AND number = jobs.jobID) LIMIT :looked) AS unseen WHERE {visible}),
    (SELECT count(*) FROM (SELECT name FROM jobs INDEXED BY jobsAsideByName
        WHERE state = 'PAUSED' AND name BETWEEN :low AND :high LIMIT :looked) AS paused WHERE {visible}),
    (SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobsRepeating
        WHERE repeat <> '' AND name BETWEEN :low AND :high AND {visible} LIMIT :most) AS repeating)
LIMIT :limit;

-- name: names_of_jobs
-- The names of all jobs that match a pattern, by one seek each. The scan stops at name number `:walked`,
-- which is returned even if it does not match.
WITH RECURSIVE found (name, walked) AS (
    SELECT (SELECT name FROM jobs WHERE name > :after AND name BETWEEN :low AND :high ORDER BY name LIMIT 1), 1
    UNION ALL
    SELECT (SELECT jobs.name FROM jobs WHERE jobs.name > found.name AND jobs.name <= :high
        ORDER BY jobs.name LIMIT 1), found.walked + 1 FROM found WHERE found.name IS NOT NULL AND found.walked < :walked
)
SELECT name, walked FROM found
    WHERE name IS NOT NULL AND (:pattern IS NULL OR name GLOB :pattern OR walked = :walked) LIMIT :limit;

-- name: job
-- One job.
SELECT {columns} FROM jobs WHERE jobID = :jobID LIMIT :limit;

-- name: pending_children
-- The number of unfinished children of a job, up to `:most`.
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE parentJobID = :jobID AND parentJobID <> 0
    AND state IN ('QUEUED', 'RUNNING', 'RUNQUEUED', 'PAUSED') LIMIT :most) AS pending LIMIT :limit;

-- name: jobs_ahead
-- The number of due jobs of the same lane and name that come before one.
SELECT count(*) FROM (
    {branches:SELECT jobID FROM jobs WHERE lane = :lane AND name = :name AND priority = {priority} AND {queued}
        AND nextRun <= CASE WHEN {priority} > :priority THEN :now WHEN {priority} = :priority THEN :nextRun ELSE '' END
        AND NOT ({priority} = :priority AND nextRun = :nextRun AND jobID >= :jobID)} LIMIT :most
) AS ahead LIMIT :limit;
