"""SyncRules: the rules of a source become those of a file, and no others change."""

from __future__ import annotations

from typing import Any

from bedrockjobs.commands.rules import RULES_MAX
from tests.runs.rig import Site

TO = "mailto:ops@example.com"


def rule(name: str, **more: Any) -> dict[str, Any]:
    """Return what a file says of a rule."""
    return {"name": name, "on": ["failed"], "to": TO, **more}


async def synced(site: Site, *rules: dict[str, Any], source: str = "a.toml", **more: Any) -> dict[str, Any]:
    """Make the rules of a source what they should be; return what changed."""
    found = await site.ok("SyncRules", source=source, rules=list(rules), **more)
    return {key: value for key, value in found.items() if value}


async def known(site: Site) -> dict[str, str]:
    """Return the rules that there are, with their sources."""
    return {each["name"]: each["source"] for each in (await site.ok("ListRules"))["rules"]}


async def test_rules_are_added_changed_and_removed(site: Site) -> None:
    await site.ok("PutRule", **rule("by"))
    first = [rule("r1"), rule("r2", quiet="22:00-07:00 Europe/Berlin")]
    assert await synced(site, *first, dryRun=True) == {"added": ["r1", "r2"]}
    assert await known(site) == {"by": ""}
    assert await synced(site, *first) == {"added": ["r1", "r2"]}
    assert await synced(site, *first) == {"unchanged": ["r1", "r2"]}
    other = rule("r2", on=["failed", "late"], older="10m")
    assert await synced(site, other, rule("r3"), prune=False) == {"added": ["r3"], "changed": ["r2"]}
    assert await synced(site, other) == {"removed": ["r1", "r3"], "unchanged": ["r2"]}
    assert await known(site) == {"by": "", "r2": "a.toml"}
    found = (await site.ok("ListRules"))["rules"][1]
    assert (found["on"], found["older"], found["quiet"]) == (["failed", "late"], 600, "")
    assert await synced(site, source="b.toml") == {}
    assert await synced(site) == {"removed": ["r2"]}


async def test_what_somebody_changed_by_hand_is_changed_back(site: Site) -> None:
    await synced(site, rule("r"))
    await site.ok("PutRule", **rule("r", names=["a"]))
    assert await known(site) == {"r": "a.toml"}
    assert await synced(site, rule("r")) == {"changed": ["r"]}


async def test_a_name_that_is_taken_and_one_that_comes_twice_are_refused_whole(site: Site) -> None:
    await site.ok("PutRule", **rule("r"))
    taken = await site.refused("SyncRules", source="s", rules=[rule("new"), rule("r")])
    assert taken == (405, "Name is taken")
    twice = await site.refused("SyncRules", source="s", rules=[rule("new"), rule("new")])
    assert twice == (402, "Malformed rules")
    wrong = await site.refused("SyncRules", source="s", rules=[rule("new", to="nowhere")])
    assert wrong == (402, "Malformed to")
    unknown = await site.refused("SyncRules", source="s", rules=[rule("new", colour="red")])
    assert unknown == (402, "Unknown attribute colour")
    many = [rule(f"r{number}") for number in range(RULES_MAX)]
    assert await site.refused("SyncRules", source="s", rules=many) == (429, "Too many rules")
    assert await known(site) == {"r": ""}


async def test_a_dry_run_tells_all_problems_at_once(site: Site) -> None:
    await site.ok("PutRule", **rule("r1"))
    await site.ok("PutRule", **rule("r2"))
    found = await synced(site, rule("r1"), rule("new"), rule("new"), rule("r2"), dryRun=True)
    assert [(each["place"], each["name"], each["reason"]) for each in found["problems"]] == [
        (0, "r1", "Name is taken"),
        (2, "new", "Malformed rules"),
        (3, "r2", "Name is taken"),
    ]
    detail = await site.detail("SyncRules", source="s", rules=[rule("new"), rule("r1")])
    assert detail == "rules.1.name: it was added by hand; takeOver moves it to this source"
