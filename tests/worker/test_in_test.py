"""``eager``, ``capture``, ``checked`` and ``run_jobs``: tests of an application."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import date, timedelta
from typing import Any

import pytest
from bedrock_worker import (
    Handle,
    Progress,
    as_completed,
    as_completed_async,
    chain,
    enqueuing,
    group,
    job,
    wait_all,
    wait_all_async,
)
from bedrock_worker.agent import Agent
from bedrock_worker.arguments import WrongArguments
from bedrock_worker.functions import RetryRules
from bedrock_worker.options import ISOLATIONS, REUSE, WorkerOptions
from bedrock_worker.policy.python_module import BadModule, load

from bedrockjobs import AsyncClient, InvalidCommand, JobFailed, JobNotEnded
from bedrockjobs.client import addresses_of
from bedrockjobs.commands import CreateJob, FailJob, GetJob, ListRuns, QueryJob
from bedrockjobs.testing import ServerUnderTest, capture, eager
from tests.worker import jobs_in_test as app
from tests.worker.fake_server import DEADLINE_S


@pytest.fixture(autouse=True)
def no_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections, except in tests with a server."""
    app.SEEN.clear()
    if "server" not in request.fixturenames:

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("a connection was made")

        monkeypatch.setattr(socket.socket, "connect", refuse)
        monkeypatch.setattr(socket, "create_connection", refuse)


@pytest.fixture
def server() -> Iterator[ServerUnderTest]:
    with ServerUnderTest() as running:
        yield running


def test_a_job_runs_at_once_and_its_handle_has_ended() -> None:
    with eager() as jobs:
        handle = app.square.enqueue(3)
        assert (handle.wait(), handle.result(), handle.status()) == (9, 9, "FINISHED")
        assert (handle.created, handle.progress(), handle.cancel()) == (True, Progress(0.5, "half"), False)
        assert [each.wait() for each in app.square.enqueue_many([{"n": 2}, {"n": 2, "power": 3}])] == [4, 8]
    assert [repr(each) for each in jobs] == ["square(n=3)", "square(n=2)", "square(n=2, power=3)"]


def test_arguments_and_results_go_through_json() -> None:
    with eager():
        result = app.day.enqueue(date(2030, 1, 2), (7, "x")).wait()
    assert result == [date(2030, 1, 2)]
    assert [(date(2030, 1, 2), (7, "x"))] == app.SEEN
    with eager(), pytest.raises(InvalidCommand, match="expected int"):
        app.square.enqueue("3")  # type: ignore[arg-type]
    assert not app.SEEN[1:]


def test_a_function_that_takes_the_job() -> None:
    with eager():
        assert app.whole.enqueue(who="ann").wait() == {"who": "ann", "name": "whole"}


def test_retries_are_counted_as_a_worker_counts_them() -> None:
    with eager() as jobs:
        assert app.fails.enqueue(3).wait() == 3
        handle = app.fails.enqueue(9)
        with pytest.raises(JobFailed, match="job 2: fail: OSError: not yet, 3") as failed:
            handle.wait()
        assert app.fails.using(retries=0).enqueue(2).status() == "FAILED"
    assert isinstance(failed.value.__cause__, OSError)
    assert (failed.value.error_type, "Traceback" in failed.value.traceback) == ("OSError", True)
    assert [each.attempts for each in jobs] == [3, 3, 1]
    assert len(jobs[1].errors) == 3


@pytest.mark.parametrize(
    ("kind", "state", "attempts", "delays"),
    [
        ("retry", "FAILED", 4, [60, 60, 60]),
        ("fail", "FAILED", 1, []),
        ("snooze", "QUEUED", 0, []),
        ("value", "FAILED", 1, []),
        ("group", "FAILED", 1, []),
    ],
)
def test_what_a_function_asks_for(kind: str, state: str, attempts: int, delays: list[int]) -> None:
    with eager() as jobs:
        handle = app.raises.using(name="raises/a").enqueue(kind)
        assert handle.status() == state
        with pytest.raises(JobNotEnded if state == "QUEUED" else JobFailed):
            handle.wait(1)
    assert (jobs[0].attempts, jobs[0].delays) == (attempts, delays)


def test_jobs_of_jobs_run_too_and_blocks_nest() -> None:
    with capture() as outer:
        app.square.enqueue(1)
        with eager() as inner:
            app.order.enqueue(2)
            with capture() as innermost:
                app.order.enqueue(4)
        app.square.enqueue(5)
    assert [repr(each) for each in outer] == ["square(n=1)", "square(n=5)"]
    assert [(repr(each), each.state) for each in inner] == [
        ("order(n=2)", "FINISHED"),
        ("square(n=2)", "FINISHED"),
        ("square(n=3, power=3)", "FINISHED"),
    ]
    assert [each.state for each in innermost] == ["QUEUED"]


async def test_asyncio() -> None:
    with eager():
        handle = await app.later.aenqueue(1)
        assert (await handle.wait(), await handle.status()) == (2, "FINISHED")
        assert app.later.enqueue(2).wait() == 3, "also from inside a loop"
        many = await app.square.aenqueue_many([{"n": 3}, {"n": 4}])
        assert await wait_all_async(many) == [9, 16]
        assert [await each.result() async for each in as_completed_async(many)] == [9, 16]

    async def one(n: int) -> int:
        with capture() as jobs:
            await asyncio.sleep(0)
            await app.square.aenqueue(n)
            await asyncio.sleep(0)
            return int(jobs.assert_enqueued(app.square).arguments["n"])

    assert await asyncio.gather(*map(one, range(5))) == [0, 1, 2, 3, 4], "each task has its own block"


def test_threads() -> None:
    def enqueue() -> None:
        for n in range(50):
            app.square.enqueue(n)

    with capture() as jobs:
        threads = [threading.Thread(target=enqueue) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(jobs) == 200
    assert sorted(each.job_id for each in jobs) == list(range(1, 201))


def test_captured_jobs_are_asserted() -> None:
    with capture() as jobs:
        app.order.enqueue(1)
        handle = app.square.using(delay="5m", retries=3).enqueue(4)
        app.day.enqueue(date(2030, 1, 2))
        assert (handle.status(), handle.progress()) == ("QUEUED", None)
        with pytest.raises(JobNotEnded, match="job 2 has not ended within 0 s: QUEUED"):
            handle.result()
    assert jobs.assert_enqueued(app.square, n=4).spec.first_run == "+300s"
    for found in (
        jobs.assert_enqueued(app.square),
        jobs.assert_enqueued(app.square, 4),
        jobs.assert_enqueued(app.square, n=4, power=2),
    ):
        assert found.job_id == 2
    jobs.assert_enqueued(app.day, when=date(2030, 1, 2))
    jobs.assert_not_enqueued(app.square, n=5)
    jobs.assert_not_enqueued(app.fails)
    with pytest.raises(AssertionError) as wrong:
        jobs.assert_enqueued(app.square, n=5, power=2)
    assert str(wrong.value) == (
        "square(n=5, power=2) was not enqueued; these jobs were:\n"
        "  order(n=1)\n"
        "  square(n=4)   n: expected 5, got 4\n"
        "  day(when='2030-01-02')"
    )
    with pytest.raises(AssertionError, match=r"square\(n=4\) was enqueued$"):
        jobs.assert_not_enqueued(app.square, n=4)
    assert handle.cancel()
    assert (handle.status(), handle.cancel()) == ("CANCELLED", False)
    with capture() as none, pytest.raises(AssertionError, match="was not enqueued; nothing was enqueued"):
        none.assert_enqueued(app.square)


def test_a_unique_key_is_held_by_a_captured_job() -> None:
    with capture() as jobs:
        once = app.square.using(unique=True)
        first, second, other = once.enqueue(1), once.enqueue(1), once.enqueue(2)
    assert (first.created, second.created, other.created) == (True, False, True)
    assert (first.job_id == second.job_id, len(jobs)) == (True, 2)


async def test_a_checked_call() -> None:
    assert app.square.checked(3) == 9
    assert app.day.checked(date(2030, 1, 2)) == [date(2030, 1, 2)]
    assert await app.later.checked(1) == 2
    assert app.whole.checked(who="ann") == {"who": "ann", "name": "whole"}
    with pytest.raises(InvalidCommand, match="expected int"):
        app.square.checked("3")  # type: ignore[arg-type]

    @job("wrong")
    def wrong() -> int:
        return "3"  # type: ignore[return-value]

    with pytest.raises(WrongArguments, match="its result: expected int"):
        wrong.checked()
    assert wrong() == "3", "a plain call checks nothing"  # type: ignore[comparison-overlap]


# --- rules for errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "attempts"),
    [
        ("base", 3),
        ("sub", 3),
        ("group", 3),
        ("final", 1),
        ("other", 1),
        ("final in group", 1),
        ("other in group", 1),
    ],
)
def test_which_errors_are_retried(kind: str, attempts: int) -> None:
    with eager() as jobs:
        assert app.rules.enqueue(kind).status() == "FAILED"
    assert jobs[0].attempts == attempts
    assert jobs[0].delays == [1, 60][: attempts - 1]


def test_a_backoff_function_and_one_that_fails() -> None:
    with eager() as jobs:
        app.by_function.enqueue("four")
        app.broken.enqueue()
    assert jobs[0].delays == [4, 8, 12]
    assert (jobs[1].attempts, jobs[1].delays) == (2, [10]), "the default of the server"


@pytest.mark.parametrize(
    ("options", "delays"),
    [
        ({"retries": 2, "backoff": "2s"}, [2, 4]),
        ({"retries": 2, "backoff": timedelta(seconds=3)}, [3, 6]),
        ({"retries": 3}, [10, 20, 40]),
        ({"retries": 3, "backoff": 60, "max_backoff": "100s"}, [60, 100, 100]),
        ({"retries": 2, "backoff": "2h"}, [7200, 7200]),
        ({"backoff": "1m", "retry_on": OSError}, [60, 120, 240]),
        ({"retries": 1, "retry_on": OSError}, [10]),
    ],
)
def test_the_delays_of_a_backoff_that_doubles(options: dict[str, Any], delays: list[int]) -> None:
    @job("doubles", **options)
    def doubles() -> None:
        raise OSError("no")

    with eager() as jobs:
        doubles.enqueue()
    assert jobs[0].delays == delays


def test_the_delays_are_those_of_a_server_without_its_random_part(server: ServerUnderTest) -> None:
    with eager() as jobs:
        app.fails.using(retries=4).enqueue(9)
    server.client.call(CreateJob(name="delayed", retries=4, backoff=5))
    assert len(jobs[0].delays) == 4
    for delay in jobs[0].delays:
        job_id = server.client.call(GetJob(name="delayed")).job_id
        server.client.call(FailJob(job_id=job_id))
        failed = server.now
        server.next()
        assert delay <= (server.now - failed).total_seconds() <= 1.25 * delay + 1


async def test_the_error_of_an_async_function_has_no_context_of_the_library() -> None:
    @job("async error", retries=1)
    async def fails_async() -> None:
        raise OSError("x")

    @job("error of a coroutine")
    def returns_coroutine() -> Any:
        return fails_async.function()

    def run() -> None:
        fails_async.enqueue()
        returns_coroutine.enqueue()

    with eager() as jobs:
        run()
        await asyncio.to_thread(run)
    assert [len(each.errors) for each in jobs] == [2, 1, 2, 1]
    for error in [error for each in jobs for error in each.errors]:
        assert error.startswith("OSError: x\nTraceback (most recent call last):\n")
        assert (error.count("Traceback"), "event loop" in error) == (1, False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retry_on": OSError, "give_up_on": OSError}, "give_up_on: OSError includes OSError of retry_on"),
        ({"retry_on": (Flaky := app.Flaky), "give_up_on": OSError}, "OSError includes Flaky of retry_on"),
        ({"retry_on": KeyboardInterrupt}, "retry_on: expected classes of exceptions"),
        ({"give_up_on": (ValueError, "OSError")}, "give_up_on: expected classes of exceptions"),
        ({"retry_on": OSError, "retries": 0}, "retry_on: expected nothing together with retries=0"),
        ({"backoff": []}, "backoff: expected at least one delay"),
        ({"backoff": [1, 2], "retries": 1}, "backoff: 2 delays for 1 retries: expected at most as many"),
        ({"backoff": [1, "soon"]}, "backoff: expected seconds, a timedelta or text"),
        ({"backoff": [1], "max_backoff": 5}, "max_backoff: expected nothing together with a list"),
        ({"backoff": lambda error: 1}, "backoff: expected a function of (attempt, error)"),
    ],
)
def test_combinations_without_a_meaning_are_refused_where_they_are_declared(options: Any, words: str) -> None:
    from bedrock_worker import cron

    with pytest.raises(ValueError) as refused:
        job("a", **options)
    assert words in str(refused.value)
    with pytest.raises(ValueError):
        cron("@daily", **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delay": 1, "first_run": "5m"}, "delay: expected nothing together with first_run"),
        ({"concurrency_key": "a", "lock": True}, "concurrency_key: expected nothing together with lock"),
        ({"hosts": "all", "lock": "a"}, "hosts: expected nothing together with lock"),
        ({"hosts": "all", "concurrency_key": "a"}, "hosts: expected nothing together with concurrency_key"),
    ],
)
def test_options_that_exclude_another_are_refused_by_their_python_names(options: Any, words: str) -> None:
    from bedrock_worker import cron

    for declare in (job, cron):
        with pytest.raises(ValueError) as refused:
            declare("@daily", **options)
        assert str(refused.value) == words
    with pytest.raises(InvalidCommand) as wrong:
        app.square.using(**options)
    assert str(wrong.value) == f"square: {words}"


@pytest.mark.parametrize(
    ("options", "more", "words"),
    [
        (
            {"concurrency_limit": 3},
            {"concurrency_key": "a"},
            "concurrency_limit: expected only together with",
        ),
        ({"unique_for": "started"}, {"unique": True}, "unique_for: expected only together with unique or"),
        ({"on_conflict": "reject"}, {"unique_key": "k"}, "on_conflict: expected only together with unique"),
    ],
)
def test_an_option_that_needs_another_has_it_at_the_latest_when_a_job_is_created(
    options: Any, more: Any, words: str
) -> None:
    from bedrock_worker import cron

    @job("late", **options)
    def late() -> None: ...

    with capture() as jobs:
        with pytest.raises(InvalidCommand, match=words):
            late.enqueue()
        late.using(**more).enqueue()
    assert len(jobs) == 1
    with pytest.raises(ValueError, match=words):
        cron("@daily", **options)


def test_what_using_completes_or_turns_off_is_accepted() -> None:
    @job("tenant", concurrency_key="a", lock=False, unique=True, on_conflict="reject", delay="1m")
    def tenant() -> None: ...

    with capture() as jobs:
        tenant.using(concurrency_limit=2, unique=False, first_run=timedelta(hours=1)).enqueue()
        tenant.using(concurrency_key="", lock="b", unique_key="c", unique_for="started").enqueue()
    first, second = (job.spec for job in jobs)
    assert (first.concurrency_key, first.concurrency_limit, first.unique_key) == ("a", 2, None)
    assert (second.concurrency_key, second.lock, second.unique_key, second.unique_for) == (
        *("", "b", "c", "started"),
    )


async def test_a_key_for_each_value_of_arguments() -> None:
    key = f"{app.__name__}.by_user:"
    with eager() as jobs:
        app.by_user.enqueue(1)
        app.by_user.enqueue_many([{"user_id": 1.0, "words": "b"}, {"user_id": 2}])
        await app.later_by_user.aenqueue()
        app.later_by_user.enqueue("x" * 300)
        await app.later_by_user.aenqueue_many([{"user_id": "x" * 300, "words": "c"}])
        app.by_user.using(concurrency_key=("user_id", "words")).enqueue(1)
        app.by_user.using(concurrency_key="all").enqueue(1)
    assert {each.state for each in jobs} == {"FINISHED"}
    assert [each.spec.concurrency_key for each in jobs if each.function.pattern == "by user"] == [
        *(f'{key}{{"user_id":1}}', f'{key}{{"user_id":1}}', f'{key}{{"user_id":2}}'),
        *(f'{key}{{"user_id":1,"words":""}}', "all"),
    ]
    first, long, equal = (each.spec.lock for each in jobs if each.function.pattern == "later by user")
    assert first == f'{app.__name__}.later_by_user:{{"user_id":"ann"}}'
    assert (len(long), equal == long) == (64, True), "a hash"
    assert (app.by_user.checked(1, "d"), await app.later_by_user.checked(words="e")) == ("d", "e")
    load(app.__name__)


def test_a_key_of_arguments_in_workflows() -> None:
    with capture() as jobs:
        chain(app.later_by_user.s("bob", "a"), app.later_by_user.si("eve")).start()
        group([app.by_user.s(3)]).start()
        with pytest.raises(InvalidCommand, match="lock: user_id is the result of another job"):
            chain(app.later_by_user.s("bob"), app.later_by_user.s()).start()
    keys = [each.spec.lock or each.spec.concurrency_key for each in jobs]
    assert [key.rpartition(":")[2] for key in keys] == ['"bob"}', '"eve"}', "3}"]


@pytest.mark.parametrize(
    ("option", "given", "words"),
    [
        ("lock", ("user",), "lock: the function has no parameter user"),
        ("concurrency_key", ["user"], "concurrency_key: the function has no parameter user"),
        ("concurrency_key", (), "concurrency_key: expected a text or names of parameters"),
        ("lock", (1,), "lock: expected True, a text or names of parameters"),
    ],
)
def test_wrong_names_of_arguments_for_a_key(option: str, given: Any, words: str) -> None:
    with capture(), pytest.raises(InvalidCommand, match=words):
        app.square.using(**{option: given}).enqueue(1)


@pytest.mark.parametrize("option", ["lock", "concurrency_key"])
def test_a_text_that_is_the_name_of_a_parameter_warns(option: str) -> None:
    options: Any = {option: "user_id"}
    with pytest.warns(UserWarning, match=rf'export: {option}="user_id" is one key .*: give \("user_id",\)'):

        @job("export", **options)
        def export(user_id: int) -> None: ...


def test_a_wrong_argument_is_named_together_with_a_missing_one() -> None:
    missing = r"missing a required argument: 'n'; there is no parameter 'm', 'k', of square\(n: "
    with capture(), pytest.raises(InvalidCommand, match=missing):
        app.square.enqueue(m=3, k=4)  # type: ignore[call-arg]
    with capture(), pytest.raises(InvalidCommand, match=r"an unexpected keyword argument 'm', of square\("):
        app.square.enqueue(1, m=3)  # type: ignore[call-arg]


def test_a_list_of_delays_sets_the_retries_of_enqueued_jobs() -> None:
    with capture() as jobs:
        app.rules.enqueue("base")
    assert (jobs[0].spec.retries, jobs[0].spec.backoff) == (2, None)
    module = load(app.__name__)
    assert {function.pattern for function in module.functions} >= {"rules", "backoff"}


def test_a_class_to_give_up_on_may_be_a_subclass() -> None:
    rules = RetryRules({"retry_on": OSError, "give_up_on": FileNotFoundError})
    final = rules.decide(FileNotFoundError(), 1)
    again = rules.decide(PermissionError(), 1)
    assert final is not None
    assert again is not None
    assert (final.final, again.final) == (True, False)


# --- with a server -----------------------------------------------------------------------------------------


def test_the_jobs_of_a_module_run_on_a_server(server: ServerUnderTest) -> None:
    handle = app.order.using(client=server.client).enqueue(2)
    app.fails.using(client=server.client).enqueue(2)
    app.raises.using(client=server.client, name="raises/a").enqueue("snooze")
    assert handle.status() == "QUEUED"
    assert server.run_jobs(app.__name__) == 5, "three, and two that one of them enqueued"
    assert (handle.status(), handle.wait(0)) == ("FINISHED", None)
    squares = server.client.call(ListRuns(name="square")).runs
    assert sorted(run.result["result"] for run in squares if run.result) == [4, 27]
    assert server.client.call(QueryJob(job_id=2)).state == "QUEUED"
    assert server.run_jobs(app.__name__) == 0, "the retry waits for the clock"
    server.advance("10s")
    assert server.run_jobs(app.__name__, until_empty=False) == 1
    with pytest.raises(BadModule):
        server.run_jobs("no.such.module")


def test_handles_follow_jobs_on_a_server(server: ServerUnderTest) -> None:
    square = app.square.using(client=server.client)
    handles: list[Handle[int]] = square.enqueue_many([{"n": n} for n in range(5)])
    with pytest.raises(JobNotEnded, match="5 jobs have not ended within 0 s: 1, 2, 3, 4, 5"):
        wait_all(handles, timeout=0)
    assert handles[4].cancel()
    assert (handles[4].status(), handles[4].cancel()) == ("CANCELLED", False)
    server.run_jobs(app.__name__)
    assert handles[2].progress() is None
    assert wait_all(handles[:4], timeout=20) == [0, 1, 4, 9]
    done = list(as_completed(handles, timeout=20))
    assert sorted(each.job_id for each in done) == [1, 2, 3, 4, 5]
    with pytest.raises(JobFailed, match="job 5: cancelled"):
        wait_all(handles, timeout=20)


async def _some(handles: AsyncIterator[Any], count: int) -> AsyncIterator[Any]:
    """Yield the first ``count`` handles."""
    async for each in handles:
        yield each
        count -= 1
        if not count:
            return


async def test_who_waits_for_many_jobs_asks_little_and_misses_none(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first jobs of many do not end; those that end out of their order are found all the same."""
    asked = 0
    status = Handle.status

    def counted(handle: Handle[int]) -> str:
        nonlocal asked
        asked += 1
        return status(handle)

    monkeypatch.setattr(Handle, "status", counted)
    monkeypatch.setattr(enqueuing, "ROUND_S_MAX", 3600)
    square = app.square.using(client=server.client)
    handles = square.enqueue_many([{"n": n} for n in range(10 * enqueuing.UNENDED_MAX)])
    with pytest.raises(JobNotEnded, match=f"{len(handles)} jobs have not ended within 0 s"):
        wait_all(handles, timeout=0)
    assert asked == len(handles), "the last look is at all of them"
    asked = 0
    for handle in handles[: enqueuing.UNENDED_MAX]:
        handle.cancel()
    first = next(as_completed(handles))
    assert (first, asked) == (handles[0], 2 * enqueuing.UNENDED_MAX)
    handles[-1].cancel()
    late = handles[enqueuing.UNENDED_MAX :]
    looking = as_completed(late, timeout=0)
    assert next(looking) is late[-1]
    with pytest.raises(JobNotEnded, match=f"{len(late) - 1} jobs have not ended"):
        next(looking)
    monkeypatch.setattr(enqueuing, "ROUND_S_MAX", 0)
    assert next(as_completed(late)) is late[-1], "a whole round finds it without a timeout"
    async with AsyncClient(server.address) as client:
        later = [square.using(client=client).ahandle(each.job_id) for each in (*late[:-1], *handles)]
        found = [each.job_id async for each in _some(as_completed_async(later), enqueuing.UNENDED_MAX + 1)]
    assert found == [each.job_id for each in (*handles[: enqueuing.UNENDED_MAX], late[-1])]


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_worker_applies_the_rules_in_each_isolation(server: ServerUnderTest, isolation: str) -> None:
    """As ``eager`` does; the function of the second job is asynchronous."""
    rules, later = app.rules.using(client=server.client), app.by_function.using(client=server.client)
    handles = [rules.enqueue("final"), rules.enqueue("other"), rules.enqueue("group"), later.enqueue("four")]
    options = WorkerOptions(
        names=(),
        argv=(),
        servers=addresses_of(server.address),
        module=app.__name__,
        burst=True,
        concurrency=2,
        isolation=isolation,
        process_jobs_max=WorkerOptions.process_jobs_max if isolation == REUSE else 1,
    )
    async with asyncio.timeout(DEADLINE_S):
        assert await Agent(options).run_until_stopped() == 0
    assert [each.status() for each in handles] == ["FAILED", "FAILED", "QUEUED", "QUEUED"]
    types = [run.error_type for run in server.client.call(ListRuns()).runs]
    assert sorted(types, key=str) == ["ConnectionRefusedError", "ExceptionGroup", "OSError", "ValueError"]
    due = [server.client.call(QueryJob(job_id=each.job_id)).next_run[:19] for each in handles[2:]]
    assert due == ["2030-01-01 00:00:01", "2030-01-01 00:00:04"]


async def test_asyncio_handles_follow_jobs_on_a_server(server: ServerUnderTest) -> None:
    async with AsyncClient(server.address) as client:
        square = app.square.using(client=client)
        handles = await square.aenqueue_many([{"n": n} for n in range(3)])
        with pytest.raises(JobNotEnded):
            await handles[0].result()
        assert await handles[2].cancel()
        await asyncio.to_thread(server.run_jobs, app.__name__)
        assert await wait_all_async(handles[:2], timeout=20) == [0, 1]
        assert await handles[2].status() == "CANCELLED"
        found = [each.job_id async for each in as_completed_async(handles, timeout=20)]
        assert sorted(found) == [1, 2, 3]


def test_results_are_kept_for_an_hour_unless_keep_says_otherwise(server: ServerUnderTest) -> None:
    keep = app.square.using(client=server.client)
    hour, day = keep.enqueue(1), keep.using(keep=timedelta(days=1)).enqueue(2)
    server.run_jobs(app.__name__)
    server.advance("2h")
    assert day.wait(0) == 4
    assert hour.job_id != day.job_id
    assert server.client.call(CreateJob(name="a")).job_id == 3
