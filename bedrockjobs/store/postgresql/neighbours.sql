-- What servers tell each other, each statement with a name and a sentence. Stamps are parameters, but for the clock.

-- name: clock
-- The clock of the database.
SELECT clock_timestamp();

-- name: join
-- Be one of the servers, unless one that is alive has the name, or the queue was moved: who moves it locks the servers,
-- so that this is known here. Returns the name where it could be had.
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
-- This server is alive; one that was taken for gone is back.
INSERT INTO servers (name, session, started, pulse, address, version, knows, workers, state)
    VALUES ($1, $2, $3, $6, $4, $5, $7, $8, $9)
    ON CONFLICT (name) DO UPDATE SET pulse = excluded.pulse, address = excluded.address, workers = excluded.workers,
        state = excluded.state
    WHERE servers.session = excluded.session;

-- name: own_pulse
-- The last sign of life of a server; asked on a standby, it tells how far that is behind.
SELECT pulse FROM servers WHERE session = $1;

-- name: lost_servers
-- Forget servers that were silent for too long.
DELETE FROM servers WHERE pulse < $1 RETURNING name;

-- name: meet
-- Note what this server knows of its workers; returns those that were there before.
INSERT INTO workers AS known (name, joined, heartbeat, until, host, pid, version, asked, accepts, slots, quiet)
    SELECT name, joined, heartbeat, until, host, pid, version, ARRAY(SELECT json_array_elements_text(asked::json)),
        ARRAY(SELECT json_array_elements_text(accepts::json)), slots, quiet
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[],
        $9::text[], $10::bigint[], $11::boolean[])
        AS met (name, joined, heartbeat, until, host, pid, version, asked, accepts, slots, quiet)
    ORDER BY name
    ON CONFLICT (name) DO UPDATE SET heartbeat = excluded.heartbeat, until = greatest(known.until, excluded.until),
        host = excluded.host, pid = excluded.pid, version = excluded.version, asked = excluded.asked,
        accepts = excluded.accepts, slots = excluded.slots, quiet = excluded.quiet
    RETURNING name, xmax = 0;

-- name: part
-- Forget workers that said that they end.
DELETE FROM workers WHERE name = ANY ($1::text[]) RETURNING name;

-- name: lost_workers
-- Forget workers that were silent for too long.
DELETE FROM workers WHERE until <= $1 RETURNING name;

-- name: beat
-- Note signs of life of runs.
UPDATE runs SET beat = $2 WHERE runID = ANY ($1::bigint[]) AND status = 'running';

-- name: servers
-- The servers that are alive.
SELECT name, address, started, pulse, version, workers, state FROM servers ORDER BY name;

-- name: workers
-- The workers that are alive, as many as a server remembers.
SELECT name, joined, heartbeat, until, host, pid, version, asked, accepts, slots, quiet FROM workers ORDER BY name
    LIMIT $1;

-- name: open_runs
-- The runs in progress.
SELECT runID, jobID, worker, lease, stop FROM runs WHERE status = 'running';

-- name: move_clock
-- Move the test clock, never back; returns what it shows.
UPDATE control SET clock = greatest(clock, $1) WHERE clock <> '' RETURNING clock;

-- name: hint
-- Tell all servers something.
SELECT pg_notify($1, $2);
