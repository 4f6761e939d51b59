"""The functions of ``test_function_workflows.py``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from bedrock_worker import Job, Retry, Workflow, chain, chord, cron, current_run, job


@dataclass
class Size:
    """The size of a picture."""

    width: int
    height: int


@job("add")
def add(x: int, y: int = 0) -> int:
    """Return a sum."""
    return x + y


@job("double", retries=1)
async def double(x: int) -> int:
    """Return a number twice, at the second attempt."""
    if current_run().attempt == 1:
        raise Retry(0)
    return 2 * x


@job("total")
def total(parts: list[int], weights: dict[str, int] | None = None) -> int:
    """Return a sum of several."""
    return sum(parts) + sum((weights or {}).values())


@job("measured")
def measured(width: int) -> Size:
    """Return a value that is no plain JSON."""
    return Size(width, 2)


@job("described")
def described(size: Size, day: date, more: list[tuple[date, int]]) -> str:
    """Describe values that are no plain JSON."""
    return f"{size.width} x {size.height} on {day:%d %b}: {more[0][0].year} {more[0][1]}"


@job("look")
def look(job: Job) -> dict[str, object]:
    """Return what a job of a workflow sees."""
    return {"ref": job.ref, "before": dict(job.before), "in": job.workflow_id, "data": job.data}


@job("bad/*")
def bad(x: int) -> int:
    """Fail."""
    raise ValueError(f"no {x}")


@job("fan")
def fan(n: int) -> int:
    """Add as many jobs as needed, and one that sums them up, also when it is tried again."""
    chord([add.s(i) for i in range(n)], total.s()).add_to_current()
    workflow = Workflow("more")
    last = workflow.add(add.s(n), ref="named")
    workflow.add(add.s(last.result), after=["fan"])
    workflow.add_to_current()
    if current_run().attempt == 1:
        raise Retry(0)
    return n


@job("waits")
def waits() -> None:
    """Wait for the end of its own workflow."""
    Workflow.handle(current_run().job.workflow_id or 0).wait()


@job("starter")
def starter(n: int) -> list[int]:
    """Start two workflows, also when it is tried again."""
    handles = [chain(add.s(each), double.s()).start(name="started") for each in (n, n + 1)]
    if current_run().attempt == 1:
        raise Retry(0)
    return [handle.workflow_id for handle in handles]


@cron("0 3 * * *", name="nightly", retries=3)
def nightly() -> None:
    """Start a workflow, and fail the first two times."""
    chain(add.s(1), add.s(y=2)).start(name="night", keep="7d")
    if current_run().attempt < 3:
        raise OSError("lost")
