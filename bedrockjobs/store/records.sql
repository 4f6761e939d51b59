-- Every statement on the tables beside jobs that is done in a transaction, each with a name and a sentence. SQLite
-- and PostgreSQL are given the same text.

-- name: insert_run
-- Open a run.
INSERT INTO runs (runID, jobID, name, attempt, cause, scheduledFor, started, worker, host, pid, lease, data, options,
    priority) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_ended_run
-- Keep a job that has ended as a run.
INSERT INTO runs (runID, jobID, name, attempt, cause, scheduledFor, started, worker, lease, data, options, priority,
    status, ended, exitCode, result, kept, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: run_by_id
-- One run.
SELECT runID, jobID, name, attempt, cause, scheduledFor, started, lease, ended, worker, host, pid, stop, status,
    exitCode, error, result, progress, output, kept, created FROM runs WHERE runID = ?;

-- name: kept_of_job
-- The last run of a job, and until when it is kept.
SELECT runID, kept FROM runs WHERE jobID = ? ORDER BY runID DESC LIMIT 1;

-- name: trim_kept
-- Forget runs that were kept long enough.
DELETE FROM runs WHERE runID IN (SELECT runID FROM runs WHERE kept <> '' AND kept <= ? ORDER BY kept LIMIT ?);

-- name: next_kept
-- When the first of them will have been kept long enough.
SELECT min(kept) FROM runs WHERE kept <> '';

-- name: end_run
-- Close a run.
UPDATE runs SET status = ?, ended = ?, exitCode = ?, error = ?, result = ?, output = ?, kept = ?, created = ?
    WHERE runID = ?;

-- name: fingerprint_run
-- Note what a failed run is grouped by.
UPDATE runs SET fingerprint = ? WHERE runID = ?;

-- name: fingerprint_job
-- Note what a FAILED job is grouped by.
UPDATE jobs SET fingerprint = ? WHERE jobID = ?;

-- name: stop_run
-- Note what a run's worker is to be told.
UPDATE runs SET stop = ? WHERE runID = ?;

-- name: progress_of_run
-- Note how far a run is.
UPDATE runs SET progress = ? WHERE runID = ?;

-- name: run_key
-- What the tokens of runs are made with.
SELECT value FROM meta WHERE key = 'runKey';

-- name: put_run_key
-- Remember it, unless another server has.
INSERT INTO meta (key, value) VALUES ('runKey', ?) ON CONFLICT (key) DO NOTHING;

-- name: delete_run
-- Forget a run that never began.
DELETE FROM runs WHERE runID = ?;

-- name: open_runs
-- The runs in progress.
SELECT runID, jobID, worker, lease, stop FROM runs WHERE status = 'running' ORDER BY runID;

-- name: trim_successes
-- Forget all but the last successes of a name, among its newest runs.
DELETE FROM runs WHERE runID IN (SELECT runID FROM runs WHERE name = ?1 AND status = 'success' AND kept = ''
    AND runID > coalesce((SELECT newest.runID FROM runs AS newest WHERE newest.name = ?1
        ORDER BY newest.runID DESC LIMIT 1 OFFSET ?3), 0)
    ORDER BY runID DESC LIMIT 1000000000 OFFSET ?2);

-- name: trim_failures
-- Forget all but the last other ends of a name, among its newest runs.
DELETE FROM runs WHERE runID IN (SELECT runID FROM runs WHERE name = ?1 AND status NOT IN ('success', 'running')
    AND runID > coalesce((SELECT newest.runID FROM runs AS newest WHERE newest.name = ?1
        ORDER BY newest.runID DESC LIMIT 1 OFFSET ?3), 0)
    ORDER BY runID DESC LIMIT 1000000000 OFFSET ?2);

-- name: given_to_run
-- What a run was given.
SELECT data, options, priority FROM runs WHERE runID = ?;

-- name: end_of_output
-- The number of a run's last line of output, and the bytes that it has printed.
SELECT lastSeq, start + size FROM output WHERE runID = ? ORDER BY firstSeq DESC LIMIT 1;

-- name: append_chunk
-- Add lines of output.
INSERT INTO output (runID, firstSeq, lastSeq, at, codec, start, size, bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: forget_middle
-- Forget the output between the beginning and the end that are kept; never the newest chunk.
DELETE FROM output WHERE runID = ? AND firstSeq < ? AND start + size > ? AND start < ?;

-- name: last_chunk
-- The chunk of a run's output before a line.
SELECT firstSeq, codec, bytes FROM output WHERE runID = ? AND firstSeq < ? ORDER BY firstSeq DESC LIMIT 1;

-- name: loose_sizes
-- The first chunks of a run that are not packed, without their lines.
SELECT firstSeq, size FROM output WHERE runID = ? AND codec = '' ORDER BY firstSeq LIMIT ?;

-- name: loose_chunks
-- The chunks of a run that are not packed, up to one of them.
SELECT runID, firstSeq, lastSeq, at, codec, start, size, bytes FROM output
    WHERE runID = ? AND firstSeq <= ? AND codec = '' ORDER BY firstSeq;

-- name: loose_lines
-- How many lines of a run are in chunks that are not packed.
SELECT coalesce(sum(lastSeq - firstSeq + 1), 0) FROM output WHERE runID = ? AND firstSeq >= ? AND lastSeq <= ?
    AND codec = '';

-- name: forget_chunks
-- Forget the chunks of a run that one packed chunk stands for.
DELETE FROM output WHERE runID = ? AND firstSeq >= ? AND lastSeq <= ? AND codec = '';

-- name: next_run_with_output
-- The next run that has output.
SELECT runID FROM output WHERE runID > ? ORDER BY runID LIMIT 1;

-- name: delete_output
-- Forget a run's output.
DELETE FROM output WHERE runID = ?;

-- name: runs_below
-- Runs below one, the newest first.
SELECT runID, jobID, name, status, ended FROM runs WHERE runID < ? ORDER BY runID DESC LIMIT ?;

-- name: runs_of_name_below
-- The same of one name.
SELECT runID, jobID, name, status, ended FROM runs WHERE name = ? AND runID < ? ORDER BY runID DESC LIMIT ?;

-- name: size_of_run
-- About how many bytes a run and its output are.
SELECT length(data) + length(options) + length(result) + length(runs.output) + length(error) + length(progress)
    + coalesce((SELECT sum(size) FROM output WHERE output.runID = runs.runID), 0) FROM runs WHERE runID = ?;

-- name: texts_of_run
-- All that a run was given, gave back and was called, but for its output.
SELECT data, options, error, result, progress, output, name, worker, host, stop FROM runs WHERE runID = ?;

-- name: next_chunk
-- The chunk of a run's output behind a line.
SELECT firstSeq, codec, bytes FROM output WHERE runID = ? AND firstSeq > ? ORDER BY firstSeq LIMIT 1;

-- name: events_of_runs
-- The events of the runs between two that have a detail.
SELECT seq, runID FROM events WHERE runID BETWEEN ? AND ? AND detail <> '';

-- name: events_with_detail
-- Events behind one that have a detail, in order.
SELECT seq, name, detail FROM events WHERE seq > ? AND detail <> '' ORDER BY seq LIMIT ?;

-- name: put_detail
-- Replace the detail of an event.
UPDATE events SET detail = ? WHERE seq = ?;

-- name: old_runs
-- The oldest runs beyond a number of them, from one on; as runIDs count up, that is seen from the newest.
SELECT max(runID) FROM (SELECT runID FROM runs WHERE runID > ?1 AND runID <= (SELECT max(runID) FROM runs) - ?2
    ORDER BY runID LIMIT ?3) AS old;

-- name: trim_runs
-- Forget the runs between two that are not kept for a time.
DELETE FROM runs WHERE runID > ? AND runID <= ? AND status <> 'running' AND kept = '';

-- name: ended_runs
-- Runs that have ended, the newest first, with their names and no sizes.
SELECT runID, name, ended, kept, 0 FROM runs WHERE runID < ? AND status <> 'running' ORDER BY runID DESC LIMIT ?;

-- name: ended_runs_and_sizes
-- Runs that have ended, the newest first, with the room that they and their output take.
SELECT runID, name, ended, kept, length(data) + length(result) + length(runs.output) + length(error)
    + coalesce((SELECT sum(length(bytes)) FROM output WHERE output.runID = runs.runID), 0)
    FROM runs WHERE runID < ? AND status <> 'running' ORDER BY runID DESC LIMIT ?;

-- name: oldest_events
-- The oldest events from one on.
SELECT seq, at, name FROM events WHERE seq > ? ORDER BY seq LIMIT ?;

-- name: newest_events_and_sizes
-- Events before one, the newest first, with the room that they take.
SELECT seq, at, name, length(name) + length(detail) FROM events WHERE seq < ? ORDER BY seq DESC LIMIT ?;

-- name: delete_event
-- Forget an event.
DELETE FROM events WHERE seq = ?;

-- name: trim_old_ticks
-- Forget the ticks of a schedule up to a moment, but for the newest.
DELETE FROM ticks WHERE jobID = ?1 AND until <= ?2 AND tick < (SELECT max(tick) FROM ticks WHERE jobID = ?1);

-- name: trim_ticks_to_size
-- Forget the ticks of a schedule beyond a room for the newest ones, but for the newest.
DELETE FROM ticks WHERE jobID = ?1 AND tick < (SELECT max(tick) FROM ticks WHERE jobID = ?1) AND tick <= (
    SELECT max(tick) FROM (
        SELECT tick, sum(length(tick) + length(until) + length(reason)) OVER (ORDER BY tick DESC) AS room
            FROM ticks WHERE jobID = ?1
    ) AS sized WHERE room > ?2
);

-- name: retention
-- What is kept of names.
SELECT value FROM meta WHERE key = 'retention';

-- name: put_retention
-- Limit what is kept of names.
INSERT INTO meta (key, value) VALUES ('retention', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: declared
-- Which workers declare the schedules of a source.
SELECT value FROM meta WHERE key = 'declared ' || ?;

-- name: put_declared
-- Note which workers declare the schedules of a source.
INSERT INTO meta (key, value) VALUES ('declared ' || ?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: next_ledger
-- The next job with a ledger, and its name if there is such a job.
SELECT jobID, (SELECT name FROM jobs WHERE jobs.jobID = ticks.jobID) FROM ticks WHERE jobID > ?
    ORDER BY jobID LIMIT 1;

-- name: last_tick
-- The newest row of a schedule's ledger.
SELECT jobID, tick, until, count, outcome, reason, late, runID FROM ticks WHERE jobID = ?
    ORDER BY tick DESC LIMIT 1;

-- name: put_tick
-- Write a row of the ledger.
INSERT INTO ticks (jobID, tick, until, count, outcome, reason, late, runID) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (jobID, tick) DO UPDATE SET until = excluded.until, count = excluded.count,
        outcome = excluded.outcome, reason = excluded.reason, late = excluded.late, runID = excluded.runID;

-- name: trim_ticks
-- Forget all but the last rows of a schedule's ledger.
DELETE FROM ticks WHERE jobID = ?1 AND tick <= (SELECT tick FROM ticks WHERE jobID = ?1
    ORDER BY tick DESC LIMIT 1 OFFSET ?2);

-- name: delete_tick
-- Take one row out of a schedule's ledger.
DELETE FROM ticks WHERE jobID = ? AND tick = ?;

-- name: delete_ticks
-- Forget a schedule's ledger.
DELETE FROM ticks WHERE jobID = ?;

-- name: job_of_key
-- The job of an idempotency key or a unique key.
SELECT jobID, name, holds FROM keys WHERE key = ? AND created > ?;

-- name: put_key
-- Store an idempotency key or a unique key.
INSERT INTO keys (key, jobID, created, name, holds) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE
    SET jobID = excluded.jobID, created = excluded.created, name = excluded.name, holds = excluded.holds;

-- name: trim_keys
-- Forget old idempotency keys.
DELETE FROM keys WHERE key IN (SELECT key FROM keys WHERE holds = '' AND created <= ? ORDER BY created LIMIT ?);

-- name: next_unique_keys
-- The last one of the next keys between two.
SELECT max(key) FROM (SELECT key FROM keys WHERE key > ? AND key < ? ORDER BY key LIMIT ?) AS found;

-- name: trim_unique_keys
-- Delete the unique keys between two that are no longer held and were created before a timestamp.
DELETE FROM keys WHERE key > ? AND key <= ? AND created <= ?
    AND CASE WHEN holds = 'finished' OR holds = 'started'
        THEN NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.jobID = keys.jobID) ELSE holds <= ? END;

-- name: all_pauses
-- What is paused.
SELECT pattern, by, reason, since, until FROM pauses ORDER BY pattern;

-- name: limits
-- What may be created.
SELECT value FROM meta WHERE key = 'limits';

-- name: put_limits
-- Limit what may be created.
INSERT INTO meta (key, value) VALUES ('limits', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: count_running
-- How many runs of names that match are in progress.
SELECT count(*) FROM runs WHERE status = 'running' AND name GLOB ?;

-- name: count_queued
-- How many jobs are queued of the names between two that match a pattern, counted up to a number.
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
-- The workers that are drained.
SELECT worker FROM drains;

-- name: put_drain
-- Drain a worker.
INSERT INTO drains (worker, by, since) VALUES (?, ?, ?)
    ON CONFLICT (worker) DO UPDATE SET by = excluded.by, since = excluded.since;

-- name: delete_drain
-- Let a worker take jobs again.
DELETE FROM drains WHERE worker = ?;

-- name: add_minute
-- Write what was done in a minute, beside what a server before this one did in it.
INSERT INTO stats (minute, created, taken, finished, failed, retried, lost, waits, waitMs)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (minute) DO UPDATE SET created = stats.created + excluded.created,
        taken = stats.taken + excluded.taken, finished = stats.finished + excluded.finished,
        failed = stats.failed + excluded.failed, retried = stats.retried + excluded.retried,
        lost = stats.lost + excluded.lost, waits = stats.waits + excluded.waits,
        waitMs = stats.waitMs + excluded.waitMs;

-- name: trim_minutes
-- Forget old minutes.
DELETE FROM stats WHERE minute < ?;

-- name: add_event
-- Tell what happened.
INSERT INTO events (at, kind, name, jobID, runID, by, detail) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: trim_events
-- Forget all but the last events.
DELETE FROM events WHERE seq <= (SELECT max(seq) FROM events) - ?;

-- name: all_tokens
-- Who may do what, whether it still counts or not.
SELECT name, digest, role, names, noData, by, created, expires, lastUsed, revoked, addresses FROM tokens
    ORDER BY name;

-- name: put_token
-- Write a token.
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
-- Note when a token was used, and from where.
UPDATE tokens SET lastUsed = ?, addresses = ? WHERE name = ? AND (lastUsed < ? OR addresses <> ?);

-- name: delete_token
-- Forget a token.
DELETE FROM tokens WHERE name = ?;

-- name: all_logins
-- Who is logged in to the pages.
SELECT digest, token, created, expires FROM logins ORDER BY created, digest;

-- name: put_login
-- Log somebody in to the pages.
INSERT INTO logins (digest, token, created, expires) VALUES (?, ?, ?, ?);

-- name: delete_login
-- Log somebody out of the pages.
DELETE FROM logins WHERE digest = ?;

-- name: delete_logins
-- Log everybody out of the pages who came with some token.
DELETE FROM logins WHERE token = ?;

-- name: trim_logins
-- Forget who was logged in to the pages long ago.
DELETE FROM logins WHERE expires <= ?;

-- name: add_audit
-- Note what an operator changed.
INSERT INTO audit (at, by, address, command, name, jobID, detail, before, after)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: trim_audit
-- Forget what operators changed long ago: all before the first that is newer.
DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE seq < coalesce(
    (SELECT seq FROM audit WHERE at > ?1 ORDER BY seq LIMIT 1), 9223372036854775807) ORDER BY seq LIMIT ?2);

-- name: all_rules
-- Who is told of what.
SELECT name, rule, by, created, cursor, state FROM rules ORDER BY name;

-- name: put_rule
-- Write who is told of what.
INSERT INTO rules (name, rule, by, created, cursor, state) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET rule = excluded.rule, by = excluded.by, created = excluded.created,
        cursor = excluded.cursor, state = excluded.state;

-- name: delete_rule
-- Tell somebody no more.
DELETE FROM rules WHERE name = ?;

-- name: last_event
-- The number of the newest event.
SELECT coalesce(max(seq), 0) FROM events;

-- name: last_failed_run
-- The run that made a job FAILED, if it is still known.
SELECT runID, fingerprint FROM runs WHERE jobID = ? ORDER BY runID DESC LIMIT 1;

-- name: put_seen
-- Note who has seen a failure first, and when.
INSERT INTO seen (kind, number, by, at) VALUES (?, ?, ?, ?) ON CONFLICT (kind, number) DO NOTHING;

-- name: delete_seen
-- Take it back.
DELETE FROM seen WHERE kind = ? AND number = ?;

-- name: trim_seen
-- Forget the oldest beyond a number.
DELETE FROM seen WHERE kind = ? AND number <= (
    SELECT number FROM seen WHERE kind = ? ORDER BY number DESC LIMIT 1 OFFSET ?
);
