-- Statements on the jobs table. `{columns}` is the list of the columns of a job in the order of `Job`,
-- followed by the checksum of its data; `{queued}` is the condition of the two partial indexes.

-- name: insert_job
-- Insert a job.
INSERT INTO jobs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_plain_jobs
-- Insert jobs with defaults in all other columns. `{rows}` is replaced by one row of parameters per job.
INSERT INTO jobs (created, jobID, state, name, nextRun, lastRun, data, priority, attempt, runID, checksum)
    VALUES {rows};

-- name: job_by_id
-- One job.
SELECT {columns} FROM jobs WHERE jobID = ?;

-- name: jobs_by_id
-- Some jobs.
SELECT {columns} FROM jobs WHERE jobID IN ({rows});

-- name: highest_job_id
-- The highest jobID in use; above it, the counter need not check.
SELECT max(jobID) FROM jobs;

-- name: save_job
-- Update all columns of a job that can change, except the data.
UPDATE jobs SET state = ?, name = ?, nextRun = ?, lastRun = ?, repeat = ?, priority = ?, retryAfter = ?,
    attempt = ?, runID = ?, expires = ?, lane = ?, options = ?, memory = ? WHERE jobID = ?;

-- name: save_job_and_data
-- Update all columns of a job that can change. Naming data takes 3 us, as it activates a trigger.
UPDATE jobs SET state = ?, name = ?, nextRun = ?, lastRun = ?, repeat = ?, priority = ?, retryAfter = ?,
    attempt = ?, runID = ?, expires = ?, lane = ?, options = ?, memory = ?, data = ?, checksum = ?
    WHERE jobID = ?;

-- name: claim_jobs
-- Mark queued jobs as taken without a run; no other column changes.
UPDATE jobs SET state = 'RUNNING', lastRun = ?, attempt = attempt + 1, runID = 0 WHERE jobID IN ({rows});

-- name: claim_job
-- Mark a queued job as taken by a run.
UPDATE jobs SET state = 'RUNNING', lastRun = ?, attempt = ?, runID = ? WHERE jobID = ?;

-- name: delete_job
-- Delete a job.
DELETE FROM jobs WHERE jobID = ?;

-- name: delete_jobs
-- Delete jobs.
DELETE FROM jobs WHERE jobID IN ({rows});

-- name: delete_plain_job
-- Delete a running job if nothing else is needed to finish it: it has no run to close and no options.
DELETE FROM jobs WHERE jobID = ? AND state = 'RUNNING' AND repeat = '' AND parentJobID = 0 AND lane = ''
    AND runID = 0 AND options = '{}' AND memory = '{}' RETURNING CAST(name AS BLOB);

-- name: heads_of_name
-- The first queued jobs of one name in the order of takes, due or not.
SELECT -priority, nextRun, jobID FROM jobs WHERE lane = '' AND name = ? AND {queued}
    ORDER BY priority DESC, nextRun, jobID LIMIT ?;

-- name: due_by_name
-- The next due job of one name, by priority: at most six seeks, up to the first hit.
SELECT * FROM (
    {branches:SELECT * FROM (SELECT jobID FROM jobs WHERE lane = ?1 AND name = ?2 AND priority = {priority}
        AND nextRun <= ?3 AND {queued} ORDER BY nextRun, jobID LIMIT 1)}
) LIMIT 1;

-- name: due_by_name_of_priority
-- The next due job of one name and priority.
SELECT jobID FROM jobs WHERE lane = ?1 AND name = ?2 AND priority = ?4 AND nextRun <= ?3 AND {queued}
    ORDER BY nextRun, jobID LIMIT 1;

-- name: heads_of_any
-- The first queued jobs of any name in the order of takes, due or not.
SELECT -priority, nextRun, jobID FROM jobs WHERE lane = '' AND {queued}
    ORDER BY priority DESC, nextRun, jobID LIMIT ?;

-- name: due_of_any
-- The next due job of any name, by priority.
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
-- nextRun and jobID of the first job of a lane, name and priority (a group), due or not.
SELECT nextRun, jobID FROM jobs WHERE lane = ? AND name = ? AND priority = ? AND {queued}
    ORDER BY nextRun, jobID LIMIT 1;

-- name: next_group_of_name
-- The first job of a name with the next lower priority.
SELECT name, priority, nextRun, jobID FROM jobs WHERE lane = ? AND name = ? AND priority < ? AND {queued}
    ORDER BY priority DESC, nextRun, jobID LIMIT 1;

-- name: next_group
-- The first job of the next name after one, up to another name.
SELECT name, priority, nextRun, jobID FROM jobs WHERE lane = ? AND name > ? AND name <= ? AND {queued}
    ORDER BY name, priority DESC, nextRun, jobID LIMIT 1;

-- name: queued_from
-- The first queued jobs from a name to another, by name and priority.
SELECT name, priority, nextRun, jobID FROM jobs WHERE lane = ? AND name >= ? AND name <= ? AND {queued}
    ORDER BY name, priority DESC, nextRun, jobID LIMIT ?;

-- name: queued_behind
-- The first queued jobs after a name, up to another, by name and priority.
SELECT name, priority, nextRun, jobID FROM jobs WHERE lane = ? AND name > ? AND name <= ? AND {queued}
    ORDER BY name, priority DESC, nextRun, jobID LIMIT ?;

-- name: due_after
-- The next due jobs of a priority after a nextRun and jobID, in order.
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
-- The lanes with a queued job, by one seek each.
WITH RECURSIVE lanes (lane) AS (
    SELECT (SELECT lane FROM jobs WHERE lane > '' AND {queued} ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT (SELECT jobs.lane FROM jobs WHERE jobs.lane > lanes.lane AND {queued} ORDER BY jobs.lane LIMIT 1)
        FROM lanes WHERE lanes.lane IS NOT NULL
)
SELECT lane FROM lanes WHERE lane IS NOT NULL;

-- name: names_after
-- The next names of a lane from ?2 up to ?3. ?4: how many.
WITH RECURSIVE names (name, number) AS (
    SELECT (SELECT name FROM jobs WHERE lane = ?1 AND name >= ?2 AND name <= ?3 AND {queued} ORDER BY name LIMIT 1), 1
    UNION ALL SELECT (SELECT jobs.name FROM jobs WHERE lane = ?1 AND jobs.name > names.name AND jobs.name <= ?3
        AND {queued} ORDER BY jobs.name LIMIT 1), number + 1 FROM names WHERE names.name IS NOT NULL AND number < ?4
)
SELECT name FROM names WHERE name IS NOT NULL;

-- name: lane_after
-- The next lane with queued jobs above one, below another.
SELECT lane FROM jobs WHERE lane > ? AND lane < ? AND {queued} ORDER BY lane LIMIT 1;

-- name: lane_in_use
-- Whether a job is queued in a lane.
SELECT 1 FROM jobs WHERE lane = ? AND {queued} LIMIT 1;

-- name: queued_in_lane
-- The jobs queued in a lane.
SELECT jobID, name FROM jobs WHERE lane = ? AND {queued};

-- name: holding
-- The running jobs that may hold a lock, and since when.
SELECT lane, jobID, lastRun FROM jobs WHERE state = 'RUNNING' AND lane <> '';

-- name: expired
-- Expired jobs.
SELECT {columns} FROM jobs WHERE expires <> '' AND expires <= ? ORDER BY expires LIMIT ?;

-- name: next_expiry
-- When the next job expires.
SELECT min(expires) FROM jobs WHERE expires <> '';

-- name: repeating
-- All jobs with a repeat.
SELECT jobID FROM jobs WHERE repeat <> '' ORDER BY name, jobID;

-- name: repeating_due
-- Jobs with a repeat that are queued and due.
SELECT jobID FROM jobs INDEXED BY jobsRepeating WHERE repeat <> '' AND state = 'QUEUED' AND nextRun <= ?
    ORDER BY name, jobID;

-- name: named
-- The first jobs of a name.
SELECT {columns} FROM jobs WHERE name = ? ORDER BY jobID LIMIT ?;

-- name: bound_of_name
-- The jobs of a name that are bound to a worker.
SELECT {columns} FROM jobs WHERE name = ? AND lane LIKE '%for %';

-- name: children_of
-- The children of a job.
SELECT {columns} FROM jobs WHERE parentJobID = ? AND parentJobID <> 0 ORDER BY jobID;

-- name: has_children
-- Whether a job has children.
SELECT 1 FROM jobs WHERE parentJobID = ? AND parentJobID <> 0 LIMIT 1;

-- name: has_families
-- Whether any job has a parent.
SELECT 1 FROM jobs WHERE parentJobID <> 0 LIMIT 1;

-- name: has_pending_children
-- Whether a job has unfinished children.
SELECT 1 FROM jobs WHERE parentJobID = ? AND parentJobID <> 0
    AND state IN ('QUEUED', 'RUNNING', 'RUNQUEUED', 'PAUSED') LIMIT 1;

-- name: get_meta
-- A value of `meta`.
SELECT value FROM meta WHERE key = ?;

-- name: set_meta
-- Insert or replace a value of `meta`.
INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;
