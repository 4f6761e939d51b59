-- What `bedrockjobs doctor` asks of the server by the command Query. {now} stands for the server's time.

-- name: due_names
-- Of the first thousand queued names those with a due job that nobody has paused: lane, name, and when the
-- first became due. Without `|| ''` SQLite seeks the lane alone, and reads it to its end for each name.
WITH RECURSIVE walk (lane, name) AS (
    SELECT lane, name FROM (SELECT lane, name FROM jobs WHERE state IN ('QUEUED', 'RUNQUEUED')
        ORDER BY lane, name LIMIT 1)
    UNION ALL
    SELECT jobs.lane, jobs.name FROM walk CROSS JOIN jobs ON jobs.jobID = (
        SELECT jobID FROM jobs AS later WHERE state IN ('QUEUED', 'RUNQUEUED')
            AND (later.lane, later.name) > (walk.lane || '', walk.name || '') ORDER BY later.lane, later.name LIMIT 1
    ) LIMIT 1000
)
SELECT * FROM (
    SELECT lane, name, (SELECT min(nextRun) FROM (
        SELECT (SELECT nextRun FROM jobs WHERE jobs.lane = walk.lane AND jobs.name = walk.name
            AND jobs.priority = column1 AND state IN ('QUEUED', 'RUNQUEUED') ORDER BY nextRun LIMIT 1) AS nextRun
        FROM (VALUES (1000), (850), (750), (500), (250), (0))
    )) AS due FROM walk
) WHERE due <= '{now}' AND lane <> 'mock' AND lane <> 'every' AND NOT EXISTS (
    SELECT 1 FROM pauses WHERE name GLOB pattern AND ("until" = '' OR "until" > '{now}')
);
