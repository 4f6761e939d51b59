"""Name patterns match as in SQLite: by examples, and by asking SQLite about thousands."""

from __future__ import annotations

import random
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedrockjobs.base.config import PATTERNS_COMPILED_MAX
from bedrockjobs.base.glob import _matcher, glob, is_plain
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


@settings(max_examples=examples(1_000, night=3_000), deadline=None)
@given(st.text(LETTERS, max_size=8), st.text(LETTERS, max_size=10))
def test_any_pattern_matches_as_in_sqlite(name: str, pattern: str) -> None:
    assert glob(name, pattern) is sqlite_glob(name, pattern)


def test_patterns_made_of_their_name_match_as_in_sqlite() -> None:
    """Random patterns hardly ever match; these often do."""
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
