"""Names and patterns: our GLOB is SQLite's, and what a GetJob's name means."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedrockjobs.base.glob import glob, literal_prefix
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import names_from
from tests.effort import examples

_plain = sqlite3.connect(":memory:")

letters = st.text("ab[]^-*?/é😀\\", max_size=12)


@given(name=letters, pattern=letters)
@settings(max_examples=examples(60, night=1_500), deadline=None)
def test_glob_is_sqlites(name: str, pattern: str) -> None:
    expected = bool(_plain.execute("SELECT ? GLOB ?", (name, pattern)).fetchone()[0])
    assert glob(name, pattern) is expected


@given(start=letters, rest=letters)
@settings(max_examples=examples(32, night=500), deadline=None)
def test_glob_of_names_that_share_a_beginning(start: str, rest: str) -> None:
    for pattern in (start + "*", start, start + rest, start + "?" + rest, "*" + rest, start + "*" + rest):
        expected = bool(_plain.execute("SELECT ? GLOB ?", (start + rest, pattern)).fetchone()[0])
        assert glob(start + rest, pattern) is expected


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [("a/b", "a/b"), ("a*", "a"), ("a?b", "a"), ("a[b]", "a"), ("*", ""), ("", ""), ("a]b*", "a]b")],
)
def test_the_fixed_beginning_of_a_pattern(pattern: str, prefix: str) -> None:
    assert literal_prefix(pattern) == prefix


@given(name=letters, patterns=st.lists(letters.filter(bool), min_size=1, max_size=4).map(tuple))
@settings(max_examples=examples(100, night=300), deadline=None)
def test_every_match_begins_with_the_prefix(name: str, patterns: tuple[str, ...]) -> None:
    names = names_from(None, patterns)
    assert names is not None
    if names.match(name) and not names.exact:
        assert name.startswith(names.prefix())


def test_what_a_name_asks_for() -> None:
    one, several, pattern = names_from("a", None), names_from("a, b ,,c", None), names_from("a*", None)
    assert one is not None
    assert several is not None
    assert pattern is not None
    assert one.single == "a"
    assert several.exact == {"a", "b", "c"}
    assert several.single is None
    assert pattern.patterns == ("a*",)
    assert not pattern.everything
    for everything in (names_from("*", None), names_from(None, ("a", "*"))):
        assert everything is not None
        assert everything.everything
    for nothing in (names_from("", None), names_from(None, None), names_from(" , ,", None)):
        assert nothing is None


def test_names_of_a_list_are_exact_and_patterns_of_names_are_not() -> None:
    listed, patterns = names_from("a*,b", None), names_from(None, ("a*", "b"))
    assert listed is not None
    assert patterns is not None
    assert [listed.match(name) for name in ("a*", "ax", "b")] == [True, False, True]
    assert [patterns.match(name) for name in ("a*", "ax", "b")] == [True, True, True]


def test_the_same_names_are_one_key() -> None:
    assert names_from("a*", None) is names_from("a*", None)


@pytest.mark.parametrize(
    ("state", "queued"),
    [("QUEUED", True), ("RUNQUEUED", True), ("RUNNING", False), ("PAUSED", False), ("FAILED", False)],
)
def test_which_rows_are_queued(state: str, queued: bool) -> None:
    row = Job("2026-01-01 00:00:00", 1, state, "a", "2026-01-01 00:00:00")
    assert row.queued is queued
    assert not row.mocked
    assert row._replace(lane="mock").mocked
