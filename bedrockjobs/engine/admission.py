"""Whether somebody may do a command, and what becomes of it: signed with their name, narrowed to their names.

A command that no function here narrows is refused to whoever sees some names only, so that a new one cannot
leak. What is named by a jobID or a runID is looked up where it is done (``by_caller``, ``views.narrowed``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from bedrockjobs import commands as c
from bedrockjobs.base.caller import NOBODYS_NAME, Caller, Grant, Scope
from bedrockjobs.base.errors import Forbidden, NotFound
from bedrockjobs.base.overlap import TooManyPatterns
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands import Command
from bedrockjobs.commands.create import OwnKey
from bedrockjobs.commands.jobs import Ending
from bedrockjobs.commands.options import JobOptions
from bedrockjobs.engine import of_run

Narrow = Callable[[Any, Scope, Grant], Command[Any]]
N = TypeVar("N", bound=Narrow)
C = TypeVar("C", bound=Command[Any])

ANYBODYS: frozenset[type[Command[Any]]] = frozenset({c.Help, c.Status, c.ValidateSchedule})
"""Commands for which any token does: they say nothing of any job, or no more than is allowed."""

FREE = ANYBODYS | {c.Ping, c.Authenticate}
"""Commands that are the same for whoever sees some names only."""

BY_NUMBER: frozenset[type[Command[Any]]] = frozenset(
    {
        c.QueryJob, c.UpdateJob, c.CancelJob, c.DeleteJob, c.TriggerJob, c.TerminateRun,
        c.KillRun, c.AppendOutput, c.PingSchedule, c.GetPingSecret, c.RunAgain, c.MarkSeen,
        c.DeleteRuns,
    }
)  # fmt: skip
"""Commands of the writer that name jobs or runs: of others they find none, see ``by_caller``."""

READS: frozenset[type[Command[Any]]] = frozenset(
    {
        c.ListJobs, c.ListRuns, c.ListSchedules, c.ListQueues, c.Events, c.ListChildren, c.ListTicks,
        c.ReadOutput, c.QueryRun, c.ExplainJob, c.ListPauses, c.Overview, c.ListFailures,
    }
)  # fmt: skip
"""Reads whose answers are narrowed, see ``views.narrowed``."""

PERHAPS_BY_PROXY = (
    "the server has a proxy in front, by its settings, and this may have come through it: make the first"
    " token on the server's machine, by bedrockjobs token create NAME --role admin, or with --database FILE"
)
"""What somebody is told who wants to make the first token through a proxy."""

SIGNED = frozenset(kind for kind in c.ALL if "by" in kind.model_fields)
"""Commands that say who sends them."""

NARROWED: dict[type[Command[Any]], Narrow] = {}
"""What gives a command less to ask for."""


def narrows(*kinds: type[Command[Any]]) -> Callable[[N], N]:
    """Make the function below what narrows some commands."""

    def register(function: N) -> N:
        NARROWED.update(dict.fromkeys(kinds, function))
        return function

    return register


def admit(caller: Caller, command: C) -> C:
    """Return a command as it is done for somebody; raises Forbidden and NotFound."""
    kind, grant = type(command), caller.grant
    if kind.open:
        return command
    if caller.run is not None:
        of_run.check(caller.run, command, grant.roles)
    elif kind.role not in grant.roles and kind not in ANYBODYS:
        raise Forbidden(
            detail=f"{kind.__name__} needs the role {kind.role}; {grant.name or 'this'} is for {grant.role}"
        )
    if kind is c.CreateToken and not (grant.name or caller.direct):
        raise Forbidden(detail=PERHAPS_BY_PROXY)
    if "operate" not in grant.roles:
        if kind is c.UpdateJob and caller.run is None:
            _check_update(command)
        _check_repeat(command, grant)
    if grant.no_data and kind is c.ReadOutput:
        raise Forbidden(detail="output counts as data, which this token does not see")
    if kind is c.CreateJob or kind is c.CreateJobs:
        command = _with_own_keys(command, caller)
    if grant.name and kind in SIGNED:
        command = command.with_value("by", grant.name)
    if grant.scope is None or kind in FREE or kind in BY_NUMBER or kind in READS:
        return command
    narrow = NARROWED.get(kind)
    if narrow is None:
        raise Forbidden(detail=f"{kind.__name__} is not for tokens that see some names only")
    return cast(C, narrow(command, grant.scope, grant))


def may_ask(grant: Grant, kind: type[Command[Any]]) -> bool:
    """Tell whether somebody may do such a command at all, be it with some names only."""
    if kind.role not in grant.roles and kind not in ANYBODYS:
        return False
    return grant.scope is None or kind in FREE or kind in BY_NUMBER or kind in READS or kind in NARROWED


def _check_update(command: Command[Any]) -> None:
    """Refuse what changes how a job is run to those who only work on it: what it runs may be anything."""
    options = sorted(command.model_fields_set & JobOptions.model_fields.keys())
    if options:
        raise Forbidden(detail=f"{wire_name(options[0])}: options of a job are changed by the role operate")


def _check_repeat(command: Command[Any], grant: Grant) -> None:
    """Refuse what makes a job repeat, or no longer, to those who do not operate."""
    kind = type(command)  # quicker than isinstance, which pydantic makes slow
    if kind is c.CreateJob:
        repeats = {"repeat": bool(cast(c.CreateJob, command).repeat)}
    elif kind is c.CreateJobs:
        specs = cast(c.CreateJobs, command).jobs
        repeats = {f"jobs.{place}.repeat": bool(spec.repeat) for place, spec in enumerate(specs)}
    elif kind is c.UpdateJob:
        update = cast(c.UpdateJob, command)
        repeats = {"repeat": bool(update.repeat), "shouldClearRepeat": update.should_clear_repeat}
    else:
        return
    for place, given in repeats.items():
        if given:
            who = f"{grant.name or 'this'} is for {grant.role}"
            raise Forbidden(
                detail=f"{place}: schedules, and jobs that repeat, are for the role operate; {who}"
            )


def _outside(scope: Scope, place: str = "name") -> NotFound:
    return NotFound("Outside of the token's names", f"{place}: expected what lies within {scope}")


def _within(wanted: Sequence[str], scope: Scope, place: str) -> tuple[str, ...]:
    try:
        return scope.within(wanted)
    except TooManyPatterns as error:
        raise Forbidden(detail=f"{place}: cannot be narrowed to {scope}: {error}") from None


def listed_within(text: str, scope: Scope) -> str:
    """Return those of a comma list of names that are seen, as one: a name alone might be a pattern."""
    seen = [name for part in text.split(",") if (name := part.strip()) and scope.sees(name)]
    return f"{','.join(seen)}," if seen else NOBODYS_NAME


@narrows(c.GetJob, c.GetJobs)
def _narrow_take(command: c.GetJob | c.GetJobs, scope: Scope, _: Grant) -> Command[Any]:
    if not command.names and command.name and "," in command.name:
        return command.with_value("name", listed_within(command.name, scope))
    wanted = command.names or ([command.name] if command.name else [])
    if not wanted:  # it is refused where it is done
        return command
    found = list(_within(wanted, scope, "name"))
    return command if found == wanted else command.with_value("names", found or [NOBODYS_NAME])


def _narrow_then(command: Ending | c.FinishJobs, scope: Scope) -> Command[Any]:
    wanted = command.then_get
    if not wanted:
        return command
    if "," in wanted:
        return command.with_value("then_get", listed_within(wanted, scope))
    found = _within([wanted], scope, "thenGet")
    if len(found) > 1:  # it is narrowed where it is done
        return command
    return command.with_value("then_get", found[0] if found else NOBODYS_NAME)


@narrows(c.FinishJob, c.FinishJobs, c.FailJob)
def _narrow_end(command: Ending | c.FinishJobs, scope: Scope, _: Grant) -> Command[Any]:
    return _narrow_then(command, scope)


@narrows(c.RetryJob)
def _narrow_retry(command: c.RetryJob, scope: Scope, _: Grant) -> Command[Any]:
    if command.name is not None and not scope.sees(command.name):
        raise _outside(scope)
    return _narrow_then(command, scope)


@narrows(c.RequeueJobs)
def _narrow_requeue(command: c.RequeueJobs, scope: Scope, _: Grant) -> Command[Any]:
    if command.name is not None and not scope.sees(command.name):
        raise _outside(scope)
    return command


@narrows(c.CreateJob)
def _narrow_create(command: c.CreateJob, scope: Scope, _: Grant) -> Command[Any]:
    if not scope.sees(command.name):
        raise _outside(scope)
    return command


@narrows(c.CreateJobs)
def _narrow_creates(command: c.CreateJobs, scope: Scope, _: Grant) -> Command[Any]:
    for place, spec in enumerate(command.jobs):
        if not scope.sees(spec.name):
            raise _outside(scope, f"jobs.{place}.name")
    return command


S = TypeVar("S", bound=c.JobSpec)


def _with_own_keys(command: Command[Any], caller: Caller) -> Any:
    """Return new jobs whose idempotency keys are the caller's: another's would answer another's job."""
    if isinstance(command, c.CreateJobs):
        if all(spec.idempotency_key is None for spec in command.jobs):
            return command
        return command.with_value("jobs", [_with_own_key(spec, caller) for spec in command.jobs])
    return _with_own_key(cast(c.CreateJob, command), caller)


def _with_own_key(spec: S, caller: Caller) -> S:
    key, grant = spec.idempotency_key, caller.grant
    if key is None:
        return spec
    run_id = 0 if caller.run is None else caller.run.run_id
    before = key if grant.scope is None else f"{grant.name}\x1f{key}"
    own = OwnKey.of(key, token=grant.name, run_id=run_id, before=before)
    return spec.with_value("idempotency_key", own)


@narrows(c.PauseJobs, c.ResumeJobs, c.SetLimit, c.RemoveLimit, c.SetRetention, c.RemoveRetention)
def _narrow_pattern(
    command: c.PauseJobs | c.ResumeJobs | c.SetLimit | c.RemoveLimit, scope: Scope, _: Grant
) -> Command[Any]:
    if not scope.holds(command.name):
        raise _outside(scope)
    if isinstance(command, c.ResumeJobs) and command.all:
        raise _outside(scope, "all")
    return command


@narrows(c.CrashBedrockJob, c.ClearCrashedBedrockJobs)
def _narrow_crash(
    command: c.CrashBedrockJob | c.ClearCrashedBedrockJobs, scope: Scope, _: Grant
) -> Command[Any]:
    if not command.names or not all(map(scope.holds, command.names)):
        raise _outside(scope, "names")
    return command


@narrows(c.SyncSchedules)
def _narrow_sync(command: c.SyncSchedules, scope: Scope, _: Grant) -> Command[Any]:
    if command.dry_run:  # tells of each schedule that is outside, where it is done
        return command
    for place, spec in enumerate(command.schedules):
        if not scope.sees(spec.name):
            raise _outside(scope, f"schedules.{place}.name")
    return command


@narrows(c.Heartbeat)
def _narrow_heartbeat(command: c.Heartbeat, scope: Scope, _: Grant) -> Command[Any]:
    """Return what a worker may say of itself; its runs are looked at where it is done."""
    if not command.names:
        return command
    return command.with_value("names", list(_within(command.names, scope, "names")) or None)
