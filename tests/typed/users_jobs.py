"""Functions as users declare them: checked strictly, without plugins, and run by a worker."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta

from bedrock_worker import (
    AsyncHandle,
    Fail,
    Handle,
    Job,
    Workflow,
    WorkflowHandle,
    as_completed,
    as_completed_async,
    chain,
    chord,
    cron,
    current_run,
    group,
    job,
    wait_all,
    wait_all_async,
)

from bedrockjobs import AsyncClient, Client, InvalidCommand, JobFailed
from bedrockjobs.testing import capture, eager


@dataclass
class Size:
    """The size of a picture."""

    width: int
    height: int


@job("resize", timeout="5m", retries=2, tags=["pictures"])
def resize(width: int, height: int = 600, *, day: date | None = None) -> Size:
    """Pretend to resize a picture."""
    run = current_run()
    run.progress(0.4, "half way")
    run.logger.info("%d x %d on %s", width, height, day and day.isoformat())
    return Size(width, height)


@job("double")
async def double(number: int, note: str | None = None) -> list[int]:
    """Return a number twice."""
    return [number, number]


@job("report/*")
def report(width: int) -> None:
    """Take an argument of a schedule."""


@job
def first(number: int) -> int:
    """Enqueue another job from a run."""
    return double.enqueue(number).job_id


@job("refuse/*")
def refuse(reason: str) -> None:
    """Fail permanently."""
    raise Fail(reason)


@job("flaky", retries=2, backoff=[1, "1m"], retry_on=(OSError, TimeoutError), give_up_on=FileNotFoundError)
def flaky(number: int) -> int:
    """Retry some errors."""
    return number


@job("slower", backoff=lambda attempt, error: timedelta(seconds=attempt * len(str(error))))
async def slower(number: int) -> int:
    """Wait longer each time."""
    return number


@job("look")
def look(job: Job) -> dict[str, int | str]:
    """Return its arguments."""
    return {"id": job.id, "who": str(job.data["who"])}


@cron("0 3 * * *", name="users/nightly", zone="Europe/Berlin", catchup="skip")
def nightly() -> None:
    """Run by a schedule."""


def plain(client: Client) -> tuple[Size, list[Handle[list[int]]]]:
    """Enqueue, and wait for what a function returns."""
    now = resize.using(client=client)
    handle = now.enqueue(800, day=date(2026, 11, 21))
    later = now.using(first_run=datetime.now() + timedelta(days=1), job_priority=750)
    later.enqueue(width=1)
    for delay in (timedelta(minutes=5), 300, 0.5, "5m"):
        now.using(delay=delay).enqueue(width=1)
    now.using(first_run=timedelta(minutes=5)).enqueue(width=1)
    size: Size = handle.wait(timeout=60)
    many = double.using(client=client).enqueue_many([{"number": 1}, {"number": 2, "note": "two"}])
    weekly = report.using(client=client, name="report/weekly", zone="Europe/Berlin", catchup="skip")
    print(weekly.schedule("0 9 * * 1", width=5))
    return size, many


def followed(client: Client) -> tuple[str, float, bool, list[int]]:
    """Follow jobs by their handles."""
    handles: list[Handle[int]] = [flaky.using(client=client).enqueue(number) for number in (1, 2)]
    for ended in as_completed(handles, timeout=60):
        number: int = ended.result()
        print(number)
    numbers: list[int] = wait_all(handles)
    progress = handles[0].progress()
    done = 0.0 if progress is None else progress.done
    return handles[0].status(), done, handles[1].cancel(), numbers


def tested() -> tuple[int, int]:
    """Test functions without a server."""
    with eager():
        number: int = flaky.enqueue(3).wait()
    with capture() as jobs:
        flaky.enqueue(4)
    found = jobs.assert_enqueued(flaky, number=4)
    checked: int = flaky.checked(5)
    return number + checked, found.job_id


async def followed_async(client: AsyncClient) -> list[int]:
    """Follow jobs without blocking."""
    handles = [await slower.using(client=client).aenqueue(number) for number in (1, 2)]
    async for ended in as_completed_async(handles):
        number: int = await ended.result()
        print(number, await ended.status())
    return await wait_all_async(handles)


async def gathered(client: AsyncClient) -> int:
    """The same with coroutines."""
    one: AsyncHandle[list[int]] = await double.using(client=client).aenqueue(number=3)
    numbers: list[int] = await one.wait(timeout=60)
    here: list[int] = await double(4)
    return sum(numbers) + sum(here)


@job("area")
def area(size: Size, factor: float = 1.0) -> float:
    """Return a result of another one's."""
    return factor * size.width * size.height


@job("total")
async def total(parts: list[float]) -> float:
    """Return a sum."""
    return sum(parts)


async def workflows(client: Client, other: AsyncClient) -> tuple[float, list[float], dict[str, object]]:
    """Start workflows."""
    one: WorkflowHandle[float] = chain(resize.s(800), area.s(factor=2.0)).start(client=client)
    both = chord([chain(resize.s(width), area.s()) for width in (1, 2)], total.s())
    each: list[float] = group(chain(resize.s(1), area.s()), area.s(Size(1, 2))).start(key="k").result(5)
    nested = chain(first.s(1), group(double.s(), double.s(note="x")), look.s())
    alone = chain(first.s(1), double.si(2))
    summed: float = await (await both.astart(client=other)).wait()
    workflow = Workflow("nightly", keep="1d")
    size = workflow.add(resize.s(800))
    workflow.add(area.s(size.result), after=[size], on_failure="ignore")
    workflow.add(area.s(Size(size.result.width, 1)), ref="last")
    workflow.add(total.s([1.0, workflow.add(area.s(size.result)).result]))
    workflow.add_to_current()
    print(nested.start().state(), alone.start().retry(), one.cancel(), summed, one.job_ids["area"])
    return one.wait(timeout=60), each, dict(workflow.start().result())


def mistakes(client: Client) -> list[str]:
    """Show the errors for wrong arguments and for a failed function."""
    try:
        resize.using(client=client, retries=-1).enqueue(width=1)
    except InvalidCommand as error:
        told = [str(error)]
    else:
        told = []
    try:
        refuse.using(client=client, name="refuse/one").enqueue("not today").wait(60)
    except JobFailed as failed:
        told.append(failed.error)
    return told
