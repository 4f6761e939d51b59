"""The next job of a pattern, against a plain sorted search, over random histories with rollbacks."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedrockjobs.base.config import (
    NAMES_AT_ONCE,
    PRIORITIES,
    SEARCHED_AT_ONCE,
    SEARCHED_BETWEEN,
    SEARCHED_PER_S_MAX,
    SEARCHED_S,
    SEARCHED_UNIT_MAX,
)
from bedrockjobs.base.settings import Settings
from bedrockjobs.job.rows import EVERY_LANE, MOCK_LANE, OPEN_LANE, Job, PauseRow
from bedrockjobs.job.take_request import Names, TakeRequest, names_from
from bedrockjobs.store import pattern_index, ready_queue
from bedrockjobs.store.base import StillSearching
from bedrockjobs.store.ready_queue import GROUPS_FREED_MAX, AllHostsSchedules
from bedrockjobs.store.sqlite import SQLiteEngine
from tests.effort import examples

NOW = "2026-01-01 00:00:05"
NAMES = ["a", "b", "a/1", "a/2", "a/12", "b/1", "ab", "A/1", "c", "é/1"]
PATTERNS = [
    ("a", None),
    ("a,b,zz", None),
    ("a/1,b/1,c,ab", None),
    ("*", None),
    ("a/*", None),
    ("a*", None),
    ("*1", None),
    ("[ab]/?", None),
    ("?/[^2]", None),
    ("é*", None),
    (None, ("a/*", "c")),
    (None, ("*2", "b", "a?")),
    (None, ("*2", "[ab]/?")),
]

timestamps = st.integers(0, 9).map(lambda second: f"2026-01-01 00:00:0{second}")
jobs = st.tuples(st.sampled_from(NAMES), st.sampled_from(PRIORITIES), timestamps, st.booleans())
takes = st.tuples(
    st.sampled_from(PATTERNS), st.booleans(), st.sampled_from([None, None, None, *PRIORITIES]), st.booleans()
)
steps = st.one_of(
    st.tuples(st.just("insert"), jobs),
    st.tuples(st.just("insert"), jobs),
    st.tuples(st.just("take"), takes),
    st.tuples(st.just("take"), takes),
    st.tuples(st.just("change"), st.tuples(st.integers(0, 40), jobs)),
    st.tuples(st.just("delete"), st.integers(0, 40)),
    st.tuples(st.sampled_from(["commit", "rollback", "savepoint", "undo"]), st.none()),
    st.tuples(st.sampled_from(["pause", "pause", "resume"]), st.sampled_from(["a*", "*1", "a/1", "b/*"])),
)

_plain = sqlite3.connect(":memory:")


def matches(names: Names, name: str) -> bool:
    """Match with SQLite's own GLOB, whatever the store does."""
    if names.exact:
        return name in names.exact
    return any(_plain.execute("SELECT ? GLOB ?", (name, each)).fetchone()[0] for each in names.patterns)


def first_due(store: SQLiteEngine, request: TakeRequest) -> Job | None:
    """Return the job to take, after as many units as the search needs."""
    for _ in range(10_000):
        try:
            return store.unit.first_due(request, NOW)
        except StillSearching:
            store.unit.ready.patterns.begin()  # as at the beginning of each unit
            store.unit.search([request.names])
    raise AssertionError("the search does not end")


@dataclass
class Plain:
    """The rows in a dictionary, with a naive search."""

    rows: dict[int, Job] = field(default_factory=dict)
    pauses: frozenset[str] = frozenset()

    def candidates(self, names: Names, mocked: bool, priority: int | None) -> list[Job]:
        found = [
            row
            for row in self.rows.values()
            if row.queued
            and (mocked or not row.mocked)
            and (priority is None or row.priority == priority)
            and matches(names, row.name)
            and not any(matches(Names(frozenset(), (pause,)), row.name) for pause in self.pauses)
        ]
        return sorted(found, key=lambda row: (-row.priority, row.next_run, row.job_id))

    def first_due(self, names: Names, mocked: bool, priority: int | None) -> Job | None:
        return next((row for row in self.candidates(names, mocked, priority) if row.next_run <= NOW), None)


class Both:
    """The store and the plain rows, with snapshots for rollback and undo."""

    def __init__(self, groups_max: int, patterns_max: int) -> None:
        self.store = SQLiteEngine(
            ":memory:", Settings(groups_remembered_max=groups_max, patterns_cached_max=patterns_max)
        )
        self.plain = Plain()
        self.before = dict(self.plain.rows), self.plain.pauses
        self.at_savepoint: tuple[dict[int, Job], frozenset[str]] | None = None
        self.store.begin()

    def insert(self, name: str, priority: int, next_run: str, mocked: bool) -> None:
        row = Job(
            created=NOW,
            job_id=self.store.unit.new_job_id(),
            state="QUEUED",
            name=name,
            next_run=next_run,
            priority=priority,
            lane=MOCK_LANE if mocked else OPEN_LANE,
        )
        self.store.unit.insert(row)
        self.plain.rows[row.job_id] = row

    def take(
        self, asked: tuple[str | None, tuple[str, ...] | None], mocked: bool, priority: int | None
    ) -> bool:
        names = names_from(*asked)
        assert names is not None
        row = first_due(self.store, TakeRequest(names, mocked=mocked, priority=priority))
        assert row == self.plain.first_due(names, mocked, priority)
        if row is None:
            self.check_soonest(names, mocked, priority)
            return False
        taken = row._replace(state="RUNNING", last_run=NOW, attempt=row.attempt + 1)
        self.store.unit.claim(taken)
        self.plain.rows[row.job_id] = taken
        return True

    def check_soonest(self, names: Names, mocked: bool, priority: int | None) -> None:
        soonest = self.store.unit.soonest(TakeRequest(names, mocked=mocked), NOW)
        later = [row.next_run for row in self.plain.candidates(names, mocked, priority)]
        if later:
            assert soonest is not None
            assert NOW < soonest <= min(later)

    def change(self, job_id: int, name: str, priority: int, next_run: str, running: bool) -> None:
        row = self.plain.rows.get(job_id)
        if row is None:
            return
        state = "RUNNING" if running else "QUEUED"
        row = row._replace(name=name, priority=priority, next_run=next_run, state=state)
        self.store.unit.save(row)
        self.plain.rows[job_id] = row

    def delete(self, job_id: int) -> None:
        if self.plain.rows.pop(job_id, None) is not None:
            self.store.unit.delete(job_id)

    def end(self, how: str) -> None:
        if self.at_savepoint is not None:
            self.store.unit.release()
            self.at_savepoint = None
        if how == "commit":
            self.store.commit()
            self.before = dict(self.plain.rows), self.plain.pauses
        else:
            self.store.rollback()
            self.plain.rows, self.plain.pauses = dict(self.before[0]), self.before[1]
        self.store.begin()

    def savepoint(self) -> None:
        if self.at_savepoint is None:
            self.mark = self.store.unit.savepoint()
            self.at_savepoint = dict(self.plain.rows), self.plain.pauses

    def undo(self) -> None:
        if self.at_savepoint is not None:
            self.store.unit.undo(self.mark)
            (self.plain.rows, self.plain.pauses), self.at_savepoint = self.at_savepoint, None

    def pause(self, pattern: str, *, paused: bool) -> None:
        records = self.store.unit.records
        if paused:
            records.put_pause(PauseRow(pattern, "", "", NOW, ""))
            self.plain.pauses |= {pattern}
        else:
            records.delete_pause(pattern)
            self.plain.pauses -= {pattern}
        self.store.unit.pauses_changed()

    def step(self, kind: str, what: object) -> None:
        match kind, what:
            case "insert", (str(name), int(priority), str(next_run), bool(mocked)):
                self.insert(name, priority, next_run, mocked)
            case "take", (tuple(asked), bool(mocked), priority, bool(everything)):
                while self.take(asked, mocked, priority) and everything:  # type: ignore[arg-type]
                    pass
            case "change", (int(job_id), (str(name), int(priority), str(next_run), bool(running))):
                self.change(job_id, name, priority, next_run, running)
            case "delete", int(job_id):
                self.delete(job_id)
            case (("commit" | "rollback"), _):
                self.end(kind)
            case (("pause" | "resume"), str(pattern)):
                self.pause(pattern, paused=kind == "pause")
            case "savepoint", _:
                self.savepoint()
            case "undo", _:
                self.undo()
            case _:
                raise AssertionError(kind)
        self.store.unit.became_ready()


@given(
    st.lists(steps, max_size=60),
    st.sampled_from([1, 2, 5, 20_000]),
    st.sampled_from([1, 2, 256]),
    st.sampled_from([0, 1, 3]),
)
@settings(max_examples=examples(32, night=500), deadline=None)
def test_the_store_finds_what_a_plain_search_finds(
    history: list[tuple[str, object]], groups_max: int, patterns_max: int, slice_: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if slice_:  # else nearly all is found within one unit
            patch.setattr(ready_queue, "SEARCHED_AT_ONCE", slice_ + 1)
            patch.setattr(pattern_index, "SEARCHED_AT_ONCE", slice_ + 1)
            # A take looks into two lanes, which is two steps if each has a job.
            patch.setattr(pattern_index, "SEARCHED_UNIT_MAX", slice_ + 1)
            patch.setattr(pattern_index, "STEPS_FREE", 0)
            patch.setattr(pattern_index, "EARLY_MAX", 2)
            patch.setattr(ready_queue, "GLANCE_ROWS", 1)
            patch.setattr(pattern_index, "GROUPS_IN_ONE_DICT_MAX", 3)
        _compare(history, groups_max, patterns_max)


def _compare(history: list[tuple[str, object]], groups_max: int, patterns_max: int) -> None:
    both = Both(groups_max, patterns_max)
    try:
        for kind, what in history:
            both.step(kind, what)
        for asked in PATTERNS:  # the remaining jobs, in order, by every pattern
            while both.take(asked, True, None):
                pass
    finally:
        both.store.close()


def test_more_groups_than_are_remembered_are_looked_through() -> None:
    both = Both(groups_max=3, patterns_max=256)
    for name in NAMES:
        both.insert(name, 500, NOW, False)
    names = names_from("*1", None)
    assert names is not None
    assert both.store.unit.ready.patterns.first_due(names, OPEN_LANE, NOW, PRIORITIES, "") is not None
    assert both.store.unit.ready.patterns.is_wide(names, OPEN_LANE)
    assert [both.take(("*1", None), False, None) for _ in range(4)] == [True, True, True, True]
    assert not both.take(("*1", None), False, None)
    both.store.close()


def test_a_pattern_becomes_wide_when_too_many_names_come() -> None:
    both = Both(groups_max=3, patterns_max=256)
    names = names_from("*[1-9]", None)
    assert names is not None
    for number in range(1, 6):
        both.insert(f"n{number}", 500, NOW, False)
        assert both.store.unit.ready.patterns.first_due(names, OPEN_LANE, NOW, PRIORITIES, "") is not None
        assert both.store.unit.ready.patterns.is_wide(names, OPEN_LANE) is (number > 3)
    assert [both.take(("*[1-9]", None), False, None) for _ in range(6)] == [True] * 5 + [False]
    both.store.close()


def test_patterns_are_forgotten_the_least_used_first() -> None:
    both = Both(groups_max=20_000, patterns_max=2)
    both.insert("a/1", 500, NOW, False)
    for asked in ("a/?", "a/*", "[a]/1", "a/?", "?/1"):
        names = names_from(asked, None)
        assert names is not None
        assert first_due(both.store, TakeRequest(names)) is not None
        assert len(both.store.unit.ready.patterns._patterns) <= 2
    both.store.close()


def locked(jobs: int, locks: int, held: int = 0) -> SQLiteEngine:
    """Return a store with due jobs of many names, spread over locks, the first of which are held."""
    store = SQLiteEngine(":memory:", Settings())
    store.begin()
    for number in range(jobs):
        row = Job(
            created=NOW,
            job_id=store.unit.new_job_id(),
            state="QUEUED",
            name=f"n{number}",
            next_run=NOW,
            priority=500,
            lane=f"lock l{number % locks}",
        )
        store.unit.insert(row)
        if number < held:
            store.unit.save(row._replace(state="RUNNING"))
    store.unit.became_ready()
    return store


def statements(store: SQLiteEngine, act: Callable[[], object]) -> int:
    """Return the number of statements that a function executes."""
    found: list[str] = []
    store._db.set_trace_callback(found.append)
    act()
    store._db.set_trace_callback(None)
    return len(found)


@pytest.mark.parametrize("pattern", ["nothing", "nothing*", "*"])
@pytest.mark.parametrize("held", [0, 500])
def test_a_take_does_not_look_into_the_lane_of_each_lock(pattern: str, held: int) -> None:
    store = locked(500, 500, held)
    names = names_from(pattern, None)
    assert names is not None

    def take() -> object:
        first_due(store, TakeRequest(names))
        return store.unit.soonest(TakeRequest(names, mocked=False), NOW)

    take()  # from now on it is remembered what matches
    assert statements(store, take) < 50
    store.unit.insert(
        Job(created=NOW, job_id=1000, state="QUEUED", name="nothing", next_run=NOW, priority=500)
    )
    row = first_due(store, TakeRequest(names, priority=1000))
    assert row is None
    row = first_due(store, TakeRequest(names))
    assert row is not None
    store.close()


def test_many_jobs_that_wait_under_one_lock_cost_others_nothing() -> None:
    store = locked(2_000, 1)
    names = names_from("nothing", None)
    assert names is not None

    def take() -> object:
        return first_due(store, TakeRequest(names))

    take()
    assert statements(store, take) < 50
    store.close()


def test_a_lock_that_is_free_again_does_not_offer_all_that_waited() -> None:
    store = locked(2_000, 1, held=1)
    assert statements(store, lambda: store.unit.delete(1)) < 3 * GROUPS_FREED_MAX
    assert store.unit.must_wake_all(), "all who wait are looked at instead"
    assert len(store.unit.became_ready()) <= GROUPS_FREED_MAX
    names = names_from("n1999", None)
    assert names is not None
    row = first_due(store, TakeRequest(names))
    assert row is not None
    assert row.name == "n1999"
    store.close()


def test_when_the_next_of_very_many_is_due_is_looked_up_once() -> None:
    rows = [
        Job(created=NOW, job_id=number, state="QUEUED", name="s", next_run=NOW, priority=500, lane=EVERY_LANE)
        for number in range(1, 4)
    ]
    asked: list[str] = []

    def is_paused(name: str) -> bool:
        asked.append(name)
        return False

    every = AllHostsSchedules(is_paused)
    every.load(rows)
    for row in rows:
        every.note(row._replace(next_run="2026-01-01 00:00:09"))
    assert asked == [], "only who asks pays"
    assert every.next == "2026-01-01 00:00:09"
    assert every.next == "2026-01-01 00:00:09"
    assert len(asked) == 3


def test_one_token_that_searches_for_ever_new_patterns_leaves_others_their_walks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pattern_index, "SEARCH_BURST", 400)
    now = [0.0]
    store = SQLiteEngine(":memory:", Settings())
    store.begin()
    patterns = store.unit.ready.patterns
    patterns.budget._monotonic, patterns.budget._filled_at = lambda: now[0], 0.0
    monkeypatch.setattr(pattern_index, "SEARCHED_AT_ONCE", 100)
    for number in range(250):
        job_id = store.unit.new_job_id()
        store.unit.insert(
            Job(created=NOW, job_id=job_id, state="QUEUED", name=f"n{number}", next_run=NOW, priority=500)
        )

    def searched(pattern: str, by: str, units: int) -> bool:
        names = names_from(pattern, None)
        assert names is not None
        for _ in range(units):
            patterns.begin()
            try:
                store.unit.first_due(TakeRequest(names, by=by), NOW)
            except StillSearching:
                store.unit.search([names])
            else:
                return True
        return False

    assert searched("*x", "greedy", 10)
    assert not searched("*y", "greedy", 10), "it has used up its walks"
    assert patterns.search_in_s() > 0
    assert searched("*z", "other", 10)
    now[0] += 250 / SEARCHED_PER_S_MAX  # as many rows as there are
    assert searched("*y", "greedy", 10)
    store.close()


def a_store_of(names: list[str]) -> SQLiteEngine:
    """Return a store with a queued job of each name."""
    store = SQLiteEngine(":memory:", Settings())
    store.begin()
    for name in names:
        job_id = store.unit.new_job_id()
        store.unit.insert(
            Job(created=NOW, job_id=job_id, state="QUEUED", name=name, next_run=NOW, priority=500)
        )
    return store


def counted_scans(store: SQLiteEngine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the prefixes of the slices of scans from now on."""
    prefixes: list[str] = []
    ready, heads_after = store.unit.ready, store.unit.ready.heads_after

    def counted(lane: str, after: object, prefix: str, limit: int) -> object:
        prefixes.append(prefix)
        return heads_after(lane, after, prefix, limit)

    monkeypatch.setattr(ready, "heads_after", counted)
    return prefixes


def test_ever_new_lists_of_names_index_nothing() -> None:
    store = a_store_of([f"n/{number}" for number in range(200)])
    for number in range(100, 200):
        names = names_from(None, (f"n/{number}", f"n/{number - 1}", "none"))
        assert names is not None
        row = first_due(store, TakeRequest(names))
        assert row is not None
        assert row.name == f"n/{number - 1}"
    assert not store.unit.ready.patterns._patterns
    store.close()


def test_ever_new_lists_share_what_is_known_of_their_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    store = a_store_of([f"n/{number % 20}/{number}" for number in range(200)])
    prefixes = counted_scans(store, monkeypatch)
    for number in range(200):
        store.unit.ready.patterns.begin()
        names = names_from(
            None, (f"n/{number % 20}/*", f"n/{number % 19}/*x", f"n/{number % 17}/9?", "n/0/0")
        )
        assert names is not None
        first_due(store, TakeRequest(names))
    assert len(prefixes) <= 20 + 19 + 17, "each pattern is searched for once"
    store.close()


def test_a_scan_reads_the_names_of_its_prefix_alone() -> None:
    store = a_store_of([f"z/{number}" for number in range(2_000)])
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection = store._db
    store.unit.write()  # deferred names are not part of the scan
    connection.set_progress_handler(count, 1)
    for prefix in ("a/", "z/19999/", "z/199"):
        steps, names = 0, names_from(f"{prefix}*", None)
        assert names is not None
        store.unit.ready.patterns.begin()
        first_due(store, TakeRequest(names))
        print(f"{prefix}: {steps} steps of SQLite")
        assert steps < 2_000
    store.close()


@pytest.mark.parametrize("by", ["", "other"])
def test_very_many_new_patterns_come_in_turn(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = a_store_of(["n/1"])
    patterns = store.unit.ready.patterns
    prefixes = counted_scans(store, monkeypatch)
    waiting: dict[Names, None] = {}

    def take(names: Names) -> bool:
        try:
            store.unit.first_due(TakeRequest(names, by=by if names is mine else ""), NOW)
        except StillSearching:
            waiting[names] = None
            return False
        waiting.pop(names, None)
        return True

    mine = names_from(None, ("k/*", "m/*"))
    assert mine is not None
    most = pattern_index.SEARCHED_UNIT_MAX // pattern_index.STEPS_OF_SCAN
    invited: list[Names] = []
    served_in = 0
    for unit in range(110):
        patterns.begin()
        prefixes.clear()
        for number in range(10):  # a flood: ever new lists of eight, more than a unit has time for
            flood = names_from(None, tuple(f"f/{unit}/{number}/{part}/*" for part in range(NAMES_AT_ONCE)))
            assert flood is not None
            take(flood)
        if unit == 5:
            take(mine)
        for names in invited:
            waiting.pop(names)
            if take(names) and names is mine:
                served_in = unit
        invited = [*patterns.search([*waiting])]
        assert len(prefixes) <= 2 * most + NAMES_AT_ONCE, "what one unit does is bounded"
    before = 0 if by else 6 * 10 // (most // NAMES_AT_ONCE)
    assert 5 < served_in <= 5 + before + 2, "in the order of arrival, but tokens take turns"
    store.close()


def test_no_dict_of_a_pattern_grows_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_index, "GROUPS_IN_ONE_DICT_MAX", 100)
    store = a_store_of([f"n/{number}" for number in range(5_000)])
    names = names_from("*[0-9]", None)
    assert names is not None
    store.unit.records.put_pause(PauseRow("*", "", "", NOW, ""))
    store.unit.pauses_changed()
    assert first_due(store, TakeRequest(names)) is None
    pattern = store.unit.ready.patterns._patterns[names, OPEN_LANE]
    sizes = [len(one) for bounds in pattern.bounds.values() for one in bounds]
    assert sum(sizes) == pattern.groups == 5_000
    assert max(sizes) < 5 * 5_000 // pattern_index.PARTS_OF_BOUNDS
    store.unit.records.delete_pause("*")
    store.unit.pauses_changed()
    row = first_due(store, TakeRequest(names))
    assert row is not None
    assert row.name == "n/0"
    store.close()


@pytest.mark.parametrize("pattern", ["n*", "*9"])
@pytest.mark.parametrize("pace_s", [0.0, SEARCHED_S / 3, 1.0])
def test_scans_end_by_the_clock_on_a_slow_machine(
    pattern: str, pace_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading of the clock advances it by ``pace_s``, and each unit makes progress."""
    store = a_store_of([f"n/{number:04}" for number in range(3_000)])
    patterns, rows = store.unit.ready.patterns, list[int]()
    clock = itertools.count()
    monkeypatch.setattr(patterns, "_monotonic", lambda: next(clock) * pace_s)
    heads_after = store.unit.ready.heads_after

    def counted(*given: Any) -> Any:
        found = heads_after(*given)
        rows[-1] += found[2]
        return found

    monkeypatch.setattr(store.unit.ready, "heads_after", counted)
    monkeypatch.setattr(ready_queue, "GLANCE_ROWS", 0)
    asked = {each: names_from(each, None) for each in (pattern, "*8")}
    found: dict[str, str] = {}
    for _ in range(200):
        patterns.begin()
        rows.append(0)
        for text, names in asked.items():
            assert names is not None
            with suppress(StillSearching):
                row = store.unit.first_due(TakeRequest(names), NOW)
                assert row is not None
                found[text] = row.name
        store.unit.search([names for text, names in asked.items() if names is not None and text not in found])
        if len(found) == 2:
            break
    assert found == {pattern: "n/0000" if pattern == "n*" else "n/0009", "*8": "n/0008"}
    most = {0.0: 2 * SEARCHED_AT_ONCE, SEARCHED_S / 3: 5 * SEARCHED_BETWEEN, 1.0: 2 * SEARCHED_BETWEEN}[
        pace_s
    ]
    assert SEARCHED_BETWEEN <= max(rows) <= most
    assert min(rows[:-2]) >= SEARCHED_BETWEEN, "each unit gets on"
    store.close()


@pytest.mark.parametrize("pace_s", [0.0, SEARCHED_S / 3, 1.0])
def test_a_wide_pattern_is_searched_by_the_clock_too(pace_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    store = a_store_of([f"n/{number:04}" for number in range(3_000)])
    patterns, rows = store.unit.ready.patterns, list[int]()
    clock = itertools.count()
    monkeypatch.setattr(patterns, "_monotonic", lambda: next(clock) * pace_s)
    monkeypatch.setattr(patterns, "_groups_max", 50)
    due_after = store.unit.ready.due_after

    def counted(*given: Any) -> Any:
        for row in due_after(*given):
            rows[-1] += 1
            yield row

    monkeypatch.setattr(store.unit.ready, "due_after", counted)
    store.unit.records.put_pause(PauseRow("n/[01]*", "", "", NOW, ""))
    store.unit.pauses_changed()
    names = names_from("n*", None)
    assert names is not None
    for _ in range(200):
        patterns.begin()
        rows.append(0)
        try:
            row = store.unit.first_due(TakeRequest(names), NOW)
        except StillSearching:
            store.unit.search([names])
        else:
            break
    assert row is not None
    assert row.name == "n/2000"
    assert patterns.is_wide(names, OPEN_LANE)
    most = {
        0.0: SEARCHED_UNIT_MAX + SEARCHED_BETWEEN,
        SEARCHED_S / 3: 5 * SEARCHED_BETWEEN,
        1.0: 2 * SEARCHED_BETWEEN,
    }
    assert SEARCHED_BETWEEN <= max(rows) <= most[pace_s]
    store.close()


def test_a_take_goes_on_when_its_pattern_becomes_wide_during_the_scan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ready_queue, "SEARCHED_AT_ONCE", 10)
    monkeypatch.setattr(pattern_index, "SEARCHED_UNIT_MAX", 10)
    store = a_store_of([f"n/{number:03}" for number in range(200)])
    monkeypatch.setattr(store.unit.ready.patterns, "_groups_max", 50)
    store.unit.records.put_pause(PauseRow("n/0*", "", "", NOW, ""))
    store.unit.pauses_changed()
    names = names_from("n/*", None)
    assert names is not None
    for _ in range(50):
        store.unit.ready.patterns.begin()
        try:
            row = store.unit.first_due(TakeRequest(names), NOW)
        except StillSearching:
            for _ in range(50):
                store.unit.ready.patterns.begin()
                if names in store.unit.search([names]):
                    break
            else:
                pytest.fail("the take is never tried again")
        else:
            break
    assert store.unit.ready.patterns.is_wide(names, OPEN_LANE)
    assert row is not None
    assert row.name == "n/100"
    store.close()
