"""The state of a rule's message deliveries, stored in the column ``state`` as a JSON object.

A rule processes the events in order; its ``cursor`` is the number of the last processed event. A message is
claimed before it is sent, so that another server that takes over sends the same events again.
"""

from __future__ import annotations

from typing import NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import after_seconds
from bedrockjobs.job.rows import RuleRow

CLAIM_S = 60
"""Seconds that a server has to send a message it claimed: twice the longest attempt. After that, another
server may claim the message."""

FIRST_PAUSE_S = 10
"""Seconds between the first failed attempt and the next; doubled after each further failure."""

LONGEST_PAUSE_S = 900
"""Maximum retry delay in seconds, so that a recovered endpoint is notified within an hour."""

GIVE_UP_S = 86_400
"""Seconds for which a message is retried. After that the message is lost, which is counted and recorded as an
event, and the next message is sent."""

ERROR_CHARS_KEPT = 500
"""Maximum characters stored of an attempt's error; the beginning of the error has the cause."""


class Delivery(NamedTuple):
    """Progress of a rule's messages. Timestamps are as in the tables; an empty one means never."""

    up_to: int = 0
    """The last event of the message in progress. If this is 0 or at most the cursor, no message is in
    progress."""
    sender: str = ""
    """The server that sends the message."""
    sender_until: str = ""
    """When another server may take over the message."""
    tries: int = 0
    """Number of failed attempts to send the message."""
    since: str = ""
    """When the message was first attempted."""
    next_try: str = ""
    last_sent: str = ""
    last_error: str = ""
    missed: str = ""
    """Recipients that did not get the last delivered message, and why."""
    sent: int = 0
    """Number of messages delivered."""
    dropped: int = 0
    """Number of events not sent because the rule, or their failure, was muted."""
    lost: int = 0
    """Number of events given up because their message was retried for the maximum time."""
    muted_until: str = ""
    conditions: dict[str, dict[str, str]] = {}
    """Current conditions that the rule watches: start and detail by kind and name."""

    def claimed(self, sender: str, up_to: int, now: str) -> Delivery:
        """Return the state after a server claimed the message."""
        until = after_seconds(now, CLAIM_S)
        return self._replace(up_to=up_to, sender=sender, sender_until=until, since=self.since or now)

    def claimed_by_another(self, sender: str, now: str) -> bool:
        """Return whether a server other than ``sender`` still has time to send the message it claimed."""
        return self.sender not in ("", sender) and self.sender_until > now

    def arrived(self, now: str, missed: str = "") -> Delivery:
        """Return the state after a delivery; ``missed`` names recipients that it did not reach, and why."""
        missed = missed[:ERROR_CHARS_KEPT]
        return self._ended()._replace(last_sent=now, last_error="", missed=missed, sent=self.sent + 1)

    def failed(self, error: str, now: str) -> Delivery:
        """Return the state after a failed attempt, with the time of the next attempt."""
        pause = min(FIRST_PAUSE_S * 2.0 ** min(self.tries, 20), LONGEST_PAUSE_S)
        return self._replace(
            tries=self.tries + 1,
            next_try=after_seconds(now, pause),
            last_error=error[:ERROR_CHARS_KEPT],
            sender="",
            sender_until="",
        )

    def given_up(self, events: int) -> Delivery:
        """Return the state after a message was given up."""
        return self._ended()._replace(lost=self.lost + events)

    def skipped_when_muted(self, events: int) -> Delivery:
        """Return the state after events were skipped because the rule was muted."""
        return self._ended()._replace(dropped=self.dropped + events)

    def renewed(self) -> Delivery:
        """Return the state for a changed rule: no message in progress, no conditions."""
        return self._ended()._replace(last_error="", missed="", conditions={})

    def _ended(self) -> Delivery:
        return self._replace(up_to=0, sender="", sender_until="", tries=0, since="", next_try="")

    def is_too_old(self, now: str) -> bool:
        """Return whether the message in progress has been retried for the maximum time."""
        return bool(self.since) and after_seconds(self.since, GIVE_UP_S) <= now


def author_for(rule: str) -> str:
    """Return the author (``by``) of events about conditions that a rule watches."""
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
    """Parse a rule's delivery state; ignore values of the wrong type."""
    try:
        parts = jsontext.members(row.state)
        fields = {field: jsontext.parse(parts[key]) for field, key in _RULE_KEYS.items() if key in parts}
    except ValueError:
        return NEW
    return NEW._replace(**{field: value for field, value in fields.items() if _fits(field, value)})


def _fits(field: str, value: object) -> bool:
    if field == "conditions":
        return isinstance(value, dict) and all(isinstance(names, dict) for names in value.values())
    return type(value) is type(getattr(NEW, field))


def source_of(row: RuleRow) -> str:
    """Return the source of a rule; empty if it was created by hand."""
    try:
        return str(jsontext.parse(jsontext.members(row.rule).get("source", '""')))
    except ValueError:
        return ""


def with_delivery(row: RuleRow, delivery: Delivery, cursor: int | None = None) -> RuleRow:
    """Return a rule with another delivery state."""
    changed = {
        _RULE_KEYS[field]: value
        for field, value in delivery._asdict().items()
        if value != getattr(NEW, field)
    }
    return row._replace(state=jsontext.dump(changed), cursor=row.cursor if cursor is None else cursor)
