"""Stand-ins for the server in tests of an application: ``eager`` runs jobs at once, ``capture`` records them.

Neither needs a server or a network. Until its ``with`` block ends, each takes the jobs that any function
enqueues, also in other threads and tasks; of nested blocks, the innermost takes them.
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

from bedrock_worker.arguments import PASSED
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
from bedrock_worker.functions import (
    DONE,
    FAIL_PERMANENTLY,
    RAISED,
    RETRY,
    SNOOZE,
    UNFIT,
    Declared,
    Fail,
    RetryRules,
    declared_in,
)
from bedrock_worker.policy.python_module import load
from bedrock_worker.pull import TakenJob
from bedrock_worker.report.reporter import RETRIES_ASKED, CompletedCommand, report_of
from bedrock_worker.run.run_function import (
    awaited_for_job,
    called_for_job,
    declaration,
    job_of,
    last_line,
    requested_by,
    traceback_of,
)
from bedrock_worker.workflows import filled
from bedrockjobs.base.clock import SystemClock, retry_after_s, timestamp
from bedrockjobs.base.errors import BadArguments, JobFailed, JobNotEnded, NotFound, WrongState
from bedrockjobs.client import Client
from bedrockjobs.commands import (
    AddedReply,
    AddToWorkflow,
    CancelledReply,
    CancelWorkflow,
    Command,
    CreateJobs,
    CreateWorkflow,
    GetJob,
    JobSpec,
    QueryWorkflow,
    Reply,
    RetriedReply,
    RetryWorkflow,
    RunReply,
    WholeWorkflowReply,
    WorkflowIDReply,
    WorkflowJob,
    WorkflowJobReply,
)

AnyFunction = JobFunction[..., Any] | AsyncJobFunction[..., Any]


class EndedRun(NamedTuple):
    """How a function ended in this process."""

    status: int
    """The exit status that its process would have."""
    result: dict[str, Any] | None = None
    """The job's new data, or ``{"delay": seconds}`` if the function asked for one, or None."""
    error: str = ""
    """The error as the worker reports it."""
    exception: BaseException | None = None


class _RunInTest(CurrentRun):
    """The current run of a function in a test; keeps the progress that the function reports."""

    said: Progress | None = None

    def progress(self, done: float, message: str = "") -> None:
        """Keep the progress; raises InvalidArgument for a number outside of 0 to 1."""
        if not 0 <= done <= 1:
            super().progress(done, message)
        self.said = Progress(float(done), message)


def run_once(declared: Declared, run: CurrentRun) -> EndedRun:
    """Call a declared function for the job of a run, as the process of a worker does."""
    rules = RetryRules(declared.options)
    try:
        _ = run.job
    except Fail as error:  # the result of a job before it is missing
        return _of_error(error, rules, 1)
    try:
        with run_in_place(run):
            data = _called(declared, run.job)
            text = json.dumps(data, ensure_ascii=False, allow_nan=False)
        if data is not None and not isinstance(data, dict):
            raise TypeError(f"the function returned {type(data).__name__}, expected a dict or None")  # noqa: TRY301
        return EndedRun(DONE, json.loads(text))
    except Exception as error:
        return _of_error(error, rules, run.attempt)


def _called(declared: Declared, job: Job) -> Any:
    if inspect.iscoroutinefunction(declared.function):
        return _finished(awaited_for_job(declared, declared.function, job))
    return called_for_job(declared, declared.function, job, _finished)


def _finished(returned: Any) -> Any:
    """Return a value as it is, or run a coroutine and return its result.

    The coroutine runs in another thread if this one has a running event loop.
    """
    if not inspect.iscoroutine(returned):
        return returned
    if not _is_in_loop():
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


def _is_in_loop() -> bool:
    """Return whether this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _of_error(error: Exception, rules: RetryRules, attempt: int) -> EndedRun:
    request = requested_by(error)
    if request is None:
        words = f"{last_line(error)}\n{traceback_of(error)}"
        try:
            decision = rules.decide(error, attempt) if rules else None
        except Exception:  # a worker prints the exception, and uses the job's backoff
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


_NO_PLACE = WorkflowJob(name="none", ref="none")


class Enqueued:
    """A job that was enqueued in a test."""

    def __init__(self, job_id: int, function: AnyFunction, spec: JobSpec) -> None:
        self.job_id, self.function, self.spec = job_id, function, spec
        self.arguments: dict[str, Any] = json.loads(spec.data)
        """The arguments by name, as JSON values; the result of another job is None until this job runs."""
        self.arguments.pop(PASSED, None)
        self.state = "QUEUED"
        self.attempts = 0
        """How many runs it has had; snoozed runs do not count."""
        self.errors: list[str] = []
        """The errors of its failed runs."""
        self.delays: list[int] = []
        """The delays that its retries would have had, in seconds; where the job's ``backoff`` applies,
        without the random part that a server adds."""
        self.exception: BaseException | None = None
        """What the function raised in the last failed run."""
        self.said: Progress | None = None
        self.result: dict[str, Any] | None = None
        self.workflow: WorkflowInTest | None = None
        self.place = spec if isinstance(spec, WorkflowJob) else _NO_PLACE
        """Its entry in the workflow: ``ref``, ``after``, ``on_failure``; outside of a workflow a dummy."""
        self.reason = ""
        """Why it was cancelled, if it is a job of a workflow; otherwise empty."""

    @property
    def name(self) -> str:
        """Return the job's name."""
        return str(self.spec.name)

    def __repr__(self) -> str:
        """Return the job as a function call: ``square(n=4)``."""
        return shown(self.function, self.arguments)

    def run(self) -> None:
        """Run the job and its retries until it ends, without waiting for delays."""
        declared, snoozes = declaration_of(self.function), 0
        while self.state == "QUEUED" and snoozes < 100:  # then it stays queued, so that the test ends
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
            self.delays.append(ended.result["delay"] if ended.result else self._backoff_s())

    def _backoff_s(self) -> int:
        return retry_after_s(self.spec.backoff, self.spec.max_backoff, len(self.errors))

    def outcome(self, timeout: float | None) -> Any:
        """Return the function's result; raises JobFailed or JobNotEnded, as ``Handle.wait`` does."""
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
        """Return the result, or raise what ``wait`` of a handle raises; never waits."""
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
        """Return the result, or raise what ``wait`` of a handle raises; never waits."""
        return self.job.outcome(timeout)


class Jobs:
    """The jobs that were enqueued in a block, oldest first."""

    def __init__(self, *, runs: bool) -> None:
        self._runs, self._jobs, self._lock = runs, list[Enqueued](), threading.Lock()
        self.workflows: list[WorkflowInTest] = []
        """The workflows that were started, oldest first."""

    def take(self, function: AnyFunction, specs: Sequence[JobSpec]) -> list[tuple[Enqueued, bool]]:
        """Accept jobs in place of a server; return each job, and whether it is new."""
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

    def start(self, command: CreateWorkflow, functions: Sequence[AnyFunction]) -> tuple[WorkflowInTest, bool]:
        """Accept a workflow in place of a server; return it, and whether it is new."""
        with self._lock:
            for known in self.workflows:
                if command.idempotency_key is not None and known.key == command.idempotency_key:
                    return known, False
            workflow = WorkflowInTest(len(self.workflows) + 1, command.name, command.idempotency_key)
            self.workflows.append(workflow)
        self.extend(workflow, command.jobs, functions)
        return workflow, True

    def extend(
        self, workflow: WorkflowInTest, specs: Sequence[WorkflowJob], functions: Sequence[AnyFunction]
    ) -> None:
        """Add to a workflow those jobs that it does not have yet, and run what can run."""
        with self._lock:
            for spec, function in zip(specs, functions, strict=True):
                if spec.ref not in workflow.jobs:
                    job = Enqueued(len(self._jobs) + 1, function, spec)
                    job.workflow, job.state = workflow, "PAUSED" if spec.after else "QUEUED"
                    workflow.jobs[spec.ref] = job
                    self._jobs.append(job)
        self.proceed(workflow)

    def proceed(self, workflow: WorkflowInTest) -> None:
        """Run the jobs of a workflow that can start, unless one of its jobs is running."""
        if self._runs and not workflow.runs:
            workflow.runs = True
            try:
                while (job := workflow.next()) is not None:
                    job.run()
            finally:
                workflow.runs = False

    def _holder(self, spec: JobSpec) -> Enqueued | None:
        """Return the job that holds the unique key of a new job, or None."""
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
        """Return the job at an index."""
        return self._jobs[at]

    def of(self, function: AnyFunction, *args: Any, **arguments: Any) -> list[Enqueued]:
        """Return the jobs of a function with the given arguments; arguments not given may have any value."""
        wanted = function.arguments.some_to_data(args, arguments)
        return [job for job in self if _is_of(job, function) and not differences(job, wanted)]

    def assert_enqueued(self, function: AnyFunction, *args: Any, **arguments: Any) -> Enqueued:
        """Return the first job of a function with the given arguments; any other argument may have any value.

        If there is none, raises AssertionError, which lists what was enqueued instead.
        """
        found = self.of(function, *args, **arguments)
        if not found:
            wanted = function.arguments.some_to_data(args, arguments)
            raise AssertionError(
                f"{shown(function, wanted)} was not enqueued; {self._instead(function, wanted)}"
            )
        return found[0]

    def assert_not_enqueued(self, function: AnyFunction, *args: Any, **arguments: Any) -> None:
        """Raise AssertionError if there is a job of a function with the given arguments."""
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


class WorkflowInTest:
    """A workflow that was started in a test."""

    def __init__(self, workflow_id: int, name: str, key: str | None) -> None:
        self.workflow_id, self.name, self.key = workflow_id, name, key
        self.jobs: dict[str, Enqueued] = {}
        """Its jobs by ``ref``."""
        self.runs = False
        self._cancelled = False

    @property
    def state(self) -> str:
        """Return the state as a server shows it."""
        jobs = self.jobs.values()
        if any(job.state not in ENDED for job in jobs):
            return "RUNNING"
        bad = [job for job in jobs if job.state != "FINISHED" and job.place.on_failure != "ignore"]
        return "CANCELLED" if self._cancelled else "FAILED" if bad else "FINISHED"

    def next(self) -> Enqueued | None:
        """Return the next job that can run, or None; cancel jobs that can no longer run, since one failed."""
        for job in self.jobs.values():
            if job.state == "PAUSED":
                before = [self.jobs[ref] for ref in job.place.after]
                stops = next((each for each in before if each.state in ENDED and not _lets_pass(each)), None)
                if stops is not None:
                    how = "was cancelled" if stops.state == "CANCELLED" else "failed"
                    job.state = "CANCELLED"
                    job.reason = f"Job {stops.job_id} ({stops.place.ref}) before it {how}"
                elif all(each.state in ENDED for each in before):
                    job.state = "QUEUED"
            if job.state == "QUEUED" and not job.attempts:
                return job
        return None

    def cancel(self) -> None:
        """Cancel the jobs that have not ended."""
        self._cancelled = self.state != "FINISHED"
        for job in self.jobs.values():
            if job.cancel():
                job.reason = "The workflow was cancelled"

    def retry(self) -> int:
        """Let failed and cancelled jobs run again; return how many there are."""
        bad = [job for job in self.jobs.values() if job.state in ("FAILED", "CANCELLED")]
        if not bad:
            raise WrongState("Nothing to retry", f"workflowID: it is {self.state}")
        self._cancelled = False
        for job in bad:
            job.state, job.reason, job.errors, job.delays, job.attempts = "PAUSED", "", [], [], 0
        return len(bad)

    def reply(self, *, results: bool) -> WholeWorkflowReply:
        """Return the workflow as a server shows it."""
        jobs = [
            WorkflowJobReply(
                job_id=job.job_id,
                ref=ref,
                name=job.name,
                state=job.state,
                waits=0,
                on_failure=job.place.on_failure,
                started="",
                ended="",
                reason=job.errors[-1] if job.state == "FAILED" else job.reason,
                after=job.place.after,
                result=job.result if results else None,
            )
            for ref, job in self.jobs.items()
        ]
        return WholeWorkflowReply(
            workflow_id=self.workflow_id,
            name=self.name,
            state=self.state,
            created="",
            ended="",
            kept="",
            open=sum(job.state not in ENDED for job in self.jobs.values()),
            failed=sum(job.state == "FAILED" for job in self.jobs.values()),
            jobs=jobs,
        )


def _lets_pass(job: Enqueued) -> bool:
    """Return whether the jobs after an ended job may start."""
    return job.state == "FINISHED" or (not job.reason and job.place.on_failure != "cancel")


class _WorkflowsInTest:
    """Executes the commands of workflows in a test, in place of a Client."""

    def __init__(self, jobs: Jobs, functions: Sequence[AnyFunction]) -> None:
        self._jobs, self._functions = jobs, functions

    def call(self, command: Command[Any]) -> Reply:
        """Execute a command; raises what a server refuses, and JobNotEnded for a wait that would not end."""
        if isinstance(command, CreateWorkflow):
            workflow, _ = self._jobs.start(command, self._functions)
            ids = {ref: job.job_id for ref, job in workflow.jobs.items()}
            return WorkflowIDReply(workflow_id=workflow.workflow_id, job_ids=ids)
        if isinstance(command, AddToWorkflow):
            workflow = next(each for each in self._jobs.workflows if _holds(each, command.job_id))
            for spec in command.jobs:
                missing = {*spec.after} - {*workflow.jobs, *(each.ref for each in command.jobs)}
                if missing:
                    words = f"after: expected refs of the workflow, there is no {missing.pop()}"
                    raise BadArguments("Malformed after", words)
            self._jobs.extend(workflow, command.jobs, self._functions)
            return AddedReply(job_ids={spec.ref: workflow.jobs[spec.ref].job_id for spec in command.jobs})
        assert isinstance(command, QueryWorkflow | CancelWorkflow | RetryWorkflow)
        workflow = self._jobs.workflows[command.workflow_id - 1]
        if isinstance(command, CancelWorkflow):
            workflow.cancel()
            return CancelledReply(state=workflow.state, stopping=0)
        if isinstance(command, RetryWorkflow):
            count = workflow.retry()
            self._jobs.proceed(workflow)
            return RetriedReply(retried=count)
        if command.waiting and workflow.state == "RUNNING":
            raise JobNotEnded(f"workflow {workflow.workflow_id} has not ended; no worker runs in this test")
        found = workflow.reply(results=command.results)
        jobs = [job for job in found.jobs if job.job_id > command.after][: command.limit]
        return found.model_copy(update={"jobs": jobs})


def _holds(workflow: WorkflowInTest, job_id: int | None) -> bool:
    return any(job.job_id == job_id for job in workflow.jobs.values())


def run_due_jobs(module: str, client: Client) -> Iterator[TakenJob]:
    """Take due jobs of a module's functions from a server, run each in this process and report its end.

    Yields each job after its end. The module's schedules are applied to the server first. Jobs that functions
    enqueue go to the same server. Raises BadModule.
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
    """Run enqueued jobs at once in this process, with arguments converted to JSON and back.

    ``enqueue`` returns the handle of a job that has ended. A failed run is retried as often as with a worker,
    without a delay.
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
    """Adds what functions enqueue to the ``Jobs`` of a block."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def enqueue(self, function: Any, specs: Sequence[JobSpec]) -> list[Any]:
        """Return the handles of new jobs."""
        return [HandleInTest(job, created=new) for job, new in self._jobs.take(function, specs)]

    async def aenqueue(self, function: Any, specs: Sequence[JobSpec]) -> list[Any]:
        """Return the asyncio handles of new jobs."""
        taken = await asyncio.to_thread(self._jobs.take, function, specs)
        return [AsyncHandleInTest(job, created=new) for job, new in taken]

    def workflows(self, functions: Sequence[AnyFunction]) -> Any:
        """Return what executes the commands of a workflow."""
        return _WorkflowsInTest(self._jobs, functions)


class _Sender:
    """Sends what functions enqueue to the server of a client, instead of their own server."""

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

    def workflows(self, _: Sequence[AnyFunction]) -> Any:
        """Return the client of the server."""
        return self._client


def declaration_of(function: AnyFunction) -> Declared:
    """Return the declaration of a function; raises LookupError."""
    for declared in declared_in(function.function.__module__):
        if declared.function is function.function:
            return declared
    raise LookupError(f"{function.function.__qualname__} is not declared with @job")


def job_in_test(job: Enqueued) -> Job:
    """Return the job as its function sees it."""
    now = SystemClock().now()
    given = json.loads(job.spec.data)
    fields = {"jobID": job.job_id, "name": job.name, "data": given, "nextRun": timestamp(now)}
    data = json.loads(json.dumps(job.arguments))
    if job.workflow is not None:
        fields |= {"workflowID": job.workflow.workflow_id, "ref": job.place.ref}
        fields["before"] = {ref: job.workflow.jobs[ref].result for ref in job.place.after}
        if PASSED in given:
            data = filled(fields)
            job.arguments = json.loads(json.dumps(data))
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
    """Return a function call as text: ``square(n=4)``."""
    inside = ", ".join(f"{name}={value!r:.80}" for name, value in arguments.items())
    return f"{function.function.__qualname__}({inside})"


def _is_of(job: Enqueued, function: AnyFunction) -> bool:
    return job.function.function is function.function


def _no_client() -> Any:
    raise LookupError("a job in a test has no server")


def _run_reply(job: Enqueued) -> RunReply:
    """Return the last run of a job as a server shows it."""
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
