"""Functions as users declare them: checked strictly, without plugins, and run by a worker."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta

from bedrock_worker import AsyncHandle, Fail, Handle, Job, cron, current_run, job

from bedrockjobs import AsyncClient, Client, InvalidCommand, JobFailed


@dataclass
class Size:
    """What a picture measures."""

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


@job("first")
def first(number: int) -> int:
    """Enqueue another job from a run."""
    return double.enqueue(number).job_id


@job("refuse/*")
def refuse(reason: str) -> None:
    """Fail for good."""
    raise Fail(reason)


@job("look")
def look(job: Job) -> dict[str, int | str]:
    """Say what it was given."""
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
    size: Size = handle.wait(timeout=20)
    many = double.using(client=client).enqueue_many([{"number": 1}, {"number": 2, "note": "two"}])
    weekly = report.using(client=client, name="report/weekly", zone="Europe/Berlin", catchup="skip")
    print(weekly.schedule("0 9 * * 1", width=5))
    return size, many


async def gathered(client: AsyncClient) -> int:
    """Do the same without blocking."""
    one: AsyncHandle[list[int]] = await double.using(client=client).aenqueue(number=3)
    numbers: list[int] = await one.wait(timeout=20)
    here: list[int] = await double(4)
    return sum(numbers) + sum(here)


def mistakes(client: Client) -> list[str]:
    """Show what is told of arguments that do not fit, and of a function that failed."""
    try:
        resize.using(client=client, retries=-1).enqueue(width=1)
    except InvalidCommand as error:
        told = [str(error)]
    else:
        told = []
    try:
        refuse.using(client=client, name="refuse/one").enqueue("not today").wait(20)
    except JobFailed as failed:
        told.append(failed.error)
    return told
