-- From version 12 to 13: the token buckets of the limits of starts, by key.

CREATE TABLE paced (
    key     text   COLLATE "C" NOT NULL,
    pattern text   COLLATE "C" NOT NULL,
    until   bigint NOT NULL,
    PRIMARY KEY (key, pattern)
);

CREATE INDEX pacedByUntil ON paced (pattern, until);

INSERT INTO paced (key, pattern, until)
    SELECT '', substr(key, 7), (value::numeric * 1000000)::bigint FROM meta WHERE key LIKE 'paced %';
DELETE FROM meta WHERE key LIKE 'paced %';
