"""Which workers are eligible for the jobs of a name, and the explanation if there are none."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from bedrockjobs.job.eligibility import Drain, EligibleWorkers, Requirements, need_of
from bedrockjobs.job.take_request import LISTED_MAX


class Worker(NamedTuple):
    """A worker with its capabilities."""

    name: str
    names: list[str]
    accepts: list[str] = []
    quiet: bool = False


BOTH = [Worker("a", ["*"]), Worker("b", ["post", "x*"])]


def test_a_job_for_one_worker_is_taken_by_that_one() -> None:
    takers = EligibleWorkers(BOTH, {})
    assert need_of("for b") == Requirements(worker="b")
    assert takers.names_for("post", Requirements(worker="b")) == {"b"}
    assert takers.names_for("post", Requirements()) == {"a", "b"}


@pytest.mark.parametrize(
    ("name", "worker", "words"),
    [
        ("post", "c", "worker c, for which it is reserved, is not alive"),
        ("other", "b", "worker b, for which it is reserved, does not ask for it"),
        ("xy", "b", "b asks for it but has been drained since noon, by ann"),
    ],
)
def test_where_that_one_does_not_take_it_the_words_say_why(name: str, worker: str, words: str) -> None:
    takers = EligibleWorkers(BOTH, {"b": Drain("b", "ann", "noon")})
    assert takers.names_for(name, Requirements(worker=worker)) == frozenset()
    assert takers.why_none_eligible(name, Requirements(worker=worker)) == words


@pytest.mark.parametrize(
    ("workers", "words"),
    [
        ([], "no worker is alive"),
        ([Worker("a", ["b"])], "the only live worker, a, does not ask for it"),
        ([Worker("a", ["b"]), Worker("c", [])], "none of 2 live workers asks for it"),
        ([Worker("a", ["*"], quiet=True)], "a asks for it but is quiet"),
        ([Worker("a", ["*"], ["cmd"])], "a asks for it but does not accept jobs with url"),
    ],
)
def test_a_job_that_nobody_takes_says_why(workers: list[Worker], words: str) -> None:
    takers = EligibleWorkers(workers, {})
    assert takers.names_for("post", Requirements("url")) == frozenset()
    assert not takers.any_eligible("post", Requirements("url"))
    assert takers.why_none_eligible("post", Requirements("url")) == words


def test_some_workers_are_named_and_the_others_counted() -> None:
    workers = [Worker(f"w{number}", ["*"], quiet=True) for number in range(LISTED_MAX + 2)]
    words = EligibleWorkers(workers, {}).why_none_eligible("post", Requirements())
    assert words.endswith("w2 asks for it but is quiet; and so on for 2 more")
