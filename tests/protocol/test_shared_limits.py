"""Limits that all clients share: one narrowed token cannot use one up, or the table says why."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import bedrockjobs
from bedrockjobs import pages as page_streams
from bedrockjobs.base import principal
from bedrockjobs.base.config import TOKEN_SHARE
from bedrockjobs.base.errors import CommandError, TooMany
from bedrockjobs.base.principal import Permission, Principal
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import COMMANDS, CreateJob, GetJobs, ListJobs, Query, ReadOutput, UpdateJob
from bedrockjobs.engine import committer, workers
from bedrockjobs.engine.committer import ManyNames
from bedrockjobs.engine.events import WorkerAsked
from bedrockjobs.engine.handlers import access
from bedrockjobs.engine.submission import CallbackSubmission
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.protocol import sse
from bedrockjobs.store import pattern_index
from tests.conftest import Live, Serve
from tests.protocol.talk import Talk, post, request
from tests.runs.bearer import Bearer, admin_of

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

SHARE = 2
"""What a token may use of each limit here."""

MOST = SHARE * TOKEN_SHARE


async def two(live: Live, roles: str = "read,produce,work") -> tuple[Bearer, Bearer]:
    """Return two clients with narrowed tokens."""
    greedy, other, _ = await three(live, roles)
    return greedy, other


async def three(live: Live, roles: str = "read,produce,work") -> list[Bearer]:
    """Return three clients with narrowed tokens."""
    root = await admin_of(live)
    return [await root.token_for(name, roles, "*") for name in ("greedy", "other", "third")]


def callers() -> tuple[Principal, Principal]:
    """Return two narrowed principals, for commands that a test submits itself."""
    greedy, other = (Permission(name, "read,produce,work", ["*"]) for name in ("greedy", "other"))
    return Principal(greedy, "127.0.0.1"), Principal(other, "127.0.0.1")


async def connections(serve: Serve, _: pytest.MonkeyPatch) -> None:
    live = await serve(connections_max=MOST + 1)  # one for each request beside those that are kept
    greedy, other = await two(live)
    kept = [await live.connect() for _ in range(SHARE)]
    for talk in kept:
        talk.send(post("GetJob", {"name": "a"}, greedy.headers))
        assert (await talk.reply()).code == 404
    assert (await greedy.http("GetJob", name="a")).code == 429
    assert (await other.http("GetJob", name="a")).code == 404


async def _stream(live: Live, path: str, bearer: Bearer) -> int:
    talk = await live.connect()
    head = (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nAuthorization: {{}}\r\n\r\n"
    )
    talk.send(head.format(bearer.headers["Authorization"]).encode())
    return int((await talk.reader.readline()).split()[1])


async def streams(serve: Serve, patch: pytest.MonkeyPatch) -> None:
    live = await serve()
    greedy, other = await two(live)
    patch.setattr(principal, "TOKEN_SHARE", sse.STREAMS_MAX // SHARE)
    assert [await _stream(live, "/events", greedy) for _ in range(SHARE + 1)] == [200, 200, 429]
    assert await _stream(live, "/events", other) == 200


async def streams_of_pages(serve: Serve, patch: pytest.MonkeyPatch) -> None:
    live = await serve()
    greedy, other = await two(live)
    patch.setattr(page_streams, "STREAMS_MAX", MOST)
    patch.setattr(page_streams, "POLL_S", 0.01)
    assert [await _stream(live, "/ui/live", greedy) for _ in range(SHARE + 1)] == [200, 200, 429]
    assert await _stream(live, "/ui/live", other) == 200


def alike(number: int) -> str:
    """Return a pattern without a fixed part by which it could be indexed."""
    return f"?*{'?' * number}*"


async def waiting_patterns(serve: Serve, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("bedrockjobs.base.glob.LENGTHS_INDEXED_MAX", 0)
    live = await serve(patterns_waiting_max=MOST)
    greedy, other, third = await three(live)

    async def waits(bearer: Bearer, number: int) -> Talk:
        talk, before = await live.connect(), live.server.dispatcher.waiting
        talk.send(request("GetJob", name=alike(number), connection="wait", **bearer.headers))
        await live.waiting(before + 1)
        return talk

    kept = [await waits(greedy, number) for number in range(SHARE)]
    kept.append(await waits(greedy, 0))  # again the same
    talk = await live.connect()
    talk.send(request("GetJob", name=alike(SHARE), connection="wait", **greedy.headers))
    refused = await talk.reply()
    assert refused.status == "429 Too many patterns are waited for"
    assert refused.headers["error"] == f"token greedy: expected at most {SHARE} at once"
    for number in (SHARE, SHARE + 1):
        await waits(other, number)
    talk = await live.connect()
    talk.send(request("GetJob", name=alike(MOST + 1), connection="wait", **third.headers))
    assert (await talk.reply()).status == "503 Too many patterns are waited for", "all are used up"
    for talk in kept:  # and a token that waits no longer has its share again
        await talk.close()
    await live.waiting(2)
    await waits(greedy, SHARE + 5)


async def pending_commands(serve: Serve, _: pytest.MonkeyPatch) -> None:
    live = await serve(pending_max=MOST)
    greedy, other = callers()
    done: list[object] = []

    def submit(caller: Principal) -> None:
        live.server.service.submit(CreateJob(name="a"), lambda outcome: done.append(outcome) is None, caller)

    for _ in range(SHARE):
        submit(greedy)
    with pytest.raises(TooMany, match="commands are waiting"):
        submit(greedy)
    for _ in range(SHARE):
        submit(other)
    with pytest.raises(CommandError, match="503"):
        submit(other)
    await live.until(lambda: len(done) == MOST)
    submit(greedy)
    await live.until(lambda: len(done) == MOST + 1)


async def names_of_long_lists(_: Serve, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(committer, "NAMES_QUEUED_MAX", MOST * 10)
    queue = ManyNames()

    def asks(token: str) -> CallbackSubmission:
        one = CallbackSubmission(GetJobs(names=["a*"], num_results=1), lambda _: True, by=token)
        one.many = 10
        return one

    queue.put_aside([asks("greedy") for _ in range(SHARE)])
    with pytest.raises(TooMany, match="names are asked for"):
        queue.check_share("greedy")
    queue.check_share("other")


async def _reads(live: Live, command: ListJobs | ReadOutput | Query) -> None:
    greedy, other = callers()
    if isinstance(command, Query):  # which is for admins
        greedy, other = (Principal(Permission(who.name, "admin"), "127.0.0.1") for who in (greedy, other))
    asked = [live.server.service.call(command, who) for who in (*[greedy] * (SHARE + 1), other)]
    *found, of_other = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(one, TooMany) for one in found) == 1, found
    assert not isinstance(of_other, TooMany), "it is served"


async def lists(serve: Serve, _: pytest.MonkeyPatch) -> None:
    await _reads(await serve(query_waiting_max=MOST), ListJobs())


async def queries(serve: Serve, _: pytest.MonkeyPatch) -> None:
    await _reads(await serve(query_waiting_max=MOST), Query(query="SELECT 1;"))


async def seeks(serve: Serve, patch: pytest.MonkeyPatch) -> None:
    for engine in ("reader", "postgresql.reader"):
        patch.setattr(f"bedrockjobs.store.{engine}.SEEKS_WAITING_MAX", MOST)
    await _reads(await serve(), ReadOutput(run_id=1))


async def memory(serve: Serve, _: pytest.MonkeyPatch) -> None:
    live = await serve(memory_bytes=16 * 1024 * 1024)
    greedy, other = await two(live)
    slow = await live.connect()
    head = post("CreateJob", {"name": "a"}, greedy.headers).split(b"\r\n\r\n")[0]
    slow.send(re.sub(rb"Content-Length: \d+", b"Content-Length: 6000000", head) + b"\r\n\r\n ")
    await live.until(lambda: live.server._connections.memory.used > 5_000_000)
    large = '{"name":"a"}' + " " * 5_000_000
    refused, accepted = [await live.http("CreateJob", large, **who.headers) for who in (greedy, other)]
    assert (refused.code, accepted.code) == (503, 200)
    stranger = await live.connect()  # and those without a token share what one token may have
    stranger.send(b"CreateJob\r\nx: " + b"y" * 9_000_000)
    assert (await stranger.reply()).status == "503 Too much is under way"


async def known_workers(_: Serve, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(workers, "WORKERS_MAX", MOST)
    found = WorkerRegistry()
    for name, by in (("honest", "other"), *((f"invented{number}", "greedy") for number in range(10 * MOST))):
        found.event_handlers()[WorkerAsked](WorkerAsked(name, "", 0, ("a",), (), 60.0, by))
    assert "honest" in found.workers
    assert len(found.workers) == MOST


async def walks(_: Serve, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pattern_index, "SEARCH_BURST", 10)
    budget = pattern_index.Budget(lambda: 0.0)
    budget.spend("greedy", 10)
    assert budget.payer(["greedy"]) is None
    assert budget.payer(["greedy", "other"]) == "other"


async def logins(serve: Serve, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(access, "LOGINS_PER_TOKEN_MAX", SHARE)
    live = await serve()
    greedy, other = await two(live)
    for bearer in (other, *[greedy] * (SHARE + 1)):
        async with await live.connect() as talk:
            body = f"token={bearer.token}"
            talk.send(
                f"POST /ui/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
                f"Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}"
            )
            assert (await talk.reply()).code == 303
    await live.until(lambda: len(live.server.service.access._logins) == SHARE + 1)
    names = [grant.name for grant in live.server.service.access._logins.values()]
    assert names.count("other") == 1


Scenario = Callable[[Serve, pytest.MonkeyPatch], Awaitable[None]]

SHARED: dict[str, Scenario] = {
    "connections_max": connections,
    "streams_max": streams,
    "STREAMS_MAX": streams_of_pages,
    "patterns_waiting_max": waiting_patterns,
    "pending_max": pending_commands,
    "NAMES_QUEUED_MAX": names_of_long_lists,
    "query_waiting_max": lists,
    "query_waiting_max of Query": queries,
    "SEEKS_WAITING_MAX": seeks,
    "memory_bytes": memory,
    "WORKERS_MAX": known_workers,
    "SEARCH_BURST": walks,
    "LOGINS_PER_TOKEN_MAX": logins,
}
"""Limits that two tokens share, each with what happens if one of them exhausts it."""

OPERATORS = {
    "TOKENS_MAX": "CreateToken",
    "CRASH_PATTERNS_MAX": "CrashBedrockJob",
    "PAUSES_MAX": "PauseJobs",
    "RULES_MAX": "PutRule",
    "LIMITS_MAX": "SetLimit",
    "MUTES_MAX": "MuteFailures",
}
"""Limits that need no share, each with the command that fills it, which is for operators."""

NOT_SHARED = {
    "connections_per_address_max": "each address, or network, has its own",
    "new_connections_per_address_max": "each address, or network, has its own",
    "WRONG_A_SECOND_MAX": "each address, or network, has its own",
    "ADDRESSES_MAX": "beyond it, what is known of wrong tokens is dropped",
    "HANDSHAKES_MAX": "beyond it, the address with most of them loses one",
    "ARRIVALS_MAX": "beyond it, the address with most of them loses one",
    "HOSTS_PER_CALLER_MAX": "each token has its own",
    "EVENTS_KEPT_MAX": "retention: the oldest are deleted, and nothing is refused",
    "RUNS_KEPT_MAX": "retention: the oldest are deleted, and nothing is refused",
    "INBOX_AGAIN_S_MAX": "the longest pause before a job over another limit is tried again; refuses nothing",
    "keep_keys_s": "idempotency keys are not counted; they expire",
    "pipelined_max": "each connection has its own",
    "batch_max": "of one commit; the other commands come with the next one, in their order",
    "head_bytes_max": "of one request",
    "body_bytes_max": "of one request",
    "headers_max": "of one request",
    "query_rows_max": "of one reply",
    "query_bytes_max": "of one reply",
    "patterns_cached_max": "a cache: beyond it, patterns are searched for again, and walks have shares",
    "groups_remembered_max": "a cache, as patterns_cached_max",
    "BATCH_ANSWER_BYTES_MAX": "of one commit; the other commands come with the next one",
    "READS_PIPELINED_MAX": "each connection has its own",
    "MUTED_RELEASES_MAX": "of one mute, which is then given a time",
    "rows_max": "of one reply",
    "bytes_max": "of one reply",
    "unit_s_max": "a time",
    "LOCK_WAIT_S_MAX": "a time, added to unit_s_max: how long a take looks for jobs that are locked",
    "PAUSE_S_MAX": "a time",
}
"""Limits that no token can keep others from, each with the reason."""


@pytest.mark.parametrize("limit", SHARED)
async def test_a_token_that_exhausts_a_limit_keeps_nobody_from_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    await SHARED[limit](serve, monkeypatch)


async def test_a_run_s_token_counts_in_the_share_of_its_worker_s(serve: Serve) -> None:
    """In each of these limits that its commands reach: connections, commands and memory."""
    live = await serve(connections_max=MOST + 1, pending_max=MOST, memory_bytes=16 * 1024 * 1024)
    greedy, other = await two(live)
    await greedy.ok("CreateJob", name="a")
    taken = await greedy.ok("GetJob", name="a", worker="w", runToken=True)
    job_id, run = taken["jobID"], Bearer(live, taken["runToken"])
    kept = [await live.connect() for _ in range(SHARE)]
    for talk, bearer in zip(kept, (greedy, run), strict=True):
        talk.send(post("QueryJob", {"jobID": job_id}, bearer.headers))
        assert (await talk.reply()).code == 200
    for bearer, code in ((greedy, 429), (run, 429), (other, 200)):
        assert (await bearer.http("QueryJob", jobID=job_id)).code == code
    for talk in kept:
        await talk.close()
    await live.connections(0)
    entry = live.server.service.access
    by_run, by_greedy = (entry.by_token(bearer.token, "127.0.0.1") for bearer in (run, greedy))
    done: list[object] = []

    def submit(caller: Principal) -> None:
        command = UpdateJob(job_id=job_id, progress="{}")
        live.server.service.submit(command, lambda outcome: done.append(outcome) is None, caller)

    for caller in (by_run, by_greedy):
        submit(caller)
    for caller in (by_run, by_greedy):
        with pytest.raises(TooMany, match="commands are waiting"):
            submit(caller)
    submit(entry.by_token(other.token, "127.0.0.1"))
    await live.until(lambda: len(done) == SHARE + 1)
    slow = await live.connect()
    head = post("QueryJob", {"jobID": job_id}, run.headers).split(b"\r\n\r\n")[0]
    slow.send(re.sub(rb"Content-Length: \d+", b"Content-Length: 6000000", head) + b"\r\n\r\n ")
    await live.until(lambda: live.server._connections.memory.used > 5_000_000)
    large = '{"name":"a"}' + " " * 5_000_000
    codes = [(await live.http("CreateJob", large, **who.headers)).code for who in (greedy, other)]
    assert codes == [503, 200]


_REFUSALS = {"TooMany", "TooManyWrong", "Unavailable", "token_share"}
_LIMIT = re.compile(r"(?!_)\w+_(max|MAX)")


def limits_with_refusals() -> set[str]:
    """Return the limits that are named in functions that refuse a command with 429 or 503."""
    found = set()
    root = Path(bedrockjobs.__file__).parent
    for folder in ("engine", "pages", "protocol", "store"):
        for path in (root / folder).rglob("*.py"):
            text = path.read_text()
            if not any(name in text for name in _REFUSALS):
                continue  # to parse all of them takes seconds
            for part in ast.walk(ast.parse(text)):
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                    names = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
                    if names & _REFUSALS:
                        names |= {node.attr for node in ast.walk(part) if isinstance(node, ast.Attribute)}
                        found |= {name for name in names if _LIMIT.fullmatch(name)}
    return found


async def test_each_limit_that_refuses_commands_is_in_the_table() -> None:
    settings = {name for name in Settings.model_fields if name.endswith("_max")}
    known = {*SHARED, *OPERATORS, *NOT_SHARED}
    assert settings - known == set()
    found = limits_with_refusals()
    assert found - known == set()
    assert {"pending_max", "TOKENS_MAX", "NAMES_QUEUED_MAX"} <= found, "they are found"


ROLES = {command.__name__: command.role for command in COMMANDS.values()}


async def test_limits_without_shares_are_filled_by_operators_alone() -> None:
    for limit, command in OPERATORS.items():
        assert ROLES[command] in ("operate", "admin"), limit
