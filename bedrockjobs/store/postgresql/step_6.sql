-- From version 5 to 6: the job name of an idempotency key, unique keys, the secret of the advisory lock keys,
-- and fingerprints of failures.

ALTER TABLE keys ADD COLUMN name text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE keys ADD COLUMN holds text COLLATE "C" NOT NULL DEFAULT '';
DROP INDEX keysByAge;
CREATE INDEX keysByAge ON keys (created) WHERE holds = '';
INSERT INTO meta (key, value) VALUES ('lockSalt', gen_random_uuid()::text);

ALTER TABLE jobs ADD COLUMN fingerprint text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN fingerprint text COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX jobsFailedAlike ON jobs (fingerprint, name, jobID) WHERE state = 'FAILED';
CREATE INDEX runsFailedAlike ON runs (fingerprint, name, runID, jobID) WHERE fingerprint <> '';
