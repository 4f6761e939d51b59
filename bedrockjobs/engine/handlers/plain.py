"""Plain commands: creates, takes and ends of jobs without options, which are most commands.

Requests that differ only in the value of one field, the open field, share one ``Prepared``: it is parsed
once, and its act has the effect of the command's handler with less work. ``plain_act`` decides by the command
whether there is such an act; the act decides by the state of the queue whether the handler has to do the
work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from bedrockjobs.base.config import NAMES_AT_ONCE
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands import Command, CreateJob, FinishJob, GetJob
from bedrockjobs.engine.handlers import take
from bedrockjobs.engine.handlers.context import Answer, Context, request_of
from bedrockjobs.engine.handlers.create import held_until
from bedrockjobs.job import lifecycle
from bedrockjobs.job.rows import Job, is_mock_data
from bedrockjobs.job.take_request import names_from

Act = Callable[[Context, Any], "take.Outcome | None"]
"""Executes a command with the value of its open field; returns None, without an effect, if the handler has to
do it."""

_WAIT = frozenset({"connection", "timeout"})
_CREATE = frozenset({"name", "data", "job_priority"}) | _WAIT
_CREATE_UNIQUE = _CREATE | {"unique_key", "unique_for", "on_conflict"}
_GET = frozenset({"name", "names", "job_priority"}) | _WAIT
_FINISH = frozenset({"job_id", "then_get", "job_priority"}) | _WAIT

OPEN_FIELDS: dict[type[Command[Any]], str] = {CreateJob: "data", FinishJob: "jobID", GetJob: ""}
"""The commands that can be executed without their handler, each with the one parameter whose value may differ
between requests that share a ``Prepared``, if any."""

OPEN_PAIR = ("data", "uniqueKey")
"""The two parameters of CreateJob that differ from request to request if jobs have unique keys."""

OpenField = str | tuple[str, ...]
"""The field whose value differs from request to request, or several such fields; empty for none."""

_new = tuple.__new__  # a third faster than the constructor of a named tuple


class Prepared:
    """A parsed request without the values of its open fields, shared by requests that differ only in them."""

    __slots__ = ("act", "command", "field", "simple")

    def __init__(self, command: Command[Any], field: OpenField = "") -> None:
        """Prepare a command; an empty ``field`` means that no value is open."""
        self.command = command
        self.field = field
        self.act = plain_act(command, field)
        self.simple = command.where == "writer" and not (
            command.signed or command.by_id or (command.asks and command.names_asked > NAMES_AT_ONCE)
        )
        """Whether the writer executes it in order of arrival, for any client unless tokens are required."""

    def with_value(self, value: Any) -> Command[Any]:
        """Return the command with the validated value of its open field, or a tuple of values for several."""
        if isinstance(self.field, tuple):
            command = self.command
            for field, its in zip(self.field, value, strict=True):
                command = command.with_value(field, its)
            return command
        return self.command.with_value(self.field, value) if self.field else self.command


@cache
def field_and_validator(command_class: type[Command[Any]], name: str) -> tuple[str, Any]:
    """Return the field that a parameter (its wire name, upper or lower case) sets, and its validator.

    The validator is None if there is no such field, or if the command is validated as a whole.
    """
    if not command_class.__pydantic_decorators__.model_validators:
        for field, info in command_class.model_fields.items():
            if wire_name(field).lower() == name.lower():
                return field, TypeAdapter(info.rebuild_annotation()).validator
    return "", None


def plain_act(command: Command[Any], field: OpenField = "") -> Act | None:
    """Return how to execute a command whose ``field`` is open, or None if it is not plain."""
    fields_set = command.model_fields_set
    if isinstance(command, CreateJob) and field == "data" and fields_set <= _CREATE:
        return _create(command)
    if isinstance(command, CreateJob) and command.unique_key is not None:
        return _create_unique(command, field) if fields_set <= _CREATE_UNIQUE else None
    if isinstance(command, FinishJob) and field == "job_id" and fields_set <= _FINISH:
        return _finish(command)
    if isinstance(command, GetJob) and not field and fields_set <= _GET:
        return _get(command)
    return None


def _rest_of(command: CreateJob, state: str) -> tuple[Any, ...]:
    """Return the columns of a plain job from the priority on, which follow its data."""
    job = Job("", 0, state, command.name, "", priority=command.wanted_priority)
    return job[Job._fields.index("priority") :]


def _create(command: CreateJob) -> Act:
    name, state = command.name, lifecycle.QUICK_CREATE[2]
    rest = _rest_of(command, state)

    def act(context: Context, data: str) -> Answer | None:
        unit = context.unit
        if is_mock_data(data) or unit.records.limits():
            return None
        job_id = unit.new_job_id()
        unit.insert(_new(Job, (context.now, job_id, state, name, context.now_ms, "", "", data, *rest)))
        context.created.append(name)
        return Answer(f'{{"jobID":{job_id}}}')

    return act


def _create_unique(command: CreateJob, field: OpenField) -> Act | None:
    """Return how to create a job if its unique key is free; if it is held, the handler decides."""
    if field not in ("data", "unique_key", ("data", "unique_key")):
        return None
    name, state, data_open = command.name, lifecycle.QUICK_CREATE[2], field == "data"
    both_open = isinstance(field, tuple)
    rest = _rest_of(command, state)
    before_key, data, key = command.key_prefix, command.data, command.held_key

    def act(context: Context, value: Any) -> Answer | None:
        unit, now = context.unit, context.now_ms
        if both_open:
            its_data, its_key = value
            its_key = before_key + its_key
        else:
            its_key, its_data = (key, value) if data_open else (before_key + value, data)
        records = unit.records
        if is_mock_data(its_data) or records.limits():
            return None
        job_id = unit.new_job_id()
        if records.claim_key(its_key, job_id, held_until(command, now), now) is not None:
            unit.return_job_id(job_id)
            return None
        unit.insert(_new(Job, (context.now, job_id, state, name, now, "", "", its_data, *rest)))
        context.created.append(name)
        return Answer(f'{{"jobID":{job_id},"created":true}}')

    return act


def _finish(command: FinishJob) -> Act | None:
    names = take.then_names(command) if command.then_get else None
    waiting = command.waiting
    request = None if names is None else request_of(command, names, command.job_priority, 1, "then")

    def act(context: Context, job_id: int) -> Answer | None:
        name = context.unit.delete_plain(job_id)  # lifecycle.QUICK_FINISH
        if name is None:
            return None
        context.finished.append(name)
        return Answer() if request is None else take.after_end(context, request, waiting=waiting)

    return act


def _get(command: GetJob) -> Act | None:
    names = names_from(command.name, tuple(command.names) if command.names else None)
    if names is None:
        return None
    waiting = command.waiting
    request = request_of(command, names, command.job_priority, 1, "job")

    def act(context: Context, _: None) -> take.Outcome | None:
        return take.or_wait(context, request, waiting=waiting)

    return act
