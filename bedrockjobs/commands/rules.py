"""The commands about who is told of what happens: rules, and how the delivery of their messages stands.

A rule goes through the events (see Events) and sends those that it is about to one place. The server does it,
see ``bedrockjobs.commands.rules``.
"""

from __future__ import annotations

import re
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from bedrockjobs.base import json_schemas, jsontext
from bedrockjobs.base.config import GLOB_CHARS_MAX, NAME_CHARS_MAX, QUEUED_LIMIT_MAX, WORKER_CHARS_MAX
from bedrockjobs.base.json_schemas import Shape
from bedrockjobs.base.vocabulary import CONDITIONS, EVENT_KINDS, unknown_kind
from bedrockjobs.base.wire import (
    Boolean,
    OneLine,
    Printed,
    Timestamp,
    Whole,
    json_list,
    listed,
    one_line,
    refused,
)
from bedrockjobs.commands.base import BUSY, Command, Empty, Example, Paging, Parameters, Refusal, Reply
from bedrockjobs.commands.options import Duration, Tags
from bedrockjobs.commands.runs import Limit
from bedrockjobs.commands.schedules import DRY_RUN, SyncReply

RULES_PER_SYNC_MAX = 100
"""Rules of one source: as many as there may be at all."""

KINDS_MAX = 20
"""Kinds of events that one rule is about: there are not many more."""

RULE_PATTERNS_MAX = 100
"""Name patterns of one rule: each event is matched with all of them."""

OVER_DEFAULT, OLDER_S_DEFAULT = 1_000, 300
"""Ready jobs that are no backlog yet; seconds that a ready job may wait: a free worker takes it at once."""

TO_CHARS_MAX = 2_048
"""Length of an address: as long as most programs let one be."""

VARIABLE = r"\$\{BEDROCKJOBS_NOTIFY_[A-Z0-9_]{1,60}\}"
"""How a variable of the server is named that holds a secret; its value is never stored or shown."""

COMMAND = r"command:[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""How a rule names a program of the server's folder of them: no path leads out of it."""

_ADDRESS = re.compile(rf"https?://[!-~]+|mailto:[^@\s,]+@[^@\s,]+(,[^@\s,]+@[^@\s,]+)*|{COMMAND}|{VARIABLE}")
_QUIET = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)(?: (\S{1,60}))?", re.ASCII)

NO_RULE = Refusal(404, "No such rule", "No rule has this name.")


def _kinds(value: Any) -> list[str]:
    found = listed(value, "a comma list of kinds of events")
    if not found or not all(isinstance(item, str) and 0 < len(item) <= 100 for item in found):
        raise refused("Malformed on", "one or more kinds of events, such as failed, recovered")
    if words := unknown_kind(found):
        raise refused("Malformed on", f"kinds of events, such as failed, recovered; {words}")
    return list(dict.fromkeys(found))


def _names(value: Any) -> list[str]:
    found = listed(value, "a JSON array of name patterns")
    if not found or not all(isinstance(item, str) and 0 < len(item) <= GLOB_CHARS_MAX for item in found):
        raise refused("Malformed names", f"name patterns of 1 to {GLOB_CHARS_MAX} characters")
    return list(dict.fromkeys(map(one_line, found)))


def _to(value: Any) -> str:
    """Return an address as it was given."""
    text = value.strip() if isinstance(value, str) else ""
    if _ADDRESS.fullmatch(text):
        return text
    raise refused(
        "Malformed to", "https://…, mailto:somebody@example.com, command:NAME or ${BEDROCKJOBS_NOTIFY_…}"
    )


def _quiet(value: Any) -> str:
    """Return quiet hours as they were given, such as ``22:00-07:00 Europe/Berlin``; without a zone in UTC."""
    found = _QUIET.fullmatch(value) if isinstance(value, str) else None
    if value == "":
        return ""
    if found is None:
        raise refused("Malformed quiet", "hours such as 22:00-07:00 Europe/Berlin")
    if found[5]:
        try:
            ZoneInfo(found[5])
        except (KeyError, OSError, ValueError):
            raise refused("Malformed quiet", f"a time zone, got {found[5]}") from None
    return str(value)


def _to_shape() -> dict[str, Any]:
    return json_schemas.text_of(
        rf"https?://[!-~]+|mailto:[a-z]{{1,20}}@[a-z]{{1,20}}|{COMMAND}|{VARIABLE}", maxLength=TO_CHARS_MAX
    )


def _kinds_shape() -> dict[str, Any]:
    kinds = sorted(EVENT_KINDS)
    items = {"type": "string", "enum": kinds}
    several = {"type": "array", "minItems": 1, "maxItems": KINDS_MAX, "items": items}
    one = f"(?:{'|'.join(kinds)})"
    return {"anyOf": [several, json_schemas.text_of(f"{one}(?:,{one}){{0,{KINDS_MAX - 1}}}")]}


def _quiet_shape() -> dict[str, Any]:
    hour = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
    return json_schemas.text_of(f"(?:{hour}-{hour}(?: UTC)?)?")


RuleName = Annotated[str, Field(pattern="^[A-Za-z0-9._@/:-]{1,100}$", max_length=100)]


class RuleReply(Reply):
    """A rule, and how the delivery of its messages stands."""

    name: str
    source: str = Field(description="Whose it is, where it came from a file; empty: made by hand.")
    on: list[str]
    names: list[str]
    tags: list[str] = []
    no_data: bool = False
    to: str
    secret: str
    group_for: int = Field(description="Seconds between two messages; 0: each is sent at once.")
    quiet: str
    by: str
    created: str
    cursor: int = Field(description="All events up to this number are dealt with.")
    up_to: int = Field(description="The last event of the message that is being sent; 0: none is.")
    sender: str
    sender_until: str
    tries: int = Field(description="How often this message was tried without success.")
    since: str
    next_try: str
    last_sent: str
    last_error: str
    missed: str = Field(description="Who has not got the last message that arrived, and why.")
    sent: int = Field(description="Messages that arrived.")
    dropped: int = Field(description="Events that were not told as the rule was muted.")
    lost: int = Field(description="Events that could not be told for a day.")
    muted_until: str
    over: int = Field(description="With backlog: more ready jobs than this.")
    older: int = Field(description="With late and no worker: seconds that a ready job may wait.")
    conditions: dict[str, dict[str, str]] = Field(
        description="What is wrong for now: by kind and name, since when."
    )


class RulesReply(Reply):
    """Rules by name."""

    rules: list[RuleReply]


_RULE = {
    "name": "nightly",
    "source": "",
    "on": ["failed", "recovered"],
    "names": ["backup/*"],
    "tags": [],
    "to": "mailto:ops@example.com",
    "secret": "",
    "groupFor": 300,
    "quiet": "",
    "by": "ada",
    "created": "2026-11-21 03:29:56",
    "cursor": 812,
    "upTo": 0,
    "sender": "",
    "senderUntil": "",
    "tries": 0,
    "since": "",
    "nextTry": "",
    "lastSent": "2026-11-22 03:10:04",
    "lastError": "",
    "missed": "",
    "sent": 3,
    "dropped": 0,
    "lost": 0,
    "mutedUntil": "",
    "over": 1000,
    "older": 300,
    "conditions": {},
}


TOO_MANY = Refusal(429, "Too many rules", "There are 100 rules.")


class RuleSpec(Parameters):
    """What a rule says."""

    refusals = [
        Refusal(402, "Malformed on", "`on` names something that is no kind of event."),
        Refusal(402, "Malformed names", "`names` are no patterns."),
        Refusal(402, "Malformed to", "`to` is no address that messages go to."),
        Refusal(402, "Malformed quiet", "`quiet` are no hours, or their zone is unknown."),
    ]

    name: RuleName = Field(description="Name of the rule.")
    on: Annotated[list[str], Field(max_length=KINDS_MAX), BeforeValidator(_kinds), Shape(_kinds_shape)] = (
        Field(
            description="Kinds of events: failed, recovered, timeout, lost, worker left, ...; see Events. Or"
            " what is wrong for a while: late, no worker, backlog, disk low."
        )
    )
    names: Annotated[
        list[str], Field(max_length=RULE_PATTERNS_MAX), BeforeValidator(_names), Shape(json_schemas.patterns)
    ] = Field(default=[], description="GLOB patterns of the names that it is about; all if left out.")
    tags: Tags = Field(
        default=None,
        description="Only events of jobs that have one of these tags; of what lasts, such as late, all.",
    )
    to: Annotated[str, Field(max_length=TO_CHARS_MAX), BeforeValidator(_to), Shape(_to_shape)] = Field(
        description="Where messages go: an address of http or https that they are posted to, mailto: and"
        " addresses of mail, command: and a program of the server's `notify_commands`, or"
        " ${BEDROCKJOBS_NOTIFY_...}, a variable of the server that holds one of these, or one of Apprise's."
    )
    secret: Annotated[str, Field(pattern=f"^({VARIABLE})?$")] = Field(
        default="",
        description="${BEDROCKJOBS_NOTIFY_...}: the variable with the key that signs what is posted.",
    )
    no_data: Boolean = Field(
        default=False, description="Its messages have no output, and of an error the first line alone."
    )
    group_for: Duration = Field(
        default=0, description="Time between two messages: what happens meanwhile is one message."
    )
    quiet: Annotated[str, Field(max_length=80), BeforeValidator(_quiet), Shape(_quiet_shape)] = Field(
        default="",
        description="Hours in which nothing is sent, such as `22:00-07:00 Europe/Berlin`; all follows then.",
    )
    over: Whole = Field(
        default=OVER_DEFAULT,
        ge=0,
        le=QUEUED_LIMIT_MAX,
        description="With backlog: more ready jobs than this.",
    )
    older: Duration = Field(
        default=OLDER_S_DEFAULT, description="With late and no worker: how long a ready job may wait."
    )


class PutRule(RuleSpec, Command[Empty]):
    """Tell somebody of what happens from now on; a rule of this name is replaced."""

    group = "messages"
    role = "admin"
    repeatable = True
    example = Example(
        {
            "name": "nightly",
            "on": ["failed", "recovered"],
            "names": ["backup/*"],
            "to": "mailto:ops@example.com",
        }
    )
    refusals = [TOO_MANY]

    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


def _rules(value: Any) -> list[dict[str, Any]]:
    return [RuleSpec.given(text, strict=True) for text in json_list(value, RULES_PER_SYNC_MAX, empty=True)]


class RulesShape:
    """Says that a rule of a file has no other parameters, and that no rule comes twice."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of a request's value; as it is answered it is pydantic's own."""
        found = handler(core)
        if handler.mode == "validation":
            spec = handler.resolve_ref_schema(found["items"])
            found |= {
                "items": {**spec, "additionalProperties": False, json_schemas.NAMED: "Rule"},
                "uniqueItems": True,
            }
        return found


class SyncRules(Command[SyncReply]):
    """Make a source's rules what they should be: adds, changes and removes in one commit."""

    group = "messages"
    role = "admin"
    all_or_nothing = True
    example = Example(
        {
            "source": "reports",
            "rules": [{"name": "nightly", "on": ["failed"], "to": "mailto:ops@example.com"}],
        },
        {"added": ["nightly"], "changed": [], "removed": [], "unchanged": []},
    )
    refusals = [
        *RuleSpec.refusals,
        TOO_MANY,
        Refusal(402, "Malformed rules", "A name comes twice."),
        Refusal(405, "Name is taken", "A rule of this name is there that is not of this source."),
    ]

    source: OneLine = Field(min_length=1, max_length=NAME_CHARS_MAX, description="Whose rules these are.")
    rules: Annotated[
        list[RuleSpec],
        Field(max_length=RULES_PER_SYNC_MAX, description="Parameters of PutRule for each rule."),
        BeforeValidator(_rules),
        RulesShape(),
    ]
    take_over: Boolean = Field(
        default=False,
        description="Make rules of these names that another source has, or that were added by hand, this"
        " source's.",
    )
    prune: Boolean = Field(default=True, description="Remove the source's rules that are not among these.")
    dry_run: Boolean = Field(default=False, description=DRY_RUN)
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class ListRules(Command[RulesReply]):
    """List the rules, and how the delivery of their messages stands."""

    group = "messages"
    where = "reader"
    role = "admin"
    paging = Paging("rules", "name", "after")
    example = Example({}, {"rules": [_RULE]})
    refusals = [BUSY]

    after: OneLine = Field(default="", max_length=NAME_CHARS_MAX, description="Only names behind this one.")
    limit: Limit = Field(default=100, description="How many at the most.")


class RemoveRule(Command[Empty]):
    """Forget a rule: what it has not sent is not sent."""

    group = "messages"
    role = "admin"
    example = Example({"name": "nightly"})
    refusals = [NO_RULE]

    name: RuleName = Field(description="Name of the rule.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class MuteRule(Command[Empty]):
    """Let a rule send nothing until a moment: what happens until then is counted, and never told."""

    group = "messages"
    role = "operate"
    repeatable = True
    example = Example({"name": "nightly", "until": "2026-11-22 08:00:00"})
    refusals = [NO_RULE]

    name: RuleName = Field(description="Name of the rule.")
    until: Timestamp | None = Field(default=None, description="When it sends again; left out: at once.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


# What the server notes of the messages that it sends, and the look at what one would be.
#
# ClaimMessage and ReportDelivery are how it notes what it does, so that each message is sent at least once.


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
