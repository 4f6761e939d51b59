-- PostgreSQL's own versions of statements in `views.sql`, `finding.sql`, `queues.sql` and `metrics.sql`, with
-- the same names and columns. Jobs are found by `found`, which combines all lanes with a lock. A name is
-- compared by BETWEEN and sorted: with `=`, an index without names may seem as good if there are no
-- statistics.

-- name: queue_lanes
-- The lanes with queued jobs; of lanes with a lock, only those of the first jobs by name.
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
-- The queued names of some lanes, taking one name of each lane in turn, with the lowest nextRun of each, as
-- on SQLite.
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
-- The queued names of some lanes, as `queue_groups`, but only the given names.
SELECT lanes.value, names.value, 0, {lowest:lanes.value:names.value}
    FROM json_array_elements_text(:names::json) WITH ORDINALITY AS names (value, place)
    CROSS JOIN json_array_elements_text(:lanes::json) WITH ORDINALITY AS lanes (value, place)
    CROSS JOIN LATERAL (SELECT 1 FROM jobs WHERE jobs.found = {found:lanes.value} AND jobs.lane = lanes.value
        AND jobs.name BETWEEN names.value AND names.value AND {queued} ORDER BY jobs.name LIMIT 1) AS first
    ORDER BY names.place, lanes.place LIMIT :limit;

-- name: count_groups
-- For pairs of a lane and a name: the number of due jobs and of later ones, each up to `:most`.
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
-- For the next lanes and names after one: the number of due jobs and of later ones, and the lowest nextRun.
SELECT lane, name, count(*) FILTER (WHERE nextRun <= :now),
    count(*) FILTER (WHERE nextRun > :now AND state = 'QUEUED'), min(nextRun)
    FROM jobs WHERE (found, name) >= ({found:(:lane)}, :name) AND (found, name, lane) > ({found:(:lane)}, :name, :lane)
    AND {queued} GROUP BY found, name, lane ORDER BY found, name, lane LIMIT :limit;

-- name: count_rests
-- For a lane and all names with a prefix, from one name on: the number of due jobs and of later jobs, the
-- lowest nextRun, and the number of jobs examined, at most `:most`.
SELECT rests.place - 1, (
    SELECT json_build_array(count(*) FILTER (WHERE nextRun <= :now),
            count(*) FILTER (WHERE nextRun > :now AND state = 'QUEUED'), min(nextRun), count(*))::text
        FROM (SELECT nextRun, state FROM jobs WHERE jobs.found = {found:(rests.value ->> 0)}
            AND jobs.lane = rests.value ->> 0 AND jobs.name >= rests.value ->> 1
            AND jobs.name < rests.value ->> 2 AND {queued} LIMIT :most) AS first
) FROM json_array_elements(:rests::json) WITH ORDINALITY AS rests (value, place)
    ORDER BY rests.place LIMIT :limit;

-- name: lanes_at_once
-- For some lanes and all names: the number of due jobs, up to `:most`, and the lowest nextRun. The condition
-- on `created` is always true and selects the index in the order of takes.
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
-- The lanes of running jobs that hold a lock, with the first of these jobs, their number, and its name and
-- options.
SELECT held.lane, first, running, name, options FROM (
    SELECT lane, min(jobID) AS first, count(*) AS running FROM jobs
        WHERE state = 'RUNNING' AND lock <> '' GROUP BY lane LIMIT :limit
) AS held CROSS JOIN LATERAL (SELECT name, options FROM jobs WHERE jobID = first OFFSET 0) AS holder;

-- name: schedules_on_all_hosts
-- The broadcast schedules.
SELECT name, options FROM jobs WHERE found = 'every' AND {queued} ORDER BY name LIMIT :limit;

-- name: jobs_ahead
-- The number of due jobs of the same lane and name that come before one.
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
-- For each of some jobs: the number of its children and of those in each state, among the first `:most`, as
-- on SQLite.
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
-- The newest failed runs of each of some fingerprints.
SELECT found.fingerprint, found.status, found.name, found.runID, found.ended, found.error, found.worker, found.started,
        coalesce(seen.at, ''), coalesce(seen."by", '')
    FROM json_array_elements_text(:groups::json) AS asked (value) CROSS JOIN LATERAL (
        SELECT * FROM runs WHERE fingerprint <> '' AND fingerprint = asked.value AND runID < :before
            AND (:pattern::text IS NULL OR name ~ :pattern_regex) AND (:visible::text IS NULL OR name ~ :visible_regex)
            AND {no_job_failed} ORDER BY runID DESC LIMIT :members
    ) AS found LEFT JOIN seen ON seen.kind = 'run' AND seen.number = found.runID
    ORDER BY found.runID DESC LIMIT :limit;

-- name: seen_of
-- When some failed jobs or runs were acknowledged.
SELECT number, at FROM json_array_elements_text(:numbers::json) AS asked (value) CROSS JOIN seen
    WHERE kind = :kind AND number = asked.value::bigint ORDER BY number LIMIT :limit;

-- name: failed_by_hour
-- For each of some fingerprints: the number of failed runs from each of some times to the next, as on SQLite.
WITH RECURSIVE search (hour, at, earlier, width) AS (
    SELECT place - 1, value COLLATE "C", 0::bigint, coalesce((SELECT max(runID) FROM runs), 0)
        FROM json_array_elements_text(:hours::json) WITH ORDINALITY AS asked (value, place)
    UNION ALL
    SELECT hour, at, earlier + CASE WHEN (SELECT CASE worker WHEN '' THEN ended ELSE started END FROM runs
            WHERE runID >= earlier + (width + 1) / 2 ORDER BY runID LIMIT 1) < at THEN (width + 1) / 2 ELSE 0 END,
        width / 2 FROM search WHERE width > 0
), hours AS MATERIALIZED (
    SELECT hour, earlier, lead(earlier, 1, 9223372036854775807) OVER (ORDER BY hour) AS last
        FROM search WHERE width = 0
)
SELECT asked.value, hour, (SELECT count(*) FROM runs WHERE fingerprint <> ''
        AND fingerprint = asked.value AND runID > earlier AND runID <= last
        AND (:pattern::text IS NULL OR name ~ :pattern_regex) AND (:visible::text IS NULL OR name ~ :visible_regex))
    FROM json_array_elements_text(:groups::json) WITH ORDINALITY AS asked (value, place) CROSS JOIN hours
    ORDER BY asked.place, hour LIMIT :limit;

-- name: stats
-- The counters of some names in each step since a time, oldest first.
SELECT {stats} FROM json_array_elements_text(:names::json) AS asked (value) JOIN stats
    ON stats.name = asked.value AND stats.step = :step AND stats.at >= :since ORDER BY stats.at, stats.name LIMIT :limit;
