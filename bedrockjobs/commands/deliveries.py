"""What the server notes of the messages that it sends, and the look at what one would be.

ClaimMessage and ReportDelivery are how it notes what it does, so that each message is sent at least once.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import NAME_CHARS_MAX
from bedrockjobs.base.event_kinds import CONDITIONS
from bedrockjobs.base.shapes import Shape
from bedrockjobs.base.wire import Boolean, OneLine, Printed, Whole, refused
from bedrockjobs.commands.base import Command, Empty, Example, Refusal, Reply
from bedrockjobs.commands.rules import NO_RULE, RuleName

CONDITIONS_MAX = 100
"""Names of one kind for which a rule notes what is wrong; more are told when these are over."""


def _conditions(value: Any) -> dict[str, dict[str, str]]:
    """Return what is wrong by kind and name."""
    try:
        found = jsontext.parse(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found.keys() <= CONDITIONS:
        raise refused("Malformed conditions", f"an object by kind: {', '.join(sorted(CONDITIONS))}")
    for names in found.values():
        words = names.values() if isinstance(names, dict) else [None]
        if len(words) > CONDITIONS_MAX or not all(isinstance(each, str) for each in words):
            raise refused("Malformed conditions", f"words for at most {CONDITIONS_MAX} names of each kind")
    return found


class ClaimMessage(Command[Empty]):
    """Begin to send the next message of a rule: no other server does so for a minute. Servers ask this."""

    group = "messages"
    role = "admin"
    example = Example({"name": "nightly", "sender": "cron-1", "upTo": 812})
    refusals = [
        NO_RULE,
        Refusal(405, "Message is claimed", "Another server sends it, or it was sent."),
        Refusal(405, "Rule is muted", "It sends nothing for now."),
    ]

    name: RuleName = Field(description="Name of the rule.")
    sender: OneLine = Field(max_length=NAME_CHARS_MAX, description="The server that begins.")
    up_to: Whole = Field(description="The last event of the message.")
    alone: Boolean = Field(
        default=False, description="No other server is there: who claimed it before has ended."
    )


class ReportDelivery(Command[Empty]):
    """Note what became of a message that was claimed. Servers say this."""

    group = "messages"
    role = "admin"
    example = Example({"name": "nightly", "sender": "cron-1", "upTo": 812, "events": 1})
    refusals = [
        NO_RULE,
        Refusal(405, "Message is claimed", "Another server has claimed it meanwhile."),
        Refusal(405, "Rule is not muted", "Somebody ended that since the server looked."),
    ]

    name: RuleName = Field(description="Name of the rule.")
    sender: OneLine = Field(max_length=NAME_CHARS_MAX, description="The server that claimed it.")
    up_to: Whole = Field(description="The last event of the message.")
    events: Whole = Field(description="How many events it tells of.")
    error: Printed | None = Field(default=None, description="Why it was not sent; left out where it arrived.")
    partly: Boolean = Field(default=False, description="It arrived, but for those that the error names.")
    muted: Boolean = Field(default=False, description="It was not sent, as the rule is muted.")


class ReportConditions(Command[Empty]):
    """Note what is wrong for now of what a rule asks for; what began or is over is told. Servers say this."""

    group = "messages"
    role = "admin"
    example = Example({"name": "nightly", "conditions": {"late": {"mail/a": "it has waited for 6 min"}}})
    refusals = [NO_RULE, Refusal(402, "Malformed conditions", "They are no words by kind and name.")]

    name: RuleName = Field(description="Name of the rule.")
    conditions: Annotated[
        dict[str, dict[str, str]],
        BeforeValidator(_conditions),
        Shape(lambda: {"type": "object", "maxProperties": 0}),
    ] = Field(description="All that is wrong, by kind and name, in words.")


class MessageReply(Reply):
    """A message as it is, or would be, sent."""

    to: str
    subject: str
    text: str
    sent: bool = Field(description="Whether it was sent; it arrived then.")


class TestRule(Command[MessageReply]):
    """Show what a rule would send of the newest event that it is about, and send it where asked to."""

    __test__ = False  # for pytest, which takes it for a class of tests
    group = "messages"
    where = "presence"
    role = "admin"
    example = Example(
        {"name": "nightly"},
        {"to": "mailto:ops@example.com", "subject": "backup/nightly failed", "text": "...", "sent": False},
    )
    refusals = [NO_RULE, Refusal(405, "Message was not sent", "The place it goes to did not take it.")]

    name: RuleName = Field(description="Name of the rule.")
    send: Boolean = Field(default=False, description="Send it, marked as a test.")
