-- From version 11 to 12: failed runs of a fingerprint are found by runID.

DROP INDEX runsFailedAlike;
CREATE INDEX runsFailedAlike ON runs (fingerprint, runID, name, jobID) WHERE fingerprint <> '';
