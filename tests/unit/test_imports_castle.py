"""castle-cron's jobs: its JSON structs, and its add commands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bedrockjobs.base.config import SCHEDULES_PER_SYNC_MAX
from bedrockjobs.imports import castle
from bedrockjobs.imports.imported import Unreadable

STRUCT = '{"Name": "a", "Cmd": "x", "Schedule": "@daily"}'


def test_castle_structs() -> None:
    """One struct, a list, or one per line; keys in upper or lower case."""
    job = {
        "Name": "a",
        "Cmd": "/bin/date",
        "Args": ["-u"],
        "HasError": False,
        "NextRuntime": "2016-01-01T00:00:00Z",
        "Schedule": "0 */3 * * * *",
    }
    second = {"name": "b", "cmd": "x", "args": None, "schedule": "@daily"}
    for text in (json.dumps([job, second]), f"{json.dumps(job)}\n{json.dumps(second)}\n"):
        first, other = castle.parse_castle(text, zone="Europe/Berlin")
        assert (first.repeat, first.options) == (
            "CRON TZ=Europe/Berlin 0 */3 * * *",
            {"argv": ["/bin/date", "-u"]},
        )
        assert "6 fields" in first.warnings[0]
        assert (other.repeat, other.options, other.warnings) == (
            "CRON TZ=Europe/Berlin @daily",
            {"argv": ["x"]},
            (),
        )
    assert [found.name for found in castle.parse_castle(json.dumps(job))] == ["a"]


def test_castle_lines() -> None:
    """The commands that created the jobs, with the program's options; the last command for a name counts."""
    found = castle.parse_castle(
        """# nightly things
export X=1; ./castle-cron -zk a,b add nightly '0 2 * * *' tar -cf '/srv/a b.tar' /srv
castle-cron upd nightly "0 3 * * *" true
"""
    )
    assert [(entry.name, entry.repeat, entry.options) for entry in found] == [
        ("nightly", "CRON 0 3 * * *", {"argv": ["true"]})
    ]
    (first,) = castle.parse_castle("castle-cron add n '0 2 * * *' tar -cf '/srv/a b.tar'")
    assert first.options == {"argv": ["tar", "-cf", "/srv/a b.tar"]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"Name": ""}, "expected Name"),
        ({"Cmd": None}, "expected Name, Cmd"),
        ({"Args": "x"}, "Args: expected a list"),
        ({"HasError": True}, "HasError is set"),
        ({"Schedule": "0 9 * *"}, "5 to 7 fields"),
        ({"Schedule": "0 0 31 2 *"}, "would never fire"),
    ],
)
def test_castle_jobs_that_cannot_run(change: dict[str, Any], why: str) -> None:
    """They are refused, with the reason."""
    job = {"Name": "a", "Cmd": "x", "Args": [], "Schedule": "0 9 * * *", **change}
    (found,) = castle.parse_castle(json.dumps(job))
    assert why in found.refused


@pytest.mark.parametrize(
    "text",
    ["[1]", '{"Name":', "castle-cron list", "crond add a b c", "castle-cron add a 'b", "castle-cron add a b"],
)
def test_castle_files_that_cannot_be_read(text: str) -> None:
    """The error says what was expected, or where."""
    with pytest.raises(Unreadable, match=r"expected|line 1"):
        castle.parse_castle(text)


def test_a_struct_says_its_line() -> None:
    """The error names the line in addition to the number."""
    other = STRUCT.replace('"a"', '"b"')
    text = f"[{STRUCT},\n\n {other}]"
    assert [found.place for found in castle.parse_castle(text)] == ["job 1, line 1", "job 2, line 3"]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("castle-cron add a '@daily' x\n\ncastle-cron add a '@hourly' y\n", "line 1 and line 3"),
        ("castle-cron upd a '@daily' x\ncastle-cron add a '@hourly' y\n", "line 1 and line 2"),
        (f"{STRUCT}\n{STRUCT}\n", "job 1, line 1 and job 2, line 2"),
        (f"[{STRUCT},\n {STRUCT.replace('Name', 'name')}]", "job 1, line 1 and job 2, line 2"),
    ],
)
def test_a_name_twice_is_refused_with_both_lines(text: str, places: str) -> None:
    """It is unclear which one was meant; castle-cron's own ``add`` also refuses the second one."""
    found = castle.parse_castle(text)
    assert [entry.refused for entry in found] == [f"{places} have one name: expected a name once"] * 2
    assert [entry.repeat for entry in found] == ["", ""]


def test_a_name_six_times_is_told_shortly() -> None:
    """The error lists the first places only."""
    found = castle.parse_castle("castle-cron add a '@daily' x\n" * 7)
    assert "line 5 and 2 more have one name" in found[6].refused


def test_an_update_says_what_it_changes() -> None:
    """It replaces the earlier line."""
    (found,) = castle.parse_castle("castle-cron add a '@daily' x\ncastle-cron upd a '@hourly' x\n")
    assert (found.repeat, found.place) == ("CRON @hourly", "line 2")
    assert found.warnings == ("it changes the job of line 1",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[\n{"Name": "a"},\n 1]', "line 3: expected Job structs"),
        ('[{"Name": "a",\n "Name": "b"}]', "line 1: the key 'Name' is given twice"),
        ('{"Name": NaN}', "line 1: expected a number, not NaN"),
        ("\n" + "[" * 50_000, "line 2: nested deeper than 64 levels"),
        ('{"a":' * 50_000, "line 1: nested deeper than 64 levels"),
        ('[{"Name": "a"} {"Name": "b"}]', "Expecting ',' delimiter: line 1"),
        (
            "castle-cron add a '@daily' x\n" * (SCHEDULES_PER_SYNC_MAX + 1),
            "line 10001: expected at most 10000",
        ),
        ('{"Name": "a", "Cmd": "x", "Schedule": "@daily"}\n' * (SCHEDULES_PER_SYNC_MAX + 1), "at most 10000"),
    ],
    ids=lambda value: value[:30],
)
def test_files_that_cannot_be_read_say_the_line(text: str, why: str) -> None:
    """And nothing is imported from them."""
    with pytest.raises(Unreadable, match=why):
        castle.parse_castle(text)


def test_two_spellings_of_a_key_are_refused() -> None:
    """Keys may be upper or lower case, but each only once."""
    (found,) = castle.parse_castle('{"Name": "a", "name": "b", "Cmd": "x", "Schedule": "@daily"}')
    assert (found.name, found.refused) == ("job-1", "name: it is given twice, in two spellings")
