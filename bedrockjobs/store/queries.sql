-- Every statement on the jobs table, each with a name and a sentence. The text `{columns}` stands for the
-- columns of a job in the order of `Job`, with the checksum of its data at the end, `{queued}` for the condition of the two partial indexes.

-- name: insert_job
-- Add a job.
INSERT INTO jobs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_plain_job
-- Add a job that leaves all other columns as the table has them: binding these costs more than a microsecond.
INSERT INTO jobs (created, jobID, state, name, nextRun, data, priority, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: job_by_id
-- One job.
SELECT {columns} FROM jobs WHERE jobID = ?;

-- name: highest_job_id
-- The highest jobID in use; beyond it the counter need not look.
SELECT max(jobID) FROM jobs;

-- name: save_job
-- Write all that can change in a job but its data.
UPDATE jobs SET state = ?, name = ?, nextRun = ?, lastRun = ?, repeat = ?, priority = ?, retryAfter = ?,
    attempt = ?, runID = ?, expires = ?, lane = ?, options = ?, memory = ? WHERE jobID = ?;

-- name: save_job_and_data
-- Write all that can change in a job. That data is named costs 3 us, as a trigger looks at it.
UPDATE jobs SET state = ?, name = ?, nextRun = ?, lastRun = ?, repeat = ?, priority = ?, retryAfter = ?,
    attempt = ?, runID = ?, expires = ?, lane = ?, options = ?, memory = ?, data = ?, checksum = ?
    WHERE jobID = ?;

-- name: claim_job
-- Mark a queued job as taken, without touching what a take leaves alone.
UPDATE jobs SET state = 'RUNNING', lastRun = ?, attempt = ?, runID = ? WHERE jobID = ?;

-- name: delete_job
-- Remove a job.
DELETE FROM jobs WHERE jobID = ?;

-- name: delete_plain_job
-- Remove a running job whose end needs nothing else: no run is to be closed, and nothing was asked for.
DELETE FROM jobs WHERE jobID = ? AND state = 'RUNNING' AND repeat = '' AND parentJobID = 0 AND lane = ''
    AND runID = 0 AND options = '{}' AND memory = '{}';

-- name: head_of_name
-- The first queued job of one name in the order of takes, due or not: one seek.
SELECT nextRun, jobID FROM jobs WHERE lane = ?1 AND name = ?2 AND {queued}
    ORDER BY priority DESC, nextRun, jobID LIMIT 1;

-- name: due_by_name
-- The next due job of one name, class by class: six seeks at the most, and the first hit ends them.
SELECT * FROM (
    {branches:SELECT * FROM (SELECT jobID FROM jobs WHERE lane = ?1 AND name = ?2 AND priority = {priority}
        AND nextRun <= ?3 AND {queued} ORDER BY nextRun, jobID LIMIT 1)}
) LIMIT 1;

-- name: due_by_name_of_priority
-- The next due job of one name and priority.
SELECT jobID FROM jobs WHERE lane = ?1 AND name = ?2 AND priority = ?4 AND nextRun <= ?3 AND {queued}
    ORDER BY nextRun, jobID LIMIT 1;

-- name: head_of_any
-- The first queued job of any name in the order of takes, due or not: one seek.
SELECT nextRun, jobID FROM jobs WHERE lane = ?1 AND {queued} ORDER BY priority DESC, nextRun, jobID LIMIT 1;

-- name: due_of_any
-- The next due job of any name, class by class.
SELECT * FROM (
    {branches:SELECT * FROM (SELECT jobID FROM jobs WHERE lane = ?1 AND priority = {priority}
        AND nextRun <= ?2 AND {queued} ORDER BY nextRun, jobID LIMIT 1)}
) LIMIT 1;

-- name: due_of_any_of_priority
-- The next due job of any name and one priority.
SELECT jobID FROM jobs WHERE lane = ?1 AND priority = ?3 AND nextRun <= ?2 AND {queued}
    ORDER BY nextRun, jobID LIMIT 1;

-- name: due_in_order
-- The due jobs of one priority with their names, in order: for patterns that match very many names.
SELECT jobID, name FROM jobs WHERE lane = ?1 AND priority = ?3 AND nextRun <= ?2 AND {queued}
    ORDER BY nextRun, jobID;

-- name: head_of_group
-- Where the next job of one name and priority stands, due or not.
SELECT nextRun, jobID FROM jobs WHERE lane = ? AND name = ? AND priority = ? AND {queued}
    ORDER BY nextRun, jobID LIMIT 1;

-- name: next_group_of_name
-- The head of the next lower priority of a name.
SELECT name, priority, nextRun, jobID FROM jobs WHERE lane = ? AND name = ? AND priority < ? AND {queued}
    ORDER BY priority DESC, nextRun, jobID LIMIT 1;

-- name: next_group
-- The head of the highest priority of the next name.
SELECT name, priority, nextRun, jobID FROM jobs WHERE lane = ? AND name > ? AND {queued}
    ORDER BY name, priority DESC, nextRun, jobID LIMIT 1;

-- name: queued_from
-- The first queued jobs from a name on, by name and priority.
SELECT name, priority, nextRun, jobID FROM jobs WHERE lane = ? AND name >= ? AND {queued}
    ORDER BY name, priority DESC, nextRun, jobID LIMIT ?;

-- name: queued_behind
-- The first queued jobs behind a name, by name and priority.
SELECT name, priority, nextRun, jobID FROM jobs WHERE lane = ? AND name > ? AND {queued}
    ORDER BY name, priority DESC, nextRun, jobID LIMIT ?;

-- name: due_after
-- The next due jobs of a priority behind a nextRun and jobID, in order.
SELECT * FROM (
    SELECT * FROM (SELECT nextRun, jobID, name FROM jobs INDEXED BY jobsByPriority WHERE lane = ?1
        AND priority = ?2 AND nextRun = ?4 AND ?4 <= ?3 AND jobID > ?5 AND {queued} ORDER BY jobID LIMIT ?6)
    UNION ALL
    SELECT * FROM (SELECT nextRun, jobID, name FROM jobs INDEXED BY jobsByPriority WHERE lane = ?1
        AND priority = ?2 AND nextRun > ?4 AND nextRun <= ?3 AND {queued} ORDER BY nextRun, jobID LIMIT ?6)
) LIMIT ?6;

-- name: soonest_by_name
-- When the next job of a name becomes due.
SELECT min(nextRun) FROM (
    {branches:SELECT * FROM (SELECT nextRun FROM jobs WHERE lane = ?1 AND name = ?2 AND priority = {priority}
        AND nextRun > ?3 AND {queued} ORDER BY nextRun LIMIT 1)}
);

-- name: soonest_of_any
-- When the next job of any name becomes due.
SELECT min(nextRun) FROM (
    {branches:SELECT * FROM (SELECT nextRun FROM jobs WHERE lane = ?1 AND priority = {priority}
        AND nextRun > ?2 AND {queued} ORDER BY nextRun LIMIT 1)}
);

-- name: first_of_name
-- The oldest job of a name in any state, among the mocked ones or among the real ones.
SELECT jobID FROM jobs WHERE name = ? AND (lane = 'mock') = ? ORDER BY jobID LIMIT 1;

-- name: queued_lanes
-- The lanes in which a job is queued, one seek each.
WITH RECURSIVE lanes (lane) AS (
    SELECT (SELECT lane FROM jobs WHERE lane > '' AND {queued} ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT (SELECT jobs.lane FROM jobs WHERE jobs.lane > lanes.lane AND {queued} ORDER BY jobs.lane LIMIT 1)
        FROM lanes WHERE lanes.lane IS NOT NULL
)
SELECT lane FROM lanes WHERE lane IS NOT NULL;

-- name: lane_in_use
-- Whether a job is queued in a lane.
SELECT 1 FROM jobs WHERE lane = ? AND {queued} LIMIT 1;

-- name: queued_in_lane
-- The jobs that are queued in a lane.
SELECT jobID, name FROM jobs WHERE lane = ? AND {queued};

-- name: holding
-- The running jobs that may hold a lock, and since when.
SELECT lane, jobID, lastRun FROM jobs WHERE state = 'RUNNING' AND lane <> '';

-- name: expired
-- Jobs whose time is over.
SELECT {columns} FROM jobs WHERE expires <> '' AND expires <= ? ORDER BY expires LIMIT ?;

-- name: next_expiry
-- When the next job's time is over.
SELECT min(expires) FROM jobs WHERE expires <> '';

-- name: repeating
-- All that repeats.
SELECT jobID FROM jobs WHERE repeat <> '' ORDER BY name, jobID;

-- name: repeating_due
-- What repeats, is queued and is due.
SELECT jobID FROM jobs INDEXED BY jobsRepeating WHERE repeat <> '' AND state = 'QUEUED' AND nextRun <= ?
    ORDER BY name, jobID;

-- name: named
-- The first jobs of a name.
SELECT {columns} FROM jobs WHERE name = ? ORDER BY jobID LIMIT ?;

-- name: bound_of_name
-- The jobs of a name that only one worker may take.
SELECT {columns} FROM jobs WHERE name = ? AND lane LIKE '%for %';

-- name: children_of
-- The children of a job.
SELECT {columns} FROM jobs WHERE parentJobID = ? AND parentJobID <> 0 ORDER BY jobID;

-- name: has_children
-- Whether a job has any child.
SELECT 1 FROM jobs WHERE parentJobID = ? AND parentJobID <> 0 LIMIT 1;

-- name: has_families
-- Whether any job has a child.
SELECT 1 FROM jobs WHERE parentJobID <> 0 LIMIT 1;

-- name: has_pending_children
-- Whether a job has a child that has not ended.
SELECT 1 FROM jobs WHERE parentJobID = ? AND parentJobID <> 0
    AND state IN ('QUEUED', 'RUNNING', 'RUNQUEUED', 'PAUSED') LIMIT 1;

-- name: get_meta
-- One of the things the server remembers.
SELECT value FROM meta WHERE key = ?;

-- name: set_meta
-- Remember one.
INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;
