-- Statements on the tables other than jobs, for use in a transaction. SQLite and PostgreSQL share them.

-- name: due_in_inbox
-- The next jobs that applications created in their own transactions.
SELECT jobID, at, name, data, options, by, again FROM inbox WHERE again <= ? ORDER BY again, jobID LIMIT ?;

-- name: inbox_row
-- One job of the inbox.
SELECT jobID, at, name, data, options, by, again FROM inbox WHERE jobID = ?;

-- name: delete_from_inbox
-- Remove a job of the inbox that was taken in.
DELETE FROM inbox WHERE jobID = ?;

-- name: postpone_in_inbox
-- Let a job of the inbox wait until a timestamp.
UPDATE inbox SET again = ? WHERE jobID = ?;

-- name: insert_run
-- Insert a run in progress.
INSERT INTO runs (runID, jobID, name, attempt, cause, scheduledFor, started, worker, host, pid, lease, data, options,
    priority) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_ended_run
-- Insert a finished job as a finished run.
INSERT INTO runs (runID, jobID, name, attempt, cause, scheduledFor, started, worker, host, pid, lease, data, options,
    priority, status, ended, exitCode, error, result, output, kept, created)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: run_by_id
-- One run.
SELECT runID, jobID, name, attempt, cause, scheduledFor, started, lease, ended, worker, host, pid, stop, status,
    exitCode, error, result, progress, output, kept, created FROM runs WHERE runID = ?;

-- name: kept_of_job
-- The last run of a job, and until when it is kept.
SELECT runID, kept FROM runs WHERE jobID = ? ORDER BY runID DESC LIMIT 1;

-- name: trim_kept
-- Delete runs whose retention has ended.
DELETE FROM runs WHERE runID IN (SELECT runID FROM runs WHERE kept <> '' AND kept <= ? ORDER BY kept LIMIT ?);

-- name: next_kept
-- When the next retention of a run ends.
SELECT min(kept) FROM runs WHERE kept <> '';

-- name: end_run
-- Write the end of a run.
UPDATE runs SET status = ?, ended = ?, exitCode = ?, error = ?, result = ?, output = ?, kept = ?, created = ?
    WHERE runID = ?;

-- name: fingerprint_run
-- Store the fingerprint of a failed run.
UPDATE runs SET fingerprint = ? WHERE runID = ?;

-- name: fingerprint_job
-- Store the fingerprint of a FAILED job.
UPDATE jobs SET fingerprint = ? WHERE jobID = ?;

-- name: stop_run
-- Store the stop request for the worker of a run.
UPDATE runs SET stop = ? WHERE runID = ?;

-- name: progress_of_run
-- Store the progress of a run.
UPDATE runs SET progress = ? WHERE runID = ?;

-- name: run_key
-- The secret key of run tokens.
SELECT value FROM meta WHERE key = 'runKey';

-- name: put_run_key
-- Store the secret key of run tokens, unless another server has done so.
INSERT INTO meta (key, value) VALUES ('runKey', ?) ON CONFLICT (key) DO NOTHING;

-- name: delete_run
-- Delete a run.
DELETE FROM runs WHERE runID = ?;

-- name: open_runs
-- The runs in progress.
SELECT runID, jobID, worker, lease, stop FROM runs WHERE status = 'running' ORDER BY runID;

-- name: trim_successes
-- Delete all but the last successful runs of a name, among its newest runs.
DELETE FROM runs WHERE runID IN (SELECT runID FROM runs WHERE name = ?1 AND status = 'success' AND kept = ''
    AND runID > coalesce((SELECT newest.runID FROM runs AS newest WHERE newest.name = ?1
        ORDER BY newest.runID DESC LIMIT 1 OFFSET ?3), 0)
    ORDER BY runID DESC LIMIT 1000000000 OFFSET ?2);

-- name: trim_failures
-- Delete all but the last unsuccessful runs of a name, among its newest runs.
DELETE FROM runs WHERE runID IN (SELECT runID FROM runs WHERE name = ?1 AND status NOT IN ('success', 'running')
    AND runID > coalesce((SELECT newest.runID FROM runs AS newest WHERE newest.name = ?1
        ORDER BY newest.runID DESC LIMIT 1 OFFSET ?3), 0)
    ORDER BY runID DESC LIMIT 1000000000 OFFSET ?2);

-- name: input_of_run
-- The input of a run.
SELECT data, options, priority FROM runs WHERE runID = ?;

-- name: end_of_output
-- The number of the last output line of a run, and the bytes it has printed.
SELECT lastSeq, start + size FROM output WHERE runID = ? ORDER BY firstSeq DESC LIMIT 1;

-- name: append_chunk
-- Insert a chunk of output.
INSERT INTO output (runID, firstSeq, lastSeq, at, codec, start, size, bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: forget_middle
-- Delete the output between the beginning and the end that are kept; never the newest chunk.
DELETE FROM output WHERE runID = ? AND firstSeq < ? AND start + size > ? AND start < ?;

-- name: last_chunk
-- The chunk of output before a line.
SELECT firstSeq, codec, bytes FROM output WHERE runID = ? AND firstSeq < ? ORDER BY firstSeq DESC LIMIT 1;

-- name: loose_sizes
-- The sizes of the first uncompacted chunks of a run.
SELECT firstSeq, size FROM output WHERE runID = ? AND codec = '' ORDER BY firstSeq LIMIT ?;

-- name: loose_chunks
-- The uncompacted chunks of a run, up to one of them.
SELECT runID, firstSeq, lastSeq, at, codec, start, size, bytes FROM output
    WHERE runID = ? AND firstSeq <= ? AND codec = '' ORDER BY firstSeq;

-- name: loose_lines
-- The number of lines in the uncompacted chunks of a run, within a range.
SELECT coalesce(sum(lastSeq - firstSeq + 1), 0) FROM output WHERE runID = ? AND firstSeq >= ? AND lastSeq <= ?
    AND codec = '';

-- name: forget_chunks
-- Delete the chunks that a compacted one replaces.
DELETE FROM output WHERE runID = ? AND firstSeq >= ? AND lastSeq <= ? AND codec = '';

-- name: next_run_with_output
-- The next run that has output.
SELECT runID FROM output WHERE runID > ? ORDER BY runID LIMIT 1;

-- name: delete_output
-- Delete the output of a run.
DELETE FROM output WHERE runID = ?;

-- name: runs_below
-- Runs below a runID, newest first.
SELECT runID, jobID, name, status, ended FROM runs WHERE runID < ? ORDER BY runID DESC LIMIT ?;

-- name: runs_of_name_below
-- Runs of one name below a runID, newest first.
SELECT runID, jobID, name, status, ended FROM runs WHERE name = ? AND runID < ? ORDER BY runID DESC LIMIT ?;

-- name: size_of_run
-- The approximate size of a run and its output in bytes.
SELECT length(data) + length(options) + length(result) + length(runs.output) + length(error) + length(progress)
    + coalesce((SELECT sum(size) FROM output WHERE output.runID = runs.runID), 0) FROM runs WHERE runID = ?;

-- name: texts_of_run
-- All texts of a run except its output.
SELECT data, options, error, result, progress, output, name, worker, host, stop FROM runs WHERE runID = ?;

-- name: next_chunk
-- The chunk of output after a line.
SELECT firstSeq, codec, bytes FROM output WHERE runID = ? AND firstSeq > ? ORDER BY firstSeq LIMIT 1;

-- name: events_of_runs
-- The events with a detail, for runs within a range.
SELECT seq, runID FROM events WHERE runID BETWEEN ? AND ? AND detail <> '';

-- name: events_with_detail
-- The events with a detail after one, in order.
SELECT seq, name, detail FROM events WHERE seq > ? AND detail <> '' ORDER BY seq LIMIT ?;

-- name: put_detail
-- Replace the detail of an event.
UPDATE events SET detail = ? WHERE seq = ?;

-- name: old_runs
-- The last of the next ?3 runs after ?1 that are older than the newest ?2 runIDs.
SELECT max(runID) FROM (SELECT runID FROM runs WHERE runID > ?1 AND runID <= (SELECT max(runID) FROM runs) - ?2
    ORDER BY runID LIMIT ?3) AS old;

-- name: trim_runs
-- Delete the runs within a range that are not kept for a while.
DELETE FROM runs WHERE runID > ? AND runID <= ? AND status <> 'running' AND kept = '';

-- name: ended_runs
-- Finished runs with their names and no sizes, newest first.
SELECT runID, name, ended, kept, 0 FROM runs WHERE runID < ? AND status <> 'running' ORDER BY runID DESC LIMIT ?;

-- name: ended_runs_and_sizes
-- Finished runs with their sizes including output, newest first.
SELECT runID, name, ended, kept, length(data) + length(result) + length(runs.output) + length(error)
    + coalesce((SELECT sum(length(bytes)) FROM output WHERE output.runID = runs.runID), 0)
    FROM runs WHERE runID < ? AND status <> 'running' ORDER BY runID DESC LIMIT ?;

-- name: oldest_events
-- The oldest events after one.
SELECT seq, at, name FROM events WHERE seq > ? ORDER BY seq LIMIT ?;

-- name: newest_events_and_sizes
-- Events before one with their sizes, newest first.
SELECT seq, at, name, length(name) + length(detail) FROM events WHERE seq < ? ORDER BY seq DESC LIMIT ?;

-- name: delete_event
-- Delete an event.
DELETE FROM events WHERE seq = ?;

-- name: trim_old_ticks
-- Delete the ticks of a schedule up to a timestamp, except the newest.
DELETE FROM ticks WHERE jobID = ?1 AND until <= ?2 AND tick < (SELECT max(tick) FROM ticks WHERE jobID = ?1);

-- name: trim_ticks_to_size
-- Delete the oldest ticks of a schedule beyond a total size, except the newest.
DELETE FROM ticks WHERE jobID = ?1 AND tick < (SELECT max(tick) FROM ticks WHERE jobID = ?1) AND tick <= (
    SELECT max(tick) FROM (
        SELECT tick, sum(length(tick) + length(until) + length(reason)) OVER (ORDER BY tick DESC) AS room
            FROM ticks WHERE jobID = ?1
    ) AS sized WHERE room > ?2
);

-- name: retention
-- The retention of names.
SELECT value FROM meta WHERE key = 'retention';

-- name: put_retention
-- Replace the retention of names.
INSERT INTO meta (key, value) VALUES ('retention', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: declared
-- The workers that declare the schedules of a source.
SELECT value FROM meta WHERE key = 'declared ' || ?;

-- name: put_declared
-- Replace the workers that declare the schedules of a source.
INSERT INTO meta (key, value) VALUES ('declared ' || ?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: next_tick_history
-- The next job with a tick history, and its name if it exists.
SELECT jobID, (SELECT name FROM jobs WHERE jobs.jobID = ticks.jobID) FROM ticks WHERE jobID > ?
    ORDER BY jobID LIMIT 1;

-- name: last_tick
-- The newest tick of a schedule.
SELECT jobID, tick, until, count, outcome, reason, late, runID FROM ticks WHERE jobID = ?
    ORDER BY tick DESC LIMIT 1;

-- name: put_tick
-- Insert or update a tick.
INSERT INTO ticks (jobID, tick, until, count, outcome, reason, late, runID) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (jobID, tick) DO UPDATE SET until = excluded.until, count = excluded.count,
        outcome = excluded.outcome, reason = excluded.reason, late = excluded.late, runID = excluded.runID;

-- name: trim_ticks
-- Delete all but the last ticks of a schedule.
DELETE FROM ticks WHERE jobID = ?1 AND tick <= (SELECT tick FROM ticks WHERE jobID = ?1
    ORDER BY tick DESC LIMIT 1 OFFSET ?2);

-- name: delete_tick
-- Delete a tick.
DELETE FROM ticks WHERE jobID = ? AND tick = ?;

-- name: delete_ticks
-- Delete the tick history of a schedule.
DELETE FROM ticks WHERE jobID = ?;

-- name: job_of_key
-- The job of an idempotency key or a unique key.
SELECT jobID, name, holds FROM keys WHERE key = ? AND created > ?;

-- name: claim_key
-- Store a unique key unless it exists.
INSERT INTO keys (key, jobID, created, name, holds) VALUES (?, ?, ?, '', ?) ON CONFLICT (key) DO NOTHING;

-- name: unique_key_of
-- The unique key of a job, which has at most one.
SELECT key, holds FROM keys WHERE jobID = ? AND holds <> '';

-- name: put_key
-- Store an idempotency key or a unique key.
INSERT INTO keys (key, jobID, created, name, holds) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE
    SET jobID = excluded.jobID, created = excluded.created, name = excluded.name, holds = excluded.holds;

-- name: trim_keys
-- Delete old idempotency keys.
DELETE FROM keys WHERE key IN (SELECT key FROM keys WHERE holds = '' AND created <= ? ORDER BY created LIMIT ?);

-- name: next_unique_keys
-- The last of the next unique keys within a range.
SELECT max(key) FROM (SELECT key FROM keys WHERE key > ? AND key < ? ORDER BY key LIMIT ?) AS found;

-- name: trim_unique_keys
-- Delete the unique keys within a range that are no longer held and were created before a timestamp.
DELETE FROM keys WHERE key > ? AND key <= ? AND created <= ?
    AND CASE WHEN holds = 'finished' OR holds = 'started'
        THEN NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.jobID = keys.jobID) ELSE holds <= ? END;

-- name: all_pauses
-- All pauses.
SELECT pattern, by, reason, since, until FROM pauses ORDER BY pattern;

-- name: limits
-- The limits of names.
SELECT value FROM meta WHERE key = 'limits';

-- name: paced
-- When the starts so far under a limit, with a key if it is per key, would have been made at its rate.
SELECT until FROM paced WHERE key = ? AND pattern = ?;

-- name: put_paced
-- Replace the value of `paced`.
INSERT INTO paced (key, pattern, until) VALUES (?, ?, ?) ON CONFLICT (key, pattern) DO UPDATE SET until = excluded.until;

-- name: lower_paced
-- Lower the values of `paced` of a limit, after the clock was set back.
UPDATE paced SET until = ? WHERE pattern = ? AND until > ?;

-- name: delete_paced
-- Delete the values of `paced` of a limit, when it is deleted.
DELETE FROM paced WHERE pattern = ?;

-- name: next_paced
-- The next value of `paced` of a limit above a time.
SELECT min(until) FROM paced WHERE pattern = ? AND until > ?;

-- name: trim_paced
-- Delete values of `paced` of a limit that are up to a time.
DELETE FROM paced WHERE (key, pattern) IN (
    SELECT key, pattern FROM paced WHERE pattern = ? AND until <= ? ORDER BY until LIMIT ?
);

-- name: put_limits
-- Replace the limits of names.
INSERT INTO meta (key, value) VALUES ('limits', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: count_running
-- The number of runs in progress whose names match.
SELECT count(*) FROM runs WHERE status = 'running' AND name GLOB ?;

-- name: count_queued
-- The number of queued jobs with names within a range that match a pattern, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobsAnyState
    WHERE name >= ? AND name < ? AND name GLOB ? AND state = 'QUEUED' LIMIT ?) AS queued;

-- name: put_pause
-- Pause a pattern.
INSERT INTO pauses (pattern, by, reason, since, until) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (pattern) DO UPDATE SET by = excluded.by, reason = excluded.reason, since = excluded.since,
        until = excluded.until;

-- name: delete_pause
-- Resume a pattern.
DELETE FROM pauses WHERE pattern = ?;

-- name: all_drains
-- The drained workers.
SELECT worker FROM drains;

-- name: put_drain
-- Drain a worker.
INSERT INTO drains (worker, by, since) VALUES (?, ?, ?)
    ON CONFLICT (worker) DO UPDATE SET by = excluded.by, since = excluded.since;

-- name: delete_drain
-- Let a worker take jobs again.
DELETE FROM drains WHERE worker = ?;

-- name: add_stats
-- Add the counters of a name in one step to those that are stored.
INSERT INTO stats (
        name, step, at, created, taken, finished, failed, retried, lost, wait0, wait1, wait2, wait3, wait4,
        wait5, wait6, wait7, wait8, wait9, wait10, wait11, wait12, wait13, wait14, took0, took1, took2, took3,
        took4, took5, took6, took7, took8, took9, took10, took11, took12, took13, took14, depth
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (name, step, at) DO UPDATE SET
        created = stats.created + excluded.created, taken = stats.taken + excluded.taken,
        finished = stats.finished + excluded.finished, failed = stats.failed + excluded.failed,
        retried = stats.retried + excluded.retried, lost = stats.lost + excluded.lost,
        wait0 = stats.wait0 + excluded.wait0, wait1 = stats.wait1 + excluded.wait1,
        wait2 = stats.wait2 + excluded.wait2, wait3 = stats.wait3 + excluded.wait3,
        wait4 = stats.wait4 + excluded.wait4, wait5 = stats.wait5 + excluded.wait5,
        wait6 = stats.wait6 + excluded.wait6, wait7 = stats.wait7 + excluded.wait7,
        wait8 = stats.wait8 + excluded.wait8, wait9 = stats.wait9 + excluded.wait9,
        wait10 = stats.wait10 + excluded.wait10, wait11 = stats.wait11 + excluded.wait11,
        wait12 = stats.wait12 + excluded.wait12, wait13 = stats.wait13 + excluded.wait13,
        wait14 = stats.wait14 + excluded.wait14, took0 = stats.took0 + excluded.took0,
        took1 = stats.took1 + excluded.took1, took2 = stats.took2 + excluded.took2,
        took3 = stats.took3 + excluded.took3, took4 = stats.took4 + excluded.took4,
        took5 = stats.took5 + excluded.took5, took6 = stats.took6 + excluded.took6,
        took7 = stats.took7 + excluded.took7, took8 = stats.took8 + excluded.took8,
        took9 = stats.took9 + excluded.took9, took10 = stats.took10 + excluded.took10,
        took11 = stats.took11 + excluded.took11, took12 = stats.took12 + excluded.took12,
        took13 = stats.took13 + excluded.took13, took14 = stats.took14 + excluded.took14,
        depth = coalesce(excluded.depth, stats.depth);

-- name: names_in_stats
-- The first names with counters after one, by one seek each.
WITH RECURSIVE found (name) AS (
    SELECT min(name) FROM stats WHERE name > ?
    UNION ALL
    SELECT (SELECT min(name) FROM stats WHERE name > found.name) FROM found WHERE found.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL LIMIT ?;

-- name: trim_stats
-- Delete the old counters of a name.
DELETE FROM stats WHERE name = ? AND step = ? AND at < ?;

-- name: add_event
-- Insert an event.
INSERT INTO events (at, kind, name, jobID, runID, by, detail) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: trim_events
-- Delete all but the last events.
DELETE FROM events WHERE seq <= (SELECT max(seq) FROM events) - ?;

-- name: all_tokens
-- All tokens, including expired ones.
SELECT name, digest, role, names, noData, by, created, expires, lastUsed, revoked, addresses FROM tokens
    ORDER BY name;

-- name: put_token
-- Insert or replace a token.
INSERT INTO tokens (name, digest, role, names, noData, by, created, expires, lastUsed, revoked,
        addresses)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, role = excluded.role, names = excluded.names,
        noData = excluded.noData, by = excluded.by, created = excluded.created, expires = excluded.expires,
        revoked = excluded.revoked, lastUsed = CASE WHEN tokens.created = excluded.created
            AND tokens.lastUsed > excluded.lastUsed THEN tokens.lastUsed ELSE excluded.lastUsed END,
        addresses = CASE WHEN tokens.created = excluded.created
            THEN tokens.addresses ELSE excluded.addresses END;

-- name: use_token
-- Store when and from where a token was used.
UPDATE tokens SET lastUsed = ?, addresses = ? WHERE name = ? AND (lastUsed < ? OR addresses <> ?);

-- name: delete_token
-- Delete a token.
DELETE FROM tokens WHERE name = ?;

-- name: all_logins
-- The login sessions.
SELECT digest, token, created, expires FROM logins ORDER BY created, digest;

-- name: put_login
-- Insert a login session.
INSERT INTO logins (digest, token, created, expires) VALUES (?, ?, ?, ?);

-- name: delete_login
-- Delete a login session.
DELETE FROM logins WHERE digest = ?;

-- name: delete_logins
-- Delete all login sessions of a token.
DELETE FROM logins WHERE token = ?;

-- name: trim_logins
-- Delete expired login sessions.
DELETE FROM logins WHERE expires <= ?;

-- name: add_audit
-- Insert a row into the audit log.
INSERT INTO audit (at, by, address, command, name, jobID, detail, before, after)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: trim_audit
-- Delete the oldest rows of the audit log, up to the first one that is new enough.
DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE seq < coalesce(
    (SELECT seq FROM audit WHERE at > ?1 ORDER BY seq LIMIT 1), 9223372036854775807) ORDER BY seq LIMIT ?2);

-- name: all_rules
-- The notification rules.
SELECT name, rule, by, created, cursor, state FROM rules ORDER BY name;

-- name: put_rule
-- Insert or replace a notification rule.
INSERT INTO rules (name, rule, by, created, cursor, state) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET rule = excluded.rule, by = excluded.by, created = excluded.created,
        cursor = excluded.cursor, state = excluded.state;

-- name: delete_rule
-- Delete a notification rule.
DELETE FROM rules WHERE name = ?;

-- name: last_event
-- The number of the newest event.
SELECT coalesce(max(seq), 0) FROM events;

-- name: last_failed_run
-- The run that made a job FAILED, if it still exists.
SELECT runID, fingerprint FROM runs WHERE jobID = ? ORDER BY runID DESC LIMIT 1;

-- name: put_seen
-- Acknowledge a failure, unless that was done before.
INSERT INTO seen (kind, number, by, at) VALUES (?, ?, ?, ?) ON CONFLICT (kind, number) DO NOTHING;

-- name: mutes
-- The mutes of failures.
SELECT value FROM meta WHERE key = 'mutes';

-- name: put_mutes
-- Replace the mutes of failures.
INSERT INTO meta (key, value) VALUES ('mutes', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: see_jobs_alike
-- Acknowledge the FAILED jobs of a fingerprint whose names match, up to a limit.
INSERT INTO seen (kind, number, by, at)
    SELECT 'job', jobID, ?, ? FROM jobs INDEXED BY jobsFailedAlike
        WHERE state = 'FAILED' AND fingerprint = ? AND name GLOB ? LIMIT ?
    ON CONFLICT (kind, number) DO NOTHING;

-- name: see_runs_alike
-- Acknowledge the failed runs of a fingerprint whose names match, up to a limit.
INSERT INTO seen (kind, number, by, at)
    SELECT 'run', runID, ?, ? FROM runs INDEXED BY runsFailedAlike
        WHERE fingerprint <> '' AND fingerprint = ? AND name GLOB ? LIMIT ?
    ON CONFLICT (kind, number) DO NOTHING;

-- name: delete_seen
-- Delete an acknowledgement.
DELETE FROM seen WHERE kind = ? AND number = ?;

-- name: trim_seen
-- Delete the oldest acknowledgements beyond a limit.
DELETE FROM seen WHERE kind = ? AND number <= (
    SELECT number FROM seen WHERE kind = ? ORDER BY number DESC LIMIT 1 OFFSET ?
);

-- name: insert_workflow
-- Insert a workflow.
INSERT INTO workflows (workflowID, name, state, created, ended, keep, kept, open, failed, cancelled, by)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: workflow_by_id
-- One workflow.
SELECT workflowID, name, state, created, ended, keep, kept, open, failed, cancelled, by FROM workflows
    WHERE workflowID = ?;

-- name: save_workflow
-- Update what changes of a workflow.
UPDATE workflows SET state = ?, ended = ?, kept = ?, open = ?, failed = ?, cancelled = ? WHERE workflowID = ?;

-- name: insert_workflow_job
-- Add a job to a workflow.
INSERT INTO workflowJobs (jobID, workflowID, ref, name, onFailure, waits) VALUES (?, ?, ?, ?, ?, ?);

-- name: insert_workflow_edge
-- Add an edge.
INSERT INTO workflowEdges (before, jobID) VALUES (?, ?);

-- name: workflow_job
-- A job as its workflow knows it.
SELECT jobID, workflowID, ref, name, onFailure, waits, state, started, ended, reason FROM workflowJobs
    WHERE jobID = ?;

-- name: jobs_of_workflow
-- All jobs of a workflow.
SELECT jobID, workflowID, ref, name, onFailure, waits, state, started, ended, reason FROM workflowJobs
    WHERE workflowID = ? ORDER BY jobID;

-- name: edges_of_workflow
-- All edges of a workflow.
SELECT workflowEdges.before, workflowEdges.jobID FROM workflowJobs
    JOIN workflowEdges ON workflowEdges.jobID = workflowJobs.jobID WHERE workflowJobs.workflowID = ?
    ORDER BY workflowJobs.jobID, workflowEdges.before;

-- name: end_workflow_job
-- Write how a job ended.
UPDATE workflowJobs SET name = ?, state = ?, waits = ?, started = ?, ended = ?, reason = ?, result = ?
    WHERE jobID = ?;

-- name: rename_workflow_job
-- Write the new name of a job.
UPDATE workflowJobs SET name = ? WHERE jobID = ?;

-- name: wait_in_workflow
-- Write how many jobs a job waits for.
UPDATE workflowJobs SET waits = ? WHERE jobID = ?;

-- name: waiting_after
-- The jobs that wait directly for a job, each with the number of jobs it waits for.
SELECT workflowJobs.jobID, workflowJobs.waits FROM workflowEdges
    JOIN workflowJobs ON workflowJobs.jobID = workflowEdges.jobID
    WHERE workflowEdges.before = ? AND workflowJobs.state = '' AND workflowJobs.waits > 0
    ORDER BY workflowEdges.jobID;

-- name: waiting_behind
-- The jobs that wait for a job, directly or through other jobs.
SELECT jobID, workflowID, ref, name, onFailure, waits, state, started, ended, reason FROM workflowJobs
    WHERE jobID IN (
        WITH RECURSIVE behind (jobID) AS (
            SELECT workflowEdges.jobID FROM workflowEdges
                JOIN workflowJobs AS waiting ON waiting.jobID = workflowEdges.jobID
                WHERE workflowEdges.before = ? AND waiting.state = '' AND waiting.waits > 0
            UNION
            SELECT workflowEdges.jobID FROM behind
                JOIN workflowEdges ON workflowEdges.before = behind.jobID
                JOIN workflowJobs AS waiting ON waiting.jobID = workflowEdges.jobID
                WHERE waiting.state = '' AND waiting.waits > 0
        )
        SELECT jobID FROM behind
    ) ORDER BY jobID;

-- name: results_before
-- The results of the jobs directly before a job, in the order of their jobIDs.
SELECT workflowJobs.ref, workflowJobs.result FROM workflowEdges
    JOIN workflowJobs ON workflowJobs.jobID = workflowEdges.before WHERE workflowEdges.jobID = ?
    ORDER BY workflowEdges.before;

-- name: result_in_workflow
-- The result of a job of a workflow.
SELECT result FROM workflowJobs WHERE jobID = ?;

-- name: forget_in_workflow
-- Delete the result of a job of a workflow, and replace the reason of its end.
UPDATE workflowJobs SET result = '', reason = CASE WHEN reason = '' THEN '' ELSE ? END WHERE jobID = ?;

-- name: quoting_in_workflow
-- The jobs of a job's workflow whose reason begins with a text of a given length.
SELECT jobID FROM workflowJobs
    WHERE workflowID = (SELECT own.workflowID FROM workflowJobs AS own WHERE own.jobID = ?)
        AND substr(reason, 1, ?) = ? ORDER BY jobID;

-- name: texts_of_workflows
-- The jobs of workflows with a reason or a result, after a jobID.
SELECT jobID, name, reason, result FROM workflowJobs
    WHERE jobID > ? AND (reason <> '' OR result <> '') ORDER BY jobID LIMIT ?;

-- name: next_old_workflow
-- The next workflow whose retention has ended.
SELECT workflowID FROM workflows WHERE kept <> '' AND kept <= ? ORDER BY kept LIMIT 1;

-- name: some_of_workflow
-- Some jobs of a workflow.
SELECT jobID FROM workflowJobs WHERE workflowID = ? ORDER BY jobID LIMIT ?;

-- name: delete_workflow_edges
-- Delete the edges that end at a job.
DELETE FROM workflowEdges WHERE jobID = ?;

-- name: delete_workflow_job
-- Delete a job from its workflow.
DELETE FROM workflowJobs WHERE jobID = ?;

-- name: delete_workflow
-- Delete a workflow without jobs.
DELETE FROM workflows WHERE workflowID = ?;
