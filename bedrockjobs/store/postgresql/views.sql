-- What views read where PostgreSQL needs words of its own: the same names and columns as in `views.sql`,
-- `finding.sql`, `queues.sql` and `metrics.sql`. Jobs are found by `found`, which all lanes with a lock share.
-- A name is sought by BETWEEN and put in order: by `=` another index, which has no names, may look as good to a
-- planner that knows nothing of them yet.

-- name: queue_lanes
-- The lanes in which jobs are queued; of those with a lock, the ones of the first jobs by name.
WITH RECURSIVE walk (found) AS (
    SELECT (SELECT jobs.found FROM jobs WHERE {queued} ORDER BY jobs.found LIMIT 1)
    UNION ALL
    SELECT (SELECT jobs.found FROM jobs WHERE jobs.found > walk.found AND {queued} ORDER BY jobs.found LIMIT 1)
        FROM walk WHERE walk.found IS NOT NULL
)
SELECT DISTINCT first.lane FROM walk CROSS JOIN LATERAL (
    SELECT jobs.lane FROM jobs WHERE jobs.found = walk.found AND {queued} ORDER BY jobs.name
        LIMIT CASE WHEN walk.found LIKE '%lock' THEN 1000 ELSE 1 END
) AS first ORDER BY lane LIMIT :limit;

-- name: queue_groups
-- The queued names of some lanes, each lane in turn, with the lowest nextRun of each, as on SQLite.
WITH RECURSIVE lanes (found, lane) AS (
    SELECT {found:value}, value FROM json_array_elements_text(:lanes::json) AS asked (value)
), walk (found, lane, name, before, counted) AS (
    SELECT lanes.found COLLATE "C", lanes.lane COLLATE "C", (SELECT jobs.name FROM jobs
        WHERE jobs.found = lanes.found AND jobs.lane = lanes.lane AND {queued} ORDER BY jobs.name LIMIT 1),
        '' COLLATE "C", 0 FROM lanes
    UNION ALL
    SELECT walk.found, walk.lane, (
        SELECT jobs.name FROM jobs WHERE jobs.found = walk.found AND jobs.lane = walk.lane AND {queued}
            AND jobs.name >= CASE WHEN {alike} > :alike THEN {prefix} || '0' ELSE walk.name || chr(1) END
            ORDER BY jobs.name LIMIT 1
    ), {prefix}, {alike} FROM walk WHERE walk.name IS NOT NULL
)
SELECT lane, name, CASE WHEN {alike} > :alike THEN 1 ELSE 0 END,
        CASE WHEN {alike} <= :alike THEN {lowest:walk.lane:walk.name} END
    FROM (SELECT * FROM walk LIMIT :walked) AS walk WHERE name IS NOT NULL LIMIT :limit;

-- name: queue_groups_of_names
-- The same of some names.
SELECT lanes.value, names.value, 0, {lowest:lanes.value:names.value}
    FROM json_array_elements_text(:names::json) WITH ORDINALITY AS names (value, place)
    CROSS JOIN json_array_elements_text(:lanes::json) WITH ORDINALITY AS lanes (value, place)
    CROSS JOIN LATERAL (SELECT 1 FROM jobs WHERE jobs.found = {found:lanes.value} AND jobs.lane = lanes.value
        AND jobs.name BETWEEN names.value AND names.value AND {queued} ORDER BY jobs.name LIMIT 1) AS first
    ORDER BY names.place, lanes.place LIMIT :limit;

-- name: count_groups
-- Of pairs of a lane and a name: how many jobs are due, and how many are to come, each up to `:most`.
SELECT groups.place - 1,
    (SELECT count(*) FROM (SELECT 1 FROM (VALUES {priorities}) AS classes CROSS JOIN LATERAL (SELECT 1 FROM jobs
        WHERE jobs.found = {found:(groups.value ->> 0)} AND jobs.lane = groups.value ->> 0
        AND jobs.name BETWEEN groups.value ->> 1 AND groups.value ->> 1 AND jobs.priority = classes.column1
        AND jobs.nextRun <= :now AND {queued} ORDER BY jobs.name, jobs.nextRun LIMIT :most) AS first LIMIT :most) AS due),
    (SELECT count(*) FROM (SELECT 1 FROM (VALUES {priorities}) AS classes CROSS JOIN LATERAL (SELECT 1 FROM jobs
        WHERE jobs.found = {found:(groups.value ->> 0)} AND jobs.lane = groups.value ->> 0
        AND jobs.name BETWEEN groups.value ->> 1 AND groups.value ->> 1 AND jobs.priority = classes.column1
        AND jobs.nextRun > :now AND {queued} AND jobs.state = 'QUEUED'
        ORDER BY jobs.name, jobs.nextRun LIMIT :most) AS first LIMIT :most) AS later)
    FROM json_array_elements(:groups::json) WITH ORDINALITY AS groups (value, place)
    ORDER BY groups.place LIMIT :limit;

-- name: count_all_groups
-- Of the next lanes and names behind one: how many jobs are due, how many are to come, and the lowest nextRun.
SELECT lane, name, count(*) FILTER (WHERE nextRun <= :now),
    count(*) FILTER (WHERE nextRun > :now AND state = 'QUEUED'), min(nextRun)
    FROM jobs WHERE (found, name) >= ({found:(:lane)}, :name) AND (found, name, lane) > ({found:(:lane)}, :name, :lane)
    AND {queued} GROUP BY found, name, lane ORDER BY found, name, lane LIMIT :limit;

-- name: count_rests
-- The same of all names from one on with the same beginning, and the lowest nextRun, out of the first `:most`.
SELECT rests.place - 1, (
    SELECT json_build_array(count(*) FILTER (WHERE nextRun <= :now),
            count(*) FILTER (WHERE nextRun > :now AND state = 'QUEUED'), min(nextRun), count(*))::text
        FROM (SELECT nextRun, state FROM jobs WHERE jobs.found = {found:(rests.value ->> 0)}
            AND jobs.lane = rests.value ->> 0 AND jobs.name >= rests.value ->> 1
            AND jobs.name < rests.value ->> 2 AND {queued} LIMIT :most) AS first
) FROM json_array_elements(:rests::json) WITH ORDINALITY AS rests (value, place)
    ORDER BY rests.place LIMIT :limit;

-- name: lanes_at_once
-- Of some lanes, whatever the names: how many jobs are due, up to `:most`, and the lowest nextRun.
-- What it asks of `created` holds for every row, and leads to the index in the order of takes.
WITH classes (found, lane, priority) AS (
    SELECT {found:value}, value, column1 FROM json_array_elements_text(:lanes::json) AS lanes (value)
        CROSS JOIN (VALUES {priorities}) AS classes
)
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM classes CROSS JOIN LATERAL (
        SELECT 1 FROM jobs WHERE jobs.found = classes.found AND jobs.lane = classes.lane
            AND jobs.priority = classes.priority AND jobs.nextRun <= :now AND {queued}
            AND length(jobs.created) >= 0 LIMIT :most
    ) AS first LIMIT :most) AS due),
    (SELECT min((SELECT nextRun FROM jobs WHERE jobs.found = classes.found AND jobs.lane = classes.lane
        AND jobs.priority = classes.priority AND {queued} AND length(jobs.created) >= 0
        ORDER BY nextRun LIMIT 1)) FROM classes)
LIMIT :limit;

-- name: lanes_held
-- The lanes of running jobs that hold a lock, with the first of them.
SELECT lane, min(jobID) FROM jobs WHERE state = 'RUNNING' AND lock <> '' GROUP BY lane LIMIT :limit;

-- name: schedules_on_all_hosts
-- The schedules of which the server makes a job for each worker.
SELECT name, options FROM jobs WHERE found = 'every' AND {queued} ORDER BY name LIMIT :limit;

-- name: jobs_ahead
-- How many due jobs of the same lane and name come before one.
SELECT count(*) FROM (
    {branches:(SELECT jobID FROM jobs WHERE found = {found:(:lane)} AND lane = :lane
        AND name BETWEEN :name AND :name AND priority = {priority} AND {queued}
        AND nextRun <= CASE WHEN {priority} > :priority THEN :now WHEN {priority} = :priority THEN :nextRun ELSE '' END
        AND NOT ({priority} = :priority AND nextRun = :nextRun AND jobID >= :jobID)
        ORDER BY name, nextRun LIMIT :most)} LIMIT :most
) AS ahead LIMIT :limit;

-- name: newest_runs_of_jobs
-- The newest run of each of some jobs.
SELECT runs.jobID, runs.runID, runs.status, runs.started, runs.ended, runs.worker, runs.progress
    FROM json_array_elements_text(:jobs::json) AS asked (value) CROSS JOIN LATERAL (SELECT * FROM runs AS newest
        WHERE newest.jobID = asked.value::bigint ORDER BY newest.jobID DESC, newest.runID DESC LIMIT 1) AS runs
    ORDER BY runs.runID LIMIT :limit;

-- name: families
-- How many of the first `:most` children of each of some jobs there are, and how many in each state, as on SQLite.
SELECT asked.value::bigint, (
    SELECT {family_counts}
        FROM (SELECT state, :visible::text IS NULL OR name ~ :visible_regex AS seen FROM jobs
            WHERE parentJobID = asked.value::bigint AND parentJobID <> 0 LIMIT :most) AS children
) FROM json_array_elements_text(:jobs::json) AS asked (value) ORDER BY 1 LIMIT :limit;

-- name: newest_failed_jobs
-- The newest FAILED jobs of each of some fingerprints.
SELECT found.fingerprint, 'FAILED', found.name, found.jobID, found.lastRun, found.memory, '', '',
        coalesce(seen.at, ''), coalesce(seen."by", '')
    FROM json_array_elements_text(:groups::json) AS asked (value) CROSS JOIN LATERAL (
        SELECT * FROM jobs WHERE state = 'FAILED' AND fingerprint = asked.value AND jobID < :before
            AND (:pattern::text IS NULL OR name ~ :pattern_regex) AND (:visible::text IS NULL OR name ~ :visible_regex)
            ORDER BY jobID DESC LIMIT :members
    ) AS found LEFT JOIN seen ON seen.kind = 'job' AND seen.number = found.jobID
    ORDER BY found.jobID DESC LIMIT :limit;

-- name: newest_failed_runs
-- The same of failed runs.
SELECT found.fingerprint, found.status, found.name, found.runID, found.ended, found.error, found.worker, found.started,
        coalesce(seen.at, ''), coalesce(seen."by", '')
    FROM json_array_elements_text(:groups::json) AS asked (value) CROSS JOIN LATERAL (
        SELECT * FROM runs WHERE fingerprint <> '' AND fingerprint = asked.value AND runID < :before
            AND (:pattern::text IS NULL OR name ~ :pattern_regex) AND (:visible::text IS NULL OR name ~ :visible_regex)
            AND {no_job_failed} ORDER BY runID DESC LIMIT :members
    ) AS found LEFT JOIN seen ON seen.kind = 'run' AND seen.number = found.runID
    ORDER BY found.runID DESC LIMIT :limit;
