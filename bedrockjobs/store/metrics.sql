-- What a scrape of the metrics reads, and a health check. Each statement looks at a bounded number of index
-- entries, however long the queue is. The lanes `mock` and `every` are left out: no worker takes these jobs.

-- name: queue_prefixes
-- Queued jobs by the beginning of their names up to the first slash, lane by lane: an array of how many are
-- due, how many are not, and the lowest nextRun, out of the first `:counted`. The row behind `:prefixes` stands
-- for all the rest, and has no prefix.
WITH RECURSIVE walk (number, lane, name) AS (
    SELECT 1, lane, name FROM (SELECT lane, name FROM jobs WHERE {queued} ORDER BY lane, name LIMIT 1)
    UNION ALL
    SELECT walk.number + 1, jobs.lane, jobs.name FROM walk CROSS JOIN jobs ON jobs.jobID = (
        SELECT jobID FROM jobs AS later WHERE {queued} AND (later.lane, later.name) >= (
            CASE WHEN walk.lane = 'mock' OR walk.lane = 'every' THEN walk.lane || char(1) ELSE walk.lane END,
            CASE WHEN walk.lane = 'mock' OR walk.lane = 'every' THEN ''
                WHEN instr(walk.name, '/') THEN substr(walk.name, 1, instr(walk.name, '/') - 1) || '0'
                ELSE walk.name || char(1) END
        ) ORDER BY later.lane, later.name LIMIT 1
    ) LIMIT :prefixes + 1
), spans (number, lane, prefix, low, high) AS (
    SELECT number, lane, CASE WHEN instr(name, '/') THEN substr(name, 1, instr(name, '/') - 1) ELSE name END,
        CASE WHEN instr(name, '/') THEN substr(name, 1, instr(name, '/')) ELSE name END,
        CASE WHEN instr(name, '/') THEN substr(name, 1, instr(name, '/') - 1) || '0' ELSE name || char(1) END
    FROM walk
)
SELECT CASE WHEN number <= :prefixes THEN prefix END, CASE WHEN number <= :prefixes THEN (
    SELECT json_array(total(nextRun <= :now), total(nextRun > :now), min(nextRun)) FROM (
        SELECT nextRun FROM jobs WHERE jobs.lane = spans.lane AND jobs.name >= spans.low
            AND jobs.name < spans.high AND {queued} LIMIT :counted
    )
) ELSE (
    SELECT json_array(total(nextRun <= :now), total(nextRun > :now), min(nextRun)) FROM (
        SELECT lane, nextRun FROM jobs WHERE (jobs.lane, jobs.name) >= (spans.lane, spans.low) AND {queued}
            ORDER BY jobs.lane, jobs.name LIMIT :counted
    ) WHERE lane <> 'mock' AND lane <> 'every'
) END FROM spans WHERE number > :prefixes OR (lane <> 'mock' AND lane <> 'every') LIMIT :limit;

-- name: queue_heads
-- The lowest nextRun of each prefix, out of the first `:names` names, without those that are paused: six seeks
-- for each name.
WITH RECURSIVE walk (lane, name) AS (
    SELECT lane, name FROM (SELECT lane, name FROM jobs WHERE {queued} ORDER BY lane, name LIMIT 1)
    UNION ALL
    SELECT jobs.lane, jobs.name FROM walk CROSS JOIN jobs ON jobs.jobID = (
        SELECT jobID FROM jobs AS later WHERE {queued} AND (later.lane, later.name) > (
            CASE WHEN walk.lane = 'mock' OR walk.lane = 'every' THEN walk.lane || char(1) ELSE walk.lane END,
            CASE WHEN walk.lane = 'mock' OR walk.lane = 'every' THEN '' ELSE walk.name END
        ) ORDER BY later.lane, later.name LIMIT 1
    ) LIMIT :names
)
SELECT CASE WHEN instr(name, '/') THEN substr(name, 1, instr(name, '/') - 1) ELSE name END AS prefix,
    min((SELECT nextRun FROM jobs WHERE jobs.lane = walk.lane AND jobs.name = walk.name
        AND jobs.priority = column1 AND {queued} ORDER BY nextRun LIMIT 1))
    FROM walk CROSS JOIN (VALUES {priorities}) WHERE lane <> 'mock' AND lane <> 'every'
        AND NOT EXISTS (SELECT 1 FROM pauses WHERE walk.name GLOB pattern AND ("until" = '' OR "until" > :now))
    GROUP BY prefix LIMIT :limit;

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
