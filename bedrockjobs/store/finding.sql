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

-- name: find_queued
-- Through the queued jobs, where they are few: they are sorted.
WITH stretch AS MATERIALIZED (
    SELECT jobID FROM jobs INDEXED BY jobsByPriority WHERE {queued} AND jobID < :before ORDER BY jobID DESC LIMIT :stretch
)
{found_jobs};

-- name: find_children
-- Through the children of all families, where they are few: they are sorted.
WITH stretch AS MATERIALIZED (
    SELECT jobID FROM jobs INDEXED BY jobsByParent WHERE parentJobID <> 0 AND jobID < :before
        ORDER BY jobID DESC LIMIT :stretch
)
{found_jobs};

-- name: find_running
-- Through the jobs that run: those of open runs, and those without a run among the `:oldest` jobs.
WITH stretch AS MATERIALIZED (
    SELECT jobID FROM (
        SELECT jobID FROM (SELECT jobID FROM runs INDEXED BY runsOpen WHERE status = 'running'
            ORDER BY runID DESC LIMIT :most) AS open
        UNION
        SELECT jobID FROM (SELECT jobID, state, runID FROM jobs ORDER BY jobID LIMIT :oldest) AS oldest
            WHERE runID = 0 AND (state = 'RUNNING' OR state = 'RUNQUEUED')
    ) AS running WHERE jobID < :before ORDER BY jobID DESC LIMIT :stretch
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

-- name: find_runs_kept
-- Through the runs that are kept for a time, where they are few: they are sorted.
WITH stretch AS MATERIALIZED (
    SELECT runID FROM runs INDEXED BY runsKept WHERE kept <> '' AND runID < :before ORDER BY runID DESC LIMIT :stretch
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
    AND (:pattern IS NULL OR name GLOB :pattern) AND {visible}
    ORDER BY nextRun, jobID LIMIT :limit;

-- name: schedules_that_failed
-- Of the first schedules by name those whose last run failed, and nobody has seen it.
SELECT name FROM (
    SELECT name,
        coalesce((SELECT CASE WHEN status IN ({failed_statuses}) AND NOT EXISTS (
            SELECT 1 FROM seen WHERE kind = 'run' AND number = runs.runID) THEN 1 ELSE 0 END FROM runs WHERE jobID = jobs.jobID
            AND status NOT IN ('returned', 'snoozed') ORDER BY runID DESC LIMIT 1), 0) AS failed
        FROM jobs WHERE repeat <> '' AND name BETWEEN :low AND :high AND {visible}
        AND ltrim(replace(repeat, char(9), ' '), char(10, 13, 32)) LIKE 'CRON %' ORDER BY name LIMIT :most
) AS looked WHERE failed = 1 LIMIT :limit;

-- name: count_names
-- How many jobs have names with a common beginning, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE name BETWEEN :low AND :high LIMIT :most) AS found LIMIT :limit;

-- name: count_states
-- How many jobs there are, are queued, run, wait for their families, have failed, have ended well or were cancelled
-- within a family, and ended well and are kept, each up to `:most`; how many were looked at for those that are
-- queued, for those within a family, and for those that are kept.
SELECT everything.found, queue.queued, open.found + oldest.found, aside.paused, aside.failed, children.finished,
    children.cancelled, kept.found, queue.looked, children.looked, kept.looked
    FROM (SELECT count(*) AS found FROM (SELECT 1 FROM jobs LIMIT :most) AS first) AS everything
    CROSS JOIN (SELECT count(*) AS looked, count(*) FILTER (WHERE state = 'QUEUED') AS queued
        FROM (SELECT state FROM jobs INDEXED BY jobsByPriority WHERE {queued} LIMIT :most) AS first) AS queue
    CROSS JOIN (SELECT count(*) AS found FROM (SELECT 1 FROM runs INDEXED BY runsOpen WHERE status = 'running'
        LIMIT :most) AS first) AS open
    CROSS JOIN (SELECT count(*) AS found FROM (SELECT state, runID FROM jobs ORDER BY jobID LIMIT :oldest) AS first
        WHERE runID = 0 AND (state = 'RUNNING' OR state = 'RUNQUEUED')) AS oldest
    CROSS JOIN (SELECT
        (SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobsAside WHERE state = 'PAUSED' LIMIT :most) AS first)
            AS paused,
        (SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobsAside WHERE state = 'FAILED' LIMIT :most) AS first)
            AS failed) AS aside
    CROSS JOIN (SELECT count(*) AS looked, count(*) FILTER (WHERE state = 'FINISHED') AS finished,
        count(*) FILTER (WHERE state = 'CANCELLED') AS cancelled
        FROM (SELECT state FROM jobs INDEXED BY jobsByParent WHERE parentJobID <> 0 LIMIT :most) AS first) AS children
    CROSS JOIN (SELECT count(*) AS looked, count(*) FILTER (WHERE gone) AS found FROM (
        SELECT NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.jobID = runs.jobID) AS gone
            FROM runs INDEXED BY runsKept WHERE kept <> '' LIMIT :most) AS first) AS kept
    LIMIT :limit;

-- name: count_states_of_names
-- How many of the first `:most` jobs with a common beginning of their names are in each state; how many match.
SELECT state, count(*), count(*) FILTER (WHERE :pattern IS NULL OR name GLOB :pattern) FROM (
    SELECT state, name FROM jobs INDEXED BY jobsAnyState WHERE name BETWEEN :low AND :high LIMIT :most
) AS first GROUP BY state ORDER BY state LIMIT :limit;

-- name: count_kept_of_names
-- How many of the first `:most` runs with a common beginning of their names match, and are of jobs that ended well
-- and are kept.
SELECT count(*), count(*) FILTER (WHERE gone AND (:pattern IS NULL OR name GLOB :pattern)) FROM (
    SELECT name, kept <> '' AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.jobID = runs.jobID) AS gone
        FROM runs INDEXED BY runsByName WHERE name BETWEEN :low AND :high LIMIT :most
) AS first LIMIT :limit;

-- name: count_queued
-- How many jobs are queued, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobsByPriority WHERE {queued} LIMIT :most) AS found LIMIT :limit;

-- name: count_children
-- How many children there are in all families, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobsByParent WHERE parentJobID <> 0 LIMIT :most) AS found
    LIMIT :limit;

-- name: count_kept
-- How many runs are kept for a time, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM runs INDEXED BY runsKept WHERE kept <> '' LIMIT :most) AS found LIMIT :limit;

-- name: newest_runs_of_jobs
-- The newest run of each of some jobs.
SELECT runs.jobID, runs.runID, runs.status, runs.started, runs.ended, runs.worker, runs.progress
    FROM json_each(:jobs) AS asked CROSS JOIN runs
    WHERE runs.runID = (SELECT max(runID) FROM runs AS newest WHERE newest.jobID = asked.value)
    ORDER BY runs.runID LIMIT :limit;

-- name: families
-- How many of the first `:most` children of each of some jobs there are, and how many in each state, in their order.
SELECT asked.value, (
    SELECT {family_counts}
        FROM (SELECT state, {visible} AS seen FROM jobs WHERE parentJobID = asked.value AND parentJobID <> 0 LIMIT :most) AS children
) FROM json_each(:jobs) AS asked ORDER BY asked.value LIMIT :limit;

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
-- The children of a job, in one stretch of them by jobID.
WITH {children} SELECT highest, looked, found.* FROM {looked_children} LEFT JOIN (
    SELECT {columns} FROM jobs WHERE jobID IN (SELECT jobID FROM stretch WHERE {visible} ORDER BY jobID LIMIT :limit)
) AS found ON true ORDER BY found.jobID LIMIT :limit;

-- name: family
-- How many children of a job are in each state, in one stretch of them.
WITH {children} SELECT highest, looked, state, counted FROM {looked_children} LEFT JOIN (
    SELECT state, count(*) AS counted FROM stretch WHERE {visible} GROUP BY state
) AS counts ON true ORDER BY state LIMIT :limit;

-- name: failed_children
-- The children of a job that have failed, in one stretch of them.
WITH {children} SELECT highest, looked, found.* FROM {looked_children} LEFT JOIN (
    SELECT {columns} FROM jobs WHERE jobID IN (SELECT jobID FROM stretch WHERE state = 'FAILED') AND {visible}
) AS found ON true ORDER BY found.jobID LIMIT :limit;

-- name: tries_of_schedule
-- For which moment, why and how the newest runs of a job went.
SELECT scheduledFor, cause, status FROM runs WHERE jobID = :jobID ORDER BY runID DESC LIMIT :limit;

-- name: failed_jobs_alike
-- FAILED jobs by their fingerprint: how many there are, of how many names, how many of them nobody has seen, the newest and
-- the oldest, and when that one was last taken. Groups come in the order of their newest.
SELECT alike.*, coalesce(first.lastRun, '') FROM (
    SELECT fingerprint, count(*) AS counted, count(DISTINCT name) AS names,
        count(*) FILTER (WHERE NOT EXISTS (SELECT 1 FROM seen WHERE kind = 'job' AND number = jobs.jobID)) AS unseen,
        max(jobID) AS newest, min(jobID) AS oldest
        FROM jobs INDEXED BY jobsFailedAlike WHERE state = 'FAILED' AND fingerprint BETWEEN :low AND :high
        AND (:pattern IS NULL OR name GLOB :pattern) AND {visible}
        GROUP BY fingerprint HAVING max(jobID) < :before ORDER BY max(jobID) DESC LIMIT :limit
) AS alike LEFT JOIN jobs AS first ON first.jobID = alike.oldest ORDER BY alike.newest DESC LIMIT :limit;

-- name: failed_runs_alike
-- The same of failed runs, but for those that made their job FAILED: one failure counts once.
SELECT alike.*, coalesce(first.ended, '') FROM (
    SELECT fingerprint, count(*) AS counted, count(DISTINCT name) AS names,
        count(*) FILTER (WHERE NOT EXISTS (SELECT 1 FROM seen WHERE kind = 'run' AND number = runs.runID)) AS unseen,
        max(runID) AS newest, min(runID) AS oldest
        FROM runs INDEXED BY runsFailedAlike WHERE fingerprint <> '' AND fingerprint BETWEEN :low AND :high
        AND (:pattern IS NULL OR name GLOB :pattern) AND {visible} AND {no_job_failed}
        GROUP BY fingerprint HAVING max(runID) < :before ORDER BY max(runID) DESC LIMIT :limit
) AS alike LEFT JOIN runs AS first ON first.runID = alike.oldest ORDER BY alike.newest DESC LIMIT :limit;

-- name: newest_failed_jobs
-- The newest FAILED jobs of each of some fingerprints.
SELECT jobs.fingerprint, 'FAILED', jobs.name, jobs.jobID, jobs.lastRun, jobs.memory, '', '', coalesce(seen.at, ''),
        coalesce(seen."by", '')
    FROM json_each(:groups) AS asked CROSS JOIN jobs LEFT JOIN seen ON seen.kind = 'job' AND seen.number = jobs.jobID
    WHERE jobs.jobID IN (SELECT jobID FROM jobs INDEXED BY jobsFailedAlike WHERE state = 'FAILED'
        AND fingerprint = asked.value AND jobID < :before AND (:pattern IS NULL OR name GLOB :pattern) AND {visible}
        ORDER BY jobID DESC LIMIT :members)
    ORDER BY jobs.jobID DESC LIMIT :limit;

-- name: newest_failed_runs
-- The same of failed runs.
SELECT runs.fingerprint, runs.status, runs.name, runs.runID, runs.ended, runs.error, runs.worker, runs.started,
        coalesce(seen.at, ''), coalesce(seen."by", '')
    FROM json_each(:groups) AS asked CROSS JOIN runs LEFT JOIN seen ON seen.kind = 'run' AND seen.number = runs.runID
    WHERE runs.runID IN (SELECT runID FROM runs INDEXED BY runsFailedAlike WHERE fingerprint <> ''
        AND fingerprint = asked.value AND runID < :before AND (:pattern IS NULL OR name GLOB :pattern) AND {visible}
        AND {no_job_failed} ORDER BY runID DESC LIMIT :members)
    ORDER BY runs.runID DESC LIMIT :limit;

-- name: events_of_job
-- The newest events of a job.
SELECT {event} FROM events WHERE jobID = :jobID
    ORDER BY seq DESC LIMIT :limit;
