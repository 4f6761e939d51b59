"""The handlers of Overview, ListQueues, ListPauses and ExplainJob; the pages call what they call."""

from __future__ import annotations

from bedrockjobs.commands import ExplainJob, ListPauses, ListQueues, Overview
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.views import Views
from bedrockjobs.views.overview import written


@handles(Overview)
async def overview(views: Views, _: Overview) -> Answer:
    """Tell how things stand."""
    return Answer(written(await views.standings.overview()))


@handles(ListQueues)
async def list_queues(views: Views, command: ListQueues) -> Answer:
    """List the names of jobs with how they stand."""
    return Answer(written(await views.standings.queues(command)))


@handles(ListPauses)
async def list_pauses(views: Views, _: ListPauses) -> Answer:
    """List what is paused."""
    return Answer(written(await views.standings.pauses()))


@handles(ExplainJob)
async def explain_job(views: Views, command: ExplainJob) -> Answer:
    """Say what a job waits for; raises NotFound."""
    return Answer(await views.explainer.explain(command))
