"""The methods of a ``@job`` function: enqueue, schedule and wait.

``enqueue``, ``enqueue_many`` and ``schedule`` block; ``aenqueue``, ``aenqueue_many`` and ``aschedule`` are
for asyncio. The client is imported on first use, since most runs enqueue nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import update_wrapper
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Self, TypedDict, TypeVar, Unpack

from bedrock_worker.arguments import RESULT, Arguments, WrongArguments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from bedrockjobs.base.errors import InvalidCommand
    from bedrockjobs.client import AsyncClient, Client
    from bedrockjobs.commands import JobIDsReply, RunReply, SyncReply, SyncSchedules

P = ParamSpec("P")
R = TypeVar("R")


class RunOptions(TypedDict, total=False):
    """Options of jobs and schedules: attributes of CreateJob by their Python names."""

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
    concurrency_key: str
    concurrency_limit: int
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


class EnqueueOptions(RunOptions, total=False):
    """The options of the jobs to create."""

    name: str
    """The job's name, if the function's pattern matches several."""
    first_run: datetime | str
    unique: bool | Literal["args"] | tuple[str, ...] | list[str]
    """At most one job with the same arguments at a time: True or ``"args"`` for all, or the names of some."""
    unique_key: str
    """Instead of ``unique``: at most one job of the name holds this key."""
    unique_for: Literal["finished", "started"] | int | str
    on_conflict: Literal["ignore", "replace", "reject"]
    parent_job_id: int
    mock_request: bool
    idempotency_key: str


UNIQUE = ("unique_key", "unique_for", "on_conflict")
"""Options that prevent a second job; schedules have none of them, since their names are unique."""


class _Declared(Generic[P, R]):
    """A function declared with ``@job``, and the options of its jobs."""

    def __init__(self, function: Callable[..., Any], pattern: str, options: Mapping[str, Any]) -> None:
        update_wrapper(self, function)  # type: ignore[arg-type]
        self.function = function
        """The original function."""
        self.pattern = pattern
        self._options = dict(options)
        self._zone = "UTC"
        self._client: Client | AsyncClient | None = None

    @property
    def arguments(self) -> Arguments:
        """Return the parameters and the result type."""
        return Arguments(self.function)

    def using(
        self,
        *,
        client: Client | AsyncClient | None = None,
        zone: str | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Self:
        """Return a copy of the function with other job options.

        ``client`` is a Client for ``enqueue`` or an AsyncClient for ``aenqueue``. ``zone`` is the time zone
        of ``schedule``. The others are attributes of CreateJob: ``using(retries=3)``.
        """
        configured = type(self)(self.function, self.pattern, {**self._options, **options})
        configured._client = self._client if client is None else client
        configured._zone = self._zone if zone is None else zone
        return configured

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Create a job that calls the function with these arguments, and return its handle.

        Raises InvalidCommand for arguments that do not match, and the errors of ``Client.call``.
        """
        from bedrockjobs.commands import CreateJob

        command = CreateJob(**self._enqueued_with(self._data(args, kwargs)))
        reply = self._blocking().call(command)
        return self._handle(reply.job_id, created=reply.created is not False)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[R]:
        """Create a job like ``enqueue``, without blocking."""
        from bedrockjobs.commands import CreateJob

        command = CreateJob(**self._enqueued_with(self._data(args, kwargs)))
        async with _asynchronous(self._client) as client:
            reply = await client.call(command)
        return self._ahandle(reply.job_id, created=reply.created is not False)

    def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Handle[R]]:
        """Create a job for each mapping of arguments, all or none, and return their handles.

        At most as many as CreateJobs accepts. All are checked before anything is sent.
        """
        from bedrockjobs.commands import CreateJobs

        jobs = self._specs(calls)
        if not jobs:
            return []
        reply = self._blocking().call(CreateJobs(jobs=jobs))
        return [self._handle(job_id, created=created) for job_id, created in _created(reply)]

    async def aenqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[AsyncHandle[R]]:
        """Create jobs like ``enqueue_many``, without blocking."""
        from bedrockjobs.commands import CreateJobs

        jobs = self._specs(calls)
        if not jobs:
            return []
        async with _asynchronous(self._client) as client:
            reply = await client.call(CreateJobs(jobs=jobs))
        return [self._ahandle(job_id, created=created) for job_id, created in _created(reply)]

    def schedule(self, expression: str, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Schedule the function with these arguments: ``schedule("0 9 * * 1-5", width=800)``.

        The job's name must be unique. An existing schedule of that name is updated. Returns ``added``,
        ``changed`` or ``unchanged``. Requires the operate role.
        """
        command = self._scheduling(expression, self._data(args, kwargs))
        return _outcome(self._blocking().call(command))

    async def aschedule(self, expression: str, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Schedule like ``schedule``, without blocking."""
        command = self._scheduling(expression, self._data(args, kwargs))
        async with _asynchronous(self._client) as client:
            return _outcome(await client.call(command))

    def handle(self, job_id: int) -> Handle[R]:
        """Return the handle of an existing job."""
        return self._handle(job_id, created=False)

    def ahandle(self, job_id: int) -> AsyncHandle[R]:
        """Return the asyncio handle of an existing job."""
        return self._ahandle(job_id, created=False)

    def _handle(self, job_id: int, *, created: bool) -> Handle[R]:
        return Handle(job_id, self.arguments, self._blocking, created=created)

    def _ahandle(self, job_id: int, *, created: bool) -> AsyncHandle[R]:
        return AsyncHandle(job_id, self.arguments, self._client, created=created)

    def _data(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self.arguments.to_data(args, kwargs)
        except WrongArguments as error:
            raise _refused(self, "Malformed data", str(error)) from None

    def _specs(self, calls: Iterable[Mapping[str, Any]]) -> list[Any]:
        from bedrockjobs.commands import JobSpec

        return [JobSpec(**self._enqueued_with(self._data((), call))) for call in calls]

    def _enqueued_with(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of CreateJob for a job whose result is kept for waiters."""
        from bedrockjobs.base.config import RESULT_KEPT_S

        return {"keep": RESULT_KEPT_S, **self._made_with(data), **self._unique_with(data)}

    def _unique_with(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of CreateJob that prevent a second job."""
        from bedrockjobs.base.config import KEY_CHARS_MAX

        options, unique = self._options, self._options.get("unique")
        chosen = {option: options[option] for option in UNIQUE if options.get(option) is not None}
        if "unique_key" in chosen or unique is None:
            return chosen
        if unique is False:
            return {}
        try:
            text = self.arguments.canonical(data, self.arguments.unique_names(unique))
        except WrongArguments as error:
            raise _refused(self, "Malformed unique", str(error)) from None
        key = f"{self.function.__module__}.{self.function.__qualname__}:{text}"
        if len(key) > KEY_CHARS_MAX:
            key = sha256(key.encode()).hexdigest()
        return {**chosen, "unique_key": key}

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
        options = {key: value for key, value in self._options.items() if key not in ("unique", *UNIQUE)}
        return {**options, "name": name, **({"data": data} if data else {})}

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
        """Return the blocking client."""
        from bedrockjobs.base.errors import InvalidArgument
        from bedrockjobs.client import AsyncClient, shared_client

        if isinstance(self._client, AsyncClient):
            raise InvalidArgument(
                "client: expected a Client; aenqueue, aschedule and ahandle are for an AsyncClient"
            )
        return shared_client() if self._client is None else self._client


class JobFunction(_Declared[P, R]):
    """A function that runs as a job; calling it runs it in this process."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        result: R = self.function(*args, **kwargs)
        return result


class AsyncJobFunction(_Declared[P, R]):
    """A coroutine function that runs as a job; awaiting it runs it in this process."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        result: R = await self.function(*args, **kwargs)
        return result


class Handle(Generic[R]):
    """A handle to wait for a job."""

    def __init__(
        self, job_id: int, arguments: Arguments, client: Callable[[], Client], *, created: bool = False
    ) -> None:
        self.job_id = job_id
        self.created = created
        """Whether this call created the job; False if another job held the unique key."""
        self._arguments, self._client = arguments, client

    def __repr__(self) -> str:
        """Return the handle with the job's id."""
        return f"<Handle of job {self.job_id}>"

    def wait(self, timeout: float | None = None) -> R:
        """Wait until the job has ended, including retries, and return the function's result.

        ``timeout`` is in seconds: 0 only checks, None waits indefinitely. The result is kept for an hour, or
        as long as ``keep`` says. Raises JobFailed, JobNotEnded on timeout, NoResult if nothing is left of the
        job, and WaitNeverEnds in a run that the job waits for, such as its parent's. Requires the read role.
        """
        result: R = _result(self._client().wait_for_job(self.job_id, timeout), self._arguments)
        return result


class AsyncHandle(Generic[R]):
    """A handle to wait for a job without blocking."""

    def __init__(
        self, job_id: int, arguments: Arguments, client: Client | AsyncClient | None, *, created: bool = False
    ) -> None:
        self.job_id = job_id
        self.created = created
        """Whether this call created the job; False if another job held the unique key."""
        self._arguments, self._client = arguments, client

    def __repr__(self) -> str:
        """Return the handle with the job's id."""
        return f"<AsyncHandle of job {self.job_id}>"

    async def wait(self, timeout: float | None = None) -> R:  # noqa: ASYNC109  as Handle has it
        """Wait and return the function's result, like ``Handle.wait``."""
        async with _asynchronous(self._client) as client:
            result: R = _result(await client.wait_for_job(self.job_id, timeout), self._arguments)
        return result


def job_function(function: Callable[..., Any], pattern: str, options: Mapping[str, Any]) -> Any:
    """Wrap a declared function."""
    kind = AsyncJobFunction if inspect.iscoroutinefunction(function) else JobFunction
    return kind(function, pattern, options)


@asynccontextmanager
async def _asynchronous(given: Client | AsyncClient | None) -> AsyncIterator[AsyncClient]:
    """Provide an asyncio client: the given one, else a temporary one."""
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
    """Return the function's result from a successful run; raises NoResult."""
    from bedrockjobs.base.errors import NoResult

    if run.hidden and "result" in run.hidden:
        raise NoResult(f"job {run.job_id}: it ended well; its result is not shown to this token (noData)")
    if arguments.takes_job:
        return run.result
    try:
        return arguments.result_of_json(None if run.result is None else run.result.get(RESULT))
    except WrongArguments as error:
        raise NoResult(f"job {run.job_id}: {error}") from None


def _created(reply: JobIDsReply) -> Iterable[tuple[int, bool]]:
    """Return each jobID, and whether the job is new."""
    return zip(reply.job_ids, reply.created or [True] * len(reply.job_ids), strict=True)


def _outcome(synced: SyncReply) -> str:
    return "added" if synced.added else "changed" if synced.changed else "unchanged"


def _refused(function: _Declared[Any, Any], reason: str, words: str) -> InvalidCommand:
    from bedrockjobs.base.errors import InvalidCommand

    return InvalidCommand(reason, words, function.function.__qualname__)
