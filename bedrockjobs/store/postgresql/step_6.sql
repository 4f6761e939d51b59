-- From version 5 to 6: the name of the job that an idempotency key was used for, unique keys, the secret that the numbers
-- of advisory locks are made with, and what failures are grouped by.

ALTER TABLE keys ADD COLUMN name text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE keys ADD COLUMN holds text COLLATE "C" NOT NULL DEFAULT '';
DROP INDEX keysByAge;
CREATE INDEX keysByAge ON keys (created) WHERE holds = '';
INSERT INTO meta (key, value) VALUES ('lockSalt', gen_random_uuid()::text);

ALTER TABLE jobs ADD COLUMN fingerprint text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN fingerprint text COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX jobsFailedAlike ON jobs (fingerprint, name, jobID) WHERE state = 'FAILED';
CREATE INDEX runsFailedAlike ON runs (fingerprint, name, runID, jobID) WHERE fingerprint <> '';
