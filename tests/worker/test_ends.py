"""The completion batcher: ends of runs that are sent together, and the result of each."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from types import SimpleNamespace

import pytest
from bedrock_worker.pull import ThenGet
from bedrock_worker.report.reporter import BATCH_MAX, DATA_CHARS_MAX, CompletionBatcher

from bedrockjobs.base.errors import NotFound
from bedrockjobs.client import AsyncClient, ConnectionLost
from bedrockjobs.commands import FailJob, FinishJob
from tests.worker.conftest import options_for


@pytest.fixture
async def sent(server):
    """Yield what sends some ends at once, and returns what became of each; all runs are open."""
    client = AsyncClient(server.address, tries=1)
    ends = CompletionBatcher(client)

    async def send(reports, *, wanted=lambda: False):
        thens = [ThenGet(options_for(server), lambda: ("Foo*",), wanted) for _ in reports]
        tasks = [asyncio.ensure_future(ends.send(*each)) for each in zip(reports, thens, strict=True)]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        jobs = [None if then.job is None else then.job.job_id for then in thens]
        assert not any(then.has_requested for then in thens)
        return SimpleNamespace(outcomes=outcomes, jobs=jobs)

    yield send
    ends.stop_sending()
    await client.close()


async def _taken(server, number):
    for _ in range(number):
        await server.add()
    async with AsyncClient(server.address) as client:
        await client.exchange(options_for(server).take(number, ("Foo*",)))


def _end(job_id, **more):
    return FinishJob(job_id=job_id, run_id=100 + job_id, exit_code=0, **more)


async def test_ends_of_one_moment_go_in_one_request(server, sent):
    await _taken(server, 3)
    found = await sent([_end(1), _end(2, data='{"a": 1.50}'), _end(3)])
    assert found.outcomes == [None] * 3
    (request,) = server.of("FinishJobs")
    assert "thenGet" not in request.then_get
    assert json.loads(request.text)["jobs"] == [
        {"exitCode": 0, "jobID": 1, "runID": 101},
        {"data": {"a": 1.5}, "exitCode": 0, "jobID": 2, "runID": 102},
        {"exitCode": 0, "jobID": 3, "runID": 103},
    ]
    assert '{"a": 1.50}' in request.text
    assert not server.of("FinishJob")


async def test_those_that_come_while_one_is_on_its_way_wait_for_its_answer(server, sent):
    await _taken(server, 4)
    first = asyncio.ensure_future(sent([_end(1)]))
    await server.until(lambda: server.of("FinishJob"))
    later = await sent([_end(2), _end(3), _end(4)])
    assert (await first).outcomes == [None]
    assert later.outcomes == [None] * 3
    assert [request.verb for request in server.requests[1:]] == ["FinishJob", "FinishJobs"]


async def test_the_next_jobs_come_with_the_answer_to_those_who_ask(server, sent):
    await _taken(server, 3)
    for _ in range(5):
        await server.add()
    wants = iter([True, False, True])
    found = await sent([_end(1), _end(2), _end(3)], wanted=lambda: next(wants))
    assert found.jobs == [4, None, 5]
    asked = server.of("FinishJobs")[0]
    assert (asked.then_get["thenGet"], json.loads(asked.text)["numResults"]) == ("Foo*", 2)
    assert asked.then_get["worker"] == "test"


async def test_there_may_be_fewer_jobs_than_were_asked_for(server, sent):
    await _taken(server, 2)
    await server.add()
    assert (await sent([_end(1), _end(2)], wanted=lambda: True)).jobs == [3, None]


async def test_one_that_is_refused_is_told_why_and_the_others_are_done(server, sent):
    await _taken(server, 2)
    first, lost, last = (await sent([_end(1), _end(9), _end(2)])).outcomes
    assert (first, last) == (None, None)
    assert isinstance(lost, NotFound)
    assert [request.given["jobID"] for request in server.of("FinishJob")] == [9]


async def test_no_job_is_lost_that_came_for_one_that_was_refused(server, sent):
    """It is sent again by itself, and has its next job by then."""
    await _taken(server, 2)
    for _ in range(3):
        await server.add()
    server.refusals["FinishJob"] = deque(["503 Service Unavailable"])
    found = await sent([_end(1), _end(2)], wanted=lambda: True)
    assert found.outcomes == [None, None]
    assert len(server.of("FinishJob")) == 1
    assert sorted(found.jobs) == sorted(server._running) == [3, 4]


@pytest.mark.parametrize("refusal", ["500 Internal Server Error", "430 Unrecognized command", "402 Bad list"])
async def test_a_request_that_is_refused_as_a_whole_is_taken_apart(server, sent, refusal):
    await _taken(server, 2)
    server.refusals["FinishJobs"] = deque([refusal])
    assert (await sent([_end(1), _end(2)])).outcomes == [None, None]
    assert len(server.of("FinishJob")) == 2


async def test_a_server_that_knows_no_such_request_is_asked_once(server, sent):
    await _taken(server, 4)
    server.refusals["FinishJobs"] = deque(["430 Unrecognized command"])
    await sent([_end(1), _end(2)])
    assert (await sent([_end(3), _end(4)])).outcomes == [None, None]
    assert len(server.of("FinishJobs")) == 1


async def test_where_the_answer_is_lost_nobody_knows_of_any(server, sent):
    await _taken(server, 2)
    server.lost["FinishJobs"] = 1
    outcomes = (await sent([_end(1), _end(2)], wanted=lambda: True)).outcomes
    assert [type(each) for each in outcomes] == [ConnectionLost, ConnectionLost]
    assert outcomes[0] is not outcomes[1], "each is raised elsewhere, and its traceback grows there"
    assert str(outcomes[0]) == str(outcomes[1])
    assert (await sent([_end(1)])).outcomes[0].code == 404  # it had been done


@pytest.mark.parametrize("body", [b"", b"{}", b'{"results":[1]}', b'{"results":[{"jobID":"x","code":200}]}'])
async def test_an_answer_that_is_none_is_as_good_as_lost_and_they_go_by_themselves(server, sent, body):
    await _taken(server, 2)
    server.answers["FinishJobs"] = b"200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    outcomes = (await sent([_end(1), _end(2)])).outcomes
    assert all(isinstance(each, ConnectionLost) for each in outcomes)
    assert (await sent([_end(1), _end(2)])).outcomes == [None, None]
    assert len(server.of("FinishJob")) == 2


async def test_jobs_that_cannot_be_read_are_told_and_the_ends_are_done(server, sent):
    await _taken(server, 2)
    body = b'{"results":[{"jobID":1,"code":200,"reason":"OK"},{"jobID":2,"code":200,"reason":"OK"}],"jobs":1}'
    server.answers["FinishJobs"] = b"200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    outcomes = (await sent([_end(1), _end(2)], wanted=lambda: True)).outcomes
    assert [type(each) for each in outcomes] == [ValueError, ValueError]
    assert outcomes[0] is not outcomes[1]


async def test_jobs_that_cannot_be_read_are_told_to_those_who_asked(server, sent):
    await _taken(server, 2)
    body = b'{"results":[{"jobID":1,"code":200,"reason":"OK"},{"jobID":2,"code":200,"reason":"OK"}],"jobs":1}'
    server.answers["FinishJobs"] = b"200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    wants = iter([True, False])
    outcomes = (await sent([_end(1), _end(2)], wanted=lambda: next(wants))).outcomes
    assert [type(each) for each in outcomes] == [ValueError, type(None)]


async def test_what_is_no_plain_end_goes_by_itself(server, sent):
    await _taken(server, 3)
    large = _end(2, data=json.dumps({"a": "x" * DATA_CHARS_MAX}))
    assert (await sent([_end(1), large, FailJob(job_id=3, run_id=103)])).outcomes == [None] * 3
    assert sorted(request.verb for request in server.reports) == ["FailJob", "FinishJob", "FinishJob"]
    assert not server.of("FinishJobs")


async def test_so_many_go_together_and_no_more(server, sent):
    await _taken(server, BATCH_MAX + 1)
    found = await sent([_end(number) for number in range(1, BATCH_MAX + 2)])
    assert found.outcomes == [None] * (BATCH_MAX + 1)
    assert [request.verb for request in server.requests[1:]] == ["FinishJobs", "FinishJob"]


async def test_one_that_is_given_up_before_it_was_sent_is_not(server, sent):
    await _taken(server, 3)
    server.silent.add("FinishJob")
    first = asyncio.ensure_future(sent([_end(1)]))
    await server.until(lambda: server.of("FinishJob"))
    given_up = asyncio.ensure_future(sent([_end(2)]))
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert len(server.reports) == 1
