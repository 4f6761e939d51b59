"""What the database works out by itself is what the server would have: lanes, patterns, order, checksums."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import psycopg.sql
import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.config import PRIORITIES, WALKED_MAX
from bedrockjobs.base.glob import anchored_regex, glob
from bedrockjobs.job.lanes import EVERY_LANE, MOCK_LANE, OWN_COMMANDS, Lane, found_in, parse_lane
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import TakeRequest, names_from
from bedrockjobs.store.postgresql.floors import Floors
from bedrockjobs.store.postgresql.looks import Sort, lanes_open_to, planned_looks
from bedrockjobs.store.postgresql.statements import QUERIES
from tests.effort import examples
from tests.postgresql.cluster import CLUSTER, SCHEMA
from tests.postgresql.conftest import Server

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
    found = one.store.session.run([(add, (LANES,)), ("SELECT lane, found, lock FROM jobs", ())])[1]
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
                assert set(lanes_open_to(Sort(mocked, None, worker, accepts))) == expected


ALPHABET = "ab*?[]^-!\\.()|+{}$ \n#é"


def test_patterns_match_what_they_match_in_the_server(servers: Servers) -> None:
    (one,) = servers(1)
    dice = random.Random(7)
    words = ["".join(dice.choices(ALPHABET, k=dice.randint(1, 6))) for _ in range(examples(400, night=5_000))]
    names = [*words, "a", "b", "ab", "a/b", "aab"]
    for pattern in words:
        given = dice.sample(names, 40)
        found = one.store.session.run(
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


# --- plans -----------------------------------------------------------------------------------------------

JOBS = 20_000
NAMES = 500


@pytest.fixture
def many(servers: Servers) -> Server:
    """Return a server with very many queued jobs."""
    (one,) = servers(1)
    add = (
        "INSERT INTO jobs (created, jobID, state, name, nextRun, priority)"
        f" SELECT '', n, 'QUEUED', 'n' || n % {NAMES}, '2026', ($1::bigint[])[1 + n % {len(PRIORITIES)}]"
        f" FROM generate_series(1, {JOBS}) AS n"
    )
    one.store.session.run([(add, (list(PRIORITIES),))])
    one.store.session.script("VACUUM ANALYZE jobs")  # tests before may have left ended rows
    return one


FLOORS = [[""]] * len(PRIORITIES)
"""No floors for one name."""

FLOORS_OF_ALL = [""] * len(PRIORITIES)


def plan_of(one: Server, sql: str, parameters: Sequence[Any], options: str = "VERBOSE OFF") -> str:
    """Return the plan of a statement that is made once for all parameters."""
    values = ", ".join(psycopg.sql.Literal(value).as_string() for value in parameters)
    one.store.session.script(f"PREPARE explained AS {sql}")
    given = f"({values})" if parameters else ""
    (rows,) = one.store.session.run([(f"EXPLAIN (COSTS OFF, {options}) EXECUTE explained{given}", ())])
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize(
    ("name", "index"),
    [("n7", "jobsbyname"), ("n7,n8,absent", "jobsbyname"), ("absent", "jobsbyname"),
     ("*", "jobsbypriority"), ("n*", "jobsbypriority")],
)  # fmt: skip
def test_a_take_reads_what_it_takes_and_no_more(name: str, index: str, many: Server) -> None:
    names = names_from(name, None)
    assert names is not None
    (look,) = planned_looks([TakeRequest(names, limit=2)])
    plan = plan_of(many, *look.statement("2027", Floors({}, {})), options="ANALYZE, BUFFERS, TIMING OFF")
    assert f"using {index}" in plan
    assert "Seq Scan on jobs" not in plan
    if name == "n*":  # which may have to pass over others
        assert f"actual rows={WALKED_MAX + 1} " in plan
        return
    hits = re.search(r"hit=(\d+)", plan)
    assert hits is not None
    assert int(hits[1]) < 200, plan


@pytest.mark.parametrize(
    ("statement", "parameters", "index"),
    [
        ("lock_jobs", ([1, 2],), "jobs_pkey"),
        ("lock_children", ([1, 2],), "jobs_pkey"),
        ("lock_jobs_and_firsts", ([1, 2], ["n1"]), "jobs_pkey"),
        ("lock_children_and_firsts", ([1, 2], ["n1"]), "jobs_pkey"),
        ("end_jobs", ([1, 2],), "jobs_pkey"),
        ("draw_jobs", (10,), "jobs_pkey"),
        ("firsts", (["n1"],), "jobsmocked"),
        ("take_by_name", ("2027", [""], ["n1"], [1], None, [], *FLOORS), "jobsbyname"),
        ("claim_by_name", ("2027", [""], ["n1"], [1], None, [], *FLOORS, "2027"), "jobsbyname"),
        ("take_with_lock", ("2027", ["lock"], ["n1"], [1], None, [], [], 100, 300), "jobsbylock"),
        ("epoch", (), "jobsbylock"),
        ("take_in_order", ("2027", [""], None, 1, None, [], [], *FLOORS_OF_ALL, 1000), "jobsbypriority"),
        ("heads_in_order", ("2027", [""], None, 1, None, "", -1001, "", 0), "jobsbyname"),
        ("heads_of_names", ([""], ["n1"], [500]), "jobsbyname"),
        ("take_behind_heads", ("2027", [""], ["n1"], [500], ["2026"], [0], [2], 1), "jobsbyname"),
        ("floors_of_names", (["n1"], *FLOORS), "jobsby"),
        ("delete_jobs", ([1, 2],), "jobs_pkey"),
        ("save_data", ([1], ["{}"], [0]), "jobs_pkey"),
        ("first_of_name", ("n1",), "jobsanystate"),
        ("first_mocked_of_name", ("n1",), "jobsmocked"),
        ("named", ("n1", 10), "jobsanystate"),
        ("children_of", (1,), "jobsbyparent"),
        ("expired", ("2027", 10), "jobsbyexpires"),
        ("next_expiry", (), "jobsbyexpires"),
        ("holders_of", ("L",), "jobsholding"),
        ("soonest_by_name", ("2025", [""], ["n1"]), "jobsbyname"),
        ("soonest_of_any", ("2025", [""]), "jobsbypriority"),
        ("due_of_names", ("2027", ["n1"], 20), "jobsbyname"),
        ("due_lately", ("2027", "2026", 10), "jobsbypriority"),
        ("soonest_of_all", ("2025",), "jobsbypriority"),
        ("bound_lanes", (), "jobsby"),
        ("queued_in_lane", ("every", "2027"), "jobsby"),
    ],
)
def test_each_statement_has_its_index(
    statement: str, parameters: tuple[object, ...], index: str, servers: Servers
) -> None:
    (one,) = servers(1)
    plan = plan_of(one, QUERIES[statement], parameters)
    assert f"using {index}" in plan, plan
    assert index != "jobsbyname" or "using jobsbypriority" not in plan, plan
    assert "Seq Scan on jobs" not in plan, plan
    assert "Merge" not in plan, plan  # it would read an index from one end to the other


def test_statistics_of_a_drained_queue_lead_no_plan_astray(servers: Servers) -> None:
    """Of a few jobs of a name, hardly one queued, it is cheap to sort all; soon there are more."""
    (one,) = servers(1)
    jobs = (
        "INSERT INTO jobs (created, jobID, state, name, nextRun) SELECT '2026', n, '{}', 'n' || n % 8, '2026'"
        " FROM generate_series({}, {}) AS n"
    )
    with psycopg.connect(CLUSTER.url, autocommit=True, options=f"-c search_path={SCHEMA}") as connection:
        connection.execute(jobs.format("QUEUED", 1, 20_000))
        connection.execute("DELETE FROM jobs")
        connection.execute(jobs.format("RUNNING", 20_001, 20_065))
        connection.execute(jobs.format("QUEUED", 20_066, 20_068))
        connection.execute("VACUUM ANALYZE jobs")
    for statement, parameters in {
        "take_by_name": ("2027", [""], ["n"], [1], None, [], *FLOORS),
        "claim_by_name": ("2027", [""], ["n"], [1], None, [], *FLOORS, "2027"),
        "floors_of_names": (["n"], *FLOORS),
        "heads_of_names": ([""], ["n"], [500]),
        "take_behind_heads": ("2027", [""], ["n"], [500], ["2026"], [0], [2], 1),
        "soonest_by_name": ("2025", [""], ["n"]),
    }.items():
        plan = plan_of(one, QUERIES[statement], parameters)
        one.store.session.script("DEALLOCATE explained")
        assert "jobsanystate" not in plan, plan
        assert "using jobsbyname" in plan, plan
