-- From version 5 to 6: the name of the job that an idempotency key was used for, and the secret that the numbers of advisory
-- locks are made with.

ALTER TABLE keys ADD COLUMN name text COLLATE "C" NOT NULL DEFAULT '';
INSERT INTO meta (key, value) VALUES ('lockSalt', gen_random_uuid()::text);
