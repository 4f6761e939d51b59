"""What a ``@job`` function can do beside being called: be enqueued, be scheduled, be waited for.

The same in four ways: ``enqueue``, ``enqueue_many`` and ``schedule`` for plain code, ``aenqueue``,
``aenqueue_many`` and ``aschedule`` for asyncio. The client is loaded when it is first used, since a run that
enqueues nothing needs none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Self, TypedDict, TypeVar, Unpack

from bedrock_worker.arguments import RESULT, Arguments, WrongArguments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from bedrockjobs.base.errors import InvalidCommand
    from bedrockjobs.client import AsyncClient, Client
    from bedrockjobs.commands import RunReply, SyncReply, SyncSchedules

P = ParamSpec("P")
R = TypeVar("R")


class RunOptions(TypedDict, total=False):
    """How jobs and schedules are run: attributes of CreateJob, by their names in Python."""

    job_priority: Literal[0, 250, 500, 750, 850, 1000]
    run_timeout: int | str
    grace: int | str
    lease: int | str
    on_lost: Literal["retry", "fail"]
    on_child_failure: Literal["continue", "fail"]
    retries: int
    backoff: int | str
    max_backoff: int | str
    expire_after: int | str
    lock: str | bool
    catchup: Literal["once", "skip", "all"]
    overlap: Literal["skip", "queue"]
    hosts: Literal["all", ""]
    max_late: int | str
    jitter: int | str
    keep: int | str
    keep_success: int
    keep_fail: int
    output_lines: int
    tags: list[str]
    note: str
    traceparent: str


class Options(RunOptions, total=False):
    """What jobs are made with."""

    name: str
    """The job's name, if the function's pattern is for several."""
    first_run: datetime | str
    unique: bool
    overwrite: bool
    parent_job_id: int
    mock_request: bool
    idempotency_key: str


class _Declared(Generic[P, R]):
    """A function that was declared with ``@job``, and what its jobs are made with."""

    def __init__(self, function: Callable[..., Any], pattern: str, options: Mapping[str, Any]) -> None:
        """Belong to a function."""
        update_wrapper(self, function)  # type: ignore[arg-type]
        self.function = function
        """The function as it was written."""
        self.pattern = pattern
        self._options = dict(options)
        self._zone = "UTC"
        self._client: Client | AsyncClient | None = None

    @property
    def arguments(self) -> Arguments:
        """Return what it takes and returns."""
        return Arguments(self.function)

    def using(
        self,
        *,
        client: Client | AsyncClient | None = None,
        zone: str | None = None,
        **options: Unpack[Options],
    ) -> Self:
        """Return the same function whose jobs are made otherwise; this one stays as it is.

        ``client`` is the one to use: a Client for ``enqueue``, an AsyncClient for ``aenqueue``. ``zone`` is
        the time zone of ``schedule``. Others are attributes of CreateJob: ``using(retries=3)``.
        """
        found = type(self)(self.function, self.pattern, {**self._options, **options})
        found._client = self._client if client is None else client
        found._zone = self._zone if zone is None else zone
        return found

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Create a job that calls the function with these arguments, and return what tells its end.

        Raises InvalidCommand for arguments that do not fit, and what ``Client.call`` does.
        """
        from bedrockjobs.commands import CreateJob

        command = CreateJob(**self._enqueued_with(self._data(args, kwargs)))
        return self.handle(self._blocking().call(command).job_id)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[R]:
        """Create a job as ``enqueue`` does, without blocking."""
        from bedrockjobs.commands import CreateJob

        command = CreateJob(**self._enqueued_with(self._data(args, kwargs)))
        async with _asynchronous(self._client) as client:
            return self.ahandle((await client.call(command)).job_id)

    def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Handle[R]]:
        """Create a job for each mapping of arguments, all or none, and return what tells their ends.

        As many as one CreateJobs takes. All are checked before anything is sent.
        """
        from bedrockjobs.commands import CreateJobs

        jobs = self._specs(calls)
        found = self._blocking().call(CreateJobs(jobs=jobs)).job_ids if jobs else []
        return [self.handle(job_id) for job_id in found]

    async def aenqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[AsyncHandle[R]]:
        """Create jobs as ``enqueue_many`` does, without blocking."""
        from bedrockjobs.commands import CreateJobs

        jobs = self._specs(calls)
        async with _asynchronous(self._client) as client:
            found = (await client.call(CreateJobs(jobs=jobs))).job_ids if jobs else []
        return [self.ahandle(job_id) for job_id in found]

    def schedule(self, expression: str, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Let a schedule call the function with these arguments: ``schedule("0 9 * * 1-5", width=800)``.

        The schedule has the job's name, which must be its own. One that was made so before becomes as it is
        said here. Returns ``added``, ``changed`` or ``unchanged``. Needs the right to operate.
        """
        command = self._scheduling(expression, self._data(args, kwargs))
        return _outcome(self._blocking().call(command))

    async def aschedule(self, expression: str, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Schedule as ``schedule`` does, without blocking."""
        command = self._scheduling(expression, self._data(args, kwargs))
        async with _asynchronous(self._client) as client:
            return _outcome(await client.call(command))

    def handle(self, job_id: int) -> Handle[R]:
        """Return what tells the end of a job that was created before."""
        return Handle(job_id, self.arguments, self._blocking)

    def ahandle(self, job_id: int) -> AsyncHandle[R]:
        """Return the same for asyncio."""
        return AsyncHandle(job_id, self.arguments, self._client)

    def _data(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self.arguments.to_data(args, kwargs)
        except WrongArguments as error:
            raise _refused(self, "Malformed data", str(error)) from None

    def _specs(self, calls: Iterable[Mapping[str, Any]]) -> list[Any]:
        from bedrockjobs.commands import JobSpec

        return [JobSpec(**self._enqueued_with(self._data((), call))) for call in calls]

    def _enqueued_with(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of CreateJob for a job that somebody may wait for: its result is kept."""
        from bedrockjobs.base.config import RESULT_KEPT_S

        return {"keep": RESULT_KEPT_S, **self._made_with(data)}

    def _made_with(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of CreateJob or JobSpec."""
        from bedrockjobs.base.glob import glob, is_plain

        name = self._options.get("name", self.pattern)
        if "name" not in self._options and not is_plain(name):
            words = f"{name} is for jobs of several names: say which, as in .using(name=...).enqueue(...)"
            raise _refused(self, "Missing name", words)
        if not glob(name, self.pattern):
            raise _refused(
                self, "Malformed name", f"name: expected one that {self.pattern} matches, got {name}"
            )
        return {**self._options, "name": name, **({"data": data} if data else {})}

    def _scheduling(self, expression: str, data: dict[str, Any]) -> SyncSchedules:
        from bedrockjobs.commands import JobSpec, SyncSchedules

        if not self.arguments.takes_job and self.arguments.has(RESULT):
            words = f"a schedule cannot give the parameter {RESULT}: under this name stands the last result"
            raise _refused(self, "Malformed data", words)
        zone = "" if self._zone.upper() == "UTC" else f"TZ={self._zone} "
        spec = JobSpec(**self._made_with(data), repeat=f"CRON {zone}{expression}")
        source = f"function {self.function.__module__}.{self.function.__qualname__}"
        return SyncSchedules(source=source, schedules=[spec], prune=False)

    def _blocking(self) -> Client:
        """Return the client of plain code."""
        from bedrockjobs.base.errors import InvalidArgument
        from bedrockjobs.client import AsyncClient, shared_client

        if isinstance(self._client, AsyncClient):
            raise InvalidArgument(
                "client: expected a Client; aenqueue, aschedule and ahandle are for an AsyncClient"
            )
        return shared_client() if self._client is None else self._client


class JobFunction(_Declared[P, R]):
    """A function that runs as a job; calling it calls the function, here and now."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        found: R = self.function(*args, **kwargs)
        return found


class AsyncJobFunction(_Declared[P, R]):
    """A coroutine function that runs as a job; awaiting it runs it here and now."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        found: R = await self.function(*args, **kwargs)
        return found


class Handle(Generic[R]):
    """A job whose end somebody wants to know of."""

    def __init__(self, job_id: int, arguments: Arguments, client: Callable[[], Client]) -> None:
        """Belong to a job of a function."""
        self.job_id = job_id
        self._arguments, self._client = arguments, client

    def __repr__(self) -> str:
        """Return the handle with the job's id."""
        return f"<Handle of job {self.job_id}>"

    def wait(self, timeout: float | None = None) -> R:
        """Wait until the job has ended, its retries too, and return what the function returned.

        ``timeout`` is in seconds: 0 only looks, None waits for as long as it takes. The result is kept for an
        hour, or as long as ``keep`` says. Raises JobFailed, JobNotEnded after the timeout, NoResult if
        nothing is left of the job, and WaitNeverEnds in a run that the job waits for, such as that of its
        parent. Needs the right to read.
        """
        found: R = _result(self._client().wait_for_job(self.job_id, timeout), self._arguments)
        return found


class AsyncHandle(Generic[R]):
    """A job whose end somebody wants to know of, without blocking."""

    def __init__(self, job_id: int, arguments: Arguments, client: Client | AsyncClient | None) -> None:
        """Belong to a job of a function."""
        self.job_id = job_id
        self._arguments, self._client = arguments, client

    def __repr__(self) -> str:
        """Return the handle with the job's id."""
        return f"<AsyncHandle of job {self.job_id}>"

    async def wait(self, timeout: float | None = None) -> R:  # noqa: ASYNC109  as Handle has it
        """Wait and return what the function returned, as ``Handle.wait`` does."""
        async with _asynchronous(self._client) as client:
            found: R = _result(await client.wait_for_job(self.job_id, timeout), self._arguments)
        return found


def job_function(function: Callable[..., Any], pattern: str, options: Mapping[str, Any]) -> Any:
    """Return what stands for a declared function."""
    kind = AsyncJobFunction if inspect.iscoroutinefunction(function) else JobFunction
    return kind(function, pattern, options)


@asynccontextmanager
async def _asynchronous(given: Client | AsyncClient | None) -> AsyncIterator[AsyncClient]:
    """Give the client of asyncio code: the one that was named, else one for this moment."""
    from bedrockjobs.base.errors import InvalidArgument
    from bedrockjobs.client import AsyncClient, Client

    if isinstance(given, Client):
        raise InvalidArgument(
            "client: expected an AsyncClient; enqueue, schedule and handle are for a Client"
        )
    if given is not None:
        yield given
        return
    async with AsyncClient() as client:
        yield client


def _result(run: RunReply, arguments: Arguments) -> Any:
    """Return what the function returned in a run that ended well; raises NoResult."""
    from bedrockjobs.base.errors import NoResult

    if arguments.takes_job:
        return run.result
    try:
        return arguments.result_of_json(None if run.result is None else run.result.get(RESULT))
    except WrongArguments as error:
        raise NoResult(f"job {run.job_id}: {error}") from None


def _outcome(synced: SyncReply) -> str:
    return "added" if synced.added else "changed" if synced.changed else "unchanged"


def _refused(function: _Declared[Any, Any], reason: str, words: str) -> InvalidCommand:
    from bedrockjobs.base.errors import InvalidCommand

    return InvalidCommand(reason, words, function.function.__qualname__)
