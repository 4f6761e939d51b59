-- Cluster membership and notifications. Timestamps are parameters, except for the clock of the database.

-- name: clock
-- The clock of the database.
SELECT clock_timestamp();

-- name: join
-- Join the servers, unless a live server has the name or the queue was moved; returns the name on success. A
-- move locks the table of servers, so it is always visible here.
INSERT INTO servers (name, session, started, pulse, address, version, knows)
    SELECT $1::text, $2::text, $3::text, $3::text, $4::text, $5::text, $7::bigint
    WHERE NOT EXISTS (SELECT FROM meta WHERE key = 'movedTo')
    ON CONFLICT (name) DO UPDATE SET session = excluded.session, started = excluded.started,
        pulse = excluded.pulse, address = excluded.address, version = excluded.version, knows = excluded.knows
    WHERE servers.pulse < $6
    RETURNING name;

-- name: moved_to
-- Where the queue was moved to.
SELECT value FROM meta WHERE key = 'movedTo';

-- name: pulse
-- Store the heartbeat of this server, or add it again if it was removed as lost.
INSERT INTO servers (name, session, started, pulse, address, version, knows, workers, state)
    VALUES ($1, $2, $3, $6, $4, $5, $7, $8, $9)
    ON CONFLICT (name) DO UPDATE SET pulse = excluded.pulse, address = excluded.address, workers = excluded.workers,
        state = excluded.state
    WHERE servers.session = excluded.session;

-- name: own_pulse
-- The last heartbeat of a server; on a standby, it shows the replication lag.
SELECT pulse FROM servers WHERE session = $1;

-- name: lost_servers
-- Remove servers whose heartbeat is too old.
DELETE FROM servers WHERE pulse < $1 RETURNING name;

-- name: meet
-- Insert or update the workers of this server, but none of another token; returns each name, and whether it is new.
INSERT INTO workers AS known (name, joined, heartbeat, until, host, pid, version, asked, accepts, slots, quiet, by)
    SELECT name, joined, heartbeat, until, host, pid, version, ARRAY(SELECT json_array_elements_text(asked::json)),
        ARRAY(SELECT json_array_elements_text(accepts::json)), slots, quiet, by
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[],
        $9::text[], $10::bigint[], $11::boolean[], $12::text[])
        AS met (name, joined, heartbeat, until, host, pid, version, asked, accepts, slots, quiet, by)
    ORDER BY name
    ON CONFLICT (name) DO UPDATE SET heartbeat = excluded.heartbeat, until = greatest(known.until, excluded.until),
        host = excluded.host, pid = excluded.pid, version = excluded.version, asked = excluded.asked,
        accepts = excluded.accepts, slots = excluded.slots, quiet = excluded.quiet, by = excluded.by
    WHERE known.by IS NULL OR known.by = excluded.by
    RETURNING name, xmax = 0;

-- name: part
-- Remove workers that shut down, but none of another token.
DELETE FROM workers USING unnest($1::text[], $2::text[]) AS gone (name, by)
    WHERE workers.name = gone.name AND (workers.by IS NULL OR workers.by = gone.by) RETURNING workers.name;

-- name: lost_workers
-- Remove workers whose heartbeat is too old.
DELETE FROM workers WHERE until <= $1 RETURNING name;

-- name: beat
-- Store the heartbeats of runs.
UPDATE runs SET beat = $2 WHERE runID = ANY ($1::bigint[]) AND status = 'running';

-- name: servers
-- The live servers.
SELECT name, address, started, pulse, version, workers, state FROM servers ORDER BY name;

-- name: workers
-- The live workers, up to the limit of the registry.
SELECT name, joined, heartbeat, until, host, pid, version, asked, accepts, slots, quiet, by FROM workers
    ORDER BY name LIMIT $1;

-- name: open_runs
-- The runs in progress.
SELECT runID, jobID, worker, lease, stop FROM runs WHERE status = 'running';

-- name: inbox_due
-- Whether there are jobs to take in from the inbox.
SELECT true FROM inbox WHERE again <= $1 LIMIT 1;

-- name: inbox
-- The next jobs that applications created in their own transactions, up to a number and a size.
SELECT jobID, at, name, data, options, by, again FROM (
    SELECT *, sum(octet_length(data)) OVER (ORDER BY again, jobID) - octet_length(data) AS before
    FROM (SELECT * FROM inbox WHERE again <= $1 ORDER BY again, jobID LIMIT $2) AS next
) AS next WHERE before < $3 ORDER BY again, jobID;

-- name: move_clock
-- Advance the test clock, never back; returns its time.
UPDATE control SET clock = greatest(clock, $1) WHERE clock <> '' RETURNING clock;

-- name: hint
-- Notify all servers.
SELECT pg_notify($1, $2);
