"""Stand-ins for the server in tests of an application: ``eager`` runs jobs at once, ``capture`` records them.

Neither needs a server or a network. Both replace ``enqueue`` of every function until their block ends, also
in threads and tasks; of nested blocks the innermost counts.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from bedrock_worker.current import CurrentRun, Job, run_in_place
from bedrock_worker.enqueuing import (
    ENDED,
    AsyncHandle,
    AsyncJobFunction,
    Handle,
    JobFunction,
    Progress,
    received_by,
    result_of_run,
)
from bedrock_worker.functions import Declared, declared_in
from bedrock_worker.policy.python_module import load
from bedrock_worker.pull.job import TakenJob
from bedrock_worker.report.outcome import CompletedCommand, report_of
from bedrock_worker.retry_rules import RetryRules
from bedrock_worker.run.run_function import (
    DONE,
    FAIL_PERMANENTLY,
    RAISED,
    RETRY,
    SNOOZE,
    UNFIT,
    called_for_job,
    declaration,
    job_of,
    last_line,
    requested_by,
    traceback_of,
)
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import JobFailed, JobNotEnded, NotFound
from bedrockjobs.base.wire import timestamp
from bedrockjobs.client import Client
from bedrockjobs.commands import CreateJobs, GetJob, JobSpec, RunReply

AnyFunction = JobFunction[..., Any] | AsyncJobFunction[..., Any]

RETRIES_ASKED = 3
"""Retries of a job without such an option whose function asks for one, as of a worker's."""

SNOOZES_MAX = 100
"""Snoozes after which a job stays queued, so that a test ends."""


class EndedRun(NamedTuple):
    """How a function ended in this process."""

    status: int
    """The exit status that its process would have."""
    result: dict[str, Any] | None = None
    """The job's data, or the requested delay."""
    error: str = ""
    """The error as the worker reports it."""
    exception: BaseException | None = None


class _RunInTest(CurrentRun):
    """The current run of a function in a test, which keeps its progress."""

    said: Progress | None = None

    def progress(self, done: float, message: str = "") -> None:
        """Keep the progress; raises InvalidArgument for a number outside of 0 to 1."""
        if not 0 <= done <= 1:
            super().progress(done, message)
        self.said = Progress(float(done), message)


def run_once(declared: Declared, run: CurrentRun) -> EndedRun:
    """Call a declared function for the job of a run, as its process would."""
    rules = RetryRules(declared.options)
    try:
        with run_in_place(run):
            data = called_for_job(declared, declared.function, run.job, _finished)
            text = json.dumps(data, ensure_ascii=False, allow_nan=False)
        if data is not None and not isinstance(data, dict):
            raise TypeError(f"the function returned {type(data).__name__}, expected a dict or None")  # noqa: TRY301
        return EndedRun(DONE, json.loads(text))
    except Exception as error:
        return _of_error(error, rules, run.attempt)


def _finished(returned: Any) -> Any:
    """Return a value, or the result of a coroutine, in another thread if this one has an event loop."""
    if not inspect.iscoroutine(returned):
        return returned
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(returned)
    found: list[Any] = []
    failed: list[BaseException] = []
    context = copy_context()

    def run() -> None:
        try:
            found.append(context.run(asyncio.run, returned))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="eager job")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


def _of_error(error: Exception, rules: RetryRules, attempt: int) -> EndedRun:
    request = requested_by(error)
    if request is None:
        words = f"{last_line(error)}\n{traceback_of(error)}"
        try:
            decision = rules.decide(error, attempt) if rules else None
        except Exception:  # a worker prints it, and uses the job's backoff
            decision = None
        if decision is None:
            return EndedRun(RAISED, None, words, error)
        if decision.final:
            return EndedRun(FAIL_PERMANENTLY, None, words, error)
        delay = None if decision.delay is None else {"delay": decision.delay}
        return EndedRun(RETRY, delay, words, error)
    status = {"Snooze": SNOOZE, "Unfit": UNFIT, "Fail": FAIL_PERMANENTLY}.get(type(request).__name__, RETRY)
    delay_s = getattr(request, "delay", None)
    words = str(request) if status in (SNOOZE, UNFIT) else f"{type(request).__name__}: {request}"
    return EndedRun(status, None if delay_s is None else {"delay": delay_s}, words, error)


class Enqueued:
    """A job that was enqueued in a test."""

    def __init__(self, job_id: int, function: AnyFunction, spec: JobSpec) -> None:
        self.job_id, self.function, self.spec = job_id, function, spec
        self.arguments: dict[str, Any] = json.loads(spec.data)
        """The arguments by name, as JSON."""
        self.state = "QUEUED"
        self.attempts = 0
        """How often it was run; snoozed runs do not count."""
        self.errors: list[str] = []
        """The errors of its failed runs."""
        self.delays: list[int | None] = []
        """The requested delays before its retries, in seconds; None for the job's ``backoff``."""
        self.exception: BaseException | None = None
        """What the function raised in the last failed run."""
        self.said: Progress | None = None
        self.result: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """Return the job's name."""
        return str(self.spec.name)

    def __repr__(self) -> str:
        """Return it like a call: ``square(n=4)``."""
        return shown(self.function, self.arguments)

    def run(self) -> None:
        """Run the job until it ends, with its retries; delays are not waited for."""
        declared, snoozes = declaration_of(self.function), 0
        while self.state == "QUEUED" and snoozes < SNOOZES_MAX:
            self.attempts += 1
            run = _RunInTest(lambda: job_in_test(self))
            ended = run_once(declared, run)
            self.said = run.said or self.said
            if ended.status == DONE:
                self.state, self.result = "FINISHED", ended.result
            elif ended.status == SNOOZE:
                snoozes += 1
                self.attempts -= 1
            else:
                self._failed(ended)

    def _failed(self, ended: EndedRun) -> None:
        self.errors.append(ended.error)
        self.exception = ended.exception
        asked = RETRIES_ASKED if ended.status == RETRY else 0
        retries = asked if self.spec.retries is None else self.spec.retries
        if ended.status in (FAIL_PERMANENTLY, UNFIT) or len(self.errors) > retries:
            self.state = "FAILED"
        else:
            self.delays.append(ended.result["delay"] if ended.result else None)

    def outcome(self, timeout: float | None) -> Any:
        """Return the function's result; raises JobFailed or JobNotEnded as a wait for the job."""
        if self.state not in ENDED:
            limit = "" if timeout is None else f" within {timeout:g} s"
            raise JobNotEnded(
                f"job {self.job_id} has not ended{limit}: {self.state}; no worker runs in this test"
            )
        if self.state != "FINISHED":
            status = "cancelled" if self.state == "CANCELLED" else "fail"
            raise JobFailed(self.job_id, status, self.errors[-1] if self.errors else "") from self.exception
        return result_of_run(_run_reply(self), self.function.arguments)

    def cancel(self) -> bool:
        """Cancel the job; return False if it has ended."""
        cancelled = self.state not in ENDED
        self.state = "CANCELLED" if cancelled else self.state
        return cancelled


class HandleInTest(Handle[Any]):
    """The handle of a job in a test."""

    def __init__(self, job: Enqueued, *, created: bool = True) -> None:
        super().__init__(job.job_id, job.function.arguments, _no_client, created=created)
        self.job = job

    def status(self) -> str:
        """Return the job's state."""
        return self.job.state

    def progress(self) -> Progress | None:
        """Return the progress that the function reported last."""
        return self.job.said

    def cancel(self) -> bool:
        """Cancel the job; return False if it has ended."""
        return self.job.cancel()

    def wait(self, timeout: float | None = None) -> Any:
        """Return the result, or raise as the wait for a job does; never waits."""
        return self.job.outcome(timeout)


class AsyncHandleInTest(AsyncHandle[Any]):
    """The asyncio handle of a job in a test."""

    def __init__(self, job: Enqueued, *, created: bool = True) -> None:
        super().__init__(job.job_id, job.function.arguments, None, created=created)
        self.job = job

    async def status(self) -> str:
        """Return the job's state."""
        return self.job.state

    async def progress(self) -> Progress | None:
        """Return the progress that the function reported last."""
        return self.job.said

    async def cancel(self) -> bool:
        """Cancel the job; return False if it has ended."""
        return self.job.cancel()

    async def wait(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109  as AsyncHandle has it
        """Return the result, or raise as the wait for a job does; never waits."""
        return self.job.outcome(timeout)


class Jobs:
    """The jobs that were enqueued in a block, oldest first."""

    def __init__(self, *, runs: bool) -> None:
        self._runs, self._jobs, self._lock = runs, list[Enqueued](), threading.Lock()

    def take(self, function: AnyFunction, specs: Sequence[JobSpec]) -> list[tuple[Enqueued, bool]]:
        """Accept jobs instead of a server; return each, and whether it is new."""
        found = []
        for spec in specs:
            with self._lock:
                held = self._holder(spec)
                job = held or Enqueued(len(self._jobs) + 1, function, spec)
                if held is None:
                    self._jobs.append(job)
            if self._runs and held is None:
                job.run()
            found.append((job, held is None))
        return found

    def _holder(self, spec: JobSpec) -> Enqueued | None:
        """Return the job that holds a unique key."""
        for job in self._jobs if spec.unique_key is not None else ():
            if (job.name, job.spec.unique_key) == (spec.name, spec.unique_key) and job.state not in ENDED:
                return job
        return None

    def __iter__(self) -> Iterator[Enqueued]:
        """Iterate over the jobs."""
        return iter(list(self._jobs))

    def __len__(self) -> int:
        """Return the number of jobs."""
        return len(self._jobs)

    def __getitem__(self, at: int) -> Enqueued:
        """Return a job by its place."""
        return self._jobs[at]

    def of(self, function: AnyFunction, *args: Any, **arguments: Any) -> list[Enqueued]:
        """Return the jobs of a function, or those with these arguments; others may have any value."""
        wanted = function.arguments.some_to_data(args, arguments)
        return [job for job in self if _is_of(job, function) and not differences(job, wanted)]

    def assert_enqueued(self, function: AnyFunction, *args: Any, **arguments: Any) -> Enqueued:
        """Return the first job of a function with these arguments, and others of any value.

        Raises AssertionError, which lists what was enqueued instead.
        """
        found = self.of(function, *args, **arguments)
        if not found:
            wanted = function.arguments.some_to_data(args, arguments)
            raise AssertionError(
                f"{shown(function, wanted)} was not enqueued; {self._instead(function, wanted)}"
            )
        return found[0]

    def assert_not_enqueued(self, function: AnyFunction, *args: Any, **arguments: Any) -> None:
        """Raise AssertionError if there is a job of a function with these arguments."""
        found = self.of(function, *args, **arguments)
        if found:
            raise AssertionError(
                f"{found[0]!r} was enqueued" + (f", {len(found)} times" if len(found) > 1 else "")
            )

    def _instead(self, function: AnyFunction, wanted: Mapping[str, Any]) -> str:
        if not self._jobs:
            return "nothing was enqueued"
        lines = ["these jobs were:"]
        for job in self:
            differs = differences(job, wanted) if _is_of(job, function) else []
            lines.append(f"  {job!r}" + (f"   {'; '.join(differs)}" if differs else ""))
        return "\n".join(lines)


def run_due_jobs(module: str, client: Client) -> Iterator[TakenJob]:
    """Take due jobs of a module's functions from a server, run each in this process and report its end.

    Yields each job after its end. The module's schedules are declared first. What the functions enqueue goes
    to this server. Raises BadModule.
    """
    declared = load(module)
    if declared.schedules:
        client.call(declared.sync("test"))
    with received_by(_Sender(client)):
        while (job := _taken(client, declared.names)) is not None:
            function = declared.function_for(job.reply.name)
            assert function is not None, "it was taken by its name"
            run = _RunInTest(lambda given=job: job_of(json.loads(given.text)))  # type: ignore[misc]
            ended = run_once(declaration(function.module, function.name), run)
            result = None if ended.result is None else json.dumps(ended.result)
            completed = CompletedCommand(ended.status, result=result, failure=ended.error or None)
            client.call(report_of(job, completed, None))
            yield job


def _taken(client: Client, names: Sequence[str]) -> TakenJob | None:
    """Take the next due job, if there is one."""
    try:
        reply = client.call(GetJob(names=list(names), worker="test"))
    except NotFound:
        return None
    return TakenJob(reply.model_dump_json(by_alias=True, exclude_none=True), reply)


@contextmanager
def eager() -> Iterator[Jobs]:
    """Run enqueued jobs at once, in this process and with their arguments through JSON and back.

    ``enqueue`` returns the handle of a job that has ended. Failed runs are retried as often as a worker's
    would be, without a delay.
    """
    jobs = Jobs(runs=True)
    with received_by(_Receiver(jobs)):
        yield jobs


@contextmanager
def capture() -> Iterator[Jobs]:
    """Record enqueued jobs instead of sending them; their handles stay QUEUED."""
    jobs = Jobs(runs=False)
    with received_by(_Receiver(jobs)):
        yield jobs


class _Receiver:
    """Gives what functions enqueue to the jobs of a block."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def enqueue(self, function: Any, specs: Sequence[JobSpec]) -> list[Any]:
        """Return the handles of new jobs."""
        return [HandleInTest(job, created=new) for job, new in self._jobs.take(function, specs)]

    async def aenqueue(self, function: Any, specs: Sequence[JobSpec]) -> list[Any]:
        """Return the asyncio handles of new jobs."""
        taken = await asyncio.to_thread(self._jobs.take, function, specs)
        return [AsyncHandleInTest(job, created=new) for job, new in taken]


class _Sender:
    """Sends what functions enqueue to a server, whatever server they have otherwise."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def enqueue(self, function: Any, specs: Sequence[JobSpec]) -> list[Any]:
        """Create the jobs, and return their handles."""
        reply = self._client.call(CreateJobs(jobs=list(specs)))
        return [function.using(client=self._client).handle(job_id) for job_id in reply.job_ids]

    async def aenqueue(self, function: Any, specs: Sequence[JobSpec]) -> list[Any]:
        """Create the jobs, and return their asyncio handles."""
        reply = await asyncio.to_thread(self._client.call, CreateJobs(jobs=list(specs)))
        return [function.ahandle(job_id) for job_id in reply.job_ids]


def declaration_of(function: AnyFunction) -> Declared:
    """Return the declaration of a function; raises LookupError."""
    for declared in declared_in(function.function.__module__):
        if declared.function is function.function:
            return declared
    raise LookupError(f"{function.function.__qualname__} is not declared with @job")


def job_in_test(job: Enqueued) -> Job:
    """Return the job as its function sees it."""
    now = SystemClock().now()
    fields = {"jobID": job.job_id, "name": job.name, "data": job.arguments, "nextRun": timestamp(now)}
    data = json.loads(json.dumps(job.arguments))
    due = datetime.fromtimestamp(now.timestamp(), UTC) - timedelta(microseconds=now.microsecond)
    return Job(job.job_id, job.name, data, job.attempts, job.job_id, due, fields)


def differences(job: Enqueued, wanted: Mapping[str, Any]) -> list[str]:
    """Return how the arguments of a job differ from the wanted ones."""
    given = {**job.function.arguments.defaults(), **job.arguments}
    found = []
    for name, value in wanted.items():
        if name not in given:
            found.append(f"{name}: expected {value!r}, it has none")
        elif given[name] != value or type(given[name]) is not type(value):
            found.append(f"{name}: expected {value!r}, got {given[name]!r}")
    return found


def shown(function: AnyFunction, arguments: Mapping[str, Any]) -> str:
    """Return a call for people: ``square(n=4)``."""
    inside = ", ".join(f"{name}={value!r:.80}" for name, value in arguments.items())
    return f"{function.function.__qualname__}({inside})"


def _is_of(job: Enqueued, function: AnyFunction) -> bool:
    return job.function.function is function.function


def _no_client() -> Any:
    raise LookupError("a job in a test has no server")


def _run_reply(job: Enqueued) -> RunReply:
    """Return the last run of a job as a server would."""
    now = timestamp(SystemClock().now())
    return RunReply(
        run_id=job.job_id,
        job_id=job.job_id,
        name=job.name,
        attempt=job.attempts,
        cause="queue",
        scheduled_for=now,
        started=now,
        ended=now,
        worker="test",
        host="",
        pid=0,
        status="success",
        error="",
        result=job.result,
        stop="",
    )
