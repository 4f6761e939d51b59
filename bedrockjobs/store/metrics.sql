-- What a health check reads.

-- name: health_of_schedule
-- The schedules of a name, each with its newest run that has ended and its newest row of the ledger.
SELECT jobs.jobID, jobs.state, coalesce(runs.runID, 0), coalesce(runs.status, ''), coalesce(runs.ended, ''),
    runs.exitCode, coalesce(ticks."until", ''), coalesce(ticks.outcome, ''), coalesce(ticks.reason, '')
    FROM jobs
    LEFT JOIN runs ON runs.runID = (SELECT runID FROM runs AS ended WHERE ended.jobID = jobs.jobID
        AND ended.status <> 'running' ORDER BY ended.runID DESC LIMIT 1)
    LEFT JOIN ticks ON ticks.jobID = jobs.jobID AND ticks.tick = (SELECT tick FROM ticks AS newest
        WHERE newest.jobID = jobs.jobID ORDER BY newest.tick DESC LIMIT 1)
    WHERE jobs.name = :name AND jobs.repeat <> ''
    AND ltrim(jobs.repeat, char(9, 10, 13, 32)) LIKE 'CRON %' ORDER BY jobs.jobID LIMIT :limit;
