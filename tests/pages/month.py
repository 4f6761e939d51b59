"""A month of a small shop's queue, on a test clock, for screenshots.

Schedules that ran, some that failed; mail, thumbnails and invoices of the last hours; a pause with a reason,
a backlog behind it, names that nobody takes, and runs in progress.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from bedrockjobs.base.clock import moment_of
from bedrockjobs.base.errors import NotFound
from bedrockjobs.client import AsyncClient
from bedrockjobs.commands import (
    AdvanceClock,
    AppendOutput,
    CreateJob,
    CreateWorkflow,
    FailJob,
    FinishJob,
    GetJob,
    Heartbeat,
    JobReply,
    PauseJobs,
    SetLimit,
    UpdateJob,
)

START = datetime(2026, 10, 21, 6, 0, tzinfo=UTC)
BUSY = timedelta(hours=3)
"""How long the last jobs of programs come for."""

END = datetime(2026, 11, 20, 13, 57, tzinfo=UTC)
STEPS_MAX = 5_000
"""Moments at which something became due: more than a month has."""

SCHEDULES: dict[str, tuple[str, dict[str, Any]]] = {
    "backup/nightly": ("TZ=Europe/Berlin 30 2 * * *", {"retries": 1, "note": "To the other site."}),
    "report/sales": ("TZ=Europe/Berlin 0 9 * * 1-5", {"tags": ["reports"]}),
    "clean/sessions": ("0 */2 * * *", {"catchup": "skip"}),
    "invoice/monthly": ("TZ=Europe/Berlin 0 6 1 * *", {"tags": ["money"]}),
    "sync/crm": ("TZ=Australia/Sydney 30 2 * * *", {"tags": ["crm"]}),
    "search/reindex": ("TZ=Europe/Berlin 0 4 * * SUN", {"run_timeout": 3_600}),
}
WORKERS = {
    "eu-1": ["mail/*", "thumbnail/*"],
    "eu-2": ["thumbnail/*", "invoice/*"],
    "cron-1": ["backup/*", "report/*", "clean/*", "invoice/*", "search/*", "sync/*"],
    "etl-1": ["etl/*"],
}
FAULTS = {
    "mail": "smtp.example.com: 451 try again later",
    "thumbnail": "not an image: unexpected end of file",
    "sync": "requests.exceptions.HTTPError: 401 Unauthorized: https://crm.example.com/api/v2/contacts",
    "report": "psycopg.OperationalError: connection refused: db2.internal, port 5432",
    "backup": "tar: write error: no space left on device",
}

TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/jobs/mail.py", line 41, in receipt
    send(render(order))
  File "/srv/shop/venv/lib/python3.11/site-packages/jinja2/environment.py", line 1301, in render
    self.environment.handle_exception()
  File "/srv/shop/venv/lib/python3.11/site-packages/jinja2/environment.py", line 936, in handle_exception
    raise rewrite_traceback_stack(source=source)
  File "/srv/shop/templates/receipt.txt", line 12, in top-level template code
jinja2.exceptions.UndefinedError: 'order' has no attribute 'vat'
"""


class Month:
    """Lives through it."""

    def __init__(self, client: AsyncClient) -> None:
        """Do it through a client of a server with a test clock."""
        self._client = client
        self._random = random.Random(7)
        self._now = START
        self.failed_run = self.schedule = self.failed_job = self.failing = self.workflow = 0
        self._open: list[int] = []

    async def live(self) -> None:
        """Do all of it."""
        for name, (expression, more) in SCHEDULES.items():
            found = await self._client.call(CreateJob(name=name, repeat=f"CRON {expression}", **more))
            self.schedule = self.schedule or found.job_id
            self.failing = found.job_id if name == "sync/crm" else self.failing
        await self._run_schedules(END - BUSY)
        await self._be_busy()
        await self._deploy_badly()
        await self._run_workflows()
        await self._leave_things_open()

    async def _run_schedules(self, until: datetime) -> None:
        for _ in range(STEPS_MAX):
            self._now = moment_of((await self._client.call(AdvanceClock())).now)
            await self.beat()
            while (job := await self._taken("cron-1")) is not None:
                await self._do_schedule(job)
            if self._now >= until:
                return
        raise AssertionError(f"expected {until} within {STEPS_MAX} steps")

    async def _do_schedule(self, job: JobReply) -> None:
        kind = job.name.partition("/")[0]
        lines = [f"{job.next_run[:10]}: begin", *(f"part {number} of 4 done" for number in range(1, 5))]
        seconds = self._random.randint(8, 90) if kind != "search" else 1_400
        fails = kind == "report" and (self._now.month, self._now.day) >= (11, 18)
        fails |= kind == "sync"
        fails |= kind == "backup" and self._now.day in (2, 9) and job.attempt == 1
        await self._do(job, lines, seconds, FAULTS[kind] if fails else "")

    async def _be_busy(self) -> None:
        """Let programs create jobs each minute, which are done soon after."""
        while self._now < END:
            for _ in range(self._random.randint(2, 6)):
                name, data = self._work()
                await self._client.call(CreateJob(name=name, data=data, retries=1, backoff=30))
            await self.beat()
            for worker in ("eu-1", "eu-2"):
                while (job := await self._taken(worker)) is not None:
                    fault = FAULTS[job.name.partition("/")[0]] if self._random.random() < 0.04 else ""
                    await self._do(job, [f"{job.name}: begun"], self._random.randint(1, 3), fault)
            await self._pass(60)

    async def _deploy_badly(self) -> None:
        """Let a deploy break one kind of job, until somebody notices."""
        for number in range(40):
            await self._client.call(CreateJob(name="mail/receipt", data={"order": 7_000 + number}))
            job = await self._taken("eu-1", "mail/receipt")
            assert job is not None
            await self._do(job, [f"{job.name}: begun"], 1, TRACEBACK)

    async def _run_workflows(self) -> None:
        """Let one workflow finish, and leave one with a failure and one that runs."""
        steps = {"extract": [], "clean": ["extract"], "load": ["clean"], "index": ["clean"]}
        steps["report"] = ["load", "index"]
        for number in range(3):
            jobs = [{"ref": ref, "name": f"etl/{ref}", "after": after} for ref, after in steps.items()]
            made = await self._client.call(CreateWorkflow.read({"name": "etl/nightly", "jobs": jobs}))
            done = 0
            while done < (5, 3, 2)[number] and (job := await self._taken("etl-1")) is not None:
                fault = "duplicate key value violates unique constraint" if (number, done) == (1, 2) else ""
                await self._do(job, [f"{job.name}: begun"], self._random.randint(5, 60), fault)
                done += 1
            self.workflow = made.workflow_id if number == 1 else self.workflow
            await self._pass(20)

    async def _leave_things_open(self) -> None:
        pause = PauseJobs(name="invoice/*", reason="the tax rates are being corrected", by="ann")
        await self._client.call(pause)
        await self._client.call(SetLimit(name="mail/*", running=4, per_second=50, by="ann"))
        await self._client.call(SetLimit(name="api/*", starts="100/1m", burst=10, by="ben"))
        for number in range(23):
            await self._client.call(CreateJob(name="invoice/order", data={"order": 8_412 + number}))
        for number in range(4):
            await self._client.call(CreateJob(name="export/csv", data={"shop": number}))
        for number in range(6):
            await self._client.call(CreateJob(name="mail/newsletter", data={"list": number}))
        for percent, word in ((35, "1,204 of 3,440 sent"), (80, "2,752 of 3,440 sent")):
            job = await self._taken("eu-1", "mail/newsletter")
            assert job is not None
            assert job.run_id is not None
            self._open.append(job.run_id)
            await self._client.call(
                UpdateJob(
                    job_id=job.job_id, run_id=job.run_id, progress={"percent": percent, "message": word}
                )
            )
        await self._pass(41)
        await self.beat()

    def _work(self) -> tuple[str, dict[str, Any]]:
        number = self._random.randint(1_000, 9_999)
        kind = self._random.choice(("mail/welcome", "mail/receipt", "thumbnail/product", "thumbnail/avatar"))
        if kind.startswith("mail"):
            return kind, {"to": f"customer{number}@example.com", "order": number}
        return kind, {"image": f"{number}.jpg", "sizes": [64, 256, 1_024]}

    async def _taken(self, worker: str, name: str = "") -> JobReply | None:
        names = [name] if name else WORKERS[worker]
        take = GetJob(names=names, worker=worker, host=f"{worker}.internal", heartbeat=True)
        try:
            return await self._client.call(take)
        except NotFound:
            return None

    async def _do(self, job: JobReply, lines: list[str], seconds: int, error: str = "") -> None:
        """Print lines, let time pass and end the run, badly with an error."""
        assert job.run_id is not None
        said: list[Any] = [*lines, *([{"line": error, "stream": "err"}] if error else ["done"])]
        await self._client.call(AppendOutput(run_id=job.run_id, seq=1, lines=said))
        await self._pass(seconds)
        if not error:
            await self._client.call(FinishJob(job_id=job.job_id, run_id=job.run_id, exit_code=0))
            return
        words = f"exit status 1\n{error}"
        await self._client.call(FailJob(job_id=job.job_id, run_id=job.run_id, exit_code=1, error=words))
        self.failed_run = job.run_id
        if job.name not in SCHEDULES and job.attempt > 1:  # it was its last try, so the job is still there
            self.failed_job = job.job_id

    async def _pass(self, seconds: int) -> None:
        self._now = moment_of((await self._client.call(AdvanceClock(seconds=seconds))).now)

    async def beat(self) -> None:
        """Keep the workers and their runs alive, which no clock of a test does."""
        for worker, names in WORKERS.items():
            runs = self._open if worker == "eu-1" else []
            told = {"host": f"{worker}.internal", "pid": 4_711, "names": names, "slots": 4}
            await self._client.call(Heartbeat(worker=worker, run_ids=runs, **told))
