"""The children of a job, as a list of jobs."""

from __future__ import annotations

from bedrockjobs.commands import ListChildren
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.engine.render import render_with_state
from bedrockjobs.views import Views


@handles(ListChildren)
async def list_children(views: Views, command: ListChildren) -> Answer:
    """List the children of a job."""
    page = await views.families.children(command.job_id, command.after, command.limit, full=True)
    return Answer(f'{{"jobs":[{",".join(map(render_with_state, page.jobs))}]}}')
