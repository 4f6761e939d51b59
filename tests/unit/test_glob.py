"""Name patterns match as in SQLite: by examples, and by comparing thousands of random pairs."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedrockjobs.base.config import LENGTHS_INDEXED_MAX, PATTERNS_COMPILED_MAX, PATTERNS_PER_KEY_MAX
from bedrockjobs.base.glob import PatternSet, _matcher, glob, is_plain
from tests.effort import examples

LETTERS = "ab-]^[*?é/"
_sqlite = sqlite3.connect(":memory:")


def sqlite_glob(name: str, pattern: str) -> bool:
    return bool(_sqlite.execute("SELECT ?1 GLOB ?2", (name, pattern)).fetchone()[0])


@pytest.mark.parametrize(
    ("name", "pattern", "matches"),
    [
        ("mail/send", "mail/*", True),
        ("Mail/send", "mail/*", False),
        ("mail/", "mail/*", True),
        ("mail", "mail/*", False),
        ("a", "?", True),
        ("é", "?", True),
        ("", "?", False),
        ("", "*", True),
        ("", "", True),
        ("b", "[a-c]", True),
        ("b", "[^a-c]", False),
        ("]", "[]]", True),
        ("-", "[a-]", True),
        ("*", "[*]", True),
        ("[a", "[a", False),
        ("b", "[c-a]", False),
    ],
)
def test_examples(name: str, pattern: str, matches: bool) -> None:
    assert glob(name, pattern) is matches
    assert sqlite_glob(name, pattern) is matches


@settings(max_examples=examples(40, night=3_000), deadline=None)
@given(st.text(LETTERS, max_size=8), st.text(LETTERS, max_size=10))
def test_any_pattern_matches_as_in_sqlite(name: str, pattern: str) -> None:
    assert glob(name, pattern) is sqlite_glob(name, pattern)


def test_patterns_made_of_their_name_match_as_in_sqlite() -> None:
    """Random patterns hardly ever match; patterns made of the name often do."""
    draw, matched = random.Random(5), 0
    for _ in range(5_000):
        name = "".join(draw.choices(LETTERS, k=6))
        pattern = "".join(draw.choice([c, c, "?", "*", f"[{c}]", f"[^{c}]", f"[{c}-é]"]) for c in name)
        matched += sqlite_glob(name, pattern)
        assert glob(name, pattern) is sqlite_glob(name, pattern), (name, pattern)
    assert matched > 300


def test_a_hostile_name_takes_no_time() -> None:
    assert not glob("a" * 255, "*a" * 60 + "b")


def test_patterns_kept_are_limited() -> None:
    for number in range(PATTERNS_COMPILED_MAX + 50):
        glob("x", f"x{number}")
    assert _matcher.cache_info().currsize == PATTERNS_COMPILED_MAX


@pytest.mark.parametrize(("text", "plain"), [("a.b", True), ("a*", False), ("a?", False), ("a[", False)])
def test_plain(text: str, plain: bool) -> None:
    assert is_plain(text) is plain


@settings(max_examples=examples(40, night=3_000), deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.text("ab/*?[", max_size=9), st.integers(0, 2)), max_size=60),
    st.lists(st.text("ab/", max_size=9), max_size=10),
)
def test_a_set_of_patterns_finds_what_each_pattern_matches(
    changes: list[tuple[bool, str, int]], names: list[str]
) -> None:
    found, plain = PatternSet[int](), set[tuple[str, int]]()
    for adds, pattern, owner in changes:
        if adds:
            found.add(pattern, owner)
            plain.add((pattern, owner))
        else:
            found.discard(pattern, owner)
            plain.discard((pattern, owner))
        for name in names:
            expected = sorted({one for text, one in plain if glob(name, text)})
            assert sorted(found.matching(name)) == expected
    assert len(found) == len({pattern for pattern, _ in plain})


FORMS = {
    "an end": "jobs/*/host-{}",
    "a beginning and an end": "a{}/*/b{}",
    "beginnings": "host-{}-[ab]*",
    "a part in the middle": "*/host-{}/*",
    "a part between the same ends": "x/*/host-{}/*/run",
}
"""Forms of patterns of which thousands may differ in one place, by what tells them from each other."""


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_name_is_compared_with_few_of_many_patterns(form: str) -> None:
    many = PatternSet[int]()
    patterns = [form.format(number, number % 97) for number in range(5_000)]
    for number, pattern in enumerate(patterns):
        many.add(pattern, number)
    assert many.unindexed <= 50
    compared = 0
    for entry in many._entries.values():
        matches = _matcher(entry.pattern)

        def counting(name: str, matches: Callable[[str], bool] = matches) -> bool:
            nonlocal compared
            compared += 1
            return matches(name)

        entry.compiled = counting
    for number in range(0, 5_000, 50):
        name = patterns[number].replace("[ab]", "a").replace("*", "some")
        assert number in many.matching(name)
    assert compared / 100 < 60, "of 5,000"
    assert all(len(gram) <= 4 for grams in many._grams.values() for gram in grams)
    for number, pattern in enumerate(patterns):
        many.discard(pattern, number)
    assert len(many) == many.unindexed == 0
    assert not many._ends
    assert not many._grams


def test_patterns_that_no_index_tells_apart_are_counted() -> None:
    alike = PatternSet[int]()
    for number in range(PATTERNS_PER_KEY_MAX + 5):
        alike.add(f"?{'?' * number}*", number)  # no fixed part at all
    assert alike.unindexed == 5
    lengths = PatternSet[int]()
    for number in range(LENGTHS_INDEXED_MAX + 5):
        lengths.add(f"{'a' * (number + 1)}?", number)
    assert all(len(by_suffix) <= LENGTHS_INDEXED_MAX for by_suffix in lengths._ends.values())
    assert len(lengths._ends) <= LENGTHS_INDEXED_MAX
    assert lengths.matching("aaa") == [1]
