"""Workflows of ``@job`` functions: signatures, ``chain``, ``group``, ``chord``, ``Workflow``, and handles.

The result of a job may be an argument of later jobs. In the data of a later job, the place of such an
argument is null, and the member ``$results`` says which result belongs there, so that no data of a user is
mistaken for a result. The worker fills these places from the results that the server sends with the later
job (``before``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, overload

from bedrock_worker.arguments import PASSED, RESULT, WrongArguments, json_of
from bedrock_worker.current import CurrentRun, current_run
from bedrock_worker.enqueuing import (
    Steps,
    V,
    _asynchronous,
    _Declared,
    _performed,
    _performed_async,
    _receiver,
    _refused,
)
from bedrock_worker.functions import Fail

if TYPE_CHECKING:
    from bedrockjobs.client import AsyncClient, Client
    from bedrockjobs.commands import WholeWorkflowReply, WorkflowJobReply

R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

OnFailure = Literal["cancel", "continue", "ignore"]
"""What happens to the jobs that come after a job if that job fails or is cancelled."""


class _Nothing:
    """Marks that there is no result to pass on."""


_NOTHING = _Nothing()


class _Place(NamedTuple):
    """Where a signature is added to a workflow: after which jobs, and with which argument."""

    given: Any = _NOTHING
    """What stands for the result of the signature before it in a chain."""
    after: tuple[str, ...] = ()
    """The refs of the jobs after which the signature comes."""
    on_failure: OnFailure = "cancel"
    ref: str | None = None


class Result:
    """Stands for the result of a job that has not run, as an argument of later jobs, also in lists and dicts.

    Its members and attributes stand for those of the result.
    """

    __slots__ = ("_node", "_path", "_workflow")
    __iter__ = None
    __contains__ = None

    def __init__(self, workflow: Workflow, node: _Node, path: tuple[str | int, ...]) -> None:
        self._workflow, self._node, self._path = workflow, node, path

    def __getitem__(self, key: str | int) -> Result:
        """Return what stands for a member."""
        return Result(self._workflow, self._node, (*self._path, key))

    def __getattr__(self, name: str) -> Result:
        """Return what stands for an attribute."""
        if name.startswith("_"):
            raise AttributeError(f"{self!r} has no attribute {name}")
        return self[name]

    def __bool__(self) -> bool:
        """Raise TypeError: the job has not run."""
        raise TypeError(f"{self!r} is not known before its job has run: use it as an argument only")

    def __repr__(self) -> str:
        """Name the job."""
        return f"<result of {self._node.ref}>"


class _Node:
    """A job of a workflow that is being built."""

    __slots__ = ("after", "function", "named", "on_failure", "options", "passed", "ref")

    def __init__(
        self,
        ref: str,
        function: _Declared[..., Any],
        options: dict[str, Any],
        passed: list[tuple[list[str | int], Result]],
        place: _Place,
    ) -> None:
        self.ref, self.function, self.options, self.passed = ref, function, options, passed
        self.on_failure = place.on_failure
        self.named = place.ref is not None
        """True if the user chose the ref."""
        self.after = tuple(dict.fromkeys((*place.after, *(result._node.ref for _, result in passed))))

    def spec(self, refs: Mapping[str, str] | None = None, own: str = "") -> Any:
        """Return the job to create.

        ``refs`` maps the present refs of the jobs that are created together to their new refs. With ``own``,
        the job also comes after the job with this ref, unless it comes after a job in ``refs`` already.
        """
        from bedrockjobs.commands import WorkflowJob

        options, refs = self.options, refs or {}
        later = [] if not own or any(ref in refs for ref in self.after) else [own]
        if self.passed:
            passed = [[path, refs.get(it._node.ref, it._node.ref), it._path] for path, it in self.passed]
            options = {**options, "data": {**options["data"], PASSED: passed}}
        return WorkflowJob(
            **options,
            ref=refs.get(self.ref, self.ref),
            after=[*(refs.get(ref, ref) for ref in self.after), *later],
            on_failure=self.on_failure,
        )


# --- signatures ------------------------------------------------------------------------------------------


class PartialSignature(ABC, Generic[A_contra, R_co]):
    """A call that gets its first argument from the call before it in a ``chain``."""

    @abstractmethod
    def _placed(self, workflow: Workflow, place: _Place) -> tuple[Any, tuple[str, ...]]:
        """Add the jobs to a workflow; return what stands for their result, and the refs of the last jobs."""


class Signature(PartialSignature[Any, R_co]):
    """One call or several: ``start`` runs them as a workflow, or they become part of a larger one."""

    def start(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        keep: int | str | None = None,
        client: Client | None = None,
    ) -> WorkflowHandle[R_co]:
        """Create the jobs as a workflow, either all or none, and return its handle.

        ``name`` is the workflow's, by default that of its first job. A repeated ``key`` returns the first
        workflow for a day; within a run, each call of ``start`` has such a key by default, so that another
        attempt of the run starts no second workflow. ``keep`` is how long the workflow is kept after its end,
        a day by default. Raises InvalidCommand, and the errors of ``Client.call``.
        """
        workflow, value = self._whole(name, keep)
        return workflow._started(value, key, client)

    async def astart(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        keep: int | str | None = None,
        client: AsyncClient | None = None,
    ) -> AsyncWorkflowHandle[R_co]:
        """Create a workflow like ``start``, without blocking."""
        workflow, value = self._whole(name, keep)
        return await workflow._astarted(value, key, client)

    def add_to_current(self, *, client: Client | None = None) -> dict[str, int]:
        """Add the jobs to the workflow of the current run; see ``Workflow.add_to_current``."""
        return self._whole(None, None)[0].add_to_current(client=client)

    async def aadd_to_current(self, *, client: AsyncClient | None = None) -> dict[str, int]:
        """Add the jobs like ``add_to_current``, without blocking."""
        return await self._whole(None, None)[0].aadd_to_current(client=client)

    def _whole(self, name: str | None, keep: int | str | None) -> tuple[Workflow, Any]:
        workflow = Workflow(name or "", keep=keep)
        value, _ = self._placed(workflow, _Place())
        if not name and workflow._nodes:
            workflow.name = next(iter(workflow._nodes.values())).options["name"]
        return workflow, value


class Call(Signature[R_co]):
    """One call of a function."""

    def __init__(
        self, function: _Declared[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, alone: bool
    ) -> None:
        """Take the arguments; with ``alone``, the call never gets a result as its first argument."""
        self._function, self._args, self._kwargs, self._alone = function, args, kwargs, alone

    def __repr__(self) -> str:
        """Return the signature as the code that makes it: ``f.s(1)``."""
        given = [*map(repr, self._args), *(f"{name}={value!r}" for name, value in self._kwargs.items())]
        return f"{self._function.function.__qualname__}.s({', '.join(given)})"

    def _placed(self, workflow: Workflow, place: _Place) -> tuple[Any, tuple[str, ...]]:
        args = self._args
        if place.given is not _NOTHING and not self._alone and not self._function.arguments.takes_job:
            args = (place.given, *args)
        node = workflow._append(self._function, args, self._kwargs, place)
        return Result(workflow, node, () if self._function.arguments.takes_job else (RESULT,)), (node.ref,)


class Chain(Signature[R_co]):
    """Signatures that run one after the other."""

    def __init__(self, parts: Sequence[PartialSignature[Any, Any]]) -> None:
        """Take the parts in order."""
        self._parts = parts

    def _placed(self, workflow: Workflow, place: _Place) -> tuple[Any, tuple[str, ...]]:
        for part in self._parts:
            value, last = part._placed(workflow, place)
            place = place._replace(given=value, after=last)
        return (None if place.given is _NOTHING else place.given), place.after


class Group(Signature[list[R_co]]):
    """Signatures that run in parallel."""

    def __init__(self, parts: Sequence[PartialSignature[Any, R_co]]) -> None:
        """Take the parts; the list of their results has the same order."""
        self._parts = parts

    def _placed(self, workflow: Workflow, place: _Place) -> tuple[Any, tuple[str, ...]]:
        placed = [part._placed(workflow, place) for part in self._parts]
        last = tuple(ref for _, refs in placed for ref in refs)
        return [value for value, _ in placed], last or place.after


def _parts(name: str, given: Iterable[Any]) -> list[PartialSignature[Any, Any]]:
    """Return the given signatures as a list; raises InvalidArgument for anything else, such as a function."""
    parts = list(given)
    for part in parts:
        if not isinstance(part, PartialSignature):
            raise _no_signature(name, part)
    return parts


def _no_signature(place: str, given: object) -> Exception:
    from bedrockjobs.base.errors import InvalidArgument

    if isinstance(given, _Declared):
        called = given.function.__qualname__
        return InvalidArgument(
            f"{place}: expected a signature, like {called}.s(1), got the function {called}"
        )
    hint = "; declare it with @job first" if callable(given) else ""
    return InvalidArgument(
        f"{place}: expected a signature of a @job function, like f.s(1), got {given!r:.100}{hint}"
    )


@overload
def chain(a: Signature[A], /) -> Signature[A]: ...
@overload
def chain(a: Signature[A], b: PartialSignature[A, B], /) -> Signature[B]: ...
@overload
def chain(a: Signature[A], b: PartialSignature[A, B], c: PartialSignature[B, C], /) -> Signature[C]: ...
@overload
def chain(
    a: Signature[A], b: PartialSignature[A, B], c: PartialSignature[B, C], d: PartialSignature[C, D], /
) -> Signature[D]: ...
@overload
def chain(
    a: Signature[A],
    b: PartialSignature[A, B],
    c: PartialSignature[B, C],
    d: PartialSignature[C, D],
    e: PartialSignature[D, E],
    /,
    *more: PartialSignature[Any, Any],
) -> Signature[Any]: ...
@overload
def chain(a: PartialSignature[A, B], b: PartialSignature[B, C], /) -> PartialSignature[A, C]: ...
@overload
def chain(
    a: PartialSignature[A, B], b: PartialSignature[B, C], c: PartialSignature[C, D], /
) -> PartialSignature[A, D]: ...
def chain(*parts: PartialSignature[Any, Any]) -> Any:
    """Return calls that run one after the other; each gets the result of the call before as first argument.

    The result of the chain is that of the last call. Raises InvalidArgument for anything but signatures.
    """
    return Chain(_parts("chain", parts))


@overload
def group(*parts: Signature[R]) -> Signature[list[R]]: ...
@overload
def group(parts: Iterable[Signature[R]], /) -> Signature[list[R]]: ...
@overload
def group(*parts: PartialSignature[A, R]) -> PartialSignature[A, list[R]]: ...
def group(*parts: Any) -> Any:
    """Return calls that run in parallel; the result of the group is the list of their results.

    In a chain, each call gets the previous result. Raises InvalidArgument for anything but signatures.
    """
    several = (
        len(parts) == 1 and not isinstance(parts[0], PartialSignature) and isinstance(parts[0], Iterable)
    )
    return Group(_parts("group", parts[0] if several else parts))


def chord(
    parts: Signature[list[A]] | Iterable[Signature[A]], finish: PartialSignature[list[A], B]
) -> Signature[B]:
    """Return calls that run in parallel, and after them ``finish``, which gets the list of their results.

    If one of them fails, ``finish`` is cancelled. Raises InvalidArgument for anything but signatures.
    """
    given = parts if isinstance(parts, PartialSignature) else Group(_parts("chord", parts))
    return Chain(_parts("chord", (given, finish)))


# --- workflows -------------------------------------------------------------------------------------------


class Added(Generic[R]):
    """The jobs that one call of ``Workflow.add`` added."""

    def __init__(self, value: Any, workflow: Workflow, refs: tuple[str, ...]) -> None:
        self._value, self._workflow, self.refs = value, workflow, refs
        """The refs of the jobs among them after which no other of them comes."""

    @property
    def result(self) -> R:
        """Return what stands for the jobs' result, to be an argument of a signature that is added later."""
        found: R = self._value
        return found

    def __repr__(self) -> str:
        """Name the jobs in ``refs``."""
        return f"<{', '.join(self.refs)} of workflow {self._workflow.name}>"


class Workflow:
    """A graph of calls, created in one command: ``x = workflow.add(f.s(1)); workflow.add(g.s(x.result))``."""

    def __init__(self, name: str, *, keep: int | str | None = None) -> None:
        """Begin a workflow; it is kept for ``keep`` after its end, by default for a day."""
        self.name = name
        self._keep = keep
        self._nodes: dict[str, _Node] = {}
        self._numbers: dict[str, int] = {}
        self._elsewhere: dict[str, str] = {}
        """Refs that the current run's workflow must have, each with the added job that comes after it."""

    def __repr__(self) -> str:
        """Name the workflow."""
        return f"<Workflow {self.name} with {len(self._nodes)} jobs>"

    def add(
        self,
        signature: Signature[R],
        *,
        after: Iterable[Added[Any] | str] = (),
        on_failure: OnFailure = "cancel",
        ref: str | None = None,
    ) -> Added[R]:
        """Add one call or several, and return an object whose ``result`` stands for their result.

        The added jobs start when the jobs in ``after``, and the jobs whose results they get, have finished.
        ``on_failure`` says what happens to later jobs if one of the added jobs fails or is cancelled. ``ref``
        names the job of a single call. Raises InvalidCommand, InvalidArgument.
        """
        from bedrockjobs.base.errors import InvalidArgument

        if not isinstance(signature, Signature):
            raise _no_signature("add", signature)
        if ref is not None and not isinstance(signature, Call):
            raise InvalidArgument("ref: expected none for several calls, each has its own")
        refs: list[str] = []
        for each in [after] if isinstance(after, (Added, str)) else after:
            if isinstance(each, Added) and each._workflow is not self:
                raise InvalidArgument(
                    f"after: {each!r} is of another workflow than {self.name}: add its call to this one"
                )
            refs += [each] if isinstance(each, str) else each.refs
        for each in refs:
            if each not in self._nodes:
                self._elsewhere.setdefault(each, ref or repr(signature))
        value, last = signature._placed(self, _Place(after=tuple(refs), on_failure=on_failure, ref=ref))
        return Added(value, self, last)

    def start(
        self, *, key: str | None = None, client: Client | None = None
    ) -> WorkflowHandle[dict[str, Any]]:
        """Create the workflow, either all jobs or none, and return its handle.

        Its result is a dict of the jobs' results by ``ref``. ``key`` and the errors are those of
        ``Signature.start``.
        """
        return self._started(self._all_results(), key, client)

    async def astart(
        self, *, key: str | None = None, client: AsyncClient | None = None
    ) -> AsyncWorkflowHandle[dict[str, Any]]:
        """Create the workflow like ``start``, without blocking."""
        return await self._astarted(self._all_results(), key, client)

    def add_to_current(self, *, client: Client | None = None) -> dict[str, int]:
        """Add the jobs to the workflow of the current run, and return their jobIDs by ``ref``.

        The jobs start when the current job has finished, and are cancelled if it fails. A retried run adds
        nothing twice: jobs whose refs exist stay as they are. ``after`` may name refs of the workflow.
        Raises InvalidArgument outside of a workflow, and the errors of ``Client.call``.
        """
        steps = self._addition(current_run())
        receiver = _receiver()
        if receiver is not None:
            return _performed(receiver.workflows(self._functions()), steps)
        return _performed(self._caller(client)._blocking(), steps)

    async def aadd_to_current(self, *, client: AsyncClient | None = None) -> dict[str, int]:
        """Add the jobs like ``add_to_current``, without blocking."""
        steps = self._addition(current_run())
        receiver = _receiver()
        stand_in = None if receiver is None else receiver.workflows(self._functions())
        return await _Async(self._caller(client)._client, stand_in).perform(steps)

    @staticmethod
    def handle(workflow_id: int, *, client: Client | None = None) -> WorkflowHandle[dict[str, Any]]:
        """Return the handle of an existing workflow; its result is what each job reported, by ``ref``."""
        from bedrockjobs.client import shared_client

        receiver = _receiver()
        if receiver is not None:
            return WorkflowHandle(workflow_id, {}, None, lambda: receiver.workflows([]))
        return WorkflowHandle(workflow_id, {}, None, lambda: client or shared_client())

    @staticmethod
    def ahandle(
        workflow_id: int, *, client: AsyncClient | None = None
    ) -> AsyncWorkflowHandle[dict[str, Any]]:
        """Return the asyncio handle of an existing workflow, like ``handle``."""
        receiver = _receiver()
        stand_in = None if receiver is None else receiver.workflows([])
        return AsyncWorkflowHandle(workflow_id, {}, None, _Async(client, stand_in))

    # Building.

    def _append(
        self, function: _Declared[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], place: _Place
    ) -> _Node:
        """Add a job that calls a function; raises InvalidCommand."""
        from bedrockjobs.base.errors import InvalidArgument

        passed: list[tuple[list[str | int], Result]] = []
        data: dict[str, Any] = {}
        try:
            for name, kind, value in function.arguments.bound(args, kwargs):
                found: list[tuple[list[str | int], Result]] = []
                plain = _without_results(value, [name], found)
                for _, result in found:
                    if result._workflow is not self:
                        raise InvalidArgument(
                            f"{function.function.__qualname__}: {name}: {result!r} is of another workflow,"
                            f" {result._workflow.name}, than {self.name}: add its call to this one"
                        )
                data[name] = (
                    json_of(_as_json(plain, name), Any, name) if found else json_of(value, kind, name)
                )
                passed += found
        except WrongArguments as error:
            raise _refused(function, "Malformed data", str(error)) from None
        except RecursionError:
            raise _refused(function, "Malformed data", "expected arguments that JSON can hold") from None
        if PASSED in data:
            raise _refused(function, "Malformed data", f"expected no argument called {PASSED}")
        node = _Node(
            self._ref_of(function, place.ref), function, _options_of(function, data, passed), passed, place
        )
        self._nodes[node.ref] = node
        return node

    def _ref_of(self, function: _Declared[..., Any], wanted: str | None) -> str:
        """Return the ref of a new job; raises InvalidArgument."""
        from bedrockjobs.base.config import REF_CHARS_MAX
        from bedrockjobs.base.errors import InvalidArgument

        if wanted is not None:
            if wanted in self._nodes:
                raise InvalidArgument(f"ref: expected another one, {wanted} is there already")
            if wanted in self._elsewhere:
                later = self._elsewhere[wanted]
                raise InvalidArgument(
                    f"ref: {later} comes after {wanted}: add them in the order in which they run"
                )
            return wanted
        # Eight characters less leave room for a number.
        base = function.function.__name__[: REF_CHARS_MAX - 8]
        while True:
            number = self._numbers[base] = self._numbers.get(base, 0) + 1
            ref = base if number == 1 else f"{base}-{number}"
            if ref not in self._nodes and ref not in self._elsewhere:
                return ref

    def _functions(self) -> list[_Declared[..., Any]]:
        return [node.function for node in self._nodes.values()]

    def _all_results(self) -> dict[str, Any]:
        return {
            ref: Result(self, node, () if node.function.arguments.takes_job else (RESULT,))
            for ref, node in self._nodes.items()
        }

    def _caller(self, client: Client | AsyncClient | None) -> _Declared[..., Any]:
        """Return a function of the workflow, using ``client``; raises InvalidCommand without jobs."""
        from bedrockjobs.base.errors import InvalidCommand

        if not self._nodes:
            raise InvalidCommand("Malformed jobs", "jobs: expected at least one", f"workflow {self.name}")
        return next(iter(self._nodes.values())).function.using(client=client)

    # Sending.

    def _started(self, value: Any, key: str | None, client: Client | None) -> WorkflowHandle[Any]:
        caller, receiver = self._caller(client), _receiver()
        steps = self._creation(key, current_run())
        blocking: Callable[[], Client] = caller._blocking
        if receiver is not None:
            stand_in = receiver.workflows(self._functions())
            blocking = lambda: stand_in  # noqa: E731  as short as it gets
        workflow_id, job_ids = _performed(blocking(), steps)
        return WorkflowHandle(workflow_id, job_ids, value, blocking)

    async def _astarted(
        self, value: Any, key: str | None, client: AsyncClient | None
    ) -> AsyncWorkflowHandle[Any]:
        caller, receiver = self._caller(client), _receiver()
        stand_in = None if receiver is None else receiver.workflows(self._functions())
        performer = _Async(caller._client, stand_in)
        workflow_id, job_ids = await performer.perform(self._creation(key, current_run()))
        return AsyncWorkflowHandle(workflow_id, job_ids, value, performer)

    def _creation(self, key: str | None, run: CurrentRun) -> Steps[tuple[int, dict[str, int]]]:
        """Create the workflow; return its ID, and the jobIDs by ``ref``."""
        from bedrockjobs.base.errors import InvalidArgument
        from bedrockjobs.commands import CreateWorkflow, WorkflowIDReply

        for ref, later in self._elsewhere.items():
            raise InvalidArgument(
                f"after: there is no job {ref} in workflow {self.name}, after which {later} comes"
            )
        options: dict[str, Any] = {} if self._keep is None else {"keep": self._keep}
        if key is None and run.job_id:
            key = yield from self._own_key(run)
        if key is not None:
            options["idempotency_key"] = key
        jobs = [node.spec() for node in self._nodes.values()]
        reply = yield CreateWorkflow(name=self.name, jobs=jobs, **options)
        if not isinstance(reply, WorkflowIDReply):
            raise reply
        return reply.workflow_id, reply.job_ids

    def _own_key(self, run: CurrentRun) -> Steps[str]:
        """Return the key of a workflow that a run starts: the same in each attempt of a job or tick."""
        from bedrockjobs.base.config import KEY_CHARS_MAX
        from bedrockjobs.commands import ListRuns, RunsReply

        due = ""
        if run.job.fields.get("repeat"):
            # The latest runs of the job, among them the first attempt: no tick is retried so often.
            reply = yield ListRuns(job_id=run.job_id, limit=100)
            runs = reply.runs if isinstance(reply, RunsReply) else []
            first = next((each for each in runs if each.attempt == 1), None)
            due = f" due {first.scheduled_for if first is not None else run.job.scheduled_for}"
        key = f"job {run.job_id}{due} starts {run.count(f'start {self.name}')} {self.name}"
        return key if len(key) <= KEY_CHARS_MAX else sha256(key.encode()).hexdigest()

    def _addition(self, run: CurrentRun) -> Steps[dict[str, int]]:
        """Add the jobs to the workflow of a run; return their jobIDs by ``ref``."""
        from bedrockjobs.base.config import REF_CHARS_MAX
        from bedrockjobs.base.errors import InvalidArgument
        from bedrockjobs.commands import AddedReply, AddToWorkflow

        own = run.job.ref
        if not own:
            words = f"job {run.job_id} is in no workflow" if run.job_id else "this is no run of a job"
            raise InvalidArgument(f"add_to_current: {words}: use start")
        count = run.count("add")
        refs = {ref: ref for ref in self._nodes}
        for node in self._nodes.values():
            if not node.named:  # so that two jobs, or two additions of one job, have different refs
                ref = f"{own}/{node.ref}" if count == 1 else f"{own}/{count}/{node.ref}"
                tail = sha256(ref.encode()).hexdigest()[:16]
                refs[node.ref] = (
                    ref if len(ref) <= REF_CHARS_MAX else f"{node.ref[: REF_CHARS_MAX - 17]}-{tail}"
                )
        jobs = [node.spec(refs, own) for node in self._nodes.values()]
        reply = yield AddToWorkflow(job_id=run.job_id, run_id=run.run_id or None, jobs=jobs, existing="keep")
        if not isinstance(reply, AddedReply):
            raise reply
        return reply.job_ids


def _options_of(
    function: _Declared[..., Any], data: dict[str, Any], passed: list[tuple[list[str | int], Result]]
) -> dict[str, Any]:
    """Return the attributes of a function's job in a workflow; raises InvalidCommand."""
    from bedrockjobs.commands.workflows import NOT_IN_WORKFLOWS

    for option in NOT_IN_WORKFLOWS:
        if function._options.get(option):
            words = f"{option}: expected none for a job of a workflow, which is created once with it"
            raise _refused(function, f"Malformed {option}", words)
    if function._connection is not None:
        words = "connection: expected none, a workflow is created by the server in its own commit"
        raise _refused(function, "Malformed connection", words)
    return {"data": {}, **function._made_with(data, {str(path[0]) for path, _ in passed})}


def _without_results(value: Any, path: list[str | int], found: list[tuple[list[str | int], Result]]) -> Any:
    """Return a value with None in the place of each Result; add the places and Results to ``found``."""
    if isinstance(value, Result):
        found.append((path, value))
        return None
    if isinstance(value, dict):
        return {key: _without_results(part, [*path, _key(key)], found) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_results(part, [*path, at], found) for at, part in enumerate(value)]
    return value


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(key)


def _as_json(value: Any, name: str) -> Any:
    """Return as JSON an argument that contains a Result, which cannot be checked; raises WrongArguments."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value)
    except (PydanticSerializationError, ValueError) as error:
        raise WrongArguments(f"{name}: expected a value that JSON can hold: {error}") from None


def filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a job, with the results of the jobs before it in their places.

    ``fields`` are the fields of the job in the server's reply. Raises Fail if a result is missing.
    """
    data = dict(fields["data"])
    before: Mapping[str, Any] = fields.get("before") or {}
    for path, ref, members in data.pop(PASSED):
        if ref not in before:
            why = "is left out, as all results before this job are too much"
            known = ref in (fields.get("beforeLeftOut") or ())
            raise Fail(f"the result of {ref} {why if known else 'is not there'}")
        *way, last = path
        place: Any = data
        for step in way:
            place = place[step]
        place[last] = _member(before[ref], members, ref)
    return data


def _member(result: Any, members: Sequence[str | int], ref: str) -> Any:
    """Return a member of what a job reported; None if nothing was reported, as the function returned None."""
    if result is None and list(members) in ([], [RESULT]):
        return None
    for step in members:
        try:
            result = result[step]
        except (LookupError, TypeError):
            raise Fail(f"the result of {ref} has no member {step!r}") from None
    return result


# --- handles ---------------------------------------------------------------------------------------------


class _Async:
    """Performs steps with an asyncio client or, in a test, with the test's stand-in in another thread."""

    def __init__(self, client: Client | AsyncClient | None, stand_in: Any) -> None:
        self._client, self._stand_in = client, stand_in

    async def perform(self, steps: Steps[V]) -> V:
        """Return the result of the steps."""
        if self._stand_in is not None:
            import asyncio

            return await asyncio.to_thread(_performed, self._stand_in, steps)
        async with _asynchronous(self._client) as client:
            return await _performed_async(client, steps)


class WorkflowHandle(Generic[R_co]):
    """A handle to follow a workflow, to wait for its result, to cancel it and to retry it."""

    def __init__(
        self, workflow_id: int, job_ids: Mapping[str, int], value: Any, client: Callable[[], Client]
    ) -> None:
        self.workflow_id, self.job_ids = workflow_id, job_ids
        """The jobIDs by ``ref``."""
        self._value, self._client = value, client

    def __repr__(self) -> str:
        """Return the handle with the workflow's id."""
        return f"<WorkflowHandle of workflow {self.workflow_id}>"

    def state(self) -> str:
        """Return the state: ``RUNNING``, ``FINISHED``, ``FAILED`` or ``CANCELLED``; raises NoResult."""
        return _performed(self._client(), _state(self.workflow_id))

    def result(self, timeout: float | None = 0) -> R_co:
        """Return the result like ``wait``, but by default without waiting."""
        return self.wait(timeout)

    def wait(self, timeout: float | None = None) -> R_co:
        """Wait until the workflow has ended, and return its result.

        ``timeout`` is in seconds: 0 only checks, None waits indefinitely. Raises WorkflowFailed if a job
        failed or was cancelled, JobNotEnded on timeout, NoResult if the workflow is not kept any longer, and
        WaitNeverEnds in a run of the workflow. Requires the read role.
        """
        found: R_co = _performed(
            self._client(), _result(self.workflow_id, self.job_ids, self._value, timeout)
        )
        return found

    def cancel(self) -> bool:
        """Cancel all jobs that have not ended; return False if the workflow has finished or is gone."""
        return _performed(self._client(), _cancel(self.workflow_id))

    def retry(self) -> int:
        """Start failed and cancelled jobs again, and return how many; finished jobs keep their results.

        Raises NotFound, and WrongState if there is nothing to retry.
        """
        return _performed(self._client(), _retry(self.workflow_id))


class AsyncWorkflowHandle(Generic[R_co]):
    """A handle like ``WorkflowHandle`` whose methods do not block."""

    def __init__(self, workflow_id: int, job_ids: Mapping[str, int], value: Any, performer: _Async) -> None:
        self.workflow_id, self.job_ids = workflow_id, job_ids
        """The jobIDs by ``ref``."""
        self._value, self._performer = value, performer

    def __repr__(self) -> str:
        """Return the handle with the workflow's id."""
        return f"<AsyncWorkflowHandle of workflow {self.workflow_id}>"

    async def state(self) -> str:
        """Return the state, like ``WorkflowHandle.state``."""
        return await self._performer.perform(_state(self.workflow_id))

    async def result(self, timeout: float | None = 0) -> R_co:  # noqa: ASYNC109  like WorkflowHandle
        """Return the result, like ``WorkflowHandle.result``."""
        return await self.wait(timeout)

    async def wait(self, timeout: float | None = None) -> R_co:  # noqa: ASYNC109  like WorkflowHandle
        """Wait and return the result, like ``WorkflowHandle.wait``."""
        steps = _result(self.workflow_id, self.job_ids, self._value, timeout)
        found: R_co = await self._performer.perform(steps)
        return found

    async def cancel(self) -> bool:
        """Cancel all jobs that have not ended, like ``WorkflowHandle.cancel``."""
        return await self._performer.perform(_cancel(self.workflow_id))

    async def retry(self) -> int:
        """Start failed and cancelled jobs again, like ``WorkflowHandle.retry``."""
        return await self._performer.perform(_retry(self.workflow_id))


def _found(workflow_id: int, reply: Any) -> WholeWorkflowReply:
    from bedrockjobs.base.errors import NoResult, NotFound

    if isinstance(reply, NotFound):
        raise NoResult(f"workflow {workflow_id}: it no longer exists")
    found: WholeWorkflowReply = reply
    return found


def _state(workflow_id: int) -> Steps[str]:
    from bedrockjobs.commands import QueryWorkflow

    return _found(workflow_id, (yield QueryWorkflow(workflow_id=workflow_id, limit=1))).state


def _cancel(workflow_id: int) -> Steps[bool]:
    from bedrockjobs.base.errors import NotFound
    from bedrockjobs.commands import CancelWorkflow

    reply = yield CancelWorkflow(workflow_id=workflow_id)
    return not isinstance(reply, NotFound) and reply.state != "FINISHED"


def _retry(workflow_id: int) -> Steps[int]:
    from bedrockjobs.commands import RetriedReply, RetryWorkflow

    reply = yield RetryWorkflow(workflow_id=workflow_id)
    if not isinstance(reply, RetriedReply):
        raise reply
    return reply.retried


def _result(workflow_id: int, job_ids: Mapping[str, int], value: Any, timeout: float | None) -> Steps[Any]:
    """Wait for the end of a workflow; return its result."""
    from bedrockjobs.base.errors import NoResult, WaitNeverEnds, WorkflowFailed

    if timeout != 0 and current_run().job.workflow_id == workflow_id:
        raise WaitNeverEnds(f"workflow {workflow_id}: a run of it cannot wait for its end")
    ended = yield from _ended(workflow_id, timeout)
    if ended.state != "FINISHED":
        bad: WorkflowJobReply | None = None
        rows = _rows(workflow_id, 0, None, results=False)
        for row in (yield from rows):
            if row.state == "FAILED" or (row.state == "CANCELLED" and bad is None):
                bad = row
                if row.state == "FAILED":
                    break
        if bad is None:
            raise WorkflowFailed(workflow_id, ended.name, "", 0, ended.state.lower(), "")
        how = "fail" if bad.state == "FAILED" else "cancelled"
        raise WorkflowFailed(workflow_id, ended.name, bad.ref, bad.job_id, how, bad.reason)
    if value is None and not job_ids:
        return {row.ref: row.result for row in (yield from _rows(workflow_id, 0, None, results=True))}
    wanted = {result._node.ref for result in _results_in(value)}
    ids = [job_ids[ref] for ref in wanted]
    found: dict[str, Any] = {}
    if ids:
        rows = _rows(workflow_id, min(ids) - 1, max(ids), results=True)
        found = {row.ref: row.result for row in (yield from rows) if row.state == "FINISHED"}
    try:
        return _with_values(value, found)
    except (WrongArguments, Fail) as error:
        raise NoResult(f"workflow {workflow_id}: {error}") from None


def _ended(workflow_id: int, timeout: float | None) -> Steps[WholeWorkflowReply]:
    """Wait for the end of a workflow; raises JobNotEnded, NoResult."""
    from bedrockjobs.base.clock import SystemClock
    from bedrockjobs.base.errors import JobNotEnded
    from bedrockjobs.client.base import WAIT_MS
    from bedrockjobs.commands import QueryWorkflow

    now = SystemClock().monotonic
    deadline = None if timeout is None else now() + timeout
    while True:
        left_s = None if deadline is None else max(deadline - now(), 0.0)
        wait: dict[str, Any] = {}
        if left_s != 0:
            wait_ms = WAIT_MS if left_s is None else min(WAIT_MS, int(left_s * 1_000) + 1)
            wait = {"connection": "wait", "timeout": wait_ms}
        reply = yield QueryWorkflow(workflow_id=workflow_id, limit=1, **wait)
        found = _found(workflow_id, reply)
        if found.state != "RUNNING":
            return found
        if left_s == 0:
            raise JobNotEnded(
                f"workflow {workflow_id} has not ended within {timeout:g} s: {found.open} jobs are open"
            )


def _rows(
    workflow_id: int, after: int, until: int | None, *, results: bool
) -> Generator[Any, Any, list[WorkflowJobReply]]:
    """Return the jobs of a workflow whose jobID is above ``after`` and at most ``until``, in this order."""
    from bedrockjobs.commands import QueryWorkflow

    found: list[WorkflowJobReply] = []
    while True:
        # Maximum jobs in one reply, since results may be large.
        limit = 200 if until is None else min(until - after, 200)
        reply = yield QueryWorkflow(workflow_id=workflow_id, after=after, limit=limit, results=results)
        page = _found(workflow_id, reply).jobs
        found += page
        if len(page) < limit or page[-1].job_id == until:
            return found
        after = page[-1].job_id


def _results_in(value: Any) -> Iterator[Result]:
    if isinstance(value, Result):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _results_in(part)


def _with_values(value: Any, found: Mapping[str, Any]) -> Any:
    """Return a value with each Result replaced by the result itself, or by None for an ignored failed job.

    Raises WrongArguments, Fail.
    """
    if isinstance(value, Result):
        node = value._node
        if node.ref not in found:
            return None
        raw = _member(found[node.ref], value._path, node.ref)
        return raw if node.function.arguments.takes_job else node.function.arguments.result_of_json(raw)
    if isinstance(value, list):
        return [_with_values(part, found) for part in value]
    if isinstance(value, dict):
        return {key: _with_values(part, found) for key, part in value.items()}
    return value
