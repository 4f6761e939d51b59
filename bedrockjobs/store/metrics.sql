-- The statement of the health check.

-- name: health_of_schedule
-- The schedules of a name, each with its last finished run, the last one before the attempts of the present
-- tick, and its newest tick. Requeued and snoozed runs are ignored.
SELECT jobs.jobID, jobs.state, jobs.memory,
    coalesce(runs.runID, 0), coalesce(runs.status, ''), coalesce(runs.ended, ''), runs.exitCode,
    coalesce(before.runID, 0), coalesce(before.status, ''), coalesce(before.ended, ''), before.exitCode,
    coalesce(ticks."until", ''), coalesce(ticks.outcome, ''), coalesce(ticks.reason, '')
    FROM jobs
    LEFT JOIN runs ON runs.runID = (SELECT runID FROM runs AS ended WHERE ended.jobID = jobs.jobID
        AND ended.status NOT IN ('running', 'returned', 'snoozed') ORDER BY ended.runID DESC LIMIT 1)
    LEFT JOIN runs AS before ON before.runID = (SELECT runID FROM runs AS earlier
        WHERE earlier.jobID = jobs.jobID AND earlier.status NOT IN ('running', 'returned', 'snoozed')
        AND earlier.runID < (SELECT runID FROM runs AS begun WHERE begun.jobID = jobs.jobID
            AND begun.cause <> 'retry' ORDER BY begun.runID DESC LIMIT 1)
        ORDER BY earlier.runID DESC LIMIT 1)
    LEFT JOIN ticks ON ticks.jobID = jobs.jobID AND ticks.tick = (SELECT tick FROM ticks AS newest
        WHERE newest.jobID = jobs.jobID ORDER BY newest.tick DESC LIMIT 1)
    WHERE jobs.name = :name AND jobs.repeat <> ''
    AND ltrim(replace(jobs.repeat, char(9), ' '), char(10, 13, 32)) LIKE 'CRON %'
    ORDER BY jobs.jobID LIMIT :limit;
