"""What a run token permits, command by command; nothing for a new command by default."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bedrockjobs.base.errors import Forbidden
from bedrockjobs.base.principal import RunOfToken
from bedrockjobs.commands import ALL, COMMANDS
from bedrockjobs.engine.authorization import check, check_open

RUN = RunOfToken(run_id=7, job_id=3)

ROLES = frozenset({"work", "produce"})
"""Of the worker that has the run."""

MAY: list[tuple[str, dict[str, Any]]] = [
    ("UpdateJob", {"jobID": 3, "progress": {"percent": 40}}),
    ("QueryJob", {"jobID": 3}),
    ("AppendOutput", {"runID": 7, "seq": 1, "lines": ["a"]}),
    ("CreateJob", {"name": "a", "parentJobID": 3}),
    ("CreateJobs", {"jobs": [{"name": "a", "parentJobID": 3}, {"name": "b", "parentJobID": 3}]}),
]

MAY_NOT: list[tuple[str, dict[str, Any]]] = [
    ("UpdateJob", {"jobID": 3, "progress": {}, "data": {}}),
    ("UpdateJob", {"jobID": 4, "progress": {}}),
    ("QueryJob", {"jobID": 7}),
    ("AppendOutput", {"runID": 3, "seq": 1, "lines": ["a"]}),
    ("CreateJob", {"name": "a"}),
    ("CreateJob", {"name": "a", "parentJobID": 7}),
    ("CreateJobs", {"jobs": [{"name": "a", "parentJobID": 3}, {"name": "b"}]}),
    ("FinishJob", {"jobID": 3, "runID": 7}),
    ("CancelJob", {"jobID": 3}),
]


@pytest.mark.parametrize(("verb", "given"), MAY)
def test_what_it_is_for(verb: str, given: dict[str, Any]) -> None:
    check(RUN, COMMANDS[verb].read(given), ROLES)


@pytest.mark.parametrize(("verb", "given"), MAY_NOT)
def test_what_it_is_not_for(verb: str, given: dict[str, Any]) -> None:
    with pytest.raises(Forbidden, match="a run token permits only UpdateJob"):
        check(RUN, COMMANDS[verb].read(given), ROLES)


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind.__name__ not in dict(MAY)])
def test_all_else_is_not(kind: Any) -> None:
    with pytest.raises(Forbidden):
        check(RUN, kind.read(kind.example.request), ROLES)


@pytest.mark.parametrize(
    ("found", "opened"),
    [
        (None, False),
        (SimpleNamespace(status="running", job_id=3), True),
        (SimpleNamespace(status="running", job_id=4), False),
        (SimpleNamespace(status="success", job_id=3), False),
    ],
)
def test_it_counts_as_long_as_the_run_is_open(found: Any, opened: bool) -> None:
    records: Any = SimpleNamespace(read_run={7: found}.get)
    if opened:
        check_open(RUN, records)
    else:
        with pytest.raises(Forbidden, match="the run of this token is over"):
            check_open(RUN, records)
