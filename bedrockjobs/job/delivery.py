"""How the delivery of a rule's messages stands, in the column ``state``: one JSON object, typed here.

A rule goes through the events in order; those up to its ``cursor`` are dealt with. A message is claimed
before it is sent, so that a server that takes over sends the same events again, and says so. No SQL.
"""

from __future__ import annotations

from typing import NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.wire import after_seconds
from bedrockjobs.job.rows import RuleRow

CLAIM_S = 60
"""Time that a server has for sending what it claimed, twice what a try takes; then another may."""

FIRST_PAUSE_S = 10
"""Time after a try that failed; doubled each time."""

LONGEST_PAUSE_S = 900
"""The longest of these times: who comes back within an hour is told soon."""

GIVE_UP_S = 86_400
"""Time for which a message is tried. Then it is lost, which is counted and an event; the next one is sent."""

ERROR_CHARS_KEPT = 500
"""Length of the error of a try that is kept: the beginning says what is wrong."""


class Delivery(NamedTuple):
    """How far a rule's messages have come; timestamps are as in the tables, empty: never."""

    up_to: int = 0
    """The last event of the message that is being sent; 0, or before the cursor: none is."""
    sender: str = ""
    """The server that sends it."""
    sender_until: str = ""
    """When another server may take it over."""
    tries: int = 0
    """How often it was tried without success."""
    since: str = ""
    """When it was tried first."""
    next_try: str = ""
    last_sent: str = ""
    last_error: str = ""
    missed: str = ""
    """Who has not got the last message that arrived, and why."""
    sent: int = 0
    """Messages that arrived."""
    dropped: int = 0
    """Events that were not told as the rule was muted."""
    lost: int = 0
    """Events that could not be told within the time for it."""
    muted_until: str = ""
    conditions: dict[str, dict[str, str]] = {}
    """What is wrong for now of what it asks for: by kind and name, since when."""

    def claimed(self, sender: str, up_to: int, now: str) -> Delivery:
        """Return it where a server begins to send."""
        until = after_seconds(now, CLAIM_S)
        return self._replace(up_to=up_to, sender=sender, sender_until=until, since=self.since or now)

    def arrived(self, now: str, missed: str = "") -> Delivery:
        """Return it where a message was sent; ``missed`` says who has not got it, and why."""
        missed = missed[:ERROR_CHARS_KEPT]
        return self._over()._replace(last_sent=now, last_error="", missed=missed, sent=self.sent + 1)

    def failed(self, error: str, now: str) -> Delivery:
        """Return it where a try failed; it is tried again after a pause."""
        pause = min(FIRST_PAUSE_S * 2.0 ** min(self.tries, 20), LONGEST_PAUSE_S)
        return self._replace(
            tries=self.tries + 1,
            next_try=after_seconds(now, pause),
            last_error=error[:ERROR_CHARS_KEPT],
            sender="",
            sender_until="",
        )

    def given_up(self, events: int) -> Delivery:
        """Return it where a message was tried for too long."""
        return self._over()._replace(lost=self.lost + events)

    def passed_over(self, events: int) -> Delivery:
        """Return it where events were not told, as the rule was muted."""
        return self._over()._replace(dropped=self.dropped + events)

    def renewed(self) -> Delivery:
        """Return it where the rule is about something else: nothing of it is being sent, or is wrong."""
        return self._over()._replace(last_error="", missed="", conditions={})

    def _over(self) -> Delivery:
        return self._replace(up_to=0, sender="", sender_until="", tries=0, since="", next_try="")

    def is_too_old(self, now: str) -> bool:
        """Tell whether its message was tried for long enough."""
        return bool(self.since) and after_seconds(self.since, GIVE_UP_S) <= now


def noted_for(rule: str) -> str:
    """Return the ``by`` of events that are about a rule's own limits."""
    return f"rule {rule}"


_RULE_KEYS = {
    "up_to": "upTo",
    "sender": "sender",
    "sender_until": "senderUntil",
    "tries": "tries",
    "since": "since",
    "next_try": "nextTry",
    "last_sent": "lastSent",
    "last_error": "lastError",
    "missed": "missed",
    "sent": "sent",
    "dropped": "dropped",
    "lost": "lost",
    "muted_until": "mutedUntil",
    "conditions": "conditions",
}
NEW = Delivery()


def delivery_of(row: RuleRow) -> Delivery:
    """Read how a rule's delivery stands; what nobody here wrote counts as not there."""
    try:
        parts = jsontext.members(row.state)
        found = {field: jsontext.parse(parts[key]) for field, key in _RULE_KEYS.items() if key in parts}
    except ValueError:
        return NEW
    return NEW._replace(**{field: value for field, value in found.items() if _fits(field, value)})


def _fits(field: str, value: object) -> bool:
    if field == "conditions":
        return isinstance(value, dict) and all(isinstance(names, dict) for names in value.values())
    return type(value) is type(getattr(NEW, field))


def source_of(row: RuleRow) -> str:
    """Return whose rule it is, where it came from a file; empty: it was made by hand."""
    try:
        return str(jsontext.parse(jsontext.members(row.rule).get("source", '""')))
    except ValueError:
        return ""


def with_delivery(row: RuleRow, delivery: Delivery, cursor: int | None = None) -> RuleRow:
    """Return a rule whose delivery stands otherwise."""
    changed = {
        _RULE_KEYS[field]: value
        for field, value in delivery._asdict().items()
        if value != getattr(NEW, field)
    }
    return row._replace(state=jsontext.dump(changed), cursor=row.cursor if cursor is None else cursor)
