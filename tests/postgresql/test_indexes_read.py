"""Generic plans of a unit's statements: each uses its index, whatever is queued."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bedrockjobs.base.config import PRIORITIES, SCANNED_MAX
from bedrockjobs.job.take_request import TakeRequest, names_from
from bedrockjobs.store.postgresql.heads import LowWaterMarks
from bedrockjobs.store.postgresql.statements import QUERIES
from bedrockjobs.store.postgresql.takes import planned_queries
from tests.postgresql.cluster import CLUSTER, SCHEMA
from tests.postgresql.conftest import Server
from tests.postgresql.plans import plan_of

Servers = Callable[[int], list[Server]]

JOBS = 20_000

FLOORS = [[""]] * len(PRIORITIES)
"""No floors for one name."""

FLOORS_OF_ALL = [""] * len(PRIORITIES)

STATEMENTS: list[tuple[str, Sequence[Any], str]] = [
    ("lock_jobs", ([1, 2],), "jobs_pkey"),
    ("lock_children", ([1, 2],), "jobs_pkey"),
    ("lock_jobs_and_firsts", ([1, 2], ["n1"]), "jobs_pkey"),
    ("lock_children_and_firsts", ([1, 2], ["n1"]), "jobs_pkey"),
    ("end_jobs", ([1, 2],), "jobs_pkey"),
    ("draw_jobs", (10,), "jobs_pkey"),
    ("firsts", (["n1"],), "jobsmocked"),
    ("take_by_name", ("2027", [""], ["n1"], [1], None, [], *FLOORS), "jobsbyname"),
    ("claim_by_name", ("2027", [""], ["n1"], [1], None, [], *FLOORS, "2027"), "jobsbyname"),
    ("take_in_open_lane", ("2027", None, ["n1"], [1], *FLOORS), "jobsbyname"),
    ("claim_in_open_lane", ("2027", None, ["n1"], [1], *FLOORS, "2027"), "jobsbyname"),
    ("take_with_lock", ("2027", ["lock"], ["n1"], [1], None, [], [], 100, 300), "jobsbylock"),
    ("epoch", (), "jobsbylock"),
    ("names_after", ("", "n0", "n", 32), "jobsbyname"),
    ("take_by_keys", ("2027", "lock", ["n1"], 500, "", 32), "jobsbylock"),
    ("take_in_order", ("2027", [""], None, 1, None, [], [], *FLOORS_OF_ALL, 1000), "jobsbypriority"),
    ("heads_behind", ([""], ["n"], [1001], "n", 1000), "jobsbyname"),
    ("heads_by_seeks", ([""], ["n"], [1001], "n", 1000), "jobsbyname"),
    ("jobs_behind", ("2027", [""], "^n1$", 500, "", 0, 1000), "jobsbypriority"),
    ("heads_of_names", ([""], ["n1"], [500], ["2026"], [0]), "jobsbyname"),
    ("take_behind_heads", ("2027", [""], ["n1"], [500], ["2026"], [0], [2], 1), "jobsbyname"),
    ("claim_behind_heads", ("2027", ["n1"], [500], ["2026"], [0], [2], 1, "2027"), "jobsbyname"),
    ("floors_of_names", (["n1"], *FLOORS), "jobsby"),
    ("delete_jobs", ([1, 2],), "jobs_pkey"),
    ("claim_jobs", ([1], ["2026"], [1], [0]), "jobs_pkey"),
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
]
"""Statements, their parameters, and what the index is called, or begins with, that they read."""

TAKES = {
    "n0": "jobsbyname",
    "n0,n1,absent": "jobsbyname",
    "absent": "jobsbyname",
    "*": "jobsbypriority",
    "n*": "jobsbypriority",
}
"""The requests, and the index that each uses."""


@pytest.fixture(params=[1, 10_000])
def many(servers: Servers, request: pytest.FixtureRequest) -> Server:
    """Return a server with very many queued jobs, each of its own name."""
    (one,) = servers(1)
    add = (
        "INSERT INTO jobs (created, jobID, state, name, nextRun, priority)"
        f" SELECT '', n, 'QUEUED', 'n' || n % {request.param}, '2026',"
        f" ($1::bigint[])[1 + n / {request.param} % {len(PRIORITIES)}] FROM generate_series(1, {JOBS}) AS n"
    )
    one.store.session.run_statements([(add, (list(PRIORITIES),))])
    one.store.session.script("VACUUM ANALYZE jobs")  # else a take walks past what tests before have left
    return one


def astray(one: Server) -> dict[str, str]:
    """Return the statements that do not use the intended index, each with its plan."""
    found = {}
    for statement, parameters, index in STATEMENTS:
        plan = plan_of(one, QUERIES[statement], parameters)
        if (
            f"using {index}" not in plan
            or (index == "jobsbyname" and "using jobsbypriority" in plan)
            or ("Update on" in plan and not re.search(r"using jobs_pkey on [^\n]*\n\s*Index Cond", plan))
            or re.search(r"using jobs_pkey on [^\n]*\n(?!\s*Index Cond)", plan)  # all of it
            or "Seq Scan on jobs" in plan
            or "Merge" in plan  # it would read an index from one end to the other
        ):
            found[statement] = plan
    return found


def test_no_statement_has_two_columns_as_an_upper_bound() -> None:
    """PostgreSQL bounds such a scan by the first column only, and would read all jobs of the same time."""
    bound = re.compile(r"\([\w.]+, [\w.]+\) <")
    assert [name for name, sql in QUERIES.items() if bound.search(sql)] == []
    assert bound.search("WHERE (nextRun, jobID) <= ($1, $2)")


def test_each_statement_has_its_index(many: Server) -> None:
    assert astray(many) == {}


def test_each_statement_has_its_index_in_an_empty_queue(servers: Servers) -> None:
    assert astray(servers(1)[0]) == {}


def test_each_statement_has_its_index_where_all_jobs_have_just_ended(servers: Servers) -> None:
    """With statistics of no rows in many pages, all indexes seem equally cheap."""
    (one,) = servers(1)
    one.store.session.script(
        "INSERT INTO jobs (created, jobID, state, name, nextRun)"
        f" SELECT '2026', n, 'QUEUED', 'n' || n % 8, '2026' FROM generate_series(1, {JOBS}) AS n;"
        " DELETE FROM jobs; ANALYZE jobs"
    )
    assert astray(one) == {}


def test_each_statement_has_its_index_where_an_emptied_queue_was_vacuumed(many: Server) -> None:
    """With statistics of no rows and no pages, the primary key seems as cheap as any index."""
    many.store.session.script("DELETE FROM jobs")
    many.store.session.script("VACUUM ANALYZE jobs")
    assert astray(many) == {}


@pytest.mark.parametrize("index", sorted({index for _, _, index in STATEMENTS} - {"jobsby"}))
def test_a_statement_without_its_index_is_found(index: str, servers: Servers) -> None:
    """The control of the tests above."""
    (one,) = servers(1)
    drop = "ALTER TABLE jobs DROP CONSTRAINT" if index == "jobs_pkey" else "DROP INDEX"
    one.store.session.script(f"BEGIN; {drop} {index}")
    try:
        assert {*astray(one)} >= {statement for statement, _, its in STATEMENTS if its == index}
    finally:
        one.store.session.script("ROLLBACK")


def test_a_take_reads_what_it_takes_and_no_more(many: Server) -> None:
    for name, index in TAKES.items():
        names = names_from(name, None)
        assert names is not None
        (look,) = planned_queries([TakeRequest(names, limit=2)])
        plan = plan_of(
            many, *look.statement("2027", LowWaterMarks({}, {})), options="ANALYZE, BUFFERS, TIMING OFF"
        )
        assert f"using {index}" in plan
        assert "Seq Scan on jobs" not in plan
        if name == "n*":  # which may have to pass over others
            assert f"actual rows={SCANNED_MAX + 1} " in plan
            continue
        hits = re.search(r"hit=(\d+)", plan)
        assert hits is not None
        assert int(hits[1]) < 200, plan


def test_statistics_of_a_drained_queue_lead_no_plan_astray(servers: Servers) -> None:
    """Sorting is cheap for a few jobs of a name, hardly any queued, but soon there are more."""
    (one,) = servers(1)
    jobs = (
        "INSERT INTO jobs (created, jobID, state, name, nextRun) SELECT '2026', n, '{}', 'n' || n % 8, '2026'"
        " FROM generate_series({}, {}) AS n"
    )
    with CLUSTER.connection(SCHEMA) as connection:
        connection.execute(jobs.format("QUEUED", 1, 20_000))
        connection.execute("DELETE FROM jobs")
        connection.execute(jobs.format("RUNNING", 20_001, 20_065))
        connection.execute(jobs.format("QUEUED", 20_066, 20_068))
        connection.execute("VACUUM ANALYZE jobs")
    for statement, parameters in {
        "take_by_name": ("2027", [""], ["n"], [1], None, [], *FLOORS),
        "claim_by_name": ("2027", [""], ["n"], [1], None, [], *FLOORS, "2027"),
        "take_in_open_lane": ("2027", None, ["n"], [1], *FLOORS),
        "claim_in_open_lane": ("2027", None, ["n"], [1], *FLOORS, "2027"),
        "floors_of_names": (["n"], *FLOORS),
        "heads_of_names": ([""], ["n"], [500], [""], [0]),
        "take_behind_heads": ("2027", [""], ["n"], [500], ["2026"], [0], [2], 1),
        "claim_behind_heads": ("2027", ["n"], [500], ["2026"], [0], [2], 1, "2027"),
        "soonest_by_name": ("2025", [""], ["n"]),
    }.items():
        plan = plan_of(one, QUERIES[statement], parameters)
        assert "jobsanystate" not in plan, plan
        assert "using jobsbyname" in plan, plan
