"""``[[notify]]`` in a file of definitions."""

from __future__ import annotations

import pytest

from bedrockjobs.definitions import BadDefinitions, read

FILE = """
source = "ops"

[[notify]]
name = "nightly"
on = ["failed", "recovered"]
names = ["backup/*"]
to = "mailto:ops@example.com"
group = "10m"
quiet = "22:00-07:00 Europe/Berlin"
"""


def test_rules_stand_beside_schedules_or_alone() -> None:
    found = read(FILE, "toml", "f")
    assert found.schedules == []
    assert [rule.given for rule in found.rules or []] == [
        {
            "name": "nightly",
            "on": ["failed", "recovered"],
            "names": ["backup/*"],
            "to": "mailto:ops@example.com",
            "groupFor": "10m",
            "quiet": "22:00-07:00 Europe/Berlin",
        }
    ]
    both = read(f"{FILE}\n[[schedules]]\nname = 'a'\nschedule = '@daily'\n", "toml", "f")
    assert ([one.name for one in both.schedules], len(both.rules or [])) == (["a"], 1)


def test_a_file_that_says_nothing_of_rules_leaves_them_alone() -> None:
    assert read("schedules: []", "yaml", "f").rules is None
    assert read('{"schedules": [], "notify": []}', "json", "f").rules == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("notify: 3", "f: notify: expected a list of rules"),
        ("notify: [3]", "f: line 1: rule 1: expected its keys and values"),
        ("notify: [{name: a, on: failed}]", "f: line 1: rule a: to"),
        ("notify: [{on: failed, to: 'mailto:a@b'}]", "f: line 1: rule 1: name"),
        ("notify: [{name: a, on: failed, to: nowhere}]", "f: line 1: rule a: to: expected https://"),
        ("notify: [{name: a, on: failed, too: x}]", "f: line 1: rule a: unknown key 'too', expected to"),
        ("notify: [{name: a, on: failed, to: 'mailto:a@b', group: 1, groupFor: 2}]", "given twice"),
        (
            "notify: [{name: a, on: failed, to: 'mailto:a@b'}, {name: a, on: lost, to: 'mailto:a@b'}]",
            "f: line 1: rule a: two have this name",
        ),
        ("notify: [{name: a, on: failed, to: 'mailto:a@b', quiet: 25:00-07:00}]", "f: line 1: rule a: quiet"),
    ],
)
def test_what_is_wrong_is_said_with_the_rule(text: str, words: str) -> None:
    with pytest.raises(BadDefinitions) as refused:
        read(text, "yaml", "f")
    assert words in str(refused.value)
