-- Views of runs, schedules and events. Columns have the order and names of the reply that shows them. `{run}`
-- is the list of the columns of a run, `{run_filters}` the filters of a list of runs; a null filter matches
-- all rows.

-- name: output_of_run
-- The status of a run with each chunk of output after a line; one row without a chunk if there is none.
SELECT runs.status, output.firstSeq, output.codec, output.bytes FROM runs
    LEFT JOIN output ON output.runID = runs.runID AND output.lastSeq > :after AND output.firstSeq >= coalesce(
        (SELECT before.firstSeq FROM output AS before WHERE before.runID = :runID AND before.firstSeq <= :after
            ORDER BY before.firstSeq DESC LIMIT 1), 0)
    WHERE runs.runID = :runID ORDER BY output.firstSeq LIMIT :limit;

-- name: end_of_output
-- The number of the last output line of a run, and the bytes it has printed; no row if it has printed
-- nothing.
SELECT lastSeq, start + size FROM output WHERE runID = :runID ORDER BY firstSeq DESC LIMIT :limit;

-- name: run
-- One run with its data.
SELECT {run}, data FROM runs WHERE runID = :runID;

-- name: jobs
-- A page of jobs by jobID, each with until when it holds a unique key, followed by that key; a null filter
-- matches all.
SELECT {columns}, {held} FROM jobs WHERE jobID > :after AND (:state IS NULL OR state = :state)
    AND (:pattern IS NULL OR name GLOB :pattern) AND {visible} ORDER BY jobID LIMIT :limit;

-- name: runs
-- Runs of any name, newest first.
SELECT {run} FROM runs WHERE runID < :before AND (:pattern IS NULL OR name GLOB :pattern) AND {visible}
    AND {run_filters} ORDER BY runID DESC LIMIT :limit;

-- name: runs_in_progress
-- Runs in progress.
SELECT {run} FROM runs WHERE status = 'running' AND runID < :before
    AND (:pattern IS NULL OR name GLOB :pattern) AND {visible} AND {run_filters} ORDER BY runID DESC LIMIT :limit;

-- name: runs_of_job
-- Runs of one job.
SELECT {run} FROM runs WHERE jobID = :jobID AND runID < :before
    AND (:pattern IS NULL OR name GLOB :pattern) AND {visible} AND {run_filters} ORDER BY runID DESC LIMIT :limit;

-- name: runs_of_name
-- Runs of one name.
SELECT {run} FROM runs WHERE name = :pattern AND runID < :before AND {visible} AND {run_filters}
    ORDER BY runID DESC LIMIT :limit;

-- name: runs_of_names
-- Runs whose names have a prefix: found and sorted in the index, so that only the page is read from the
-- table.
SELECT {run} FROM runs WHERE runID IN (
    SELECT runID FROM runs INDEXED BY runsByName WHERE name BETWEEN :low AND :high
        AND (:pattern IS NULL OR name GLOB :pattern) AND {visible} AND runID < :before AND {run_filters} ORDER BY runID DESC LIMIT :limit
) ORDER BY runID DESC;

-- name: schedules
-- Schedules by jobID, each with its newest run and a pattern that pauses it. `words` is derived from
-- `repeat`; nextRun is the schedule's own, even while a triggered run comes first.
SELECT jobs.jobID, jobs.name, jobs.state, jobs.repeat, '' AS words,
    coalesce(nullif(CASE WHEN json_valid(jobs.memory) THEN jobs.memory ->> 'trigger' END, ''), jobs.nextRun) AS nextRun,
    jobs.lastRun,
    coalesce(runs.status, '') AS lastStatus, coalesce(runs.runID, 0) AS runID,
    coalesce((SELECT pattern FROM pauses WHERE jobs.name GLOB pattern AND ("until" = '' OR "until" > :now)
        ORDER BY pattern LIMIT 1), '') AS paused,
    coalesce(jobs.options ->> 'source', '') AS source
    FROM jobs LEFT JOIN runs ON runs.runID = (SELECT max(runID) FROM runs WHERE jobID = jobs.jobID)
    WHERE jobs.jobID IN (
        SELECT jobID FROM jobs WHERE repeat <> '' AND name BETWEEN :low AND :high AND jobID > :after AND {visible}
    ) AND ltrim(replace(jobs.repeat, char(9), ' '), char(10, 13, 32)) LIKE 'CRON %'
    AND (:pattern IS NULL OR jobs.name GLOB :pattern)
    AND (:source IS NULL OR jobs.options ->> 'source' = :source)
    ORDER BY jobs.jobID LIMIT :limit;

-- name: ticks
-- The tick history of a schedule, newest first; one row without a tick if there is none.
SELECT ticks.tick, ticks."until", ticks.count, ticks.outcome, ticks.reason, ticks.late, ticks.runID FROM jobs
    LEFT JOIN ticks ON ticks.jobID = jobs.jobID AND ticks.tick < :before
    WHERE jobs.jobID = :jobID ORDER BY ticks.tick DESC LIMIT :limit;

-- name: newest_event
-- The number of the newest event.
SELECT coalesce(max(seq), 0) FROM events;

-- name: events
-- Events in order.
SELECT {event} FROM events WHERE seq > :after
    AND (:kind IS NULL OR kind = :kind) AND (:pattern IS NULL OR name GLOB :pattern) AND {visible}
    ORDER BY seq LIMIT :limit;

-- name: stats
-- The counters of some names in each step since a time, oldest first.
SELECT {stats} FROM json_each(:names) AS names CROSS JOIN stats
    WHERE stats.name = names.value AND stats.step = :step AND stats.at >= :since ORDER BY stats.at, stats.name LIMIT :limit;

-- name: tokens
-- The tokens, by name.
SELECT name, digest, role, names, noData, "by", created, expires, lastUsed, revoked, addresses FROM tokens
    WHERE name > :after ORDER BY name LIMIT :limit;

-- name: logins
-- The login sessions.
SELECT digest, token, created, expires FROM logins ORDER BY digest LIMIT :limit;

-- name: run_key
-- The secret key of run tokens and pings; none before the first server has started.
SELECT value FROM meta WHERE key = 'runKey' LIMIT :limit;

-- name: audit
-- The audit log, newest first.
SELECT seq, at, "by", address, command, name, jobID, detail, "before", "after" FROM audit WHERE seq < :before
    AND (:who IS NULL OR "by" = :who) AND (:command IS NULL OR command = :command)
    AND (:pattern IS NULL OR name GLOB :pattern) AND (:since IS NULL OR at >= :since)
    ORDER BY seq DESC LIMIT :limit;

-- name: name_of_job
-- The name of a job.
SELECT name FROM jobs WHERE jobID = :jobID LIMIT :limit;

-- name: unique_key_of
-- The unique key of a job, which has at most one.
SELECT key, holds FROM keys WHERE jobID = :jobID AND holds <> '' LIMIT :limit;

-- name: adjacent_runs
-- The runs of the same name before and after a run, and its options.
SELECT (SELECT max(before.runID) FROM runs AS before WHERE before.name = runs.name AND before.runID < runs.runID),
    (SELECT min(after.runID) FROM runs AS after WHERE after.name = runs.name AND after.runID > runs.runID), runs.options
    FROM runs WHERE runs.runID = :runID LIMIT :limit;

-- name: name_of_run
-- The name of the job of a run.
SELECT name FROM runs WHERE runID = :runID LIMIT :limit;

-- name: rules
-- The notification rules, by name.
SELECT name, rule, "by", created, cursor, state FROM rules WHERE name > :after ORDER BY name LIMIT :limit;

-- name: retention
-- The retention of names, by pattern.
SELECT value FROM meta WHERE key = 'retention' LIMIT :limit;

-- name: mutes
-- The mutes of failures.
SELECT value FROM meta WHERE key = 'mutes' LIMIT :limit;

-- name: use_of_runs
-- The number of runs of some names, their approximate size in bytes, and when the first began.
SELECT count(*), coalesce(sum(size), 0), coalesce(min(started), '') FROM (
    SELECT started, length(data) + length(result) + length(output) + length(error) AS size FROM runs
        WHERE name BETWEEN :low AND :high AND (:pattern IS NULL OR name GLOB :pattern)
        ORDER BY name, runID LIMIT :most
) AS found LIMIT :limit;

-- name: use_of_output
-- The number of stored chunks of output of some names, their size in bytes, and the first timestamp.
SELECT count(*), coalesce(sum(size), 0), coalesce(min(at), '') FROM (
    SELECT output.at, length(output.bytes) AS size FROM runs JOIN output ON output.runID = runs.runID
        WHERE name BETWEEN :low AND :high AND (:pattern IS NULL OR name GLOB :pattern)
        ORDER BY name, runs.runID, firstSeq LIMIT :most
) AS found LIMIT :limit;

-- name: use_of_events
-- The number of events of some names, their approximate size in bytes, and the first timestamp.
SELECT count(*), coalesce(sum(size), 0), coalesce(min(at), '') FROM (
    SELECT at, length(name) + length(detail) AS size FROM events
        WHERE :pattern IS NULL OR name GLOB :pattern ORDER BY seq DESC LIMIT :most
) AS found LIMIT :limit;

-- name: use_of_ticks
-- The number of ticks of some names, their approximate size in bytes, and the first tick.
SELECT count(*), coalesce(sum(size), 0), coalesce(min(tick), '') FROM (
    SELECT tick, length(tick) + length(until) + length(reason) AS size FROM jobs JOIN ticks ON ticks.jobID = jobs.jobID
        WHERE repeat <> '' AND name BETWEEN :low AND :high AND (:pattern IS NULL OR name GLOB :pattern)
        ORDER BY name, jobs.jobID, tick LIMIT :most
) AS found LIMIT :limit;

-- name: use_of_audit
-- The number of rows of the audit log, their approximate size in bytes, and the first timestamp.
SELECT count(*), coalesce(sum(size), 0), coalesce(min(at), '') FROM (
    SELECT at, length(detail) + length(before) + length(after) AS size FROM audit ORDER BY seq DESC LIMIT :most
) AS found LIMIT :limit;

-- name: use_of_keys
-- The number of idempotency keys, their size in characters, and when the first was stored.
SELECT count(*), coalesce(sum(size), 0), coalesce(min(created), '') FROM (
    SELECT created, length(key) AS size FROM keys WHERE holds = '' ORDER BY created DESC LIMIT :most
) AS found LIMIT :limit;

-- name: workflow
-- One workflow.
SELECT workflowID, name, state, created, ended, kept, open, failed FROM workflows
    WHERE workflowID = :workflowID AND {visible} LIMIT :limit;

-- name: workflows
-- Workflows, newest first, each with the number of its jobs.
SELECT workflowID, name, state, created, ended, kept, open, failed,
    (SELECT count(*) FROM workflowJobs WHERE workflowJobs.workflowID = workflows.workflowID) AS jobs
    FROM workflows WHERE workflowID < :before AND (:pattern IS NULL OR name GLOB :pattern) AND {visible}
    ORDER BY workflowID DESC LIMIT :limit;

-- name: workflows_in_state
-- Workflows in one state, newest first, each with the number of its jobs.
SELECT workflowID, name, state, created, ended, kept, open, failed,
    (SELECT count(*) FROM workflowJobs WHERE workflowJobs.workflowID = workflows.workflowID) AS jobs
    FROM workflows WHERE state = :state AND workflowID < :before AND (:pattern IS NULL OR name GLOB :pattern)
    AND {visible} ORDER BY workflowID DESC LIMIT :limit;

-- name: workflow_of_job
-- The workflow of a job and its name, with the name, the ref and the end of the job.
SELECT workflows.workflowID, workflows.name, workflowJobs.name, workflowJobs.ref, workflowJobs.state FROM workflowJobs
    JOIN workflows ON workflows.workflowID = workflowJobs.workflowID
    WHERE workflowJobs.jobID = :jobID LIMIT :limit;

-- name: workflows_counted
-- The number of workflows in a state, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM workflows WHERE state = :state AND (:pattern IS NULL OR name GLOB :pattern)
    AND {visible} LIMIT :most) AS found LIMIT :limit;

-- name: jobs_of_workflow
-- A page of the jobs of a workflow; the state of one that has not ended is that of its job.
SELECT jobID, ref, name,
    CASE WHEN state <> '' THEN state ELSE coalesce((SELECT jobs.state FROM jobs WHERE jobs.jobID = workflowJobs.jobID), '') END
        AS state,
    waits, onFailure,
    CASE WHEN started <> '' THEN started
        ELSE coalesce((SELECT jobs.lastRun FROM jobs WHERE jobs.jobID = workflowJobs.jobID), '') END AS started,
    ended, reason, CASE WHEN :results = 1 THEN result ELSE '' END AS result
    FROM workflowJobs WHERE jobID IN (
        SELECT jobID FROM workflowJobs WHERE workflowID = :workflowID AND jobID > :after AND {visible}
    ) ORDER BY jobID LIMIT :limit;

-- name: edges_of_workflow
-- The edges to a range of jobs of a workflow: jobID, and ref and name of the one before.
SELECT workflowEdges.jobID, earlier.ref, earlier.name FROM workflowEdges
    JOIN workflowJobs AS earlier ON earlier.jobID = workflowEdges.before
    WHERE workflowEdges.jobID BETWEEN :low AND :high AND +earlier.workflowID = :workflowID
    ORDER BY workflowEdges.jobID, workflowEdges.before LIMIT :limit;

-- name: waits_in_workflow
-- The jobs for which a job of a workflow waits, with the workflow's name.
SELECT earlier.ref, earlier.name, workflows.name FROM workflowEdges
    JOIN workflowJobs AS earlier ON earlier.jobID = workflowEdges.before
    JOIN workflows ON workflows.workflowID = earlier.workflowID
    WHERE workflowEdges.jobID = :jobID AND earlier.state = '' ORDER BY workflowEdges.before LIMIT :limit;
