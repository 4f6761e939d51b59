"""QueryJob waits for no writer: it sees all that was acknowledged, and answers as the writer would."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from bedrockjobs.base.background import can_pause, yield_to_loop
from bedrockjobs.commands import ListLimits, QueryJob
from bedrockjobs.engine import lookups
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.handlers.context import HANDLERS, Answer
from bedrockjobs.store.base import StoreError
from tests.conftest import Live, Serve
from tests.protocol.talk import Reply, request
from tests.runs.bearer import Bearer, admin_of
from tests.runs.test_damaged_data import DAMAGE

LOOKUPS_PAUSE_S = 1.0

both = pytest.mark.parametrize("databases", ["sqlite", "postgresql"], indirect=True)


class Held:
    """The writer of a server, held in a transaction or in its commit."""

    def __init__(self, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
        """Prepare to hold the writer of a server."""
        self._live, self._monkeypatch = live, monkeypatch
        self._resume: list[Callable[[], object]] = []
        self._gate = threading.Event()
        self._reached = threading.Event()

    async def in_transaction(self) -> asyncio.Future[Reply]:
        """Hold it in a transaction that has paused; return the reply of that, for later."""

        def paused(*_: Any) -> Answer:
            self._reached.set()
            yield_to_loop(self._resume.append)
            return Answer("{}")

        self._monkeypatch.setitem(HANDLERS, ListLimits, paused)
        return await self._begun(asyncio.ensure_future(self._live.ask("ListLimits")))

    async def in_commit(self, command: str = "CreateJob", **given: Any) -> asyncio.Future[Reply]:
        """Hold it in the commit of a command; return the reply of that, for later."""
        kind = type(self._live.server.dispatcher._engine)
        commit = kind.commit

        def held(engine: Any) -> None:
            self._reached.set()
            if can_pause():
                yield_to_loop(self._resume.append)
            else:
                self._gate.wait()
            commit(engine)

        self._monkeypatch.setattr(kind, "commit", held)
        return await self._begun(asyncio.ensure_future(self._live.ask(command, **(given or {"name": "b"}))))

    async def _begun(self, reply: asyncio.Future[Reply]) -> asyncio.Future[Reply]:
        await self._live.until(self._reached.is_set)
        return reply

    def release(self) -> None:
        """Let it go on."""
        self._monkeypatch.undo()
        self._gate.set()
        for resume in self._resume:
            asyncio.get_running_loop().call_soon(resume)


@pytest.fixture
def held(live: Live, monkeypatch: pytest.MonkeyPatch) -> Held:
    """Return what holds the writer of the server."""
    return Held(live, monkeypatch)


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each QueryJob be read in parallel to the writer, as if that were busy."""
    monkeypatch.setattr(Dispatcher, "_would_wait", lambda _: True)


@both
@pytest.mark.parametrize("where", ["in_transaction", "in_commit"])
async def test_it_is_answered_while_the_writer_is_held(
    live: Live, held: Held, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await live.ask("CreateJob", name="a")).json == {"jobID": 1}
    waits = await getattr(held, where)()
    try:
        assert (await live.ask("QueryJob", jobID=1)).json["name"] == "a"
        assert (await live.http("QueryJob", {"jobID": 1})).json["name"] == "a"
        assert (await live.ask("QueryJob", jobID=2)).code == 404, "it is not committed yet"
        control = await live.connect()
        with monkeypatch.context() as patch:
            patch.setattr(QueryJob, "by_id", False)
            control.send(request("QueryJob", jobID=1))
            assert (await live.ask("Ping")).code == 200
            assert await control.silent(), "the writer would have let it wait"
    finally:
        held.release()
    assert (await waits).code == 200
    assert (await control.reply()).json["name"] == "a"
    assert (await live.ask("QueryJob", jobID=2)).code == (200 if where == "in_commit" else 404)


@both
async def test_it_sees_what_its_own_connection_sent_before(live: Live, held: Held) -> None:
    talk = await live.connect()
    talk.send(request("CreateJob", name="a") + request("QueryJob", jobID=1))
    assert [(await talk.reply()).code, (await talk.reply()).json["name"]] == [200, "a"]
    waits = await held.in_commit()
    try:
        talk.send(request("CreateJob", name="c"))
        assert (await live.ask("Ping")).code == 200
        talk.send(request("QueryJob", jobID=3))
        assert await talk.silent()
    finally:
        held.release()
    assert (await waits).code == 200
    assert [(await talk.reply()).json, (await talk.reply()).json["name"]] == [{"jobID": 3}, "c"]


@both
@pytest.mark.usefixtures("beside")
async def test_what_its_connection_sends_after_it_comes_after_it(live: Live) -> None:
    talk = await live.connect()
    for job_id in range(1, 40):
        talk.send(request("CreateJob", name="a") + request("GetJob", name="a"))
        assert [(await talk.reply()).code, (await talk.reply()).code] == [200, 200]
        talk.send(request("QueryJob", jobID=job_id))
        for _ in range(job_id % 4):
            await asyncio.sleep(0)
        talk.send(request("FinishJob", jobID=job_id) + request("QueryJob", jobID=job_id))
        shown, finished, gone = [await talk.reply() for _ in range(3)]
        assert (shown.json["state"], finished.code, gone.code) == ("RUNNING", 200, 404)


async def _fill(admin: Bearer) -> tuple[list[int], Bearer, Bearer]:
    """Make jobs of all kinds; return their IDs, and who has a run's token, valid and not."""
    queued = await admin.ok("CreateJob", name="mail/a", data={"to": "ada"}, uniqueKey="k", note="n")
    other = await admin.ok("CreateJob", name="other")
    tokens = []
    for name in ("mail/run", "mail/over"):
        await admin.ok("CreateJob", name=name, keep=60, uniqueKey="k", uniqueFor=60)
        tokens.append(await admin.ok("GetJob", name=name, worker="w", runToken=True))
    running, over = tokens
    await admin.ok("FinishJob", jobID=over["jobID"], runID=over["runID"], data={"result": 7})
    brief = await admin.ok("CreateJob", name="mail/brief", uniqueKey="k", uniqueFor=60)
    job = await admin.ok("GetJob", name="mail/brief")
    await admin.ok("FinishJob", jobID=job["jobID"])
    await admin.ok("CreateJob", name="mail/failed")
    failed = await admin.ok("GetJob", name="mail/failed", worker="w")
    await admin.ok("FailJob", jobID=failed["jobID"], error="ValueError: secret")
    parent = await admin.ok("CreateJob", name="mail/parent", repeat="FINISHED, +1 DAY")
    every = [queued, other, running, over, brief, failed, parent, {"jobID": 999}]
    live = admin.live
    return (
        [one["jobID"] for one in every],
        Bearer(live, running["runToken"]),
        Bearer(live, over["runToken"]),
    )


@both
@pytest.mark.usefixtures("beside")
async def test_it_answers_whoever_asks_as_the_writer_would(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = await admin_of(live)
    jobs, of_run, of_run_over = await _fill(admin)
    callers = [
        admin,
        of_run,
        of_run_over,
        Bearer(live),
        await admin.token_for("reader", "read"),
        await admin.token_for("narrow", "read", "mail/*"),
        await admin.token_for("elsewhere", "read", "x/*"),
        await admin.token_for("blind", "read", noData=True),
        await admin.token_for("narrow-blind", "read", "mail/*", noData=True),
    ]

    async def replies() -> list[Reply]:
        return [
            await ask("QueryJob", jobID=job_id)
            for job_id in jobs
            for caller in callers
            for ask in (caller.raw, caller.http)
        ]

    def without_date(found: list[Reply]) -> list[tuple[str, tuple[str, ...], str]]:
        return [
            (one.status, tuple(line for line in one.lines if not line.startswith("Date:")), one.body)
            for one in found
        ]

    looked_up = await replies()
    assert {one.code for one in looked_up} == {200, 401, 403, 404}
    monkeypatch.setattr(QueryJob, "by_id", False)
    assert without_date(looked_up) == without_date(await replies())


@both
@pytest.mark.usefixtures("beside")
async def test_a_damaged_job_is_left_to_the_writer(live: Live, databases: Any) -> None:
    await live.ask("CreateJob", name="a", data='{"a":1}')
    await live.ask("QueryJob", jobID=1)
    await asyncio.to_thread(databases.change, live.server.settings.database, DAMAGE.format(1))
    assert (await live.ask("QueryJob", jobID=1)).code == 500
    assert (await live.ask("QueryJob", jobID=1)).json["state"] == "FAILED"


@both
@pytest.mark.usefixtures("beside")
async def test_the_writer_answers_while_the_connection_fails(
    live: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await live.ask("CreateJob", name="a")
    reader = live.server.dispatcher._engine.row_reader
    assert reader is not None
    tries, now = [], [0.0]

    def fails(plans: Any) -> Any:
        tries.append(plans)
        raise StoreError("the connection is broken")

    monkeypatch.setattr(reader, "begin", fails)
    monkeypatch.setattr(live.server.dispatcher._lookups, "_clock", _Clock(now))
    for moment in (0.0, LOOKUPS_PAUSE_S / 2, LOOKUPS_PAUSE_S + 0.1):
        now[0] = moment
        assert (await live.ask("QueryJob", jobID=1)).json["name"] == "a"
    assert len(tries) == 2, "it is left alone for a while"
    assert caplog.text.count("reads of single jobs wait for the writer") == 1


class _Clock:
    def __init__(self, now: list[float]) -> None:
        self._now = now

    def monotonic(self) -> float:
        return self._now[0]


@both
@pytest.mark.usefixtures("beside")
async def test_large_replies_are_read_a_few_at_a_time(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    await live.ask("CreateJob", name="a", data={"x": "x" * 1000})
    reader = live.server.dispatcher._engine.row_reader
    assert reader is not None
    begin, sizes = reader.begin, []

    def counted(plans: Any) -> Any:
        sizes.append(len(plans))
        return begin(plans)

    monkeypatch.setattr(reader, "begin", counted)
    monkeypatch.setattr(lookups, "BATCH_ANSWER_BYTES_MAX", 2_500)
    replies = await asyncio.gather(*(live.ask("QueryJob", jobID=1) for _ in range(20)))
    assert [one.json["jobID"] for one in replies] == [1] * 20
    assert sum(sizes) >= 20
    assert len(sizes) >= 7, "three replies of a thousand bytes each are as many as one read may have"


@both
@pytest.mark.usefixtures("beside")
async def test_a_server_that_stops_answers_it_first(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    await live.ask("CreateJob", name="a")
    reader = live.server.dispatcher._engine.row_reader
    assert reader is not None
    begin, resume = reader.begin, list[Callable[[], object]]()

    def later(plans: Any) -> Any:
        yield_to_loop(resume.append)
        return begin(plans)

    monkeypatch.setattr(reader, "begin", later)
    talk = await live.connect()
    talk.send(request("QueryJob", jobID=1))
    await live.until(lambda: bool(resume))
    stopped = asyncio.ensure_future(live.server.stop())
    assert await talk.silent()
    resume[0]()
    assert (await talk.reply()).json["name"] == "a"
    await stopped


@both
@pytest.mark.usefixtures("beside")
async def test_a_client_that_leaves_costs_nothing(serve: Serve) -> None:
    live = await serve(pending_max=3)
    await live.ask("CreateJob", name="a")
    for _ in range(10):
        talk = await live.connect()
        talk.send(request("QueryJob", jobID=1))
        talk.reset()
    await live.connections(0)
    await live.until(lambda: live.server.dispatcher.pending == 0)
    assert (await live.ask("QueryJob", jobID=1)).json["name"] == "a"


async def test_while_the_writer_is_free_it_reads_with_its_caches(
    live: Live, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.ask("CreateJob", name="a")
    accepted: list[Any] = []
    accept = live.server.dispatcher._lookups.accept
    monkeypatch.setattr(
        live.server.dispatcher._lookups, "accept", lambda one: accepted.append(one) or accept(one)
    )
    replies = await asyncio.gather(*(live.ask("QueryJob", jobID=1) for _ in range(20)))
    assert ([one.code for one in replies], accepted) == ([200] * 20, [])
    waits = await held.in_transaction()
    assert (await live.ask("QueryJob", jobID=1)).code == 200
    assert len(accepted) == 1
    held.release()
    assert (await waits).code == 200
