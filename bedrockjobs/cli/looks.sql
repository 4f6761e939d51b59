-- What the command line asks of the tables by the command Query. {now} stands for the server's time.

-- name: states
-- How many jobs there are in each state, and how many of them are due.
SELECT state, count(*) AS jobs, sum(nextRun <= '{now}') AS due FROM jobs GROUP BY state;

-- name: next_schedules
-- The schedules that fire next.
SELECT name, nextRun, (SELECT pattern FROM pauses WHERE jobs.name GLOB pattern LIMIT 1) AS paused FROM jobs
    WHERE repeat <> '' AND repeat LIKE 'CRON%' AND state = 'QUEUED' ORDER BY nextRun LIMIT 8;

-- name: pauses
-- The pauses that hold, the oldest first.
SELECT pattern, "by", reason, since, "until" FROM pauses WHERE "until" = '' OR "until" > '{now}'
    ORDER BY since, pattern;

-- name: last_event
-- The number of the last event; 0 before the first.
SELECT coalesce(max(seq), 0) AS seq FROM events;
