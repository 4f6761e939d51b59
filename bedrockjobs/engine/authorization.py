"""Authorization: check commands against role, scope and run token before they are executed.

A run token permits its run to report progress, append output and create children. Tokens are looked up in
``access``. Whether the run is still open is checked in the transaction that executes the command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from bedrockjobs import commands as c
from bedrockjobs.base.errors import Forbidden, NotFound
from bedrockjobs.base.glob import TooManyPatterns
from bedrockjobs.base.principal import NOBODYS_NAME, Permission, Principal, RunOfToken, Scope
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands import AppendOutput, Command, CreateJob, CreateJobs, JobSpec, QueryJob, UpdateJob
from bedrockjobs.commands.create import OwnKey
from bedrockjobs.commands.jobs import RunEnd
from bedrockjobs.commands.options import JobOptions
from bedrockjobs.job.rows import OWN_COMMANDS
from bedrockjobs.store.records import Records

WORDS = (
    "a run token permits only UpdateJob with its jobID and progress, QueryJob with its jobID, AppendOutput"
    " with its runID, CreateJob and CreateJobs with its jobID as parentJobID, and AddToWorkflow with its"
    " jobID"
)
"""The error text for a command that a run token does not permit."""


def check(run: RunOfToken, command: Command[Any], roles: frozenset[str]) -> None:
    """Raise Forbidden unless the command concerns this run; ``roles`` are the roles of the worker's token.

    A worker without the role produce must not create jobs with a command of its choice by using a run token.
    Children without a command of their own only run what workers for that name run anyway.
    """
    if not _is_of(run, command):
        raise Forbidden(detail=WORDS)
    if "produce" in roles:
        return
    specs: Sequence[JobSpec] = ()
    if isinstance(command, CreateJobs):
        specs = command.jobs
    elif isinstance(command, CreateJob):
        specs = (command,)
    elif isinstance(command, c.AddToWorkflow):
        specs = command.jobs
    for spec in specs:
        for option in OWN_COMMANDS:
            if getattr(spec, option):  # an empty one is none
                raise Forbidden(
                    detail=f"{option}: children with a command of their own need the role produce in the"
                    " token with which the job was taken"
                )


def check_open(run: RunOfToken, records: Records) -> None:
    """Raise Forbidden if the run has ended, which makes its token invalid."""
    found = records.read_run(run.run_id)
    if found is None or found.status != "running" or found.job_id != run.job_id:
        raise Forbidden(detail="the run of this token is over")


def _is_of(run: RunOfToken, command: Command[Any]) -> bool:
    if isinstance(command, UpdateJob):
        return command.job_id == run.job_id and command.model_fields_set <= {"job_id", "progress"}
    if isinstance(command, QueryJob):
        return command.job_id == run.job_id
    if isinstance(command, AppendOutput):
        return command.run_id == run.run_id
    if isinstance(command, c.AddToWorkflow):
        return command.job_id == run.job_id and command.workflow_id is None
    if isinstance(command, CreateJobs):
        return all(spec.parent_job_id == run.job_id for spec in command.jobs)
    return isinstance(command, CreateJob) and command.parent_job_id == run.job_id


# Authorize commands, record the caller's name in them, and limit them to the scope of the token. A command
# class declares in ``scoping`` which of its fields name jobs. Without it the command is refused to scoped
# tokens, so a new command cannot leak data. Names are checked here; jobIDs and runIDs are looked up where the
# command is executed (``row_access``, ``bedrockjobs.views``).


C = TypeVar("C", bound=Command[Any])

ANYBODYS: frozenset[type[Command[Any]]] = frozenset({c.Help, c.Status, c.ValidateSchedule})
"""Commands that need no role: they reveal nothing about jobs."""

PERHAPS_BY_PROXY = (
    "by its settings the server is behind a proxy, and this request may have come through it: create the"
    " first token on the server's machine with bedrockjobs token create NAME --role admin, or with --database"
    " FILE"
)
"""The error text for a CreateToken of the first token that may have come through a proxy."""

SIGNED = frozenset(kind for kind in c.ALL if "by" in kind.model_fields)
"""Commands with a parameter ``by``, which records who sent them."""


def admit(caller: Principal, command: C) -> C:
    """Return the command with its scope and sender applied; raise Forbidden or NotFound."""
    kind, grant = type(command), caller.grant
    if kind.open:
        return command
    if caller.run is not None:
        check(caller.run, command, grant.roles)
    elif kind.role not in grant.roles and kind not in ANYBODYS:
        raise Forbidden(
            detail=f"{kind.__name__} needs the role {kind.role}; {grant.name or 'this'} has {grant.role}"
        )
    if kind is c.CreateToken and not (grant.name or caller.direct):
        raise Forbidden(detail=PERHAPS_BY_PROXY)
    if "operate" not in grant.roles:
        if kind is c.UpdateJob and caller.run is None:
            _check_update(command)
        _check_repeat(command, grant)
    if grant.no_data and kind is c.ReadOutput:
        raise Forbidden(detail="output counts as data, which this token may not see")
    if kind is c.CreateJob or kind is c.CreateJobs or kind is c.CreateWorkflow:
        command = _with_own_keys(command, caller)
    if grant.name and kind in SIGNED:
        command = command.with_value("by", grant.name)
    return command if grant.scope is None else cast(C, _scoped(command, grant.scope))


def may_ask(grant: Permission, command_class: type[Command[Any]]) -> bool:
    """Return True if a token may send this kind of command at all."""
    if command_class.role not in grant.roles and command_class not in ANYBODYS:
        return False
    return grant.scope is None or command_class.scoping is not None


def _check_update(command: Command[Any]) -> None:
    """Raise Forbidden for a change of options, since a worker must not decide what is run."""
    options = sorted(command.model_fields_set & JobOptions.model_fields.keys())
    if options:
        raise Forbidden(detail=f"{wire_name(options[0])}: changing options of a job needs the role operate")


def _check_repeat(command: Command[Any], grant: Permission) -> None:
    """Raise Forbidden for a command that makes a job repeat or stop repeating."""
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
    for place, repeats_or_stops in repeats.items():
        if repeats_or_stops:
            who = f"{grant.name or 'this'} has {grant.role}"
            raise Forbidden(detail=f"{place}: schedules, and jobs that repeat, need the role operate; {who}")


S = TypeVar("S", c.JobSpec, c.CreateJob | c.CreateWorkflow)


def _with_own_keys(command: Command[Any], caller: Principal) -> Any:
    """Prefix idempotency keys with the caller, so that equal keys of other callers do not match."""
    if isinstance(command, c.CreateJobs):
        if all(spec.idempotency_key is None for spec in command.jobs):
            return command
        return command.with_value("jobs", [_with_own_key(spec, caller) for spec in command.jobs])
    return _with_own_key(cast("c.CreateJob | c.CreateWorkflow", command), caller)


def _with_own_key(spec: S, caller: Principal) -> S:
    key, grant = spec.idempotency_key, caller.grant
    if key is None:
        return spec
    run_id = 0 if caller.run is None else caller.run.run_id
    before = key if grant.scope is None else f"{grant.name}\x1f{key}"
    own = OwnKey.for_caller(key, token=grant.name, run_id=run_id, before=before)
    return spec.with_value("idempotency_key", own)


# --- scope -----------------------------------------------------------------------------------------------


def _scoped(command: Command[Any], scope: Scope) -> Command[Any]:
    """Limit a command to a scope; raise Forbidden or NotFound."""
    kind = type(command)  # quicker than isinstance, which pydantic makes slow
    scoping = kind.scoping
    if scoping is None:
        raise Forbidden(detail=f"{kind.__name__} cannot be used by tokens limited to some names")
    if not (kind is c.SyncSchedules and cast(c.SyncSchedules, command).dry_run):  # a dry run reports each
        for path in scoping.names:
            for index, name in enumerate(command.values_at(path)):
                if name is not None and not scope.covers(name):
                    raise _outside(scope, path.replace(".", f".{index}."))
    for path in scoping.patterns:
        patterns = command.values_at(path)
        if not patterns or not all(pattern and scope.includes_pattern(pattern) for pattern in patterns):
            raise _outside(scope, path)
    if kind is c.ResumeJobs and cast(c.ResumeJobs, command).all:
        raise _outside(scope, "all")
    limit = _TAKES.get(kind)
    return command if limit is None else limit(command, scope)


def _outside(scope: Scope, place: str = "name") -> NotFound:
    return NotFound("Outside of the token's names", f"{place}: expected names within {scope}")


def _within(wanted: Sequence[str], scope: Scope, place: str) -> tuple[str, ...]:
    try:
        return scope.narrow(wanted)
    except TooManyPatterns as error:
        raise Forbidden(detail=f"{place}: cannot be narrowed to {scope}: {error}") from None


def listed_within(text: str, scope: Scope) -> str:
    """Return the visible names of a comma list; a trailing comma keeps a single name from being a pattern."""
    seen = [name for part in text.split(",") if (name := part.strip()) and scope.covers(name)]
    return f"{','.join(seen)}," if seen else NOBODYS_NAME


def _scoped_take(command: c.GetJob | c.GetJobs, scope: Scope) -> Command[Any]:
    """Limit the names and patterns of a take."""
    if not command.names and command.name and "," in command.name:
        return command.with_value("name", listed_within(command.name, scope))
    wanted = command.names or ([command.name] if command.name else [])
    if not wanted:  # refused by its handler
        return command
    found = list(_within(wanted, scope, "name"))
    return command if found == wanted else command.with_value("names", found or [NOBODYS_NAME])


def _scoped_then_get(command: RunEnd | c.FinishJobs, scope: Scope) -> Command[Any]:
    """Limit the take that follows the end of a job."""
    wanted = command.then_get
    if not wanted:
        return command
    if "," in wanted:
        return command.with_value("then_get", listed_within(wanted, scope))
    found = _within([wanted], scope, "thenGet")
    if len(found) > 1:  # limited by its handler, since thenGet is one pattern
        return command
    return command.with_value("then_get", found[0] if found else NOBODYS_NAME)


def _scoped_heartbeat(command: c.Heartbeat, scope: Scope) -> Command[Any]:
    """Limit the names that a worker reports; its runs are checked by the service."""
    if not command.names:
        return command
    return command.with_value("names", list(_within(command.names, scope, "names")) or None)


_TAKES: dict[type[Command[Any]], Callable[[Any, Scope], Command[Any]]] = {
    c.GetJob: _scoped_take,
    c.GetJobs: _scoped_take,
    c.FinishJob: _scoped_then_get,
    c.FailJob: _scoped_then_get,
    c.RetryJob: _scoped_then_get,
    c.FinishJobs: _scoped_then_get,
    c.Heartbeat: _scoped_heartbeat,
}
"""For each command that takes jobs: the function that limits its names and patterns to a scope."""
