"""``POST /cronken/events``: control events of Cronken, translated into commands.

Post what a client would send to Cronken by Redis PUBLISH: ``{"action": "pause", "args": "backup"}``. The
effects are durable, so ``reload`` does nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import CRONKEN_EVENT_CHARS_MAX, DURATION_S_MAX, LIST_MAX, PAUSES_MAX
from bedrockjobs.base.errors import BadArguments, NotFound, TooMany
from bedrockjobs.base.glob import glob, literal
from bedrockjobs.base.json_schemas import Schema, digits, ref
from bedrockjobs.commands import (
    Command,
    CreateJob,
    DeleteJob,
    DrainWorker,
    KillRun,
    ListJobs,
    ListPauses,
    ListQueues,
    ListSchedules,
    ListWorkers,
    PauseJobs,
    ResumeJobs,
    TerminateRun,
    TriggerJob,
    UpdateJob,
    ValidateSchedule,
)
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.imports import cronken
from bedrockjobs.imports.cronken import FirstDay
from bedrockjobs.imports.imported import ImportedSchedule, Unreadable

# OpenAPI description of ``POST /cronken/events``.


def operation(refusals: Schema) -> Schema:
    """Return the OpenAPI operation, including the common error responses."""
    return {
        "operationId": "cronken",
        "tags": ["schedules"],
        "summary": "Execute an unchanged event of Cronken's control channel.",
        "parameters": [
            {
                "name": "weekday_0",
                "in": "query",
                "description": "The day that 0 means in a cronstring; sunday by default.",
                "schema": {"type": "string", "enum": ["sunday", "monday"]},
            }
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _CRONKEN_EVENT}}},
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": {"type": "object"}}}},
            **refusals,
        },
    }


def _event(actions: list[str], args: Schema | None) -> Schema:
    operation: Schema = {
        "type": "object",
        "properties": {"action": {"type": "string", "enum": actions}},
        "required": ["action"],
    }
    if args is not None:
        operation["properties"]["args"] = args
        operation["required"] = ["action", "args"]
    return operation


_TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
_CRONKEN_FIELDS = {"second": 59, "minute": 59, "hour": 23, "day": 28, "month": 12, "day_of_week": 6}
_CRONKEN_CRON: Schema = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "cronstring": {
                    "type": "string",
                    "pattern": r"^(?:@never|@daily|@hourly|(?:\*|[1-5]?[0-9]) (?:\*|1?[0-9]) \* \* \*)$",
                }
            },
            "required": ["cronstring"],
        },
        {
            "type": "object",
            "properties": {
                name: {"type": ["string", "null"], "pattern": f"^(?:\\*|{digits(1, high)})$"}
                for name, high in _CRONKEN_FIELDS.items()
            },
            "minProperties": 1,
        },
    ]
}
_CRONKEN_JOB: Schema = {
    "type": "object",
    "properties": {
        "cron_args": _CRONKEN_CRON,
        "job_args": {
            "type": "object",
            "properties": {
                "cmd": {"type": "string", "minLength": 1, "maxLength": 65_536},
                "lock": {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^[ -~]*$"}]},
                "ttl": {"type": "integer", "minimum": 0, "maximum": DURATION_S_MAX},
            },
            "required": ["cmd", "lock", "ttl"],
            "additionalProperties": False,
        },
        "job_state": {
            "anyOf": [
                {"type": "object", "properties": {"paused": {}}, "additionalProperties": False},
                {"enum": [None, False, "", 0]},
                {"type": "array", "maxItems": 0},
            ]
        },
    },
    "required": ["cron_args", "job_args"],
    "additionalProperties": False,
}
_CRONKEN_EVENT: Schema = {
    "anyOf": [
        _event(["pause", "resume", "trigger", "remove"], ref("Name")),
        _event(["terminate_run", "kill_run"], {"type": "integer", "minimum": 0}),
        _event(["validate", "drain_nodes"], _TEXTS),
        _event(["reload"], None),
        _event(
            ["add"],
            {
                "type": "object",
                "properties": {"job_name": ref("Name"), "job_def": _CRONKEN_JOB},
                "required": ["job_name", "job_def"],
                "additionalProperties": False,
            },
        ),
    ]
}

ALL = "all"
"""The name with which Cronken pauses and resumes all jobs."""

EVERY_NAME = "**"
"""The pattern that is paused for ``all``. It matches the same names as ``*``, but the two are separate
pauses."""

_BY = "cronken event"


Do = Callable[[Command[Any]], Awaitable[Answer]]
"""Executes a command; raises CommandError."""


class CronkenEvents:
    """Executes Cronken events."""

    def __init__(self, do: Do, weekday_0: str) -> None:
        """Execute events as commands through ``do``; ``weekday_0`` says which day 0 means in a cronstring."""
        if weekday_0 not in ("sunday", "monday"):
            raise BadArguments("Malformed weekday_0", "weekday_0: expected sunday or monday")
        self._weekday_0: FirstDay = "monday" if weekday_0 == "monday" else "sunday"
        self._do = do
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
        """Execute one event, a JSON object with action and args; return the reply as JSON.

        Raises CommandError.
        """
        if len(text) > CRONKEN_EVENT_CHARS_MAX:
            raise BadArguments(
                "Malformed body", f"body: expected at most {CRONKEN_EVENT_CHARS_MAX} characters"
            )
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
        name = _name(args)
        await self._do(PauseJobs(name=EVERY_NAME if name == ALL else literal(name), by=_BY))
        return {}

    async def _resume(self, args: Any) -> dict[str, Any]:
        name = _name(args)
        if name == ALL:
            await self._do(ResumeJobs(all=True, by=_BY))
            return {}
        if EVERY_NAME in await self._pauses():
            await self._pause_others(name)
            await self._resume_pattern(EVERY_NAME)
        await self._resume_pattern(literal(name))
        held = [pattern for pattern in await self._pauses() if glob(name, pattern)]
        return {"still_paused_by": held} if held else {}

    async def _resume_pattern(self, pattern: str) -> None:
        try:
            await self._do(ResumeJobs(name=pattern, by=_BY))
        except NotFound:  # Cronken also ignores names that are not paused
            return

    async def _pauses(self) -> list[str]:
        pauses = jsontext.parse((await self._do(ListPauses())).body)["pauses"]
        return [pause["pattern"] for pause in pauses]

    async def _pause_others(self, name: str) -> None:
        """Pause every name except one, so that the pause of all names can be removed; raises TooMany."""
        names = await self._names()
        others = {literal(other) for other in names if other != name}
        free = PAUSES_MAX - len(await self._pauses())
        if len(others) > free or len(names) > PAUSES_MAX:
            expected = f"args: expected at most {PAUSES_MAX} paused names; resume all of them instead"
            raise TooMany("Too many pauses", expected)
        # Concurrently, so that they share commits.
        await asyncio.gather(*(self._do(PauseJobs(name=other, by=_BY)) for other in others))

    async def _names(self) -> list[str]:
        """Return the names of all jobs, or only the first names if there are more than can be paused."""
        names: list[str] = []
        while len(names) <= PAUSES_MAX:
            queues = ListQueues(after=names[-1] if names else "", limit=LIST_MAX)
            page = jsontext.parse((await self._do(queues)).body)["queues"]
            names += [queue["name"] for queue in page]
            if len(page) < LIST_MAX:
                break
        return names

    async def _terminate_run(self, args: Any) -> dict[str, Any]:
        await self._do(TerminateRun(run_id=_run_id(args), by=_BY))
        return {}

    async def _kill_run(self, args: Any) -> dict[str, Any]:
        await self._do(KillRun(run_id=_run_id(args), by=_BY))
        return {}

    async def _add(self, args: Any) -> dict[str, Any]:
        if not isinstance(args, dict) or set(args) != {"job_name", "job_def"}:
            raise BadArguments("Malformed args", "args: expected an object with job_name and job_def")
        name = _name(args["job_name"], "args.job_name")
        try:
            (schedule,) = cronken.parse_cronken(
                jsontext.dump({name: args["job_def"]}), weekday_0=self._weekday_0
            )
        except Unreadable as error:
            raise BadArguments("Malformed args", f"args.job_def: {error}") from None
        if schedule.refused:
            raise BadArguments("Malformed args", f"args.job_def: {schedule.refused}")
        jobs = await self._do(ListJobs(name=literal(name), limit=1))
        for job in jsontext.parse(jobs.body)["jobs"]:
            source = f", which belongs to the source {job['source']}" if job.get("source") else ""
            warning = f"there is a job {name} already{source}: it was left as it is"
            return {"jobID": job["jobID"], "repeat": job["repeat"], "warnings": [warning]}
        if schedule.paused:
            await self._do(PauseJobs(name=literal(name), by=_BY))
        answer = await self._do(CreateJob.read(_parameters(schedule)))
        return {**jsontext.parse(answer.body), "repeat": schedule.repeat, "warnings": list(schedule.warnings)}

    async def _remove(self, args: Any) -> dict[str, Any]:
        schedules = await self._schedules(_name(args))
        if not schedules:
            raise NotFound("No job with this name", f"args: there is no schedule {args}")
        for schedule in schedules:
            if schedule["state"] == "RUNNING":  # a running job is deleted after its run, by clearing repeat
                await self._do(UpdateJob(job_id=schedule["jobID"], should_clear_repeat=True))
            else:
                await self._do(DeleteJob(job_id=schedule["jobID"]))
        await self._resume_pattern(literal(args))  # the pause must not apply to a later job of the same name
        return {}

    async def _reload(self, _: Any) -> dict[str, Any]:
        return {}

    async def _trigger(self, args: Any) -> dict[str, Any]:
        await self._do(TriggerJob(name=_name(args), by=_BY))
        return {}

    async def _validate(self, args: Any) -> dict[str, Any]:
        names = _texts(args, "job names")
        results: list[dict[str, Any]] = []
        unknown = []
        for name in names:
            schedules = await self._schedules(name)
            results += schedules
            unknown += [] if schedules else [name]
        errors = {}
        for schedule in results if names else await self._all_schedules():
            answer = await self._do(ValidateSchedule(repeat=schedule["repeat"]))
            report = jsontext.parse(answer.body)
            if not report["valid"]:
                errors[schedule["name"]] = report["errors"]
        return {"validation_errors": errors, **({"unknown": unknown} if unknown else {})}

    async def _drain_nodes(self, args: Any) -> dict[str, Any]:
        hosts = _texts(args, "host names")
        workers: list[dict[str, Any]] = []
        while page := await self._workers(workers[-1]["name"] if workers else ""):
            workers += page
        drained = [worker["name"] for worker in workers if worker["host"] in hosts]
        unknown = sorted(set(hosts) - {worker["host"] for worker in workers})
        for worker in drained:
            await self._do(DrainWorker(worker=worker, by=_BY))
        return {"drained": drained, **({"unknown": unknown} if unknown else {})}

    async def _workers(self, after: str) -> list[dict[str, Any]]:
        """Return a page of workers with names after ``after``."""
        answer = await self._do(ListWorkers(after=after, limit=LIST_MAX))
        workers: list[dict[str, Any]] = jsontext.parse(answer.body)["workers"]
        return workers

    async def _schedules(self, name: str) -> list[dict[str, Any]]:
        """Return the schedules with this name."""
        answer = await self._do(ListSchedules(name=literal(name), limit=LIST_MAX))
        schedules: list[dict[str, Any]] = jsontext.parse(answer.body)["schedules"]
        return schedules

    async def _all_schedules(self) -> list[dict[str, Any]]:
        schedules: list[dict[str, Any]] = []
        while True:
            after = schedules[-1]["jobID"] if schedules else 0
            answer = await self._do(ListSchedules(after=after, limit=LIST_MAX))
            page = jsontext.parse(answer.body)["schedules"]
            schedules += page
            if len(page) < LIST_MAX:
                return schedules


def _parameters(schedule: ImportedSchedule) -> dict[str, Any]:
    """Return parameters for CreateJob that leave a job with the name unchanged, if there is one by then."""
    return {
        "name": schedule.name,
        "repeat": schedule.repeat,
        "unique": True,
        "overwrite": False,
        **schedule.options,
    }


def _name(value: Any, place: str = "args") -> str:
    if not isinstance(value, str) or not value:
        raise BadArguments("Malformed args", f"{place}: expected a job name")
    return value


def _run_id(args: Any) -> int:
    text = str(args)
    if isinstance(args, bool) or not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise BadArguments("Malformed args", "args: expected a run ID")
    return int(text)


def _texts(args: Any, what: str) -> list[str]:
    if not isinstance(args, list) or not all(isinstance(item, str) for item in args):
        raise BadArguments("Malformed args", f"args: expected an array of {what}")
    return args
