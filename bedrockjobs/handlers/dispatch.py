"""Which handler does which command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bedrockjobs import commands as c
from bedrockjobs.errors import CommandError
from bedrockjobs.handlers import change, control, create, end, explain, sync, take
from bedrockjobs.handlers.turn import Answer, Turn

Handler = Callable[[Turn, Any], Answer]

HANDLERS: dict[type[c.Command[Any]], Handler] = {
    c.CreateJob: create.create_job,
    c.CreateJobs: create.create_jobs,
    c.GetJob: take.get_job,
    c.GetJobs: take.get_jobs,
    c.QueryJob: change.query_job,
    c.UpdateJob: change.update_job,
    c.FinishJob: end.finish_job,
    c.FinishJobs: end.finish_jobs,
    c.RetryJob: end.retry_job,
    c.FailJob: end.fail_job,
    c.CancelJob: change.cancel_job,
    c.DeleteJob: change.delete_job,
    c.RequeueJobs: change.requeue_jobs,
    c.ExplainJob: explain.explain_job,
    c.PauseJobs: control.pause_jobs,
    c.ResumeJobs: control.resume_jobs,
    c.TriggerJob: control.trigger_job,
    c.SyncSchedules: sync.sync_schedules,
    c.AppendOutput: control.append_output,
    c.TerminateRun: control.terminate_run,
    c.KillRun: control.kill_run,
    c.DrainWorker: control.drain_worker,
    c.CrashBedrockJob: change.crash_bedrock_job,
    c.ClearCrashedBedrockJobs: change.clear_crashed_bedrock_jobs,
}

WRITES_BEFORE_REFUSING = frozenset({c.CreateJobs, c.SyncSchedules})
"""Commands of which a part may be done when another is refused: they run inside a savepoint."""


def perform(turn: Turn, command: c.Command[Any]) -> Answer | CommandError:
    """Do a command; a refusal comes back as the error, and nothing of the command is then done."""
    kind = type(command)
    try:
        if kind not in WRITES_BEFORE_REFUSING:
            return HANDLERS[kind](turn, command)
        turn.tx.savepoint()
        try:
            answer = HANDLERS[kind](turn, command)
        except CommandError:
            turn.tx.undo()
            raise
        turn.tx.release()
    except CommandError as error:
        return error
    return answer
