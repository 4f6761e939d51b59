"""The worker registry: a limited number of workers, with a share for each token."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.config import ASKED_PER_WORKER_MAX, PATTERNS_PER_KEY_MAX
from bedrockjobs.base.glob import glob
from bedrockjobs.commands import Heartbeat
from bedrockjobs.engine import workers
from bedrockjobs.engine.events import DrainsChanged, RunOpened, RunStopped, WaitLeft, WorkerAsked
from bedrockjobs.engine.submission import Submission
from bedrockjobs.engine.waiters import HEAP_SLACK, Waiter, Waiting
from bedrockjobs.engine.workers import SharedWorkers, WorkerRegistry
from bedrockjobs.job.eligibility import RequestedNames
from bedrockjobs.job.take_request import TakeRequest, names_from
from bedrockjobs.store.base import PeerState, WorkerRow
from tests.effort import crossed

PATTERN_BYTES = 400

FEW = 10
KINDS = [WorkerRegistry, SharedWorkers]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the registry to few workers."""
    for module in (workers, workers):
        monkeypatch.setattr(module, "WORKERS_MAX", FEW)


def registry(kind: type[WorkerRegistry] = WorkerRegistry) -> tuple[WorkerRegistry, Callable[[Any], None]]:
    """Return an empty registry, and a function that publishes an event to it."""
    clock = ManualClock(datetime(2026, 11, 21, tzinfo=UTC))
    found = kind(clock, clock)
    hears = found.event_handlers()
    return found, lambda event: hears[type(event)](event) and None


def asked(worker: str, by: str = "", *names: str, wait_s: float = 600.0) -> WorkerAsked:
    """Return the event of a worker that waits for a job."""
    return WorkerAsked(worker, "host", 1, names or ("a",), (), wait_s, by)


def opened(run_id: int, job_id: int, worker: str) -> RunOpened:
    """Return the event of a run that a worker got."""
    return RunOpened(run_id, job_id, worker, 45, "", 0.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("few")
def test_those_are_forgotten_first_that_are_gone_and_never_got_a_job(kind: type[WorkerRegistry]) -> None:
    found, tell = registry(kind)
    for number in range(FEW):
        tell(asked(f"w{number}"))
    tell(opened(1, 1, "w0"))
    tell(WaitLeft("w7"))
    for new, forgotten in (("x", "w7"), ("y", "w1"), ("z", "w2")):
        tell(asked(new))
        assert forgotten not in found.workers
        assert len(found.workers) == FEW
    assert {"w0", "x", "y", "z"} < found.workers.keys()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("few")
def test_a_token_that_invents_workers_displaces_its_own(kind: type[WorkerRegistry]) -> None:
    found, tell = registry(kind)
    honest = [f"honest{number}" for number in range(FEW // 2)]
    for name in honest:
        tell(asked(name, "honest"))
    for number in range(10 * FEW):
        tell(asked(f"invented{number}", "stranger"))
        tell(opened(number, number, f"invented{number}"))
    assert set(honest) <= found.workers.keys()
    tell(asked("one more", "honest"))
    assert {*honest, "one more"} <= found.workers.keys()
    assert len(found.workers) == FEW


@pytest.mark.usefixtures("few")
def test_a_forgotten_worker_keeps_its_runs_and_is_known_again() -> None:
    found, tell = registry()
    for number in range(FEW + 1):
        tell(asked(f"w{number}", "a"))
        tell(opened(number, number, f"w{number}"))
        tell(asked(f"v{number}", "b"))
        tell(opened(100 + number, number, f"v{number}"))
    gone = next(name for name in (f"w{number}" for number in range(FEW)) if name not in found.workers)
    assert len(found.runs) == 2 * (FEW + 1)
    tell(asked(gone, "c"))
    assert found.workers[gone].runs == {int(gone[1:])}


ATTRIBUTES: dict[str, Callable[[int], dict[str, Any]]] = {
    "name": lambda number: {"name": f"{number:05}".ljust(255, "w")},
    "wide name": lambda number: {"name": f"{number:05}".ljust(255, "\U0001f600")},
    "host": lambda number: {"name": f"{number:05}", "host": f"{number}".ljust(1_000, "h")},
    "version": lambda number: {"name": f"{number:05}", "version": f"{number}".ljust(1_000, "v")},
    "names": lambda number: {
        "name": f"{number:05}",
        "names": [f"{number}/{at}/".ljust(200, "n") + "*" for at in range(20)],
    },
    "names with the same ends": lambda number: {
        "name": f"{number:05}",
        "names": [f"*{number}x{at}y".ljust(200, "n") + "*" for at in range(20)],
    },
    "one worker's names": lambda number: {
        "name": "w",
        "names": [f"{number}/{at}/".ljust(200, "n") + "*" for at in range(20)],
        "wait_s": 600.0,
    },
}


@pytest.mark.parametrize(("kind", "attribute"), crossed(KINDS, ATTRIBUTES))
def test_no_attribute_takes_more_memory_than_the_budget(
    kind: type[WorkerRegistry], attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = 256 * 1024
    times = 100 if "names" in ATTRIBUTES[attribute](0) else 400  # each asks for more than the budget
    monkeypatch.setattr(workers, "WORKERS_BYTES_MAX", budget)
    found, _ = registry(kind)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(times):
            found.record_contact(**ATTRIBUTES[attribute](number))
        if isinstance(found, SharedWorkers):
            found.changes_to_send()
        del found.pending_events[:]
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert sum(worker.measured() for worker in found.workers.values()) <= budget
    assert grown < 2 * budget, "the budget counts what it costs"
    assert found.workers


def test_a_wait_that_was_left_counts_for_one_lease() -> None:
    found, tell = registry()
    tell(asked("stays"))
    tell(asked("leaves"))
    tell(WaitLeft("leaves"))
    clock: Any = found._leases
    clock.advance(46)
    assert found.next_check_at <= clock.monotonic()
    found.overdue(None)  # type: ignore[arg-type]
    assert list(found.workers) == ["stays"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_name_belongs_to_the_token_that_used_it_first(kind: type[WorkerRegistry]) -> None:
    """No other ends its wait, hears of its drain in its place or keeps it alive; its runs are renewed."""
    found, tell = registry(kind)
    clock: Any = found._leases
    tell(asked("w", "own", "a*", wait_s=100.0))
    tell(asked("w", "other", "b*"))
    assert (found.workers["w"].by, found.workers["w"].names) == ("own", ["a*"])
    tell(WaitLeft("w", "other"))
    assert found.workers["w"].until == clock.monotonic() + 145
    beats = [
        asyncio.ensure_future(
            found.heartbeat(Heartbeat(worker="w", run_ids=[], connection="wait", timeout=9_000), by)
        )
        for by in ("other", "own")
    ]
    for _ in range(3):
        await asyncio.sleep(0)
    assert not any(beat.done() for beat in beats)
    tell(DrainsChanged(frozenset({"w"})))
    assert [json.loads(await beat)["quiet"] for beat in beats] == [True, True]
    tell(opened(1, 1, "w"))
    clock.advance(40)
    found.heartbeat_at_once(Heartbeat(worker="w", run_ids=[1], leaving=True), "other")
    assert found.runs[1].until == clock.monotonic() + 45, "its token may have been exchanged"
    tell(WaitLeft("w", "own"))
    clock.advance(44)
    tell(asked("w", "other", "b*"))
    if kind is WorkerRegistry:  # shared ones expire in the database
        clock.advance(2)
        found.overdue(None)  # type: ignore[arg-type]
        assert "w" not in found.workers, "another one's requests are no sign of its life"
    else:
        found.apply_exchange(PeerState([], ["w"], [], [], [], []))  # type: ignore[attr-defined]
    found.remove_worker("w")
    tell(asked("w", "other", "b*"))
    assert (found.workers["w"].by, found.workers["w"].names) == ("other", ["b*"])


def test_a_worker_of_an_older_server_belongs_to_the_first_token_here() -> None:
    found, tell = registry(SharedWorkers)
    assert isinstance(found, SharedWorkers)
    row = WorkerRow("w", "", "", "", "", 0, "", ["a"], [], 0, False, None)
    found.apply_exchange(PeerState([], [], [], [], [row], []))
    tell(asked("w", "own", "a*"))
    tell(asked("w", "other", "b*"))
    assert (found.workers["w"].by, found.workers["w"].asked.keys()) == ("own", {("a",), ("a*",)})


def test_waits_of_a_worker_are_counted_by_token() -> None:
    waiting = Waiting()
    names = names_from(None, ("a/*",))
    assert names is not None
    waiting.add(Waiter(Submission(), TakeRequest(names, worker="w"), 1, 600.0, token="own"))
    assert (waiting.waits_of("w", "own"), waiting.waits_of("w", "other")) == (1, 0)


@pytest.mark.usefixtures("few")
def test_other_servers_hear_of_a_limited_number_and_again_while_a_worker_waits() -> None:
    found, tell = registry(SharedWorkers)
    assert isinstance(found, SharedWorkers)
    for number in range(3 * FEW):
        tell(asked(f"w{number}"))
    told = found.changes_to_send()
    assert len(told.workers) == told.served == FEW
    assert {row.until for row in told.workers} == {"2026-11-21 00:00:45"}
    assert len(told.left) == FEW, "and forget at most as many at a time"
    clock: Any = found._leases
    clock.advance(10)
    assert found.changes_to_send().workers == []
    clock.advance(20)
    assert {row.until for row in found.changes_to_send().workers} == {"2026-11-21 00:01:15"}


@pytest.mark.usefixtures("few")
def test_workers_of_other_servers_displace_none_of_its_own() -> None:
    found, tell = registry(SharedWorkers)
    assert isinstance(found, SharedWorkers)
    for number in range(FEW // 2):
        tell(asked(f"own{number}"))
    found.changes_to_send()
    rows = [WorkerRow(f"a{number}", "", "", "", "", 0, "", ["a"], [], 0, False, "") for number in range(FEW)]
    found.apply_exchange(PeerState([], [], [], [], rows, []))
    assert {f"own{number}" for number in range(FEW // 2)} < found.workers.keys()
    assert len(found.workers) == FEW


def test_waits_that_are_over_leave_nothing_until_their_deadline() -> None:
    waiting = Waiting()
    names = names_from(None, ("a/*",))
    assert names is not None
    for seq in range(20 * HEAP_SLACK):
        waiter = Waiter(Submission(), TakeRequest(names, worker=f"w{seq % 7}"), seq, 600.0 + seq)
        waiting.note_due(waiting.add(waiter), f"{seq:09}")
        assert waiting.waits_of(f"w{seq % 7}") == 1
        assert waiting.remove(waiter)
        waiting.committed()
        assert waiting.waits_of(f"w{seq % 7}") == 0
    del waiter
    assert sum(type(each) is Waiter for each in gc.get_objects()) <= 2 * HEAP_SLACK
    assert waiting.overdue(inf) == []


def test_who_asks_for_a_name_is_found_by_its_ends() -> None:
    index = RequestedNames()
    patterns = ["*", "a", "a*", "*b", "a*b", "a/*/c", "a[bc]d", "[", "a?", "ab*ba", "x*[y]z", "[]]", "a]*"]
    for pattern in patterns:
        index.put(pattern, [pattern])
    for name in ["a", "ab", "a/b/c", "acd", "aba", "abba", "xyz", "]", "a]b", "", "*", "["]:
        assert set(index.patterns_of(name)) == {one for one in patterns if glob(name, one)}, name
    index.put("a*", ["b"])
    index.remove("*")
    assert set(index.patterns_of("ax")) == {"a?"}
    assert list(index.workers("b")) == ["a*"]
    for pattern in patterns:
        index.remove(pattern)
    assert not any(index.patterns_of(name) for name in ("a", "ab", "b"))


async def test_a_list_of_large_workers_is_made_in_turns_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LISTED_A_TURN_BYTES", 4_000)
    monkeypatch.setattr(workers, "BATCH_ANSWER_BYTES_MAX", 40_000)
    found, tell = registry()
    for number in range(100):
        tell(asked(f"w{number:03}", "", "n" * 900))
    listing = asyncio.ensure_future(found.listing("", None, 100))
    turns = 0
    while not listing.done():
        await asyncio.sleep(0)
        turns += 1
        if turns == 2:
            tell(WaitLeft("w001"))
            found.remove_worker("w002")
    assert 5 < turns < 20
    names = [worker["name"] for worker in json.loads(listing.result())["workers"]]
    assert names == [f"w{number:03}" for number in range(len(names))]
    assert 20 < len(names) < 50
    rest = json.loads(await found.listing(names[-1], None, 100))["workers"]
    assert rest[0]["name"] == f"w{len(names):03}"


def test_a_name_is_compared_with_few_patterns_that_have_the_same_ends() -> None:
    index = RequestedNames()
    patterns = [f"*{number:04}*" for number in range(2_000)]
    for pattern in patterns:
        index.put(pattern, [pattern])
    assert set(index.patterns_of("a/0012/b")) == {"*0012*"}
    assert set(index.patterns_of("a/1999/b")) == {"*1999*"}
    assert index._crowded.unindexed == 0
    assert (
        max(len(some) for files in index._files.values() for some in files.values()) <= PATTERNS_PER_KEY_MAX
    )
    for pattern in patterns:
        index.remove(pattern)
    assert not index._crowded
    assert not index._files


def test_a_worker_counts_more_for_each_pattern_of_which_few_lists_are_remembered() -> None:
    found, tell = registry()
    tell(asked("w", "", "a*"))
    one = found.workers["w"].measured()
    assert one > 1_500 + PATTERN_BYTES
    for number in range(2 * ASKED_PER_WORKER_MAX):
        tell(asked("w", "", f"{number}*", wait_s=number))
    worker = found.workers["w"]
    assert len(worker.asked) == ASKED_PER_WORKER_MAX
    assert f"{2 * ASKED_PER_WORKER_MAX - 1}*" in worker.names
    assert worker.size == worker.measured() > one + (ASKED_PER_WORKER_MAX - 1) * PATTERN_BYTES


@pytest.mark.parametrize("kind", KINDS)
async def test_a_heartbeat_that_need_not_wait_is_answered_at_once_and_as_any_other(
    kind: type[WorkerRegistry],
) -> None:
    (ours, tell), (other, tell_other) = registry(kind), registry(kind)
    for told in (tell, tell_other):
        told(opened(1, 1, "w"))
        told(opened(2, 2, "w"))
        told(RunStopped(2, "TERM"))
        told(DrainsChanged(frozenset({"drained"})))
    beats = [
        Heartbeat(worker="w", run_ids=[1, 2], slots=3, names=["a"]),
        Heartbeat(worker="w", run_ids=[1, 2]),
        Heartbeat(worker="drained", quiet=True),
        Heartbeat(worker="w", leaving=True),
    ]
    for beat in beats:
        assert ours.heartbeat_at_once(beat) == await other.heartbeat(beat)
        assert await ours.listing("", None, 10) == await other.listing("", None, 10)
    assert ours.heartbeat_at_once(Heartbeat(worker="w", connection="wait")) is None
    assert ours.heartbeat_at_once(Heartbeat(worker="w", run_ids=[3])) is None, "it may be of another server"
