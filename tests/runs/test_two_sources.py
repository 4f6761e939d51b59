"""Definitions that two sources have, and what is given twice, over the wire: schedules and rules alike."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from tests.protocol.talk import post
from tests.runs.rig import Site


class Kind(NamedTuple):
    """A kind of definition: the command that makes a source's ones equal to a list, and one of them."""

    command: str
    field: str
    entry: dict[str, Any]
    key: str
    """A key of the entry that has another value in ``other``."""
    other: Any
    lists: str
    """The command that lists them."""


KINDS = {
    "schedules": Kind(
        "SyncSchedules",
        "schedules",
        {"name": "a", "repeat": "CRON 0 * * * *"},
        "repeat",
        "CRON 0 0 * * *",
        "ListSchedules",
    ),
    "rules": Kind(
        "SyncRules",
        "rules",
        {"name": "a", "on": ["failed"], "to": "mailto:a@b.example"},
        "to",
        "mailto:c@d.example",
        "ListRules",
    ),
}


async def entries(site: Site, kind: Kind) -> list[dict[str, Any]]:
    """Return the definitions of a kind that there are."""
    found: list[dict[str, Any]] = (await site.ok(kind.lists))[kind.field]
    return found


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_one_of_another_source_is_refused_and_nothing_is_done(site: Site, kind: Kind) -> None:
    await site.ok(kind.command, source="first", **{kind.field: [kind.entry]})
    before = await entries(site, kind)
    mine = {**kind.entry, "name": "mine"}
    given = {"source": "second", kind.field: [mine, {**kind.entry, kind.key: kind.other}]}
    assert await site.refused(kind.command, **given) == (405, "Name is taken")
    raw = await site.ask(kind.command, source="second", **{kind.field: json.dumps(given[kind.field])})
    assert raw.status == "405 Name is taken"
    (problem,) = (await site.ok(kind.command, **given, dryRun=True))["problems"]
    assert (problem["place"], problem["name"]) == (1, "a")
    assert "it belongs to the source 'first'" in problem["detail"]
    assert await entries(site, kind) == before
    taken = await site.ok(kind.command, **given, takeOver=True)
    assert (taken["added"], taken["changed"]) == (["mine"], ["a"])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_a_name_given_twice_is_refused_and_nothing_is_done(site: Site, kind: Kind) -> None:
    twice = [kind.entry, {**kind.entry, kind.key: kind.other}]
    assert await site.refused(kind.command, source="s", **{kind.field: twice}) == (
        402,
        f"Malformed {kind.field}",
    )
    raw = await site.ask(kind.command, source="s", **{kind.field: json.dumps(twice)})
    assert raw.status == f"402 Malformed {kind.field}"
    (problem,) = (await site.ok(kind.command, source="s", **{kind.field: twice}, dryRun=True))["problems"]
    assert (problem["place"], problem["name"], problem["detail"]) == (1, "a", "name: expected a name once")
    assert await entries(site, kind) == []


@pytest.mark.parametrize("way", ["HTTP", "raw, in a header", "raw, in the body"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_the_last_of_a_key_given_twice_counts(site: Site, kind: Kind, way: str) -> None:
    """As with any JSON on the wire: only files of people are refused for it."""
    first, last = (json.dumps({kind.key: value})[1:-1] for value in (kind.entry[kind.key], kind.other))
    rest = json.dumps({key: value for key, value in kind.entry.items() if key != kind.key})[1:-1]
    listed = f"[{{{first}, {rest}, {last}}}]"
    body = f'{{"source": "s", "{kind.field}": [], "{kind.field}": {listed}}}'
    talk = await site.connect()
    if way == "HTTP":
        talk.send(post(kind.command, body))
    elif way == "raw, in a header":
        talk.send(f"{kind.command}\r\nsource: s\r\n{kind.field}: {listed}\r\n\r\n")
    else:
        talk.send(f"{kind.command}\r\nContent-Length: {len(body)}\r\n\r\n{body}")
    reply = await talk.reply()
    assert reply.code == 200, reply
    (found,) = await entries(site, kind)
    assert found[kind.key] == kind.other
