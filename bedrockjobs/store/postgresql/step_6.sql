-- From version 5 to 6: the name of the job that an idempotency key was used for.

ALTER TABLE keys ADD COLUMN name text COLLATE "C" NOT NULL DEFAULT '';
