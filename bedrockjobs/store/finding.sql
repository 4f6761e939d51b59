-- How a person finds jobs, runs and events. Each statement of a search looks at one stretch of them, the newest
-- first, so that a search can stop in time and go on later: a row always comes, with the lowest number of the
-- stretch and how many it had, beside each that was found; a filter that is null lets all through.

-- name: find_any
-- Through all jobs.
WITH stretch AS MATERIALIZED (
    SELECT jobID FROM jobs WHERE jobID < :before ORDER BY jobID DESC LIMIT :stretch
)
{found_jobs};

-- name: find_aside
-- Through the jobs that have failed, or wait for their children.
WITH stretch AS MATERIALIZED (
    SELECT jobID FROM jobs WHERE (state = 'FAILED' OR state = 'PAUSED') AND state = :state AND jobID < :before
        ORDER BY jobID DESC LIMIT :stretch
)
{found_jobs};

-- name: find_named
-- Through the jobs of one name.
WITH stretch AS MATERIALIZED (
    SELECT jobID FROM jobs WHERE name = :pattern AND jobID < :before ORDER BY jobID DESC LIMIT :stretch
)
{found_jobs};

-- name: find_few
-- Through the jobs whose names have a common beginning, where they are few: they are sorted.
WITH stretch AS MATERIALIZED (
    SELECT jobID FROM jobs INDEXED BY jobsAnyState WHERE name BETWEEN :low AND :high AND jobID < :before
        ORDER BY jobID DESC LIMIT :stretch
)
{found_jobs};

-- name: find_runs
-- Through all runs.
WITH stretch AS MATERIALIZED (
    SELECT runID FROM runs WHERE runID < :before ORDER BY runID DESC LIMIT :stretch
)
{found_runs};

-- name: find_runs_of_name
-- Through the runs of one name.
WITH stretch AS MATERIALIZED (
    SELECT runID FROM runs WHERE name = :pattern AND runID < :before ORDER BY runID DESC LIMIT :stretch
)
{found_runs};

-- name: find_few_runs
-- Through the runs of names with a common beginning, where they are few: they are sorted.
WITH stretch AS MATERIALIZED (
    SELECT runID FROM runs INDEXED BY runsByName WHERE name BETWEEN :low AND :high AND runID < :before
        ORDER BY runID DESC LIMIT :stretch
)
{found_runs};

-- name: find_events
-- What happened, the newest first.
WITH stretch AS MATERIALIZED (
    SELECT seq FROM events WHERE seq < :before ORDER BY seq DESC LIMIT :stretch
)
{found_events};

-- name: schedules_ahead
-- Schedules by their next run, each with a pattern that pauses it: all are looked at, and those that are next kept.
SELECT jobID, name, state, repeat, nextRun,
    coalesce((SELECT pattern FROM pauses WHERE jobs.name GLOB pattern AND ("until" = '' OR "until" > :now)
        ORDER BY pattern LIMIT 1), '') AS paused
    FROM jobs WHERE repeat <> '' AND name BETWEEN :low AND :high AND state <> 'FAILED'
    AND ltrim(replace(repeat, char(9), ' '), char(10, 13, 32)) LIKE 'CRON %'
    AND (:pattern IS NULL OR name GLOB :pattern) AND {seen}
    ORDER BY nextRun, jobID LIMIT :limit;

-- name: schedules_that_failed
-- Of the first schedules by name those whose last run failed.
SELECT name FROM (
    SELECT name,
        coalesce((SELECT CASE WHEN status IN ('fail', 'timeout', 'frozen', 'killed') THEN 1 ELSE 0 END FROM runs WHERE jobID = jobs.jobID
            AND status NOT IN ('returned', 'snoozed') ORDER BY runID DESC LIMIT 1), 0) AS failed
        FROM jobs WHERE repeat <> '' AND name BETWEEN :low AND :high AND {seen}
        AND ltrim(replace(repeat, char(9), ' '), char(10, 13, 32)) LIKE 'CRON %' ORDER BY name LIMIT :most
) AS looked WHERE failed = 1 LIMIT :limit;

-- name: count_names
-- How many jobs have names with a common beginning, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE name BETWEEN :low AND :high LIMIT :most) AS found LIMIT :limit;

-- name: count_runs
-- How many runs are of names with a common beginning, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM runs WHERE name BETWEEN :low AND :high LIMIT :most) AS found LIMIT :limit;

-- name: names
-- The first names with a common beginning, each found by a seek.
WITH RECURSIVE found (name) AS (
    SELECT (SELECT name FROM jobs WHERE name BETWEEN :low AND :high ORDER BY name LIMIT 1)
    UNION ALL
    SELECT (SELECT jobs.name FROM jobs WHERE jobs.name > found.name AND jobs.name <= :high
        ORDER BY jobs.name LIMIT 1) FROM found WHERE found.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL LIMIT :limit;

-- name: children
-- The children of a job, among the next `:most`.
SELECT {columns} FROM jobs WHERE jobID IN (
    SELECT jobID FROM jobs WHERE parentJobID = :jobID AND parentJobID <> 0 AND jobID > :after
        ORDER BY jobID LIMIT :most
) AND {seen} ORDER BY jobID LIMIT :limit;

-- name: family
-- How many of the first `:most` children of a job are in each state.
SELECT state, count(*) FROM (
    SELECT state, name FROM jobs WHERE parentJobID = :jobID AND parentJobID <> 0 ORDER BY jobID LIMIT :most
) AS children WHERE {seen} GROUP BY state ORDER BY state LIMIT :limit;

-- name: failed_children
-- Those of the first `:most` children of a job that have failed.
WITH stretch AS MATERIALIZED (
    SELECT jobID, state FROM jobs WHERE parentJobID = :jobID AND parentJobID <> 0 ORDER BY jobID LIMIT :most
)
SELECT {columns} FROM jobs WHERE jobID IN (SELECT jobID FROM stretch WHERE state = 'FAILED') AND {seen}
    ORDER BY jobID LIMIT :limit;

-- name: events_of_job
-- The newest events of a job.
SELECT {event} FROM events WHERE jobID = :jobID
    ORDER BY seq DESC LIMIT :limit;
