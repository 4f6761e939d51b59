-- From version 9 to 10: counters by name. Those of minutes become counters of hours.

ALTER TABLE stats RENAME TO oldStats;
ALTER INDEX stats_pkey RENAME TO oldStats_pkey;

CREATE TABLE stats (
    name     text   COLLATE "C" NOT NULL,
    step     bigint NOT NULL,
    at       text   COLLATE "C" NOT NULL,
    created  bigint NOT NULL,
    taken    bigint NOT NULL,
    finished bigint NOT NULL,
    failed   bigint NOT NULL,
    retried  bigint NOT NULL,
    lost     bigint NOT NULL,
    wait0 bigint NOT NULL, wait1 bigint NOT NULL, wait2 bigint NOT NULL, wait3 bigint NOT NULL,
    wait4 bigint NOT NULL, wait5 bigint NOT NULL, wait6 bigint NOT NULL, wait7 bigint NOT NULL,
    wait8 bigint NOT NULL, wait9 bigint NOT NULL, wait10 bigint NOT NULL, wait11 bigint NOT NULL,
    wait12 bigint NOT NULL, wait13 bigint NOT NULL, wait14 bigint NOT NULL, took0 bigint NOT NULL,
    took1 bigint NOT NULL, took2 bigint NOT NULL, took3 bigint NOT NULL, took4 bigint NOT NULL,
    took5 bigint NOT NULL, took6 bigint NOT NULL, took7 bigint NOT NULL, took8 bigint NOT NULL,
    took9 bigint NOT NULL, took10 bigint NOT NULL, took11 bigint NOT NULL, took12 bigint NOT NULL,
    took13 bigint NOT NULL, took14 bigint NOT NULL,
    depth    bigint,
    PRIMARY KEY (name, step, at)
);

INSERT INTO stats
    SELECT '', 3600, substr(minute, 1, 13) || ':00:00', sum(created), sum(taken), sum(finished), sum(failed),
        sum(retried), sum(lost), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL
    FROM oldStats GROUP BY substr(minute, 1, 13);

DROP TABLE oldStats;
