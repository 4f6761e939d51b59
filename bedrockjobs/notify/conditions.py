"""What is wrong for as long as it lasts, as a rule asks for it: late, no worker, backlog, disk low.

Pure: it is made of a look at the queue. A condition that begins is an event of its kind, one that is over an
event ``<kind> over``; both are noted for one rule, whose limits they are about (``by`` names it).
"""

from __future__ import annotations

from collections.abc import Iterable

from bedrockjobs.base.duration import duration_text
from bedrockjobs.base.event_kinds import CONDITIONS
from bedrockjobs.base.glob import glob
from bedrockjobs.commands import RuleReply
from bedrockjobs.commands.deliveries import CONDITIONS_MAX
from bedrockjobs.job.readiness import need_of
from bedrockjobs.views.problems import age_s
from bedrockjobs.views.queues import Group, Look
from bedrockjobs.views.room import little_room

Found = dict[str, dict[str, str]]
"""What is wrong: by kind and name, in a person's words."""


def asks_for_conditions(rule: RuleReply) -> bool:
    """Tell whether a rule is about anything that lasts."""
    return not CONDITIONS.isdisjoint(rule.on)


def conditions(rule: RuleReply, look: Look, free_bytes: int | None) -> Found:
    """Return what is wrong now of what a rule is about; ``free_bytes`` None: the disk is somebody else's."""
    groups = [group for group in look.groups if group.due and _is_about(rule, group.name)]
    ready = [group for group in groups if look.held.standing(group, due=True) == "ready"]
    found: Found = {}
    if "late" in rule.on:
        found["late"] = _waiting(rule, look, [group for group in ready if _takers(look, group)])
    if "no worker" in rule.on:
        found["no worker"] = _waiting(rule, look, [group for group in ready if not _takers(look, group)])
    if "backlog" in rule.on:
        count = sum(group.due for group in ready)
        more = "at least " if any(group.more_due for group in ready) or look.more else ""
        words = f"{more}{count:,} jobs are ready, the limit is {rule.over:,}"
        found["backlog"] = {_all_of(rule): words} if count > rule.over else {}
    if "disk low" in rule.on and free_bytes is not None:
        words = little_room(free_bytes)
        found["disk low"] = {"": words} if words else {}
    return {kind: names for kind, names in found.items() if names}


def _is_about(rule: RuleReply, name: str) -> bool:
    return not rule.names or any(glob(name, pattern) for pattern in rule.names)


def _all_of(rule: RuleReply) -> str:
    return rule.names[0] if len(rule.names) == 1 else ""


def _takers(look: Look, group: Group) -> bool:
    return look.held.takers.any_of(group.name, need_of(group.lane))


def _waiting(rule: RuleReply, look: Look, groups: Iterable[Group]) -> dict[str, str]:
    """Return the names whose oldest ready job has waited for too long, those first that wait longest."""
    oldest: dict[str, Group] = {}
    for group in groups:
        if group.oldest and age_s(group.oldest, look.held.now) > rule.older:
            known = oldest.get(group.name)
            if known is None or group.oldest < known.oldest:
                oldest[group.name] = group
    found = {}
    for group in sorted(oldest.values(), key=lambda one: one.oldest)[:CONDITIONS_MAX]:
        words = f"its oldest ready job has waited for {duration_text(age_s(group.oldest, look.held.now))}"
        if not _takers(look, group):
            words = f"{words}: {look.held.takers.why_nobody(group.name, need_of(group.lane))}"
        found[group.name] = words
    return found
