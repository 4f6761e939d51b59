"""The methods of a ``@job`` function: enqueue, schedule and wait.

``enqueue``, ``enqueue_many`` and ``schedule`` block; ``aenqueue``, ``aenqueue_many`` and ``aschedule`` are
for asyncio. The client is imported on first use, since most runs enqueue nothing.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import cached_property, update_wrapper
from hashlib import sha256
from math import inf
from sys import float_info
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from bedrock_worker.arguments import RESULT, Arguments, WrongArguments
from bedrock_worker.current import Job, current_run

if TYPE_CHECKING:
    from bedrock_worker.workflows import PartialSignature, Signature
    from bedrockjobs.base.errors import InvalidCommand, JobNotEnded
    from bedrockjobs.client import AsyncClient, Client
    from bedrockjobs.commands import (
        Command,
        CreateJob,
        JobIDsReply,
        JobSpec,
        RunReply,
        SyncReply,
        SyncSchedules,
    )

P = ParamSpec("P")
Q = ParamSpec("Q")
G = TypeVar("G")
R = TypeVar("R")

Delay = float | timedelta | str
"""Seconds, a timedelta, or a duration as text, like ``"5m"``."""


def delay_s(delay: object, name: str = "delay") -> float:
    """Return a delay in seconds; raises ValueError, whose text begins with ``name``."""
    seconds = seconds_in(delay.total_seconds() if isinstance(delay, timedelta) else delay)
    if seconds is None:
        raise ValueError(f'{name}: expected seconds, a timedelta or text like "5m", 0 or more, got {delay!r}')
    return seconds


def seconds_in(value: object) -> float | None:
    """Return the seconds of a number or of a text like ``"5m"``.

    Returns None for any other value, and for negative or infinite seconds.
    """
    seconds = value
    if isinstance(value, str):
        from bedrockjobs.base import clock

        seconds = clock.seconds_of(value)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return None
    return float(seconds) if 0 <= seconds <= float_info.max else None


class _SharedOptions(TypedDict, total=False):
    """Options of jobs and schedules, except those that may name arguments."""

    job_priority: Literal[0, 250, 500, 750, 850, 1000]
    run_timeout: int | str
    grace: int | str
    lease: int | str
    on_lost: Literal["retry", "fail"]
    on_child_failure: Literal["continue", "fail"]
    retries: int
    max_backoff: int | str
    expire_after: int | str
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


class RunOptions(_SharedOptions, total=False):
    """Options of jobs and schedules: attributes of CreateJob by their Python names."""

    lock: str | bool
    concurrency_key: str


class EnqueueOptions(_SharedOptions, total=False):
    """The options of the jobs to create."""

    lock: str | bool | tuple[str, ...] | list[str]
    """Names of arguments: one lock for each value of these arguments, for this function."""
    concurrency_key: str | tuple[str, ...] | list[str]
    """Names of arguments: one key for each value of these arguments, for this function."""

    name: str
    """The job's name; required if the function's pattern matches several names."""
    delay: Delay
    """Time from now until the first run, instead of ``first_run``: seconds, a timedelta or ``"5m"``."""
    first_run: datetime | timedelta | str
    unique: bool | Literal["args"] | tuple[str, ...] | list[str]
    """At most one job at a time with equal arguments: True or ``"args"`` compares all arguments, a tuple or
    list of names only these."""
    unique_key: str
    """Instead of ``unique``: at most one job of the same name at a time has this key."""
    unique_for: Literal["finished", "started"] | int | str
    on_conflict: Literal["ignore", "replace", "reject"]
    parent_job_id: int
    mock_request: bool
    idempotency_key: str


class Receiver(Protocol):
    """Receives jobs in place of a server, in a test."""

    def enqueue(self, function: Any, specs: Sequence[Any]) -> list[Any]:
        """Return the handles of new jobs."""

    async def aenqueue(self, function: Any, specs: Sequence[Any]) -> list[Any]:
        """Return the asyncio handles of new jobs."""

    def workflows(self, functions: Sequence[Any]) -> Any:
        """Return the client for a workflow whose jobs call these functions."""


_own_receiver: ContextVar[Receiver | None] = ContextVar("receiver", default=None)
_receivers: list[Receiver] = []
"""The receivers of all blocks that have not ended, for threads that a block starts."""


@contextmanager
def received_by(receiver: Receiver) -> Iterator[None]:
    """Give the jobs that are enqueued in a block to a receiver; of nested blocks, the innermost gets them."""
    token = _own_receiver.set(receiver)
    _receivers.append(receiver)
    try:
        yield
    finally:
        _own_receiver.reset(token)
        _receivers.remove(receiver)


def _receiver() -> Receiver | None:
    return _own_receiver.get() or (_receivers[-1] if _receivers else None)


UNIQUE = ("unique_key", "unique_for", "on_conflict")
"""Options that prevent a second equal job; a schedule has none of them, since its name is unique."""


ONLY_WITH = {
    "concurrency_limit": ("concurrency_key",),
    "unique_for": ("unique", "unique_key"),
    "on_conflict": ("unique", "unique_key"),
}
"""Options that need one of other options, at the latest when a job is created: ``using`` may add it."""

NOT_WITH = (
    ("delay", "first_run"),
    ("concurrency_key", "lock"),
    ("hosts", "lock"),
    ("hosts", "concurrency_key"),
)
"""Options that exclude each other."""


def check_together(options: Mapping[str, Any], *, complete: bool = False) -> None:
    """Raise ValueError for an option that another one excludes, or that lacks another one if ``complete``."""
    given = {name for name, value in options.items() if value not in (None, "")}
    for name, others in ONLY_WITH.items():
        if complete and name in given and given.isdisjoint(others):
            raise ValueError(f"{name}: expected only together with {' or '.join(others)}")
    for name, other in NOT_WITH:
        if {name, other} <= given and options[name] is not False and options[other] is not False:
            raise ValueError(f"{name}: expected nothing together with {other}")


KEYS_OF_ARGUMENTS = {"lock": "True, a text", "concurrency_key": "a text"}
"""Options that may name arguments, from whose values the key is made; and what else they may be."""


def without_argument_keys(options: Mapping[str, Any], arguments: Arguments) -> dict[str, Any]:
    """Return the options except those that name arguments; raises WrongArguments for wrong names."""
    left = dict(options)
    for option, others in KEYS_OF_ARGUMENTS.items():
        if isinstance(left.get(option), (tuple, list)):
            arguments.chosen_names(option, others, left.pop(option))
    return left


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
        self._connection: object = None

    @cached_property
    def arguments(self) -> Arguments:
        """Return the parameters and the result type of the function."""
        return Arguments(self.function)

    def using(
        self,
        *,
        client: Client | AsyncClient | None = None,
        zone: str | None = None,
        backoff: Delay | None = None,
        connection: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> Self:
        """Return a copy of the function with other job options.

        ``client`` is a Client for ``enqueue`` or an AsyncClient for ``aenqueue``. ``zone`` is the time zone
        of ``schedule``. ``connection`` is a connection to PostgreSQL, of psycopg, asyncpg, SQLAlchemy or
        Django: jobs are created in the transaction that is open in it. All other options are attributes of
        CreateJob: ``using(retries=3)``. Raises InvalidCommand for options that contradict each other.
        """
        before = self._options
        if {"delay", "first_run"} & options.keys():  # one replaces the other
            before = {name: before[name] for name in before if name not in ("delay", "first_run")}
        given = options if backoff is None else {**options, "backoff": backoff}
        together = {**before, **given}
        try:
            check_together(together)
        except ValueError as error:
            raise _refused(self, f"Malformed {str(error).partition(':')[0]}", str(error)) from None
        configured = type(self)(self.function, self.pattern, together)
        configured._client = self._client if client is None else client
        configured._zone = self._zone if zone is None else zone
        configured._connection = self._connection if connection is None else connection
        return configured

    @overload
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]: ...

    @overload
    def enqueue(self, *args: Any, connection: object, **kwargs: Any) -> Handle[R]: ...

    def enqueue(self, *args: Any, **kwargs: Any) -> Handle[R]:
        """Create a job that calls the function with these arguments, and return its handle.

        With ``connection``, the job is created in the transaction that is open in that connection; for a
        function that has a parameter ``connection``, pass the connection to ``using`` instead. Raises
        InvalidCommand for arguments that do not match, and the errors of ``Client.call``.
        """
        from bedrockjobs.commands import CreateJob

        connection = self._own_connection(kwargs)
        command = CreateJob(**self._enqueued_with(self._data(args, kwargs)))
        if (receiver := _receiver()) is not None:
            handle: Handle[R] = receiver.enqueue(self, [command])[0]
            return handle
        if connection is not None:
            from bedrock_worker import own_transaction

            return self._handle(own_transaction.create(connection, command), created=True)
        reply = self._blocking().call(command)
        return self._handle(reply.job_id, created=reply.created is not False)

    def command(self, *args: Any, **kwargs: Any) -> CreateJob:
        """Return the command that ``enqueue`` sends, for an Outbox; raises InvalidCommand."""
        from bedrockjobs.commands import CreateJob

        return CreateJob(**self._enqueued_with(self._data(args, kwargs)))

    @overload
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[R]: ...

    @overload
    async def aenqueue(self, *args: Any, connection: object, **kwargs: Any) -> AsyncHandle[R]: ...

    async def aenqueue(self, *args: Any, **kwargs: Any) -> AsyncHandle[R]:
        """Create a job like ``enqueue``, without blocking."""
        from bedrockjobs.commands import CreateJob

        connection = self._own_connection(kwargs)
        command = CreateJob(**self._enqueued_with(self._data(args, kwargs)))
        if (receiver := _receiver()) is not None:
            handle: AsyncHandle[R] = (await receiver.aenqueue(self, [command]))[0]
            return handle
        if connection is not None:
            from bedrock_worker import own_transaction

            job_id = await own_transaction.create_async(connection, command)
            return self._ahandle(job_id, created=True)
        async with _asynchronous(self._client) as client:
            reply = await client.call(command)
        return self._ahandle(reply.job_id, created=reply.created is not False)

    def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Handle[R]]:
        """Create a job for each mapping of arguments, and return their handles.

        All arguments are checked before anything is sent. Of up to 1,000 jobs, either all or none are
        created. More are created by the thousand; if one thousand fails, the error has a note of how many
        jobs were created before it.
        """
        from bedrockjobs.commands import CreateJobs

        jobs = self._specs(calls)
        if not jobs:
            return []
        if (receiver := _receiver()) is not None:
            return receiver.enqueue(self, jobs)
        if self._connection is not None:
            from bedrock_worker import own_transaction

            made = [own_transaction.create(self._connection, job) for job in jobs]
            return [self._handle(job_id, created=True) for job_id in made]
        client, handles = self._blocking(), list[Handle[R]]()
        for part in _parts(jobs):
            with _noting(len(handles)):
                reply = client.call(CreateJobs(jobs=part))
            handles += [self._handle(job_id, created=created) for job_id, created in _created(reply)]
        return handles

    async def aenqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[AsyncHandle[R]]:
        """Create jobs like ``enqueue_many``, without blocking."""
        from bedrockjobs.commands import CreateJobs

        jobs = self._specs(calls)
        if not jobs:
            return []
        if (receiver := _receiver()) is not None:
            return await receiver.aenqueue(self, jobs)
        if self._connection is not None:
            from bedrock_worker import own_transaction

            made = [await own_transaction.create_async(self._connection, job) for job in jobs]
            return [self._ahandle(job_id, created=True) for job_id in made]
        handles = list[AsyncHandle[R]]()
        async with _asynchronous(self._client) as client:
            for part in _parts(jobs):
                with _noting(len(handles)):
                    reply = await client.call(CreateJobs(jobs=part))
                handles += [self._ahandle(job_id, created=created) for job_id, created in _created(reply)]
        return handles

    def schedule(self, expression: str, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Schedule the function with these arguments: ``schedule("0 9 * * 1-5", width=800)``.

        The schedule has the name of the job; an existing schedule with this name is updated. Returns
        ``added``, ``changed`` or ``unchanged``. Requires the operate role.
        """
        command = self._scheduling(expression, self._data(args, kwargs))
        return _outcome(self._blocking().call(command))

    async def aschedule(self, expression: str, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Schedule like ``schedule``, without blocking."""
        command = self._scheduling(expression, self._data(args, kwargs))
        async with _asynchronous(self._client) as client:
            return _outcome(await client.call(command))

    def si(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R]:
        """Return a call as ``s`` does, but in a chain it does not get the result of the call before it."""
        from bedrock_worker.workflows import Call

        return Call(self, args, kwargs, alone=True)

    def handle(self, job_id: int) -> Handle[R]:
        """Return the handle of an existing job."""
        return self._handle(job_id, created=False)

    def ahandle(self, job_id: int) -> AsyncHandle[R]:
        """Return the asyncio handle of an existing job."""
        return self._ahandle(job_id, created=False)

    def _checked_result(self, value: Any) -> Any:
        """Return a result as ``Handle.wait`` would return it; raises WrongArguments."""
        if self.arguments.takes_job:
            return value
        return self.arguments.result_of_json(self.arguments.result_to_json(value))

    def _checked_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call the function with the arguments that a run would get, and return what it returns.

        Raises InvalidCommand.
        """
        data = json.loads(json.dumps(self._data(args, kwargs)))
        if self.arguments.takes_job:
            return self.function(Job(0, self.pattern, data, 1, 0, datetime.fromtimestamp(0, UTC), {}))
        return self.function(**self.arguments.of_data(data, again=False))

    def _handle(self, job_id: int, *, created: bool) -> Handle[R]:
        return Handle(job_id, self.arguments, self._blocking, created=created)

    def _ahandle(self, job_id: int, *, created: bool) -> AsyncHandle[R]:
        return AsyncHandle(job_id, self.arguments, self._client, created=created)

    def _own_connection(self, kwargs: dict[str, Any]) -> object:
        """Return the connection for a job; remove it from ``kwargs`` if the function lacks that parameter."""
        if "connection" in kwargs and not self.arguments.has("connection"):
            return kwargs.pop("connection")
        return self._connection

    def _data(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self.arguments.to_data(args, kwargs)
        except WrongArguments as error:
            raise _refused(self, "Malformed data", str(error)) from None

    def _specs(self, calls: Iterable[Mapping[str, Any]]) -> list[Any]:
        from bedrockjobs.commands import JobSpec

        return [JobSpec(**self._enqueued_with(self._data((), call))) for call in calls]

    def _enqueued_with(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes of the job to create, also ``keep``, so that its result can be waited for."""
        from bedrockjobs.base.config import RESULT_KEPT_S

        return {"keep": RESULT_KEPT_S, **self._made_with(data), **self._unique_with(data)}

    def _unique_with(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes of a job that prevent a second equal job."""
        options, unique = self._options, self._options.get("unique")
        chosen = {option: options[option] for option in UNIQUE if options.get(option) is not None}
        if "unique_key" in chosen or unique is None:
            return chosen
        if unique is False:
            return {}
        try:
            key = self._key(data, self.arguments.unique_names(unique))
        except WrongArguments as error:
            raise _refused(self, "Malformed unique", str(error)) from None
        return {**chosen, "unique_key": key}

    def _key(self, data: dict[str, Any], names: tuple[str, ...] | None) -> str:
        """Return the function's name and its arguments as a key, or a hash of both if that is too long."""
        from bedrockjobs.base.config import KEY_CHARS_MAX

        text = self.arguments.canonical(data, names)
        key = f"{self.function.__module__}.{self.function.__qualname__}:{text}"
        return key if len(key) <= KEY_CHARS_MAX and key.isprintable() else sha256(key.encode()).hexdigest()

    def _argument_keys(self, data: dict[str, Any], unknown: Collection[str]) -> dict[str, Any]:
        """Return the keys whose options name arguments; raises InvalidCommand.

        ``unknown`` are arguments whose values are the results of other jobs.
        """
        keys = {}
        for option, others in KEYS_OF_ARGUMENTS.items():
            given = self._options.get(option)
            if isinstance(given, (tuple, list)):
                try:
                    names = self.arguments.chosen_names(option, others, given)
                except WrongArguments as error:
                    raise _refused(self, f"Malformed {option}", str(error)) from None
                if later := [name for name in names if name in unknown]:
                    words = f"{option}: {later[0]} is the result of another job, which is not known yet"
                    raise _refused(self, f"Malformed {option}", words)
                keys[option] = self._key(data, names)
        return keys

    def _made_with(self, data: dict[str, Any], unknown: Collection[str] = ()) -> dict[str, Any]:
        """Return the attributes of a job or schedule, its name and data among them.

        ``unknown`` are arguments whose values are the results of other jobs.
        """
        from bedrockjobs.base.glob import glob, is_plain

        name = self._options.get("name", self.pattern)
        if "name" not in self._options and not is_plain(name):
            message = f"{name} is for jobs of several names: say which, as in .using(name=...).enqueue(...)"
            raise _refused(self, "Missing name", message)
        if not glob(name, self.pattern):
            raise _refused(
                self, "Malformed name", f"name: expected one that {self.pattern} matches, got {name}"
            )
        try:
            check_together(self._options, complete=True)
        except ValueError as error:
            raise _refused(self, f"Malformed {str(error).partition(':')[0]}", str(error)) from None
        options = {key: value for key, value in self._options.items() if key not in ("unique", *UNIQUE)}
        try:
            options = with_first_run(options)
        except ValueError as error:
            raise _refused(self, "Malformed delay", str(error)) from None
        parent_id = options.get("parent_job_id")
        if parent_id and parent_id == (run := current_run()).job_id:
            run.has_children = True
        keys = self._argument_keys(data, unknown)
        return {**options, **keys, "name": name, **({"data": data} if data else {})}

    def _scheduling(self, expression: str, data: dict[str, Any]) -> SyncSchedules:
        from bedrockjobs.commands import JobSpec, SyncSchedules

        if self._connection is not None:
            message = "connection: expected none for a schedule, which is set by the server in its own commit"
            raise _refused(self, "Malformed connection", message)
        if not self.arguments.takes_job and self.arguments.has(RESULT):
            message = f"a schedule cannot pass the parameter {RESULT}: this name holds the last result"
            raise _refused(self, "Malformed data", message)
        zone = "" if self._zone.upper() == "UTC" else f"TZ={self._zone} "
        spec = JobSpec(**self._made_with(data), repeat=f"CRON {zone}{expression}")
        source = f"function {self.function.__module__}.{self.function.__qualname__}"
        return SyncSchedules(source=source, schedules=[spec], prune=False)

    def _blocking(self) -> Client:
        """Return the client of ``using``, or else the shared one; raises InvalidArgument if it is async."""
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

    @overload
    def s(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R]: ...

    @overload
    def s(
        self: Callable[Concatenate[G, Q], R], *args: Q.args, **kwargs: Q.kwargs
    ) -> PartialSignature[G, R]: ...

    def s(self, *args: Any, **kwargs: Any) -> Any:
        """Return a call for ``chain``, ``group``, ``chord``, ``Workflow.add`` or ``start``.

        In a chain, each call but the first gets the result of the call before it as its first argument.
        """
        return _call(self, args, kwargs)

    def checked(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function with its arguments converted to JSON and back, as in a run.

        Raises InvalidCommand for arguments that do not match, and WrongArguments for a result that does not.
        """
        result: R = self._checked_result(self._checked_call(args, kwargs))
        return result


class AsyncJobFunction(_Declared[P, R]):
    """A coroutine function that runs as a job; awaiting it runs it in this process."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        result: R = await self.function(*args, **kwargs)
        return result

    @overload
    def s(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R]: ...

    @overload
    def s(
        self: Callable[Concatenate[G, Q], Coroutine[Any, Any, R]], *args: Q.args, **kwargs: Q.kwargs
    ) -> PartialSignature[G, R]: ...

    def s(self, *args: Any, **kwargs: Any) -> Any:
        """Return a call for a workflow, like ``JobFunction.s``."""
        return _call(self, args, kwargs)

    async def checked(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as ``JobFunction.checked`` does."""
        result: R = self._checked_result(await self._checked_call(args, kwargs))
        return result


def _call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from bedrock_worker.workflows import Call

    return Call(function, args, kwargs, alone=False)


class Progress(NamedTuple):
    """How far a run has come."""

    done: float
    """From 0 to 1."""
    message: str


class Handle(Generic[R]):
    """A handle to follow a job, to wait for its result, and to cancel it."""

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

    def status(self) -> str:
        """Return the job's state: ``QUEUED``, ``RUNNING``, ``FINISHED``, ``FAILED``, ``CANCELLED``, ...

        Raises NoResult if nothing is left of the job. Requires the read role.
        """
        return _performed(self._client(), _status(self.job_id))

    def progress(self) -> Progress | None:
        """Return the progress of the newest run; None if it has reported none."""
        return _performed(self._client(), _progress(self.job_id))

    def cancel(self) -> bool:
        """Cancel the job and its children; return False if it had ended. Requires the produce role.

        A queued job is CANCELLED at once; a run is asked to stop, and killed after its ``grace``.
        """
        return _performed(self._client(), _cancel(self.job_id))

    def result(self) -> R:
        """Return the function's result without waiting; raises JobNotEnded, or what ``wait`` raises."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> R:
        """Wait until the job has ended, including retries, and return the function's result.

        ``timeout`` is in seconds: 0 only checks, None waits indefinitely. The result is kept for an hour, or
        as long as ``keep`` says. Raises JobFailed, JobNotEnded on timeout, NoResult if nothing is left of the
        job, and WaitNeverEnds in a run that the job waits for, such as its parent's. Requires the read role.
        """
        result: R = result_of_run(self._client().wait_for_job(self.job_id, timeout), self._arguments)
        return result


class AsyncHandle(Generic[R]):
    """A handle like ``Handle`` whose methods do not block."""

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

    async def status(self) -> str:
        """Return the job's state, like ``Handle.status``."""
        async with _asynchronous(self._client) as client:
            return await _performed_async(client, _status(self.job_id))

    async def progress(self) -> Progress | None:
        """Return the progress of the newest run; None if it has reported none."""
        async with _asynchronous(self._client) as client:
            return await _performed_async(client, _progress(self.job_id))

    async def cancel(self) -> bool:
        """Cancel the job and its children, like ``Handle.cancel``."""
        async with _asynchronous(self._client) as client:
            return await _performed_async(client, _cancel(self.job_id))

    async def result(self) -> R:
        """Return the function's result without waiting; raises JobNotEnded, or what ``wait`` raises."""
        return await self.wait(0)

    async def wait(self, timeout: float | None = None) -> R:  # noqa: ASYNC109  like Handle
        """Wait and return the function's result, like ``Handle.wait``."""
        async with _asynchronous(self._client) as client:
            result: R = result_of_run(await client.wait_for_job(self.job_id, timeout), self._arguments)
        return result


# What handles of both kinds do: generators that yield commands, and receive the reply to each.

V = TypeVar("V")
Steps = Generator["Command[Any]", Any, V]
"""A generator that yields commands, and receives each reply, or NotFound if the server refused with that."""

ENDED = ("FINISHED", "FAILED", "CANCELLED")
"""States of jobs that have ended."""


def _status(job_id: int) -> Steps[str]:
    from bedrockjobs.base.errors import NoResult
    from bedrockjobs.commands import JobReply, ListRuns, QueryJob

    job = yield QueryJob(job_id=job_id)
    if isinstance(job, JobReply):
        return job.state or "QUEUED"
    runs = (yield ListRuns(job_id=job_id, limit=1)).runs
    if not runs:
        raise NoResult(f"job {job_id}: it no longer exists, and no stored run says how it ended")
    states = {"success": "FINISHED", "terminated": "CANCELLED", "killed": "CANCELLED", "running": "RUNNING"}
    return states.get(runs[0].status, "FAILED")


def _progress(job_id: int) -> Steps[Progress | None]:
    from bedrockjobs.commands import ListRuns

    runs = (yield ListRuns(job_id=job_id, limit=1)).runs
    said = runs[0].progress if runs else None
    if not isinstance(said, dict) or not isinstance(percent := said.get("percent"), (int, float)):
        return None
    return Progress(percent / 100, str(said.get("message") or ""))


def _cancel(job_id: int) -> Steps[bool]:
    from bedrockjobs.base.errors import NotFound
    from bedrockjobs.commands import CancelJob

    reply = yield CancelJob(job_id=job_id, any=True)
    return not isinstance(reply, NotFound) and reply.cancelled is not False


def _performed(client: Client, steps: Steps[V]) -> V:
    from bedrockjobs.base.errors import NotFound

    reply: Any = None
    while True:
        try:
            command = steps.send(reply)
        except StopIteration as end:
            found: V = end.value
            return found
        try:
            reply = client.call(command)
        except NotFound as error:
            reply = error


async def _performed_async(client: AsyncClient, steps: Steps[V]) -> V:
    from bedrockjobs.base.errors import NotFound

    reply: Any = None
    while True:
        try:
            command = steps.send(reply)
        except StopIteration as end:
            found: V = end.value
            return found
        try:
            reply = await client.call(command)
        except NotFound as error:
            reply = error


# Several handles. Each round asks for the state of jobs that have not ended, one after the other over one
# connection, and is followed by a pause of at least its own duration.

ROUND_S_MIN, ROUND_S_MAX = 0.05, 1.0
"""Seconds between two rounds, at least and at most; the pause doubles while no job ends."""

UNENDED_MAX = 20
"""Jobs in a row that have not ended, after which a round stops: jobs mostly end in their order."""

WHOLE_PAUSE = 3
"""How many times its own duration after a whole round the next one begins, which finds all jobs that have
ended: asking for thousands of jobs costs the server as much as running them."""

H = TypeVar("H", bound="Handle[Any]")
A = TypeVar("A", bound="AsyncHandle[Any]")


T = TypeVar("T")


class _Rounds(Generic[T]):
    """Decides for which handles to ask in a round, and when the next one begins."""

    def __init__(self, handles: Iterable[T], timeout: float | None) -> None:
        from bedrockjobs.base.clock import SystemClock

        self.left = list(handles)
        """The handles of jobs that have not ended."""
        self.ended: list[T] = []
        """Those whose jobs have ended, as this round has found."""
        self._now, self._pause = SystemClock().monotonic, ROUND_S_MIN
        self._begun = self._looked = self._now()
        self._whole, self._whole_at = False, self._begun + ROUND_S_MAX
        self._timeout = inf if timeout is None else timeout

    def handles(self) -> Iterator[T]:
        """Begin a round: yield each handle to ask for; the caller adds it to ``ended`` if its job has."""
        self._looked, self.ended, row = self._now(), [], 0
        self._whole = self._looked >= min(self._whole_at, self._begun + self._timeout)
        for each in self.left:
            found = len(self.ended)
            yield each
            row = 0 if len(self.ended) > found else row + 1
            if row == UNENDED_MAX and not self._whole:
                break
        ended = set(map(id, self.ended))
        self.left = [each for each in self.left if id(each) not in ended]

    def pause_s(self) -> float:
        """Return the seconds to pause after a round, few if a job ended; raises JobNotEnded."""
        now = self._now()
        if self._whole:
            self._whole_at = now + WHOLE_PAUSE * (now - self._looked)
        self._pause = ROUND_S_MIN if self.ended else min(self._pause * 2, ROUND_S_MAX)
        remaining = self._begun + self._timeout - now
        if remaining <= 0 and self._whole:
            raise not_ended(self.left, self._timeout)
        return min(max(self._pause, now - self._looked), max(remaining, 0))


def not_ended(left: Sequence[Any], timeout: float) -> JobNotEnded:
    """Return the error for jobs that have not ended within the timeout of a wait."""
    from bedrockjobs.base.errors import JobNotEnded

    few = ", ".join(str(each.job_id) for each in left[:5]) + (", ..." if len(left) > 5 else "")
    words = f"{len(left)} jobs have not ended" if len(left) > 1 else "1 job has not ended"
    return JobNotEnded(f"{words} within {timeout:g} s: {few}")


def as_completed(handles: Iterable[H], timeout: float | None = None) -> Iterator[H]:
    """Yield each handle once its job has ended, in whatever state; its ``result`` does not block then.

    Raises JobNotEnded if jobs have not ended after ``timeout`` seconds.
    """
    from threading import Event  # imported here, since runs need not have it

    rounds = _Rounds(handles, timeout)
    while rounds.left:
        for each in rounds.handles():
            if _has_ended(each):
                rounds.ended.append(each)
        yield from rounds.ended
        if rounds.left:
            Event().wait(rounds.pause_s())


async def as_completed_async(
    handles: Iterable[A],
    timeout: float | None = None,  # noqa: ASYNC109  as as_completed has it
) -> AsyncIterator[A]:
    """Yield handles as their jobs end, like ``as_completed``, without blocking."""
    import asyncio

    rounds = _Rounds(handles, timeout)
    while rounds.left:
        for each in rounds.handles():
            if await _has_ended_async(each):
                rounds.ended.append(each)
        for each in rounds.ended:
            yield each
        if rounds.left:
            await asyncio.sleep(rounds.pause_s())


def wait_all(handles: Iterable[Handle[R]], timeout: float | None = None) -> list[R]:
    """Wait for all jobs and return their results in the order of the handles.

    Raises the error of the first job that fails, and JobNotEnded after ``timeout`` seconds.
    """
    wanted = list(handles)
    results = {id(each): each.result() for each in as_completed(wanted, timeout)}
    return [results[id(each)] for each in wanted]


async def wait_all_async(
    handles: Iterable[AsyncHandle[R]],
    timeout: float | None = None,  # noqa: ASYNC109  as wait_all has it
) -> list[R]:
    """Wait for all jobs and return their results, like ``wait_all``, without blocking."""
    wanted = list(handles)
    results = {id(each): await each.result() async for each in as_completed_async(wanted, timeout)}
    return [results[id(each)] for each in wanted]


def _has_ended(handle: Handle[Any]) -> bool:
    from bedrockjobs.base.errors import NoResult

    try:
        return handle.status() in ENDED
    except NoResult:
        return True


async def _has_ended_async(handle: AsyncHandle[Any]) -> bool:
    from bedrockjobs.base.errors import NoResult

    try:
        return await handle.status() in ENDED
    except NoResult:
        return True


def with_first_run(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with ``delay`` replaced by ``first_run``; raises ValueError for a wrong delay."""
    options = dict(options)
    delay = options.pop("delay", None)
    if delay is None:
        return options
    try:
        return {**options, "first_run": timedelta(seconds=delay_s(delay))}
    except OverflowError:
        raise ValueError(f"delay: expected at most {timedelta.max.days} days, got {delay!r}") from None


def job_function(function: Callable[..., Any], pattern: str, options: Mapping[str, Any]) -> Any:
    """Return a declared function with its methods, as a JobFunction or AsyncJobFunction."""
    kind = AsyncJobFunction if inspect.iscoroutinefunction(function) else JobFunction
    return kind(function, pattern, options)


@asynccontextmanager
async def _asynchronous(client: Client | AsyncClient | None) -> AsyncIterator[AsyncClient]:
    """Provide the given asyncio client, or else a temporary one; raises InvalidArgument for a Client."""
    from bedrockjobs.base.errors import InvalidArgument
    from bedrockjobs.client import AsyncClient, Client

    if isinstance(client, Client):
        raise InvalidArgument(
            "client: expected an AsyncClient; enqueue, schedule and handle are for a Client"
        )
    if client is not None:
        yield client
        return
    async with AsyncClient() as temporary:
        yield temporary


def result_of_run(run: RunReply, arguments: Arguments) -> Any:
    """Return the function's result from a successful run; raises NoResult."""
    from bedrockjobs.base.errors import NoResult

    if run.hidden and "result" in run.hidden:
        raise NoResult(f"job {run.job_id}: it succeeded, but this token may not see its result (noData)")
    if arguments.takes_job:
        return run.result
    try:
        return arguments.result_of_json(None if run.result is None else run.result.get(RESULT))
    except WrongArguments as error:
        raise NoResult(f"job {run.job_id}: {error}") from None


def _parts(jobs: Sequence[JobSpec]) -> Iterator[Sequence[JobSpec]]:
    """Yield jobs in order, in as many parts as there must be requests."""
    from bedrockjobs.base.config import JOBS_PER_CREATE_MAX

    for first in range(0, len(jobs), JOBS_PER_CREATE_MAX):
        yield jobs[first : first + JOBS_PER_CREATE_MAX]


@contextmanager
def _noting(created: int) -> Iterator[None]:
    """Note in an error that jobs were created before it."""
    try:
        yield
    except Exception as error:
        if created:
            error.add_note(f"the first {created:,} jobs were created")
        raise


def _created(reply: JobIDsReply) -> Iterable[tuple[int, bool]]:
    """Return each jobID, and whether the job is new."""
    return zip(reply.job_ids, reply.created or [True] * len(reply.job_ids), strict=True)


def _outcome(synced: SyncReply) -> str:
    return "added" if synced.added else "changed" if synced.changed else "unchanged"


def _refused(function: _Declared[Any, Any], reason: str, detail: str) -> InvalidCommand:
    from bedrockjobs.base.errors import InvalidCommand

    return InvalidCommand(reason, detail, function.function.__qualname__)
