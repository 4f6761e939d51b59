-- Searches for jobs, runs and events. Each statement examines one range (`stretch`), newest first, so that a
-- search can stop at a time limit and continue later. Each row begins with the lowest number of the range and
-- the number of rows examined; one row is returned even if nothing was found. A null filter matches all rows.

-- name: find_any
-- All jobs.
WITH stretch AS MATERIALIZED (
    SELECT jobID FROM jobs WHERE jobID < :before ORDER BY jobID DESC LIMIT :stretch
)
{found_jobs};

-- name: find_aside
-- Jobs that have failed, or wait for their children.
WITH stretch AS MATERIALIZED (
    SELECT jobID FROM jobs WHERE (state = 'FAILED' OR state = 'PAUSED') AND state = :state AND jobID < :before
        ORDER BY jobID DESC LIMIT :stretch
)
{found_jobs};

-- name: find_named
-- Jobs of one name.
WITH stretch AS MATERIALIZED (
    SELECT jobID FROM jobs WHERE name = :pattern AND jobID < :before ORDER BY jobID DESC LIMIT :stretch
)
{found_jobs};

-- name: find_few
-- Jobs whose names have a prefix, if there are few, as they are sorted.
WITH stretch AS MATERIALIZED (
    SELECT jobID FROM jobs INDEXED BY jobsAnyState WHERE name BETWEEN :low AND :high AND jobID < :before
        ORDER BY jobID DESC LIMIT :stretch
)
{found_jobs};

-- name: find_queued
-- Queued jobs, if there are few, as they are sorted.
WITH stretch AS MATERIALIZED (
    SELECT jobID FROM jobs INDEXED BY jobsByPriority WHERE {queued} AND jobID < :before ORDER BY jobID DESC LIMIT :stretch
)
{found_jobs};

-- name: find_children
-- Jobs with a parent, if there are few, as they are sorted.
WITH stretch AS MATERIALIZED (
    SELECT jobID FROM jobs INDEXED BY jobsByParent WHERE parentJobID <> 0 AND jobID < :before
        ORDER BY jobID DESC LIMIT :stretch
)
{found_jobs};

-- name: find_cancelled
-- Jobs with a parent, and others that expire, if there are few: a cancelled job has either.
WITH stretch AS MATERIALIZED (
    SELECT jobID FROM (
        SELECT jobID FROM jobs INDEXED BY jobsByParent WHERE parentJobID <> 0 AND jobID < :before
        UNION
        SELECT jobID FROM jobs INDEXED BY jobsByExpires WHERE expires <> '' AND jobID < :before
    ) AS either ORDER BY jobID DESC LIMIT :stretch
)
{found_jobs};

-- name: find_running
-- Running jobs: those with an open run, and those without a run among the `:oldest` jobs.
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
-- All runs.
WITH stretch AS MATERIALIZED (
    SELECT runID FROM runs WHERE runID < :before ORDER BY runID DESC LIMIT :stretch
)
{found_runs};

-- name: find_runs_of_name
-- Runs of one name.
WITH stretch AS MATERIALIZED (
    SELECT runID FROM runs WHERE name = :pattern AND runID < :before ORDER BY runID DESC LIMIT :stretch
)
{found_runs};

-- name: find_runs_kept
-- Runs that are kept for a while, if there are few, as they are sorted.
WITH stretch AS MATERIALIZED (
    SELECT runID FROM runs INDEXED BY runsKept WHERE kept <> '' AND runID < :before ORDER BY runID DESC LIMIT :stretch
)
{found_runs};

-- name: find_few_runs
-- Runs whose names have a prefix, if there are few, as they are sorted.
WITH stretch AS MATERIALIZED (
    SELECT runID FROM runs INDEXED BY runsByName WHERE name BETWEEN :low AND :high AND runID < :before
        ORDER BY runID DESC LIMIT :stretch
)
{found_runs};

-- name: find_events
-- Events.
WITH stretch AS MATERIALIZED (
    SELECT seq FROM events WHERE seq < :before ORDER BY seq DESC LIMIT :stretch
)
{found_events};

-- name: schedules_ahead
-- Schedules by their next run, each with a pattern that pauses it. All are read; the first ones are returned.
SELECT jobID, name, state, repeat, nextRun,
    coalesce((SELECT pattern FROM pauses WHERE jobs.name GLOB pattern AND ("until" = '' OR "until" > :now)
        ORDER BY pattern LIMIT 1), '') AS paused
    FROM jobs WHERE repeat <> '' AND name BETWEEN :low AND :high AND state <> 'FAILED'
    AND ltrim(replace(repeat, char(9), ' '), char(10, 13, 32)) LIKE 'CRON %'
    AND (:pattern IS NULL OR name GLOB :pattern) AND {visible}
    ORDER BY nextRun, jobID LIMIT :limit;

-- name: schedules_that_failed
-- Among the first `:most` schedules by name, those whose last run failed and was not acknowledged.
SELECT name FROM (
    SELECT name,
        coalesce((SELECT CASE WHEN status IN ({failed_statuses}) AND NOT EXISTS (
            SELECT 1 FROM seen WHERE kind = 'run' AND number = runs.runID) THEN 1 ELSE 0 END FROM runs WHERE jobID = jobs.jobID
            AND status NOT IN ('returned', 'snoozed') ORDER BY runID DESC LIMIT 1), 0) AS failed
        FROM jobs WHERE repeat <> '' AND name BETWEEN :low AND :high AND {visible}
        AND ltrim(replace(repeat, char(9), ' '), char(10, 13, 32)) LIKE 'CRON %' ORDER BY name LIMIT :most
) AS looked WHERE failed = 1 LIMIT :limit;

-- name: count_names
-- The number of jobs whose names have a prefix, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE name BETWEEN :low AND :high LIMIT :most) AS found LIMIT :limit;

-- name: count_states
-- The number of jobs in total, queued, running, waiting for other jobs, failed, finished in a workflow,
-- cancelled, and finished and kept, each up to `:most`; and the number of rows examined for queued jobs, for
-- those in workflows, for those that expire, and for kept ones.
SELECT everything.found, queue.queued, open.found + oldest.found, aside.paused, aside.failed, children.finished,
    children.cancelled + expiring.cancelled, kept.found, queue.looked, children.looked, expiring.looked, kept.looked
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
    CROSS JOIN (SELECT count(*) AS looked,
        count(*) FILTER (WHERE state = 'CANCELLED' AND parentJobID = 0) AS cancelled
        FROM (SELECT state, parentJobID FROM jobs INDEXED BY jobsByExpires WHERE expires <> '' LIMIT :most) AS first
        ) AS expiring
    CROSS JOIN (SELECT count(*) AS looked, count(*) FILTER (WHERE gone) AS found FROM (
        SELECT NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.jobID = runs.jobID) AS gone
            FROM runs INDEXED BY runsKept WHERE kept <> '' LIMIT :most) AS first) AS kept
    LIMIT :limit;

-- name: count_states_of_names
-- The number of jobs in each state, and of matching ones, among the first `:most` whose names have a prefix.
SELECT state, count(*), count(*) FILTER (WHERE :pattern IS NULL OR name GLOB :pattern) FROM (
    SELECT state, name FROM jobs INDEXED BY jobsAnyState WHERE name BETWEEN :low AND :high LIMIT :most
) AS first GROUP BY state ORDER BY state LIMIT :limit;

-- name: count_kept_of_names
-- The number of runs, and of matching ones of finished and deleted jobs that are kept, among the first
-- `:most` whose names have a prefix.
SELECT count(*), count(*) FILTER (WHERE gone AND (:pattern IS NULL OR name GLOB :pattern)) FROM (
    SELECT name, kept <> '' AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.jobID = runs.jobID) AS gone
        FROM runs INDEXED BY runsByName WHERE name BETWEEN :low AND :high LIMIT :most
) AS first LIMIT :limit;

-- name: count_queued
-- The number of queued jobs, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobsByPriority WHERE {queued} LIMIT :most) AS found LIMIT :limit;

-- name: count_children
-- The number of jobs with a parent, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobsByParent WHERE parentJobID <> 0 LIMIT :most) AS found
    LIMIT :limit;

-- name: count_cancelled
-- The number of jobs with a parent, and of others that expire, each up to a limit.
SELECT children.found + expiring.found
    FROM (SELECT count(*) AS found FROM (SELECT 1 FROM jobs INDEXED BY jobsByParent WHERE parentJobID <> 0
        LIMIT :most) AS first) AS children
    CROSS JOIN (SELECT count(*) AS found FROM (SELECT 1 FROM jobs INDEXED BY jobsByExpires WHERE expires <> ''
        LIMIT :most) AS first) AS expiring
    LIMIT :limit;

-- name: count_kept
-- The number of runs that are kept for a while, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM runs INDEXED BY runsKept WHERE kept <> '' LIMIT :most) AS found LIMIT :limit;

-- name: newest_runs_of_jobs
-- The newest run of each of some jobs.
SELECT runs.jobID, runs.runID, runs.status, runs.started, runs.ended, runs.worker, runs.progress
    FROM json_each(:jobs) AS asked CROSS JOIN runs
    WHERE runs.runID = (SELECT max(runID) FROM runs AS newest WHERE newest.jobID = asked.value)
    ORDER BY runs.runID LIMIT :limit;

-- name: families
-- For each of some jobs: the number of its children and of those in each state, among the first `:most`.
SELECT asked.value, (
    SELECT {family_counts}
        FROM (SELECT state, {visible} AS seen FROM jobs WHERE parentJobID = asked.value AND parentJobID <> 0 LIMIT :most) AS children
) FROM json_each(:jobs) AS asked ORDER BY asked.value LIMIT :limit;

-- name: count_runs
-- The number of runs whose names have a prefix, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM runs WHERE name BETWEEN :low AND :high LIMIT :most) AS found LIMIT :limit;

-- name: names
-- The first names with a prefix, by one seek each.
WITH RECURSIVE found (name) AS (
    SELECT (SELECT name FROM jobs WHERE name BETWEEN :low AND :high ORDER BY name LIMIT 1)
    UNION ALL
    SELECT (SELECT jobs.name FROM jobs WHERE jobs.name > found.name AND jobs.name <= :high
        ORDER BY jobs.name LIMIT 1) FROM found WHERE found.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL LIMIT :limit;

-- name: children
-- The children of a job in one range of jobIDs, each with until when it holds a unique key, followed by that key.
WITH {children} SELECT highest, looked, found.* FROM {looked_children} LEFT JOIN (
    SELECT {columns}, {held} FROM jobs WHERE jobID IN (SELECT jobID FROM stretch WHERE {visible} ORDER BY jobID LIMIT :limit)
) AS found ON true ORDER BY found.jobID LIMIT :limit;

-- name: family
-- The number of children of a job in each state, in one range of jobIDs.
WITH {children} SELECT highest, looked, state, counted FROM {looked_children} LEFT JOIN (
    SELECT state, count(*) AS counted FROM stretch WHERE {visible} GROUP BY state
) AS counts ON true ORDER BY state LIMIT :limit;

-- name: failed_children
-- The failed children of a job in one range of jobIDs.
WITH {children} SELECT highest, looked, found.* FROM {looked_children} LEFT JOIN (
    SELECT {columns} FROM jobs WHERE jobID IN (SELECT jobID FROM stretch WHERE state = 'FAILED') AND {visible}
) AS found ON true ORDER BY found.jobID LIMIT :limit;

-- name: tries_of_schedule
-- The planned time, cause and status of the newest runs of a job.
SELECT scheduledFor, cause, status FROM runs WHERE jobID = :jobID ORDER BY runID DESC LIMIT :limit;

-- name: failed_jobs_alike
-- FAILED jobs by fingerprint: the number of jobs, names and unacknowledged jobs, the newest and the oldest
-- jobID, and when the oldest was last taken. Groups are sorted by their newest job.
SELECT alike.*, coalesce(first.lastRun, '') FROM (
    SELECT fingerprint, count(*) AS counted, count(DISTINCT name) AS names,
        count(*) FILTER (WHERE jobID NOT IN (SELECT number FROM seen WHERE kind = 'job')) AS unseen,
        max(jobID) AS newest, min(jobID) AS oldest
        FROM jobs INDEXED BY jobsFailedAlike WHERE state = 'FAILED' AND fingerprint BETWEEN :low AND :high
        AND (:pattern IS NULL OR name GLOB :pattern) AND {visible}
        GROUP BY fingerprint HAVING max(jobID) < :before ORDER BY max(jobID) DESC LIMIT :limit
) AS alike LEFT JOIN jobs AS first ON first.jobID = alike.oldest ORDER BY alike.newest DESC LIMIT :limit;

-- name: all_failed_jobs_alike
-- The FAILED jobs of a fingerprint, the newest first.
SELECT jobID, name FROM jobs INDEXED BY jobsFailedAlike WHERE state = 'FAILED' AND fingerprint = :fingerprint
    AND jobID < :before AND (:pattern IS NULL OR name GLOB :pattern) AND {visible}
    ORDER BY jobID DESC LIMIT :limit;

-- name: all_failed_runs_alike
-- The failed runs of a fingerprint, the newest first, without runs that made their job FAILED.
SELECT runID, name FROM runs INDEXED BY runsFailedAlike WHERE fingerprint <> '' AND fingerprint = :fingerprint
    AND runID < :before AND (:pattern IS NULL OR name GLOB :pattern) AND {visible} AND {no_job_failed}
    ORDER BY runID DESC LIMIT :limit;

-- name: failed_runs_alike
-- The failed runs of a fingerprint, newest first, without runs that made their job FAILED, so that one failure
-- counts once.
SELECT alike.*, coalesce(first.ended, '') FROM (
    SELECT fingerprint, count(*) AS counted, count(DISTINCT name) AS names,
        count(*) FILTER (WHERE runID NOT IN (SELECT number FROM seen WHERE kind = 'run')) AS unseen,
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
-- The newest failed runs of each of some fingerprints.
SELECT runs.fingerprint, runs.status, runs.name, runs.runID, runs.ended, runs.error, runs.worker, runs.started,
        coalesce(seen.at, ''), coalesce(seen."by", '')
    FROM json_each(:groups) AS asked CROSS JOIN runs LEFT JOIN seen ON seen.kind = 'run' AND seen.number = runs.runID
    WHERE runs.runID IN (SELECT runID FROM runs INDEXED BY runsFailedAlike WHERE fingerprint <> ''
        AND fingerprint = asked.value AND runID < :before AND (:pattern IS NULL OR name GLOB :pattern) AND {visible}
        AND {no_job_failed} ORDER BY runID DESC LIMIT :members)
    ORDER BY runs.runID DESC LIMIT :limit;

-- name: seen_of
-- When some failed jobs or runs were acknowledged.
SELECT number, at FROM json_each(:numbers) AS asked CROSS JOIN seen
    WHERE kind = :kind AND number = asked.value ORDER BY number LIMIT :limit;

-- name: failed_by_hour
-- For each of some fingerprints: the number of failed runs from each of some times (`:hours`, the oldest first) to
-- the next. runIDs count up, so `search` bisects them for each time: `earlier` is the highest runID that is known to
-- be earlier, out of at most `width` more. A take without a worker has its run when the job ends.
WITH RECURSIVE search (hour, at, earlier, width) AS (
    SELECT key, value, 0, coalesce((SELECT max(runID) FROM runs), 0) FROM json_each(:hours)
    UNION ALL
    SELECT hour, at, earlier + CASE WHEN (SELECT CASE worker WHEN '' THEN ended ELSE started END FROM runs
            WHERE runID >= earlier + (width + 1) / 2 ORDER BY runID LIMIT 1) < at THEN (width + 1) / 2 ELSE 0 END,
        width / 2 FROM search WHERE width > 0
), hours AS MATERIALIZED (
    SELECT hour, earlier, lead(earlier, 1, 9223372036854775807) OVER (ORDER BY hour) AS last
        FROM search WHERE width = 0
)
SELECT asked.value, hour, (SELECT count(*) FROM runs INDEXED BY runsFailedAlike WHERE fingerprint <> ''
        AND fingerprint = asked.value AND runID > earlier AND runID <= last
        AND (:pattern IS NULL OR name GLOB :pattern) AND {visible})
    FROM json_each(:groups) AS asked CROSS JOIN hours ORDER BY asked.key, hour LIMIT :limit;

-- name: events_of_job
-- The newest events of a job, and those of a clock that was set, which tell in which order they happened.
SELECT {event} FROM events WHERE jobID = :jobID OR kind = 'clock set'
    ORDER BY seq DESC LIMIT :limit;
