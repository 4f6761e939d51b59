"""Protocol buffers in text format."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bedrockjobs.base.config import IMPORT_TOKENS_MAX
from bedrockjobs.imports import luci
from bedrockjobs.imports.imported import Unreadable


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("a: \"x\" 'y'", [("a", "xy")]),
        (r'a: "\"\n\x41\101\u00e9"', [("a", '"\nAAé')]),
        ("a: 5 b: -0x10 c: 1.5f d: 1e3", [("a", 5), ("b", -16), ("c", 1.5), ("d", 1000.0)]),
        (f"a: 1{'0' * 18} b: 017 c: {'9' * 5000}", [("a", 10**18), ("b", 15), ("c", math.inf)]),
        ("a: 010 b: .5", [("a", 8), ("b", 0.5)]),
        (r'a: "\303\251\xc3\xa9\u00e9\U000000e9é"', [("a", "ééééé")]),
        ("a: true, b: false; c: NAME", [("a", "true"), ("b", "false"), ("c", "NAME")]),
        ("a: [1, 2] a: []", [("a", 1), ("a", 2)]),
        ("# none\na { } # b", [("a", [])]),
        ("[x.y/z.w]: 1", [("[x.y/z.w]", 1)]),
    ],
)
def test_text_format(text: str, fields: list[tuple[str, Any]]) -> None:
    """Fields in order, whatever their types."""
    assert [(name, value) for name, value, _ in luci.parse(text)] == fields


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a", ": and a value"),
        ("a 5", ": and a value"),
        ("\na: ", "line 2: expected a value, not 'the end'"),
        ("a {", "expected }"),
        ("a < }", "expected the name of a field"),
        ("}", "expected the name of a field"),
        ("a: [1 2]", r"a comma or \]"),
        ("a: 1.2.3", "expected a number"),
        ('a: "x', "line 1: expected text-format"),
        ("5: 5", "the name of a field"),
        ("\na {" * 40, "line 35: expected at most 32 messages"),
        ("a {" * 50_000, "at most 32 messages"),
        ("a: " + "[" * 50_000, "a value"),
        ("a: [1,]", "a value"),
        ("a: 5x", "text-format"),
        (r'\n\na: "\q"'.replace(r"\n", "\n"), "line 3: expected an escape such as"),
        (r'a: "\400"', r"at most \\377"),
        (r'a: "\xff"', "UTF-8"),
        (r'a: "\ud800"', "UTF-8"),
        (r'a: "\U00110000"', "character of Unicode"),
        ("," * (IMPORT_TOKENS_MAX + 1), "the name of a field"),
        ("a:1\n" * (IMPORT_TOKENS_MAX // 3 + 1), f"at most {IMPORT_TOKENS_MAX} words"),
        ("a: [", "a value"),
    ],
    ids=lambda value: value[:30],
)
def test_text_that_is_none(text: str, why: str) -> None:
    """The error names the line and what was expected."""
    with pytest.raises(Unreadable, match=why):
        luci.parse(text)


def test_a_word_is_no_text() -> None:
    """Only a string has quotes."""
    (word, _), (text, _) = [(value, line) for _, value, line in luci.parse("a: yes b: 'yes'")]
    assert isinstance(word, luci.Word)
    assert not isinstance(text, luci.Word)
