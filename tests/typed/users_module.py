"""A module as users of the clients write it: it is checked strictly, without plugins, and it is run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from bedrockjobs import (
    AsyncClient,
    BedrockjobsError,
    Client,
    CommandError,
    ConnectionLost,
    CreateJob,
    CreateJobs,
    DeleteJob,
    FailJob,
    FinishJob,
    GetJob,
    GetJobs,
    InvalidCommand,
    JobReply,
    JobSpec,
    ListJobs,
    ListRuns,
    NotFound,
    QueryJob,
    QueryRun,
    RetryJob,
    ServerUnreachable,
    SyncSchedules,
    UpdateJob,
)


@dataclass(frozen=True)
class Picture:
    """The data of a job."""

    source: str
    width: int


def order(client: Client, picture: Picture) -> int:
    """Create a job with options and return its id."""
    command = CreateJob(
        name=f"resize/{picture.source}",
        data={"source": picture.source, "width": picture.width},
        job_priority=750,
        retries=3,
        backoff=10,
        run_timeout=300,
        lock=True,
        tags=["pictures"],
        on_lost="retry",
        first_run=datetime.now(UTC),
    )
    return client.call(command).job_id


def order_many(client: Client, pictures: list[Picture]) -> list[int]:
    """Create several jobs, all or none."""
    jobs = [JobSpec(name=f"resize/{each.source}", data={"width": each.width}) for each in pictures]
    return client.call(CreateJobs(jobs=jobs)).job_ids


def work(client: Client) -> dict[str, int]:
    """Take jobs, and finish or fail them."""
    widths: dict[str, int] = {}
    for job in client.call(GetJobs(name="resize/*", num_results=10, worker="one")).jobs:
        width = width_of(job)
        widths[job.name] = width
        if width <= 0:
            client.call(FailJob(job_id=job.job_id, run_id=job.run_id, error="no width", final=True))
        else:
            client.call(FinishJob(job_id=job.job_id, run_id=job.run_id, data={"width": width}))
    return widths


def width_of(job: JobReply) -> int:
    """Return a field of a job's data."""
    return int(job.data.get("width", 0))


def one_by_one(client: Client) -> str:
    """Take a job, change it, and retry it; without a job, return the reason."""
    try:
        job = client.call(GetJob(name="resize/*"))
        client.call(UpdateJob(job_id=job.job_id, data={"width": 1}))
        client.call(RetryJob(job_id=job.job_id, delay=0))
        client.call(DeleteJob(job_id=job.job_id))
    except NotFound as error:
        return error.reason
    except CommandError as error:
        return f"{error.code} {error.detail}"
    except (ServerUnreachable, ConnectionLost) as error:
        return str(error)
    return job.name


def mistake() -> str:
    """Create an invalid command; every error of the package has one base class."""
    try:
        CreateJob(name="")
    except InvalidCommand as error:
        one_of_them: BedrockjobsError = error
        a_value_error: ValueError = error
        return f"{error.reason}, {one_of_them}, {a_value_error}"
    raise AssertionError


async def look(server: str) -> list[tuple[str, str, str | None]]:
    """Send several commands at once."""
    async with AsyncClient(server) as client:
        runs, jobs = await asyncio.gather(
            client.call(ListRuns(name="resize/*", limit=10)), client.call(ListJobs(limit=10))
        )
        states = [(await client.call(QueryJob(job_id=job.job_id))).state for job in jobs.jobs]
        whole = [await client.call(QueryRun(run_id=run.run_id)) for run in runs.runs]
    return [(run.name, run.status, state) for run, state in zip(whole, [*states, None], strict=False)]


def schedule(client: Client) -> list[str]:
    """Synchronize the schedules of a source."""
    nightly = JobSpec(name="report/nightly", repeat="CRON TZ=Europe/Berlin 0 2 * * *", catchup="skip")
    return client.call(SyncSchedules(source="reports", schedules=[nightly])).added
