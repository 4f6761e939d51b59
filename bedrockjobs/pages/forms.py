"""Forms that create, copy and edit jobs and schedules.

The server validates a form while it is filled in (``/ui/check``). The form is sent as an ordinary command and
stays open until that succeeds, so that no input is lost.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from aiohttp import web
from pydantic import ValidationError

from bedrockjobs.base import clock, jsontext
from bedrockjobs.base.clock import moment_of, timestamp_ms
from bedrockjobs.base.config import (
    DURATION_S_MAX,
    NAME_CHARS_MAX,
    NOTE_CHARS_MAX,
    PRIORITIES,
    PRIORITY_DEFAULT,
)
from bedrockjobs.base.errors import BadRequest, CommandError, Forbidden, TimedOut
from bedrockjobs.base.settings import Compatibility
from bedrockjobs.base.wire import command_errors
from bedrockjobs.commands import CreateJob, QueryJob, UpdateJob
from bedrockjobs.commands.options import OPTIONS
from bedrockjobs.engine.render import entity_tag
from bedrockjobs.pages.formatting import JSON_SHOWN_CHARS, Spelled, quoted
from bedrockjobs.pages.site import Pages, Site, json_answer
from bedrockjobs.protocol.http_answers import problem
from bedrockjobs.schedule import cron, repeat
from bedrockjobs.schedule.cron.plan import find_zone
from bedrockjobs.views.schedules import validated

# Conversion of form fields into command parameters, with all errors. The current time is an argument.


COMMANDS: dict[str, type[CreateJob] | type[UpdateJob]] = {"CreateJob": CreateJob, "UpdateJob": UpdateJob}
"""The commands that have a form."""

PLAIN = (
    "name",
    "data",
    "jobPriority",
    "retryAfter",
    "nextRun",
    "cmd",
    "retries",
    "runTimeout",
    "tags",
    "note",
)
"""Fields that are sent as typed."""

_ANY_JOB: dict[str, dict[str, Any]] = {"CreateJob": {}, "UpdateJob": {"jobID": 1}}
"""The parameters that a command requires and no form has, each with a valid value for the check."""

_NOTHING = object()

OPTION_FIELDS = ("cmd", "retries", "runTimeout", "tags", "note")
"""Options of a job with a field of their own; all other options are in the field ``other``, a JSON object."""

_REPEAT_FIELD = {True: "expression", False: "repeat"}
"""The input field for the repeat, by whether the form is for a schedule (True) or for a job (False)."""


class Checked(NamedTuple):
    """The result of checking a form."""

    errors: dict[str, str]
    """Error messages by field."""
    parameters: dict[str, Any]
    """Parameters of the command."""
    preview: dict[str, Any] | None
    """The reply to ValidateSchedule, with the wall-clock time of each tick."""


class SubmittedForm(NamedTuple):
    """A form as a browser sends it."""

    command: str
    is_schedule: bool
    fields: Mapping[str, str]
    changed: frozenset[str]
    """The fields that were changed since the form was opened; only their values are sent."""


def checked(typed: SubmittedForm, now: datetime, compatibility: Compatibility) -> Checked:
    """Return the parameters that a form would send, and all of its errors."""
    errors: dict[str, str] = {}
    parameters: dict[str, Any] = {
        name: typed.fields.get(name, "") for name in PLAIN if _is_given(typed, name)
    }
    text = _repeat_of(typed)
    if typed.changed & {"repeat", "expression", "zone"}:
        parameters |= _with_repeat(typed, text)
    preview = previewed(text, now, compatibility) if text else None
    if preview is not None and not preview["valid"]:
        errors[_REPEAT_FIELD[typed.is_schedule]] = preview["errors"][0]
    elif typed.is_schedule and preview is None:
        errors["expression"] = "expression is required"
    for field, read in (("delay", _first_run), ("other", _other)):
        try:
            parameters |= read(typed, now)
        except ValueError as error:
            errors[field] = f"{field}: {error}"
    for name, message in _refused(typed.command, parameters):
        errors.setdefault(field_of(name, typed.is_schedule), message)
    return Checked(errors, parameters, preview)


def field_of(name: str, is_schedule: bool) -> str:
    """Return the field in which a parameter is entered."""
    if name == "repeat":
        return _REPEAT_FIELD[is_schedule]
    return name if name in (*PLAIN, "firstRun") else "other"


def previewed(text: str, now: datetime, compatibility: Compatibility) -> dict[str, Any]:
    """Return the reply to ValidateSchedule, plus the time zone, and each tick in UTC and in that zone."""
    if not repeat.is_cron(text):
        try:
            repeat.parse_repeat(text, compatibility)
        except ValueError as error:
            return {"valid": False, "errors": [repeat.complaint(error)]}
    preview: dict[str, Any] = json.loads(validated(text, now, compatibility))
    name = cron.split_zone(text)[0] if preview["valid"] and repeat.is_cron(text) else "UTC"
    zone = find_zone(name)
    ticks = [
        {
            "at": f"{tick.replace(' ', 'T')}Z",
            "there": f"{moment_of(tick).astimezone(zone):%a %Y-%m-%d %H:%M:%S %z}",
        }
        for tick in preview.pop("next")
    ]
    return {**preview, "zone": name, "next": ticks}


def filled(members: Mapping[str, str]) -> dict[str, str]:
    """Return the field values for a job, given its members as JSON texts."""
    job = {key: json.loads(text) for key, text in members.items() if key != "data"}
    other = {
        key: json.loads(members[key]) for key in sorted(OPTIONS & members.keys()) if key not in OPTION_FIELDS
    }
    zone, expression = _split(job.get("repeat", ""))
    return {
        "name": job["name"],
        "data": laid_out(members.get("data", "{}")),
        "jobPriority": str(job.get("priority", PRIORITY_DEFAULT)),
        "retryAfter": job.get("retryAfter", ""),
        "repeat": job.get("repeat", ""),
        "nextRun": job.get("nextRun", ""),
        "zone": zone,
        "expression": expression,
        "cmd": job.get("cmd", ""),
        "retries": str(job.get("retries", "")),
        "runTimeout": clock.duration_text(job["runTimeout"]) if "runTimeout" in job else "",
        "tags": ", ".join(job.get("tags", [])),
        "note": job.get("note", ""),
        "other": json.dumps(other, indent=2, ensure_ascii=False) if other else "",
    }


def _split(text: str) -> tuple[str, str]:
    """Return the time zone and the expression of a schedule; an unknown zone stays part of the expression."""
    try:
        return cron.split_zone(text) if repeat.is_cron(text) else ("UTC", "")
    except ValueError:
        return "", text.strip()[len("CRON ") :]


def _is_given(typed: SubmittedForm, name: str) -> bool:
    """Return whether a field is sent: if changed, for a new job unless empty; the new job's name always."""
    if typed.command == "CreateJob" and name == "name":
        return True
    return name in typed.changed and (bool(typed.fields.get(name)) or typed.command == "UpdateJob")


def _repeat_of(typed: SubmittedForm) -> str:
    """Return the typed repeat, or an empty text."""
    if not typed.is_schedule:
        return typed.fields.get("repeat", "").strip()
    zone, expression = (typed.fields.get(name, "").strip() for name in ("zone", "expression"))
    if not expression:
        return ""
    return f"CRON TZ={zone} {expression}" if zone and zone != "UTC" else f"CRON {expression}"


def _with_repeat(typed: SubmittedForm, text: str) -> dict[str, Any]:
    if text:
        return {"repeat": text}
    return {"shouldClearRepeat": True} if typed.command == "UpdateJob" else {}


def _first_run(typed: SubmittedForm, now: datetime) -> dict[str, Any]:
    """Return the first run of a new job, as a timestamp or a delay; raises ValueError."""
    when = typed.fields.get("when", "now")
    if when == "moment" and typed.fields.get("firstRun"):
        return {"firstRun": typed.fields["firstRun"]}
    if when != "delay":
        return {}
    seconds = clock.seconds_of(typed.fields.get("delay", "").strip() or "none")
    if seconds is None or seconds > DURATION_S_MAX:
        raise ValueError(f"expected {clock.WORDS}")
    return {"firstRun": timestamp_ms(now + timedelta(seconds=seconds))}


def _other(typed: SubmittedForm, _: datetime) -> dict[str, Any]:
    """Return the changed options of the field ``other``, removed ones as empty texts; raises ValueError."""
    if "other" not in typed.changed:
        return {}
    options, before = (_object(typed.fields.get(name, "")) for name in ("other", "otherBefore"))
    twice = [name for name in options if name in (*PLAIN, "repeat", "firstRun", "jobID")]
    if twice:
        raise ValueError(f"{twice[0]} has a field of its own")
    gone = {name: "" for name in before if name not in options}
    return gone | {name: value for name, value in options.items() if before.get(name, _NOTHING) != value}


def _object(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        parsed = json.loads(text, parse_int=jsontext.whole_number)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected a JSON object: {error}") from None
    if not isinstance(parsed, dict):
        raise ValueError("expected a JSON object")  # noqa: TRY004  callers catch ValueError
    return parsed


def _refused(command: str, parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Validate parameters with the class of the command; return name and message of each error."""
    try:
        COMMANDS[command].model_validate({**_ANY_JOB[command], **parameters})
    except ValidationError as error:
        return [(name, refusal.detail or refusal.reason) for name, refusal in command_errors(error)]
    return []


def laid_out(text: str) -> str:
    """Pretty-print a JSON object, keeping the spelling of numbers.

    Returns the text unchanged if it is too long, is invalid or has duplicate keys.
    """
    if len(text) > JSON_SHOWN_CHARS:
        return text
    try:
        values = json.loads(
            text, parse_float=Spelled, parse_int=Spelled, parse_constant=Spelled, object_pairs_hook=_once
        )
    except (ValueError, RecursionError):
        return text
    return "\n".join(_lines(values, ""))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name occurs twice")
    return members


def _lines(value: Any, indent: str) -> Iterator[str]:
    """Yield the lines of a value; the first has no indent."""
    if not isinstance(value, (dict, list)) or not value:
        yield quoted(value)
        return
    begin, end = "{}" if isinstance(value, dict) else "[]"
    parts = (
        [(f"{quoted(key)}: ", below) for key, below in value.items()]
        if isinstance(value, dict)
        else [("", below) for below in value]
    )
    yield begin
    for number, (key, below) in enumerate(parts, 1):
        lines = list(_lines(below, f"{indent}  "))
        lines[0] = f"{indent}  {key}{lines[0]}"
        lines[-1] += "," if number < len(parts) else ""
        yield from lines
    yield f"{indent}{end}"


CHECK_BYTES_MAX = 524_288
"""Maximum bytes of a form for ``/ui/check``; a larger form is only validated when its command is sent."""

DATA_CHECKED_CHARS = 100_000
"""Maximum characters of a job's data that a form sends to ``/ui/check``; longer data are left out."""


async def new_job(site: Site, request: web.Request) -> web.StreamResponse:
    """Show the form for a new job, filled with the values of another job if the URL names one."""
    return await _new(site, request, is_schedule=False)


async def new_schedule(site: Site, request: web.Request) -> web.StreamResponse:
    """Show the form for a new schedule, filled with the values of another one if the URL names it."""
    return await _new(site, request, is_schedule=True)


async def edit_job(site: Site, request: web.Request) -> web.StreamResponse:
    """Show the form that changes a job."""
    return await _edit(site, request, is_schedule=False)


async def edit_schedule(site: Site, request: web.Request) -> web.StreamResponse:
    """Show the form that changes a schedule."""
    return await _edit(site, request, is_schedule=True)


async def _new(site: Site, request: web.Request, *, is_schedule: bool) -> web.StreamResponse:
    _check_may(site, "CreateJob", is_schedule=is_schedule)
    like = request.query.get("like")
    values: dict[str, str] = {}
    if like:
        values = filled(await _members(site, like))
    what = "schedule" if is_schedule else "job"
    return await _show(
        site,
        request,
        title=f"New {what}" + (f" like {like}" if like else ""),
        command="CreateJob",
        is_schedule=is_schedule,
        values=values,
        copied=bool(like),
        back=f"ui/{what}s" + (f"/{like}" if like else ""),
    )


async def _edit(site: Site, request: web.Request, *, is_schedule: bool) -> web.StreamResponse:
    _check_may(site, "UpdateJob", is_schedule=is_schedule)
    job_id = request.match_info["jobID"]
    text = await site.ask_text(QueryJob.read({"jobID": job_id}))
    values = filled(jsontext.members(text))
    return await _show(
        site,
        request,
        title=f"Edit {values['name']}",
        command="UpdateJob",
        is_schedule=is_schedule,
        values=values,
        back=f"ui/{'schedule' if is_schedule else 'job'}s/{job_id}",
        job_id=int(job_id),
        tag="" if is_schedule else entity_tag(text),
        source=json.loads(jsontext.members(text).get("source", '""')),
        state=json.loads(jsontext.members(text)["state"]),
    )


async def _show(site: Site, request: web.Request, **context: Any) -> web.StreamResponse:
    """Show a form; values that only a form for editing has are empty in the other forms."""
    values = {"jobPriority": str(PRIORITY_DEFAULT), **context.pop("values")}
    more = any(values.get(name) for name in (*OPTION_FIELDS, "other"))
    context = {"copied": False, "job_id": 0, "tag": "", "source": "", "state": "", **context}
    return await site.show(
        request,
        "form.html",
        values=values,
        more=more,
        priorities=PRIORITIES,
        name_chars=NAME_CHARS_MAX,
        note_chars=NOTE_CHARS_MAX,
        data_checked=DATA_CHECKED_CHARS,
        **context,
    )


async def _members(site: Site, job_id: str) -> dict[str, str]:
    return jsontext.members(await site.ask_text(QueryJob.read({"jobID": job_id})))


def _check_may(site: Site, command: str, *, is_schedule: bool) -> None:
    """Raise Forbidden if the caller may not send the form's command."""
    role, grant = "operate" if is_schedule else COMMANDS[command].role, site.caller.grant
    if role not in grant.roles:
        what = "a schedule" if is_schedule else command
        raise Forbidden(detail=f"{what} needs the role {role}; {grant.name} has {grant.role}")


PAGES: Pages = (
    ("/ui/jobs/new", new_job),
    ("/ui/jobs/{jobID:[0-9]{1,18}}/edit", edit_job),
    ("/ui/schedules/new", new_schedule),
    ("/ui/schedules/{jobID:[0-9]{1,18}}/edit", edit_schedule),
)


def routes(site: Site) -> list[web.RouteDef]:
    """Return the route that validates a form."""

    async def check(request: web.Request) -> web.Response:
        try:
            typed = await _typed(site, request)
        except CommandError as error:
            return problem(error)
        result = checked(typed, site.now(), site.settings.compatibility)
        return json_answer(result._asdict())

    return [web.post("/ui/check", check)]


async def _typed(site: Site, request: web.Request) -> SubmittedForm:
    """Read a form from a request; raises BadRequest and TimedOut."""
    if request.content_length is None or request.content_length > CHECK_BYTES_MAX:
        raise BadRequest("Malformed body", f"body: expected at most {CHECK_BYTES_MAX} bytes")
    try:
        async with asyncio.timeout(site.settings.body_s):
            sent = json.loads(await request.read())
        fields = {str(name): str(value) for name, value in sent["fields"].items()}
        typed = SubmittedForm(
            str(sent["command"]), sent["schedule"] is True, fields, frozenset(map(str, sent["changed"]))
        )
    except TimeoutError:
        raise TimedOut(detail=f"the body took longer than {site.settings.body_s:g} s") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BadRequest("Malformed body", "body: expected what the form of the page sends") from None
    if typed.command not in COMMANDS:
        raise BadRequest("Malformed body", f"command: expected one of {', '.join(COMMANDS)}")
    return typed
