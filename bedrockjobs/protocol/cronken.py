"""``POST /cronken/events``: the events of Cronken's control channel, as they are, done by our commands.

What is sent there with Redis' PUBLISH is posted here: ``{"action": "pause", "args": "backup"}``. All of it
is durable, so that ``reload`` has nothing to do. Each event becomes commands; how those are done is not known
here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import LEASE_S_DEFAULT, LIST_MAX
from bedrockjobs.base.errors import BadArguments, NotFound
from bedrockjobs.commands import (
    CreateJob,
    DeleteJob,
    DrainWorker,
    KillRun,
    ListSchedules,
    ListWorkers,
    PauseJobs,
    ResumeJobs,
    TerminateRun,
    TriggerJob,
    UpdateJob,
    ValidateSchedule,
)
from bedrockjobs.imports import cronken
from bedrockjobs.imports.cronken import FirstDay
from bedrockjobs.imports.found import Found, Unreadable
from bedrockjobs.service import Service

ALL = "all"
"""The name by which Cronken pauses and resumes every job."""

PLAIN = {"lock": "", "hosts": "", "jitter": 0, "lease": LEASE_S_DEFAULT}
"""What an added job has unless its definition says otherwise: an event replaces the job of its name."""

_BY = "cronken event"


class Events:
    """Events, one at a time."""

    def __init__(self, service: Service, weekday_0: str) -> None:
        """Do events by commands of ``service``; ``weekday_0`` says which day a 0 is in a cronstring."""
        if weekday_0 not in ("sunday", "monday"):
            raise BadArguments("Malformed weekday_0", "weekday_0: expected sunday or monday")
        self._weekday_0: FirstDay = "monday" if weekday_0 == "monday" else "sunday"
        self._service = service
        self._actions: dict[str, Callable[[Any], Awaitable[dict[str, Any]]]] = {
            "pause": self._pause,
            "resume": self._resume,
            "terminate_run": self._terminate_run,
            "kill_run": self._kill_run,
            "add": self._add,
            "remove": self._remove,
            "reload": self._reload,
            "trigger": self._trigger,
            "validate": self._validate,
            "drain_nodes": self._drain_nodes,
        }

    async def do(self, text: str) -> str:
        """Do one event, a JSON object with action and args; return the answer as JSON.

        Raises CommandError.
        """
        try:
            event = jsontext.parse(text)
        except ValueError as error:
            raise BadArguments("Malformed body", f"body: expected a JSON object: {error}") from None
        if not isinstance(event, dict) or not isinstance(event.get("action"), str):
            raise BadArguments("Missing action", "expected a JSON object with action and args")
        if event["action"] not in self._actions:
            raise BadArguments("Malformed action", f"action: expected one of {', '.join(self._actions)}")
        return jsontext.dump(await self._actions[event["action"]](event.get("args")))

    async def _pause(self, args: Any) -> dict[str, Any]:
        await self._service.call(PauseJobs(name=_pattern(args), by=_BY))
        return {}

    async def _resume(self, args: Any) -> dict[str, Any]:
        try:
            await self._service.call(ResumeJobs(name=_pattern(args), by=_BY))
        except NotFound:  # a job that is not paused is left alone, as there
            return {}
        return {}

    async def _terminate_run(self, args: Any) -> dict[str, Any]:
        await self._service.call(TerminateRun(run_id=_run_id(args), by=_BY))
        return {}

    async def _kill_run(self, args: Any) -> dict[str, Any]:
        await self._service.call(KillRun(run_id=_run_id(args), by=_BY))
        return {}

    async def _add(self, args: Any) -> dict[str, Any]:
        if not isinstance(args, dict) or set(args) != {"job_name", "job_def"}:
            raise BadArguments("Malformed args", "args: expected an object with job_name and job_def")
        name = _name(args["job_name"], "args.job_name")
        try:
            (found,) = cronken.read(jsontext.dump({name: args["job_def"]}), weekday_0=self._weekday_0)
        except Unreadable as error:
            raise BadArguments("Malformed args", f"args.job_def: {error}") from None
        if found.refused:
            raise BadArguments("Malformed args", f"args.job_def: {found.refused}")
        if found.paused:
            await self._pause(name)
        answer = await self._service.call(CreateJob.read(_parameters(found)))
        return {**jsontext.parse(answer.body), "repeat": found.repeat, "warnings": list(found.warnings)}

    async def _remove(self, args: Any) -> dict[str, Any]:
        for schedule in await self._schedules(_name(args)):
            if schedule["state"] == "RUNNING":  # it ends with its present run
                await self._service.call(UpdateJob(job_id=schedule["jobID"], should_clear_repeat=True))
            else:
                await self._service.call(DeleteJob(job_id=schedule["jobID"]))
        return {}

    async def _reload(self, _: Any) -> dict[str, Any]:
        return {}

    async def _trigger(self, args: Any) -> dict[str, Any]:
        await self._service.call(TriggerJob(name=_name(args), by=_BY))
        return {}

    async def _validate(self, args: Any) -> dict[str, Any]:
        names = _texts(args, "job names")
        found = [schedule for name in names for schedule in await self._schedules(name)]
        errors = {}
        for schedule in found if names else await self._all_schedules():
            answer = await self._service.call(ValidateSchedule(repeat=schedule["repeat"]))
            report = jsontext.parse(answer.body)
            if not report["valid"]:
                errors[schedule["name"]] = report["errors"]
        return {"validation_errors": errors}

    async def _drain_nodes(self, args: Any) -> dict[str, Any]:
        hosts = _texts(args, "host names")
        workers = jsontext.parse((await self._service.call(ListWorkers())).body)["workers"]
        drained = [worker["name"] for worker in workers if worker["host"] in hosts]
        for worker in drained:
            await self._service.call(DrainWorker(worker=worker, by=_BY))
        return {"drained": drained}

    async def _schedules(self, name: str) -> list[dict[str, Any]]:
        """Return the schedules of a name; raises NotFound."""
        answer = await self._service.call(ListSchedules(name=_escaped(name), limit=LIST_MAX))
        found: list[dict[str, Any]] = jsontext.parse(answer.body)["schedules"]
        if not found:
            raise NotFound("No job with this name", f"args: there is no schedule {name}")
        return found

    async def _all_schedules(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            after = found[-1]["jobID"] if found else 0
            answer = await self._service.call(ListSchedules(after=after, limit=LIST_MAX))
            page = jsontext.parse(answer.body)["schedules"]
            found += page
            if len(page) < LIST_MAX:
                return found


def _parameters(found: Found) -> dict[str, Any]:
    """Return what CreateJob takes; a job of that name becomes what the event says."""
    return {
        "name": found.name,
        "repeat": found.repeat,
        "unique": True,
        "overwrite": True,
        **PLAIN,
        **found.options,
    }


def _name(value: Any, place: str = "args") -> str:
    if not isinstance(value, str) or not value:
        raise BadArguments("Malformed args", f"{place}: expected a job name")
    return value


def _pattern(args: Any) -> str:
    name = _name(args)
    return "*" if name == ALL else _escaped(name)


def _escaped(name: str) -> str:
    """Return the GLOB pattern of one name."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def _run_id(args: Any) -> int:
    text = str(args)
    if isinstance(args, bool) or not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise BadArguments("Malformed args", "args: expected a run ID")
    return int(text)


def _texts(args: Any, what: str) -> list[str]:
    if not isinstance(args, list) or not all(isinstance(item, str) for item in args):
        raise BadArguments("Malformed args", f"args: expected an array of {what}")
    return args
