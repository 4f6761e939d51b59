"""Forms that create, copy and edit jobs and schedules.

The server validates a form while it is being filled in (``/ui/check``). It is sent as an ordinary command,
and stays open until that succeeds, so that no input is lost.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import NAME_CHARS_MAX, NOTE_CHARS_MAX, PRIORITIES, PRIORITY_DEFAULT
from bedrockjobs.base.errors import BadRequest, CommandError, Forbidden, TimedOut
from bedrockjobs.commands import QueryJob
from bedrockjobs.engine.render import entity_tag
from bedrockjobs.pages.filling import COMMANDS, OPTION_FIELDS, Typed, checked, filled
from bedrockjobs.pages.site import HEADERS, Pages, Site
from bedrockjobs.protocol.http_answers import problem

CHECK_BYTES_MAX = 524_288
"""Maximum size of a form for ``/ui/check``; longer data are only validated when they are sent."""

SCHEDULES_ROLE = "operate"
"""The role that creates and changes schedules."""

DATA_CHECKED_CHARS = 100_000
"""Maximum length of data that the form sends to ``/ui/check``."""


async def new_job(site: Site, request: web.Request) -> web.StreamResponse:
    """Show the form for a new job, prefilled from another one if the URL says so."""
    return await _new(site, request, is_schedule=False)


async def new_schedule(site: Site, request: web.Request) -> web.StreamResponse:
    """Show the form for a new schedule, prefilled from another one if the URL says so."""
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


async def _show(site: Site, request: web.Request, **given: Any) -> web.StreamResponse:
    """Show a form; values that only edits have are empty in others."""
    values = {"jobPriority": str(PRIORITY_DEFAULT), **given.pop("values")}
    more = any(values.get(name) for name in (*OPTION_FIELDS, "other"))
    context = {"copied": False, "job_id": 0, "tag": "", "source": "", "state": "", **given}
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
    role, grant = SCHEDULES_ROLE if is_schedule else COMMANDS[command].role, site.caller.grant
    if role not in grant.roles:
        what = "a schedule" if is_schedule else command
        raise Forbidden(detail=f"{what} needs the role {role}; {grant.name} is for {grant.role}")


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
        found = checked(typed, site.now(), site.settings.compatibility)
        headers = {**HEADERS, "Cache-Control": "no-store"}
        return web.Response(
            text=json.dumps(found._asdict()), content_type="application/json", headers=headers
        )

    return [web.post("/ui/check", check)]


async def _typed(site: Site, request: web.Request) -> Typed:
    """Read a form from a request; raises BadRequest and TimedOut."""
    if request.content_length is None or request.content_length > CHECK_BYTES_MAX:
        raise BadRequest("Malformed body", f"body: expected at most {CHECK_BYTES_MAX} bytes")
    try:
        async with asyncio.timeout(site.settings.body_s):
            given = json.loads(await request.read())
        fields = {str(name): str(value) for name, value in given["fields"].items()}
        typed = Typed(
            str(given["command"]), given["schedule"] is True, fields, frozenset(map(str, given["changed"]))
        )
    except TimeoutError:
        raise TimedOut(detail=f"the body took longer than {site.settings.body_s:g} s") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BadRequest("Malformed body", "body: expected what the form of the page sends") from None
    if typed.command not in COMMANDS:
        raise BadRequest("Malformed body", f"command: expected one of {', '.join(COMMANDS)}")
    return typed
