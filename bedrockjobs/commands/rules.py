"""Commands for notification rules, and for the delivery of their messages.

A rule selects events (see Events) and sends them to one address. The server itself claims messages and
reports their delivery with commands of this module.
"""

import re
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from bedrockjobs.base import json_schemas, jsontext
from bedrockjobs.base.config import GLOB_CHARS_MAX, NAME_CHARS_MAX, QUEUED_LIMIT_MAX, WORKER_CHARS_MAX
from bedrockjobs.base.json_schemas import SchemaType
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

RULES_MAX = 100
"""Maximum number of rules, since all of them are read when one sends a message, and all may wait for their
receivers at the same time."""

KINDS_MAX = 20
"""Maximum number of kinds of events in one rule: most rules name a few."""

OVER_DEFAULT, OLDER_S_DEFAULT = 1_000, 300
"""Default thresholds: the number of ready jobs above which there is a backlog, and the seconds after which a
ready job is late."""

TO_CHARS_MAX = 2_048
"""Maximum length of an address in characters: as long as most programs allow for a URL."""

VARIABLE = r"\$\{BEDROCKJOBS_NOTIFY_[A-Z0-9_]{1,60}\}"
"""Reference to an environment variable of the server that holds a secret; the secret is never stored or
shown."""

COMMAND = r"command:[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Reference to a program in the folder ``notify_commands`` of the server; the pattern excludes paths."""

_ADDRESS = re.compile(rf"https?://[!-~]+|mailto:[^@\s,]+@[^@\s,]+(,[^@\s,]+@[^@\s,]+)*|{COMMAND}|{VARIABLE}")
_QUIET = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)(?: (\S{1,60}))?", re.ASCII)

NO_RULE = Refusal(404, "No such rule", "No rule has this name.")


def _kinds(value: Any) -> list[str]:
    kinds = listed(value, "a comma list of kinds of events")
    if not kinds or not all(isinstance(item, str) and 0 < len(item) <= 100 for item in kinds):
        raise refused("Malformed on", "one or more kinds of events, such as failed, recovered")
    if message := unknown_kind(kinds):
        raise refused("Malformed on", f"kinds of events, such as failed, recovered; {message}")
    return list(dict.fromkeys(kinds))


def _names(value: Any) -> list[str]:
    patterns = listed(value, "a JSON array of name patterns")
    if not patterns or not all(
        isinstance(item, str) and 0 < len(item) <= GLOB_CHARS_MAX for item in patterns
    ):
        raise refused("Malformed names", f"name patterns of 1 to {GLOB_CHARS_MAX} characters")
    return list(dict.fromkeys(map(one_line, patterns)))


def _to(value: Any) -> str:
    """Validate an address; return it unchanged."""
    text = value.strip() if isinstance(value, str) else ""
    if _ADDRESS.fullmatch(text):
        return text
    raise refused(
        "Malformed to", "https://…, mailto:somebody@example.com, command:NAME or ${BEDROCKJOBS_NOTIFY_…}"
    )


def _quiet(value: Any) -> str:
    """Validate quiet hours such as ``22:00-07:00 Europe/Berlin``, which are in UTC without a zone."""
    match = _QUIET.fullmatch(value) if isinstance(value, str) else None
    if value == "":
        return ""
    if match is None:
        raise refused("Malformed quiet", "hours such as 22:00-07:00 Europe/Berlin")
    if match[5]:
        try:
            ZoneInfo(match[5])
        except (KeyError, OSError, ValueError):
            raise refused("Malformed quiet", f"a time zone, got {match[5]}") from None
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
    """A rule, and the state of its deliveries."""

    name: str
    source: str = Field(description="The source it was synced from; empty: created by hand.")
    on: list[str]
    names: list[str]
    tags: list[str] = []
    no_data: bool = False
    to: str
    secret: str
    group_for: int = Field(description="Minimum seconds between two messages; 0: each is sent at once.")
    quiet: str
    by: str
    created: str
    cursor: int = Field(description="Number of the last event that was processed.")
    up_to: int = Field(description="The last event of the message in progress; 0: none.")
    sender: str
    sender_until: str
    tries: int = Field(description="Number of failed attempts to send this message.")
    since: str
    next_try: str
    last_sent: str
    last_error: str
    missed: str = Field(description="Recipients that did not get the last delivered message, and why.")
    sent: int = Field(description="Messages delivered.")
    dropped: int = Field(description="Events not sent because the rule, or their failure, was muted.")
    lost: int = Field(description="Events given up after a day of failed attempts.")
    muted_until: str
    over: int = Field(description="For backlog: more ready jobs than this.")
    older: int = Field(description="For late and no worker: seconds that a ready job may wait.")
    conditions: dict[str, dict[str, str]] = Field(
        description="Current conditions: start and detail by kind and name."
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
    """The contents of a rule."""

    refusals = [
        Refusal(402, "Malformed on", "`on` has an unknown kind of event."),
        Refusal(402, "Malformed names", "`names` are not patterns."),
        Refusal(402, "Malformed to", "`to` is not a valid address."),
        Refusal(402, "Malformed quiet", "`quiet` is not a range of hours, or its time zone is unknown."),
    ]

    name: RuleName = Field(description="Name of the rule.")
    on: Annotated[
        list[str], Field(max_length=KINDS_MAX), BeforeValidator(_kinds), SchemaType(_kinds_shape)
    ] = Field(
        description="Kinds of events: failed, recovered, timeout, lost, worker left, ...; see Events. Or"
        " conditions that last: late, no worker, backlog, disk low."
    )
    # Name patterns of one rule: each event is matched against all of them.
    names: Annotated[
        list[str], Field(max_length=100), BeforeValidator(_names), SchemaType(json_schemas.patterns)
    ] = Field(default=[], description="GLOB patterns of the names that it covers; all if left out.")
    tags: Tags = Field(
        default=None,
        description="Only events of jobs with one of these tags; conditions such as late are not filtered.",
    )
    to: Annotated[str, Field(max_length=TO_CHARS_MAX), BeforeValidator(_to), SchemaType(_to_shape)] = Field(
        description="Where messages go: an http or https URL to which they are posted; mailto: with mail"
        " addresses; command: with a program in the server's `notify_commands`; or"
        " ${BEDROCKJOBS_NOTIFY_...}, a variable of the server with one of these or an Apprise URL."
    )
    secret: Annotated[str, Field(pattern=f"^({VARIABLE})?$")] = Field(
        default="",
        description="${BEDROCKJOBS_NOTIFY_...}: the variable with the key that signs what is posted.",
    )
    no_data: Boolean = Field(
        default=False,
        description="Leave out output; of an error, send only its type, such as `exit status 1`.",
    )
    group_for: Duration = Field(
        default=0, description="Minimum time between two messages: events in between are combined."
    )
    quiet: Annotated[str, Field(max_length=80), BeforeValidator(_quiet), SchemaType(_quiet_shape)] = Field(
        default="",
        description="Hours without messages, such as `22:00-07:00 Europe/Berlin`; they are sent afterwards.",
    )
    over: Whole = Field(
        default=OVER_DEFAULT, ge=0, le=QUEUED_LIMIT_MAX, description="For backlog: more ready jobs than this."
    )
    older: Duration = Field(
        default=OLDER_S_DEFAULT, description="For late and no worker: how long a ready job may wait."
    )


class PutRule(RuleSpec, Command[Empty]):
    """Send a message on matching events from now on; replaces a rule of the same name."""

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

    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


def _rules(value: Any) -> list[dict[str, Any]]:
    return [RuleSpec.parameters_in(text, strict=True) for text in json_list(value, RULES_MAX, empty=True)]


class RulesShape:
    """Adds to the schema that a rule has no other parameters, and that no rule occurs twice."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of a request's value; for replies, pydantic's own."""
        schema = handler(core)
        if handler.mode == "validation":
            spec = handler.resolve_ref_schema(schema["items"])
            schema |= {
                "items": {**spec, "additionalProperties": False, json_schemas.NAMED: "Rule"},
                "uniqueItems": True,
            }
        return schema


class SyncRules(Command[SyncReply]):
    """Make a source's rules equal to these: add, change and remove rules in one commit."""

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
        Refusal(402, "Malformed rules", "A name occurs twice."),
        Refusal(405, "Name is taken", "A rule of this name exists that does not belong to this source."),
    ]

    source: OneLine = Field(
        min_length=1, max_length=NAME_CHARS_MAX, description="Source that owns these rules."
    )
    rules: Annotated[
        list[RuleSpec],
        Field(max_length=RULES_MAX, description="Parameters of PutRule for each rule."),
        BeforeValidator(_rules),
        RulesShape(),
    ]
    take_over: Boolean = Field(
        default=False,
        description="Take over rules of these names that belong to another source or were created by hand.",
    )
    prune: Boolean = Field(default=True, description="Remove rules of the source that are not listed.")
    dry_run: Boolean = Field(default=False, description=DRY_RUN)
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class ListRules(Command[RulesReply]):
    """List the rules by name, with the state of their deliveries."""

    group = "messages"
    where = "reader"
    role = "admin"
    paging = Paging("rules", "name", "after")
    example = Example({}, {"rules": [_RULE]})
    refusals = [BUSY]

    after: OneLine = Field(default="", max_length=NAME_CHARS_MAX, description="Only names after this one.")
    limit: Limit = Field(default=100, description="How many at most.")


class RemoveRule(Command[Empty]):
    """Delete a rule; its unsent messages are dropped."""

    group = "messages"
    role = "admin"
    example = Example({"name": "nightly"})
    refusals = [NO_RULE]

    name: RuleName = Field(description="Name of the rule.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class MuteRule(Command[Empty]):
    """Mute a rule until a given time: its events are counted, but never sent."""

    group = "messages"
    role = "operate"
    repeatable = True
    example = Example({"name": "nightly", "until": "2026-11-22 08:00:00"})
    refusals = [NO_RULE]

    name: RuleName = Field(description="Name of the rule.")
    until: Timestamp | None = Field(default=None, description="When it sends again; now if left out.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


# Commands by which servers coordinate deliveries, and the preview of a message.
#
# A message is claimed with ClaimMessage before it is sent and recorded with ReportDelivery afterwards, so
# that each is delivered at least once.


CONDITIONS_MAX = 100
"""Maximum number of job names for which a rule tracks one kind of condition. For further names the condition
is reported when that of a tracked name has ended."""


def _conditions(value: Any) -> dict[str, dict[str, str]]:
    """Parse conditions: a text for each kind of condition and each job name."""
    try:
        conditions = jsontext.parse(value) if isinstance(value, str) else value
    except ValueError:
        conditions = None
    if not isinstance(conditions, dict) or not conditions.keys() <= CONDITIONS:
        raise refused("Malformed conditions", f"an object by kind: {', '.join(sorted(CONDITIONS))}")
    for names in conditions.values():
        message = names.values() if isinstance(names, dict) else [None]
        if len(message) > CONDITIONS_MAX or not all(isinstance(each, str) for each in message):
            raise refused("Malformed conditions", f"words for at most {CONDITIONS_MAX} names of each kind")
    return conditions


class ClaimMessage(Command[Empty]):
    """Claim the next message of a rule for a minute, before sending it. For servers only."""

    group = "messages"
    role = "admin"
    example = Example({"name": "nightly", "sender": "cron-1", "upTo": 812})
    refusals = [
        NO_RULE,
        Refusal(405, "Message is claimed", "Another server is sending it, or it was sent."),
        Refusal(405, "Rule is muted", "It currently sends nothing."),
    ]

    name: RuleName = Field(description="Name of the rule.")
    sender: OneLine = Field(max_length=NAME_CHARS_MAX, description="The server that claims it.")
    up_to: Whole = Field(description="The last event of the message.")
    alone: Boolean = Field(
        default=False, description="There is no other server: an earlier claimant has ended."
    )


class ReportDelivery(Command[Empty]):
    """Record the result of sending a claimed message. For servers only."""

    group = "messages"
    role = "admin"
    example = Example({"name": "nightly", "sender": "cron-1", "upTo": 812, "events": 1})
    refusals = [
        NO_RULE,
        Refusal(405, "Message is claimed", "Another server has claimed it in the meantime."),
        Refusal(405, "Rule is not muted", "The rule was unmuted in the meantime."),
    ]

    name: RuleName = Field(description="Name of the rule.")
    sender: OneLine = Field(max_length=NAME_CHARS_MAX, description="The server that claimed it.")
    up_to: Whole = Field(description="The last event of the message.")
    events: Whole = Field(description="How many events it contains.")
    error: Printed | None = Field(
        default=None, description="Why it was not sent; left out if it was delivered."
    )
    partly: Boolean = Field(
        default=False, description="It was delivered, except to the recipients named in the error."
    )
    muted: Boolean = Field(
        default=False, description="It was not sent because the rule is muted, or because it has no events."
    )
    silenced: Whole = Field(
        default=0, description="How many other events up to `upTo` were left out: their failures are muted."
    )


class ReportConditions(Command[Empty]):
    """Record the current conditions of a rule; messages are sent about changes. For servers only."""

    group = "messages"
    role = "admin"
    example = Example({"name": "nightly", "conditions": {"late": {"mail/a": "it has waited for 6 min"}}})
    refusals = [
        NO_RULE,
        Refusal(402, "Malformed conditions", "The value is not an object of texts by kind and name."),
    ]

    name: RuleName = Field(description="Name of the rule.")
    conditions: Annotated[
        dict[str, dict[str, str]],
        BeforeValidator(_conditions),
        SchemaType(lambda: {"type": "object", "maxProperties": 0}),
    ] = Field(description="All current conditions, by kind and name, in words.")


class MessageReply(Reply):
    """A message as it is, or would be, sent."""

    to: str
    subject: str
    text: str
    sent: bool = Field(description="Whether it was sent and delivered.")


class TestRule(Command[MessageReply]):
    """Show what a rule would send for the newest matching event, and send it if requested."""

    __test__ = False  # keeps pytest from collecting it as a test class
    group = "messages"
    where = "presence"
    role = "admin"
    example = Example(
        {"name": "nightly"},
        {"to": "mailto:ops@example.com", "subject": "backup/nightly failed", "text": "...", "sent": False},
    )
    refusals = [NO_RULE, Refusal(405, "Message was not sent", "The recipient did not accept it.")]

    name: RuleName = Field(description="Name of the rule.")
    send: Boolean = Field(default=False, description="Send it, marked as a test.")
