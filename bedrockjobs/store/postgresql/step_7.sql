-- From version 6 to 7: the unique key of a job is found.

CREATE INDEX keysByJob ON keys (jobID) WHERE holds <> '';
