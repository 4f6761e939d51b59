"""Values computed by the database equal the server's own: lanes, patterns, order, checksums."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.glob import anchored_regex, glob
from bedrockjobs.job.rows import EVERY_LANE, MOCK_LANE, OWN_COMMANDS, Job, Lane, found_in, parse_lane
from bedrockjobs.job.take_request import TakeRequest, names_from
from bedrockjobs.store.base import StoreError
from bedrockjobs.store.postgresql import schema
from bedrockjobs.store.postgresql.session import DatabaseSession
from bedrockjobs.store.postgresql.takes import QueryShape, lanes_open_to
from tests.effort import examples
from tests.postgresql.cluster import CLUSTER
from tests.postgresql.conftest import BLOCKED, Server
from tests.protocol.talk import DEADLINE_S

Servers = Callable[[int], list[Server]]

LAST = ["", "L", "a b", "for w", "lock", "x\ny", "mock", "é"]
LANES = [MOCK_LANE, EVERY_LANE, ""] + [
    str(Lane(now, own, lock, "" if lock else worker))
    for now in (False, True)
    for own in ("", *OWN_COMMANDS)
    for lock in LAST
    for worker in ("", "w", "lock x")
]


def test_lanes_are_taken_apart_as_in_the_server(servers: Servers) -> None:
    (one,) = servers(1)
    add = (
        "INSERT INTO jobs (created, jobID, state, name, nextRun, lane)"
        " SELECT '', row_number() OVER (), 'QUEUED', 'a', '', * FROM unnest($1::text[])"
    )
    found = one.store.session.run_statements([(add, (LANES,)), ("SELECT lane, found, lock FROM jobs", ())])[1]
    assert len(found) == len(LANES)
    assert [(lane, found_in(lane), parse_lane(lane).lock) for lane, _, _ in found] == found


def test_a_take_looks_into_the_lanes_that_are_open_to_it() -> None:
    for accepts in ((), ("argv", "cmd")):
        for worker in (None, "w"):
            for mocked in (False, True):
                names = names_from("*", None)
                assert names is not None
                request = TakeRequest(names, mocked, worker=worker, accepts=accepts)
                jobs = [Job("", 1, "QUEUED", "a", "", lane=lane) for lane in LANES]
                expected = {found_in(job.lane) for job in jobs if request.fits(job)}
                assert set(lanes_open_to(QueryShape(mocked, None, worker, accepts))) == expected


ALPHABET = "ab*?[]^-!\\.()|+{}$ \n#é"


def test_patterns_match_what_they_match_in_the_server(servers: Servers) -> None:
    (one,) = servers(1)
    dice = random.Random(7)
    words = ["".join(dice.choices(ALPHABET, k=dice.randint(1, 6))) for _ in range(examples(200, night=5_000))]
    names = [*words, "a", "b", "ab", "a/b", "aab"]
    for pattern in words:
        given = dice.sample(names, 40)
        found = one.store.session.run_statements(
            [("SELECT name ~ $2 FROM unnest($1::text[]) AS names (name)", (given, anchored_regex([pattern])))]
        )
        assert [glob(name, pattern) for name in given] == [row[0] for row in found[0]], pattern


def test_text_is_ordered_by_its_bytes(servers: Servers) -> None:
    (one,) = servers(1)
    names = ["b", "B", "a", "Z", "é", "_", "10", "9"]
    one.do(c.CreateJobs, jobs=[{"name": name} for name in names])
    assert one.value("SELECT string_agg(name, ' ' ORDER BY name) FROM jobs").split() == sorted(names)


def test_data_that_somebody_changes_by_hand_has_no_checksum(servers: Servers) -> None:
    (one,) = servers(1)
    one.do(c.CreateJob, name="a", data={"k": 1})
    one.store.session.script("UPDATE jobs SET data = '{\"k\":2}'")
    assert one.do(c.QueryJob, jobID=1)["data"] == {"k": 2}
    one.do(c.UpdateJob, jobID=1, data={"k": 3})
    assert one.value("SELECT checksum IS NOT NULL FROM jobs")


def test_damaged_data_is_not_handed_out(servers: Servers) -> None:
    (one,) = servers(1)
    one.do(c.CreateJob, name="a", data={"k": 1})
    one.do(c.CreateJob, name="a", data={"k": 2})
    one.store.session.script("UPDATE jobs SET data = '{\"k\":9}', checksum = 1 WHERE jobID = 1")
    assert one.do(c.GetJob, name="a")["jobID"] == 2
    assert one.value("SELECT state FROM jobs WHERE jobID = 1") == "FAILED"


def test_tables_that_another_server_made_meanwhile_are_found() -> None:
    name = "meanwhile"
    CLUSTER.do(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    first, second = (DatabaseSession(CLUSTER.url, name) for _ in range(2))
    first.run_statements([("BEGIN", ())])
    lock = ("SELECT pg_advisory_xact_lock($1::bigint)", (schema.keys_of(first, name).key_of("schema"),))
    # One table: the changes of many would make the second session look again by itself.
    first.run_statements(
        [lock, (f"CREATE SCHEMA {name}", ()), ("CREATE TABLE meta (key text, value text)", ())]
    )
    with ThreadPoolExecutor() as threads:
        prepared = threads.submit(schema.prepare, second, name)
        deadline = monotonic() + DEADLINE_S
        while not CLUSTER.do(BLOCKED)[0][0]:
            assert monotonic() < deadline, "it does not wait"
        first.run_statements([("COMMIT", ())])
        with pytest.raises(StoreError, match='relation "control" does not exist'):  # instead of making all
            prepared.result()
    for session in (first, second):
        session.close()
