"""DeleteRuns: what has run is forgotten on purpose, since it holds what nobody may read, such as a password.

One command looks at a bounded number of runs and bytes; its answer says where the next one goes on.
"""

from __future__ import annotations

from collections.abc import Iterator

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import JOB_ID_MAX, RUN_BYTES_DELETED_AT_ONCE, RUNS_DELETED_AT_ONCE_MAX
from bedrockjobs.base.errors import BadArguments, WrongState
from bedrockjobs.base.glob import glob, literal_prefix
from bedrockjobs.base.turns import give_turn, in_turns
from bedrockjobs.commands import DeleteRuns
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.job.rows import RunHead
from bedrockjobs.store.base import Plan

REMOVED = "removed"
"""What stands in the place of the detail of an event that might hold the text."""

EACH = 20
"""Runs after which others have a turn: each takes a few statements."""

EVENTS_AT_ONCE = 1_000
"""Events that are read together, and after which others have a turn."""


@handles(DeleteRuns, plan=lambda command: Plan(runs=tuple(command.run_ids)))
def delete_runs(context: Context, command: DeleteRuns) -> Answer:
    """Delete some runs, or tell which would be; answers where to go on."""
    _check(command)
    records, text = context.unit.records, command.text
    found: list[RunHead] = []
    heads, running, spent, events = _heads(context, command), 0, 0, 0
    before = heads[-1].run_id if len(heads) == RUNS_DELETED_AT_ONCE_MAX and not command.run_ids else None
    reached = None
    for head in in_turns(heads, EACH):
        if spent >= RUN_BYTES_DELETED_AT_ONCE:
            before = reached
            break
        reached = head.run_id
        if not _is_meant(context, command, head):
            continue
        spent += records.size_of_run(head.run_id)
        if text is not None and not _holds(records.texts_of_run(head.run_id), text):
            continue
        if head.status == "running":
            running += 1
            continue
        found.append(head)
        if not command.dry_run:
            records.erase_run(head.run_id)
    if not command.dry_run:
        events = _remove_details(context, found)
        if before is None:
            events += _remove_text(context, text) if text is not None else 0
            context.unit.wipe_log()
        _tell(context, command, found)
    runs = [
        {
            "runID": head.run_id, "jobID": head.job_id, "name": head.name, "status": head.status,
            "ended": head.ended,
        }
        for head in found
    ]  # fmt: skip
    return Answer(jsontext.dump({"runs": runs, "running": running, "events": events, "before": before}))


def _check(command: DeleteRuns) -> None:
    filters = (command.name, command.text, command.ended_before)
    if not command.run_ids and all(each is None for each in filters):
        raise BadArguments("Missing runIDs", "expected runIDs, name, text or endedBefore")


def _heads(context: Context, command: DeleteRuns) -> list[RunHead]:
    """Return the next runs to look at, the newest first; raises WrongState if one of `runIDs` runs."""
    records = context.unit.records
    below = JOB_ID_MAX if command.before is None else command.before
    if not command.run_ids:
        name = command.name if command.name and literal_prefix(command.name) == command.name else None
        return records.runs_below(below, name, RUNS_DELETED_AT_ONCE_MAX)
    heads = []
    for run_id in sorted(set(command.run_ids), reverse=True):
        run = records.run(run_id)
        if run is not None and run.status == "running":
            raise WrongState(
                "Run is running", f"runIDs: run {run_id} has not ended; stop it, or wait for its end"
            )
        if run is not None and run_id < below:
            heads.append(RunHead(run_id, run.job_id, run.name, run.status, run.ended))
    return heads


def _is_meant(context: Context, command: DeleteRuns, head: RunHead) -> bool:
    """Tell whether a run is one that the caller sees, and fits what the head of a run can tell."""
    if not _sees(context, head.name) or (command.name is not None and not glob(head.name, command.name)):
        return False
    return command.ended_before is None or "" < head.ended < str(command.ended_before)


def _sees(context: Context, name: str) -> bool:
    scope = None if context.caller is None else context.caller.scope
    return scope is None or scope.sees(name)


def _remove_details(context: Context, found: list[RunHead]) -> int:
    """Take the details from the events of deleted runs; return how many."""
    if not found:
        return 0
    records, deleted = context.unit.records, {head.run_id for head in found}
    events = [seq for seq, run_id in records.events_of_runs(min(deleted), max(deleted)) if run_id in deleted]
    for seq in in_turns(events):
        records.put_detail(seq, REMOVED)
    return len(events)


def _remove_text(context: Context, text: str) -> int:
    """Take the details from all events that hold a text, such as those of jobs; return how many."""
    records = context.unit.records
    count = after = 0
    while events := records.events_with_detail(after, EVENTS_AT_ONCE):
        for seq, name, detail in events:
            if text in detail and _sees(context, name):
                records.put_detail(seq, REMOVED)
                count += 1
        after = events[-1][0]
        give_turn()
    return count


def _tell(context: Context, command: DeleteRuns, found: list[RunHead]) -> None:
    """Tell people that runs were deleted, and nothing of what they held."""
    if not found:
        return
    names, jobs = {head.name for head in found}, {head.job_id for head in found}
    context.note(
        "runs deleted",
        name=names.pop() if len(names) == 1 else command.name or "",
        job_id=jobs.pop() if len(jobs) == 1 else 0,
        by=command.by,
        detail=f"run {found[0].run_id}" if len(found) == 1 else f"{len(found):,} runs",
    )


def _holds(texts: Iterator[str], text: str) -> bool:
    """Tell whether some texts, one behind the other, hold one; JSON may spell it with escapes."""
    last = ""
    for each in texts:
        if text in each or text in f"{last}\n{each[: len(text)]}" or _holds_escaped(each, text):
            return True
        last = each[-len(text) :]
        give_turn()
    return False


def _holds_escaped(stored: str, text: str) -> bool:
    r"""Tell whether a string in some JSON is, or has, a text that is spelled with escapes like ``\u0041``."""
    if "\\" not in stored:
        return False
    try:
        values = [jsontext.parse(stored)]
    except ValueError:
        return False
    return any(text in value for value in _walked(values))


def _walked(values: list[object]) -> Iterator[str]:
    """Yield all strings in some values, keys too."""
    while values:
        value = values.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            values += [*value, *value.values()]
        elif isinstance(value, list):
            values += value
