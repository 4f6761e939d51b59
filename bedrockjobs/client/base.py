"""The core of both clients, without I/O.

It chooses the server, retries, and keeps idle connections. Each operation is a generator that yields I/O
steps and receives their outcomes. A step is a connection to make, a request to send, or a number of seconds
to sleep. The blocking and the asynchronous client only perform the steps.
"""

from __future__ import annotations

import inspect
import os
import random
import threading
import warnings
import weakref
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from bedrockjobs.base.clock import Clock, SystemClock
from bedrockjobs.base.config import WAIT_MS_MAX, WHOLE_MAX
from bedrockjobs.base.errors import (
    CommandError,
    Forbidden,
    JobFailed,
    JobNotEnded,
    NoResult,
    NotFound,
    NoWorkerTakes,
    ServerFault,
    TimedOut,
    Unavailable,
    WaitNeverEnds,
)
from bedrockjobs.base.run_variables import environment
from bedrockjobs.client.address import Address, AnyAddress, Credentials, addresses_of, server_of_environment
from bedrockjobs.client.exchange import (
    ANSWER_BYTES_MAX,
    ConnectionLost,
    MalformedAnswer,
    Response,
    ServerNotTrusted,
    ServerUnreachable,
    UnreadableAnswer,
    answer_s,
    reply_of,
    request_bytes,
    unreachable,
)
from bedrockjobs.commands import (
    Command,
    ExplainJob,
    ExplainReply,
    JobReply,
    JobsReply,
    ListChildren,
    ListRuns,
    OutputReply,
    Ping,
    QueryJob,
    QueryWorkflow,
    ReadOutput,
    Reply,
    RunReply,
    RunsReply,
    WholeWorkflowReply,
    WorkflowJobReply,
)

# Retries: whether, where and when a command is sent again.
#
# A command is retried if nothing can have been done: no connection was made, or the server said that nothing
# was committed (500, 503, 555). If the answer was lost, only idempotent commands are retried. The number of
# attempts is limited.
#
# A failing server is left for the next one in the list, whether or not the command is retried. After a while
# the first one is probed.


BACKOFF_FIRST_S = 0.1
"""Seconds of the first pause between two attempts; each further pause is twice as long."""

BACKOFF_MAX_S = 5.0
"""Maximum seconds of a pause between two attempts: a server that recovers is reached at most this late."""

RETURN_S = 30.0
"""Seconds between probes of the first server while another one is in use. Load returns soon after the first
server recovers, and until then each client sends it only one probe in this time."""

PROBE_S = 1.0
"""Maximum seconds of a probe; one call waits for it."""

NOT_DONE = (ServerFault, Unavailable, TimedOut)
"""Errors after which a request may be sent again, since nothing was committed. A 429 is not among them,
although it is retryable: limits last longer than the client's attempts."""


def backoff_s(failures: int) -> float:
    """Return the seconds to wait after so many failures: exponential backoff, up to half of it random."""
    longest = min(BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 30), BACKOFF_MAX_S)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  spreads the clients of a server that came back


class Route:
    """The addresses of a client, one of which is in use. Thread-safe."""

    def __init__(self, addresses: Sequence[AnyAddress]) -> None:
        self.addresses = tuple(addresses)
        self._at = 0
        self._probed_at = 0.0
        self._lock = threading.Lock()

    @property
    def current(self) -> AnyAddress:
        """Return the address in use."""
        return self.addresses[self._at]

    def unlock(self) -> None:
        """Replace the lock in a forked process, because another thread may have held it during the fork."""
        self._lock = threading.Lock()

    def move_on(self, failed: AnyAddress, now: float) -> bool:
        """Use the next address if ``failed`` is still the one in use; return whether the address changed.

        ``now`` is a monotonic time in seconds.
        """
        with self._lock:
            if failed != self.current or len(self.addresses) == 1:
                return False
            if self._at == 0:
                self._probed_at = now
            self._at = (self._at + 1) % len(self.addresses)
            return True

    def first_to_probe(self, now: float) -> AnyAddress | None:
        """Return the first address if another one is in use and a probe is due, else None.

        In ``RETURN_S`` seconds, only one caller gets the address.
        """
        if self._at == 0:
            return None
        with self._lock:
            if self._at == 0 or now - self._probed_at < RETURN_S:
                return None
            self._probed_at = now
            return self.addresses[0]

    def return_to_first(self) -> None:
        """Use the first address again, because its server answers."""
        with self._lock:
            self._at = 0


class Tries:
    """The attempts of one command."""

    def __init__(self, command: Command[Any], route: Route, tries_max: int) -> None:
        """Allow ``tries_max`` attempts at each address of the route."""
        self._repeatable = command.repeatable
        self._route = route
        self._tries_max = tries_max * len(route.addresses)
        self._failures = 0
        self._renewed = False
        self._answered: Exception | None = None
        """The earlier error to report if the last attempt reaches no server: a lost answer, or else a
        refusal."""
        self._unreachable: dict[AnyAddress, ServerUnreachable] = {}

    def pause_after(self, error: Exception, failed: AnyAddress, now: float) -> float:
        """Return the seconds until the next attempt; raise the error to report if no attempt is left."""
        if isinstance(error, (ConnectionError, *NOT_DONE)):
            self._route.move_on(failed, now)
        if isinstance(error, ServerUnreachable):
            self._unreachable[failed] = error
        self._failures += 1
        if not self._may_repeat(error) or self._failures >= self._tries_max:
            raise self._most_telling(error)
        if not isinstance(error, ServerUnreachable) and not isinstance(self._answered, ConnectionLost):
            self._answered = error
        rounds, within = divmod(self._failures, len(self._route.addresses))
        return 0.0 if within else backoff_s(rounds)

    def may_renew(self) -> bool:
        """Return True on the first call and then False: a command is retried once with a reloaded token."""
        before, self._renewed = self._renewed, True
        return not before

    def _may_repeat(self, error: Exception) -> bool:
        if isinstance(error, UnreadableAnswer):
            return False
        if isinstance(error, ServerNotTrusted):  # retrying does not help
            return len(self._route.addresses) > len(self._unreachable)
        if isinstance(error, ConnectionLost):
            return self._repeatable
        return isinstance(error, (ServerUnreachable, *NOT_DONE))

    def _most_telling(self, error: Exception) -> Exception:
        """Return the error to report: an earlier answer or lost answer rather than an unreachable server."""
        if not isinstance(error, ServerUnreachable):
            return error
        if self._answered is not None:
            return self._answered
        if len(self._unreachable) == 1:
            return error
        return ServerUnreachable("; ".join(map(str, self._unreachable.values())))


# Waiting for the end of a job: yields commands and receives their replies.
#
# A job that ended successfully is deleted but its run stays, so both are queried. While a run is in progress
# the server reports its end immediately; before the run starts, the job is polled once a second at most.


POLL_S_MIN, POLL_S_MAX = 0.005, 1.0
"""Seconds between two queries of a job whose run has not started, at first and at most; the pause doubles."""

RUN_QUERIES_MAX = 4
"""Maximum queries for the run of a job that is gone; a server may read from a standby that lags slightly."""

WARN_AFTER_S = 5.0
"""Seconds of waiting after which the client warns if no live worker takes the job."""

KEEP_LONGER = "a result is kept as long as the job's keep says: f.using(keep='1d').enqueue(...)"
"""Advice in the error for a job of which no row and no run is left."""

ENDED = ("FAILED", "CANCELLED", "FINISHED")
"""States of jobs that have ended."""

WAIT_MS = min(30_000, WAIT_MS_MAX)
"""Maximum milliseconds that one request waits for the end of a run: below the timeout of most proxies and
firewalls."""

WaitStep = Command[Any] | float
"""A command to send, or a number of seconds to sleep."""
StepOutcome = Reply | CommandError | float
"""The outcome of a ``WaitStep``: for a command its reply or error; for a sleep a number without meaning."""


class OwnRun(NamedTuple):
    """The run that this process or task belongs to."""

    job_id: int
    run_id: int


def own_run() -> OwnRun | None:
    """Return the run named by ``BEDROCK_JOB_ID`` and ``BEDROCK_RUN_ID``, or None outside of a run."""
    try:
        variables = environment()
        return OwnRun(int(variables["BEDROCK_JOB_ID"]), int(variables["BEDROCK_RUN_ID"]))
    except (KeyError, ValueError):
        return None


V = TypeVar("V")
Looks = Generator[WaitStep, tuple[StepOutcome, float], V]
JobWait = Looks[RunReply]


def end_of_job(job_id: int, seconds: float | None, own: OwnRun | None = None) -> JobWait:
    """Wait until a job has ended, and return its last run.

    Yields each ``WaitStep``; receives its outcome and the seconds since the start. Raises JobFailed,
    NoResult, WaitNeverEnds if the job waits for the run ``own``, and JobNotEnded after ``seconds``; None
    means no limit. Warns if no live worker takes the job.
    """
    polls = gone = 0
    warned = False
    if own is not None and seconds != 0:
        yield from _refuse_deadlock(job_id, own)
    while True:
        reply, passed = yield QueryJob(job_id=job_id)
        job = _unless_gone(reply)
        reply, passed = yield ListRuns(job_id=job_id, limit=1)
        run = _first(reply)
        if _is_over(job, run):
            return _ended(job_id, job, run)
        remaining_s = None if seconds is None else seconds - passed
        over = remaining_s is not None and remaining_s <= 0
        gone += job is None
        if gone >= RUN_QUERIES_MAX or (over and job is None and run is None):
            raise NoResult(
                f"job {job_id}: it no longer exists, and no stored run says how it ended; {KEEP_LONGER}"
            )
        if over:
            state = "its run has not ended" if job is None else job.state
            raise JobNotEnded(f"job {job_id} has not ended within {seconds:g} s: {state}")
        if run is not None and run.status == "running" and job is not None:
            wait_ms = WAIT_MS if remaining_s is None else min(WAIT_MS, int(remaining_s * 1000) + 1)
            reply, passed = yield ReadOutput(
                run_id=run.run_id, after=WHOLE_MAX, connection="wait", timeout=wait_ms
            )
            if isinstance(reply, OutputReply) and reply.ended:
                continue
        if not warned and passed >= WARN_AFTER_S and job is not None and job.state == "QUEUED":
            warned = True
            reply, passed = yield ExplainJob(job_id=job_id)
            if isinstance(reply, ExplainReply):
                _warn(reply)
        polls += 1
        soon = backoff_s(gone) if gone else POLL_S_MIN * 2.0 ** min(polls - 1, 30)
        pause = min(soon, POLL_S_MAX)
        yield pause if remaining_s is None else min(pause, remaining_s)


def _only_slot(job: JobReply) -> str:
    """Return the job's lock, or its concurrency key if only one job with that key may run; else empty."""
    if job.lock:
        return job.name if job.lock is True else str(job.lock)
    return job.concurrency_key or "" if job.concurrency_limit in (None, 1) else ""


JOBS_EXAMINED_MAX = 100
"""Maximum number of jobs that are queried to find out whether one of them waits for this run; people nest far
fewer."""


def _refuse_deadlock(job_id: int, own: OwnRun) -> Looks[None]:
    """Raise WaitNeverEnds if a job cannot end before this run has ended.

    That is so if the job is an ancestor of the run's job, or needs the lock that the run holds, or is a child
    of the run's job, or comes after it in a workflow, or waits for another such job. Information that is
    unavailable, for example forbidden, is ignored.
    """
    runs, _ = yield ListRuns(job_id=own.job_id, limit=1)
    run = runs.runs[0] if isinstance(runs, RunsReply) and runs.runs else None
    if run is None or (run.run_id, run.status) != (own.run_id, "running"):  # a run of another server
        return
    own_job, _ = yield QueryJob(job_id=own.job_id)
    if not isinstance(own_job, JobReply):
        return
    if job_id == own.job_id:
        raise WaitNeverEnds(f"job {job_id}: a run cannot wait for the end of its own job")
    other, _ = yield QueryJob(job_id=job_id)
    if not isinstance(other, JobReply) or other.state in ENDED:
        return
    ancestors = yield from _ancestors(own_job)
    if job_id in ancestors:
        words = f"its child, job {own.job_id}, waits for it, and has to end first"
        raise WaitNeverEnds(f"job {job_id}: {words}")
    lock = _only_slot(own_job)
    examined: dict[int, JobReply] = {job_id: other}
    for job in _growing(examined):
        which = f"job {job_id}: it" + ("" if job is other else f" waits for job {job.job_id}, which")
        if lock and lock == _only_slot(job) and job.state not in ("RUNNING", "RUNQUEUED"):
            words = f"needs the lock {lock}, which this run of job {own.job_id} holds until its end"
            raise WaitNeverEnds(f"{which} {words}")
        if own.job_id in (yield from _ancestors(job)):
            words = f"is a child of job {own.job_id}, and starts when this run of it has ended"
            raise WaitNeverEnds(f"{which} {words}")
        if job.state != "PAUSED":
            continue
        for before in (yield from _before(job)):
            if before.job_id == own.job_id:
                words = f"comes after job {own.job_id} in workflow {job.workflow_id}"
                raise WaitNeverEnds(f"{which} {words}, and starts when this run of it has ended")
            if before.job_id in ancestors:
                words = f"waits for job {before.job_id}, whose child, job {own.job_id}, has to end first"
                raise WaitNeverEnds(f"{which} {words}")
            if len(examined) < JOBS_EXAMINED_MAX and (lock or before.started):
                found, _ = yield QueryJob(job_id=before.job_id)
                if isinstance(found, JobReply):
                    examined.setdefault(before.job_id, found)
        if lock:
            children, _ = yield ListChildren(job_id=job.job_id, limit=JOBS_EXAMINED_MAX)
            for child in children.jobs if isinstance(children, JobsReply) else ():
                if child.state not in ENDED and len(examined) < JOBS_EXAMINED_MAX:
                    examined.setdefault(child.job_id, child)


def _growing(examined: dict[int, JobReply]) -> Iterator[JobReply]:
    """Yield the jobs in the order in which they were added, including jobs added during the iteration."""
    count = 0
    while count < len(examined):
        yield from list(examined.values())[count : (count := len(examined))]


def _ancestors(job: JobReply) -> Looks[set[int]]:
    """Return the jobIDs of the ancestors of a job."""
    found: set[int] = set()
    parent_id = job.parent_job_id
    while parent_id and len(found) < JOBS_EXAMINED_MAX:
        found.add(parent_id)
        parent, _ = yield QueryJob(job_id=parent_id)
        parent_id = parent.parent_job_id if isinstance(parent, JobReply) else None
    return found


def _before(job: JobReply) -> Looks[list[WorkflowJobReply]]:
    """Return the jobs of its workflow that a job waits for, directly or not, and that have not ended."""
    rows: dict[str, WorkflowJobReply] = {}
    after = 0
    while job.workflow_id:
        page, _ = yield QueryWorkflow(workflow_id=job.workflow_id, after=after)
        if not isinstance(page, WholeWorkflowReply) or not page.jobs:
            break
        rows |= {row.ref: row for row in page.jobs}
        after = page.jobs[-1].job_id
    refs, behind = [job.ref or ""], dict[str, WorkflowJobReply]()
    while refs:
        row = rows.get(refs.pop())
        for ref in () if row is None else row.after:
            if ref in rows and ref not in behind and not rows[ref].ended:
                behind[ref] = rows[ref]
                refs.append(ref)
    return list(behind.values())


def _warn(reply: ExplainReply) -> None:
    """Warn that no live worker takes a job."""
    for waits in reply.waits_for:
        if waits.reason in ("no worker", "own command"):
            words = f"job {reply.job_id} ({reply.name}) is waited for, but no live worker takes it"
            warnings.warn(f"{words}: {waits.detail}", NoWorkerTakes, stacklevel=_callers_level())
            return


OWN_PACKAGES = ("bedrockjobs", "bedrock_worker")


def _callers_level() -> int:
    """Return the ``stacklevel`` for a warning of the calling function that shows the user's own line."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in OWN_PACKAGES:
        level, frame = level + 1, frame.f_back
    return level


def _unless_gone(reply: StepOutcome) -> JobReply | None:
    """Return the job in a reply, or None if the job is gone; raises any other error."""
    if isinstance(reply, CommandError) and not isinstance(reply, NotFound):
        raise reply
    return reply if isinstance(reply, JobReply) else None


def _first(reply: StepOutcome) -> RunReply | None:
    if isinstance(reply, CommandError):
        raise reply
    assert isinstance(reply, RunsReply)
    return reply.runs[0] if reply.runs else None


def _is_over(job: JobReply | None, run: RunReply | None) -> bool:
    """Return whether a job has ended; if it was deleted (``job`` is None), whether its run has ended."""
    if job is not None:
        return job.state in ENDED
    return run is not None and run.status != "running"


def _ended(job_id: int, job: JobReply | None, run: RunReply | None) -> RunReply:
    """Return the last run of a job that succeeded; raises JobFailed, or NoResult if no run is stored."""
    run_id = None if run is None else run.run_id
    stopped = run is not None and run.status in ("terminated", "killed")
    if stopped if job is None else job.state == "CANCELLED":  # a job whose cancelled run has ended is deleted
        raise JobFailed(job_id, "cancelled", run.error if run is not None and stopped else "", run_id)
    if job is not None and job.state == "FAILED" and (run is None or run.status == "success"):
        raise JobFailed(job_id, "fail", job.error or "", run_id)
    if run is None:
        raise NoResult(
            f"job {job_id}: no run of it is stored, as its worker gave no name or its runs were deleted"
        )
    if run.status != "success":
        raise JobFailed(job_id, run.status, run.error, run_id)
    return run


# The idle connections of one client.
#
# A forked process makes its own connections: on a shared one, either process might read the other's answers.


IDLE_MAX = 32
"""Maximum number of idle connections. A call that ends when the pool is full closes its connection."""


class ClientConnection(Protocol):
    """The part of a connection that the pool uses."""

    @property
    def address(self) -> AnyAddress:
        """Return the address of the server."""

    @property
    def is_reusable(self) -> bool:
        """Return whether the connection can take another request."""

    def close(self) -> None:
        """Close the connection."""


C = TypeVar("C", bound=ClientConnection)


class Pool(Generic[C]):
    """The connections that are not in use by a call. Thread-safe."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        """Set once the client is closed; interrupts pauses between attempts."""
        self._idle: list[C] = []
        self._lock = threading.Lock()
        self._left: list[C] = []
        """Connections of the parent process, which are never closed here: closing one may affect the
        parent."""

    def reset_after_fork(self) -> None:
        """Reset the pool in a forked process; another thread may have held the lock during the fork."""
        self._left += self._idle
        self._idle, self._lock = [], threading.Lock()
        was_closed, self.closed = self.closed.is_set(), threading.Event()
        if was_closed:
            self.closed.set()

    def close_idle(self) -> None:
        """Close the idle connections; the pool stays open."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def take(self, address: AnyAddress) -> C | None:
        """Return the most recently used idle connection to an address, or None.

        Closes the idle connections that come before it: stale ones, and those to other addresses. Raises
        RuntimeError if the client is closed.
        """
        while True:
            with self._lock:
                if self.closed.is_set():
                    raise RuntimeError("the client is closed")
                connection = self._idle.pop() if self._idle else None
            if connection is None or (connection.address == address and connection.is_reusable):
                return connection
            connection.close()

    def give_back(self, connection: C, *, reusable: bool) -> None:
        """Keep a connection for the next call, or close it if it is not reusable or the pool is full."""
        with self._lock:
            if reusable and not self.closed.is_set() and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the idle connections; connections in use are closed when they are given back."""
        self.closed.set()
        self.close_idle()


R = TypeVar("R", bound=Reply)

_CLOCK = SystemClock()


class Connect(NamedTuple):
    """Step: connect to an address. The outcome is the connection, an OSError or a ValueError."""

    address: AnyAddress
    limit_s: float


class SendRequest(NamedTuple):
    """Step: send a request on a connection. The outcome is the answer, an OSError or a MalformedAnswer."""

    connection: Any
    request: bytes
    limit_s: float
    is_probe: bool


Steps = Generator[Connect | SendRequest | float, Any, V]
"""The I/O steps of an operation; a float is a number of seconds to sleep. The error of a failed step is
thrown into the generator."""


class BaseClient(Generic[C]):
    """What both clients have in common: the state, and the steps of each operation."""

    def __init__(
        self,
        server: str | Sequence[str] | None = None,
        *,
        tries: int = 6,  # with the pauses about three seconds, as long as a server's restart
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        clock: Clock | None = None,
        token: str | None = None,
        token_file: str | Path | None = None,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
    ) -> None:
        """Set the server: ``host:port``, ``https://host:port`` or ``unix:/path``, or a list of these.

        The client uses the first server of a list. If that server fails, the client moves to the next one,
        and returns to the first once it answers again. None means the value of ``BEDROCKJOBS_SERVER``, or
        else ``127.0.0.1:8888``. ``tries`` limits the attempts at each address. No connection is made before
        the first call.

        Each request carries ``token``, or the token in ``token_file``. ``https://`` means TLS: the client
        verifies the server's certificate against the system's CAs or ``ca``, and presents ``cert`` with
        ``key``; all three are paths of PEM files. Defaults come from ``BEDROCKJOBS_TOKEN``,
        ``BEDROCKJOBS_TOKEN_FILE``, ``BEDROCKJOBS_CA``, ``BEDROCKJOBS_CERT`` and ``BEDROCKJOBS_KEY``. Raises
        InvalidArgument, a ValueError, for a bad address, token or file.
        """
        self._route = Route(addresses_of(server))
        self._by_default = server is None and not server_of_environment()
        self._credentials = Credentials(token=token, token_file=token_file, ca=ca, cert=cert, key=key)
        if any(isinstance(each, Address) and each.tls for each in self._route.addresses):
            _ = self._credentials.context  # report unusable files now, not at the first call
        self._tries_max = tries
        self._answer_bytes_max = answer_bytes_max
        self._clock = SystemClock() if clock is None else clock
        self._pool: Pool[C] = Pool()
        _clients.add(self)

    def _after_fork(self) -> None:
        """Drop connections and locks shared with the parent process."""
        self._pool.reset_after_fork()
        self._route.unlock()

    @property
    def server(self) -> AnyAddress:
        """Return the address in use."""
        return self._route.current

    @property
    def has_token(self) -> bool:
        """Return whether requests carry a token."""
        return self._credentials.has_token

    @property
    def is_identified(self) -> bool:
        """Return whether the client identifies itself, by a token or a certificate."""
        return self._credentials.has_token or self._credentials.has_certificate

    def renew(self) -> None:
        """Reload the token and TLS files for later requests and connections.

        Raises InvalidArgument for a bad file, in which case nothing changes.
        """
        self._credentials.renew()

    def leave_server(self, server: AnyAddress) -> bool:
        """Use the next address if ``server`` is still the one in use; return whether the address changed.

        For callers with a shorter time limit than the client's own.
        """
        return self._route.move_on(server, self._clock.monotonic())

    def _exchange_steps(self, command: Command[Any]) -> Steps[Response]:
        """Send a command, with retries if they are safe, and return the answer."""
        yield from self._probe_first_server()
        tries = Tries(command, self._route, self._tries_max)
        while True:
            address = self._route.current
            try:
                answer = yield from self._exchange_once(command, address)
            except (ConnectionError, CommandError) as error:
                pause = self._pause_after(tries, error, address)
            else:
                return answer
            yield pause

    def _wait_steps(self, job_id: int, timeout: float | None) -> Steps[RunReply]:
        """Wait until a job has ended and return its last run."""
        asking, began = end_of_job(job_id, timeout, own_run()), self._clock.monotonic()
        asked = next(asking)
        while True:
            reply: StepOutcome = 0.0
            if isinstance(asked, float):
                yield asked
            else:
                try:
                    reply = self._reply(asked, (yield from self._exchange_steps(asked)))
                except CommandError as error:
                    reply = error
            try:
                asked = asking.send((reply, self._clock.monotonic() - began))
            except StopIteration as ended:
                return cast("RunReply", ended.value)

    def _exchange_once(self, command: Command[Any], address: AnyAddress) -> Steps[Response]:
        connection = self._pool.take(address)
        if connection is None:
            connection = yield from self._connect(address, 5.0)  # time limit for making a connection
        answer = yield from self._exchange_on(connection, command)
        answer.check()
        return answer

    def _connect(self, address: AnyAddress, limit_s: float) -> Steps[C]:
        """Make a connection; raises ServerUnreachable."""
        try:
            made: C = yield Connect(address, limit_s)
        except (OSError, ValueError) as error:
            raise unreachable(address, error, by_default=self._by_default) from error
        return made

    def _exchange_on(
        self, connection: C, command: Command[Any], probe_s: float | None = None
    ) -> Steps[Response]:
        """Send one request on a connection and return its answer; give the connection back to the pool.

        ``probe_s`` is the time limit of a probe in seconds; None means the time limit of the command. Raises
        ConnectionLost.
        """
        limit_s, reusable = answer_s(command) if probe_s is None else probe_s, False
        try:
            request = request_bytes(command, self._credentials.header)
            answer: Response = yield SendRequest(connection, request, limit_s, probe_s is not None)
            reusable = not answer.closing
        except MalformedAnswer as error:
            raise UnreadableAnswer(command, connection.address, str(error)) from None
        except OSError as error:
            raise ConnectionLost(command, connection.address, str(error)) from error
        finally:
            self._pool.give_back(connection, reusable=reusable)
        return answer

    def _probe_first_server(self) -> Steps[None]:
        """Return to the first server if a probe is due and it answers a Ping."""
        first = self._route.first_to_probe(self._clock.monotonic())
        if first is None:
            return
        deadline = _CLOCK.monotonic() + PROBE_S
        try:
            connection = yield from self._connect(first, PROBE_S)
            left_s = max(deadline - _CLOCK.monotonic(), 0.0)
            answer = yield from self._exchange_on(connection, Ping(), left_s)
        except ConnectionError:
            return
        if answer.code == 200 and not answer.closing:
            self._route.return_to_first()

    def _pause_after(self, tries: Tries, error: Exception, address: AnyAddress) -> float:
        """Return the seconds until the next attempt; raise the error to report if no attempt is left.

        A command that was refused with Forbidden is retried once if the token file has a new token.
        """
        if isinstance(error, Forbidden) and tries.may_renew() and self._credentials.renewed():
            return 0.0
        return tries.pause_after(error, address, self._clock.monotonic())

    def _reply(self, command: Command[R], answer: Response) -> R:
        """Return the typed reply of an answer; raises UnreadableAnswer."""
        try:
            return reply_of(command, answer)
        except ValueError as error:
            raise UnreadableAnswer(command, self._route.current, str(error)) from error


_clients: weakref.WeakSet[BaseClient[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._after_fork()


os.register_at_fork(after_in_child=_after_fork)
