"""Every command, route and page against every role and name scope: of what a token may not see, no answer of
any kind has a word.

There are jobs of two kinds of names; streams have a file of their own.
"""

from __future__ import annotations

import re
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from bedrock_worker import job

from bedrockjobs import AsyncClient, NoResult, pages
from bedrockjobs.base.errors import Forbidden
from bedrockjobs.base.principal import roles_held
from bedrockjobs.commands import ALL, Command, ExplainJob, ListChildren, QueryJob, QueryRun, ReadOutput
from bedrockjobs.engine.authorization import ANYBODYS
from bedrockjobs.server import Server
from tests.conftest import Live
from tests.effort import PROFILE, crossed
from tests.protocol.talk import Reply
from tests.runs.bearer import Bearer, admin_of
from tests.runs.two_kinds import ROLES, SECRET, Place

NOT_NARROWED = {
    "ListWorkers",
    "ListServers",
    "DrainWorker",
    "AdvanceClock",
    "Query",
    "CreateToken",
    "AllowAnonymous",
    "ListTokens",
    "RevokeToken",
    "RotateToken",
    "ListAudit",
    "ReleaseHold",
    "ListLimits",
    "PutRule",
    "ListRules",
    "RemoveRule",
    "MuteRule",
    "ClaimMessage",
    "ReportDelivery",
    "ReportConditions",
    "SyncRules",
    "TestRule",
    "ListRetention",
}
"""Commands that are refused to a token with names, whatever its role."""


FREE = {"Help", "Status", "ValidateSchedule", "Ping", "Authenticate"}
"""Commands whose replies are the same for all tokens."""


def by_name(kind: type[Command[Any]]) -> str:
    """Return the name of a test's command."""
    return kind.__name__


def test_every_command_is_judged() -> None:
    unscoped = {kind.__name__ for kind in ALL if kind.scoping is None}
    assert unscoped == NOT_NARROWED, "set its scoping, or refuse tokens with a scope: NOT_NARROWED"


def test_pages_read_as_whoever_looks() -> None:
    """They ask their site, which knows who looks: a page that asked the service would see everything."""
    for path in Path(pages.__file__).parent.glob("*.py"):
        if path.name != "site.py":
            assert not re.search(r"service\.(views|call|submit|do)\b", path.read_text()), path.name


def bodies(kind: type[Command[Any]], numbers: dict[str, int], name: str) -> list[dict[str, Any]]:
    """Return requests of a command about some jobs."""
    if kind.group == "access" or kind.__name__ in NOT_NARROWED:
        return [kind.example.request]
    if kind.__name__ == "FinishJobs":
        ends = [{"jobID": numbers["running"]}]
        return [{"jobs": ends}, {"jobs": ends, "thenGet": f"*{SECRET[:3]}*", "numResults": 9}]
    if kind.__name__ == "CreateJobs":
        return [{"jobs": [{"name": name}]}, {"jobs": [{"name": "mine/x", "parentJobID": numbers["parent"]}]}]
    if kind.__name__ == "RequeueJobs":
        return [{"jobIDs": [numbers["running"]]}]
    if kind.__name__ == "MarkSeen":
        return [{"jobIDs": [numbers["failed"]]}, {"runIDs": [numbers["run"], numbers["run"] + 1]}]
    if kind.__name__ == "DeleteRuns":
        runs = [numbers["run"] - 1, numbers["run"]]
        return [{"runIDs": [run]} for run in runs] + [{"name": "*"}, {"text": SECRET}]
    if kind.__name__ == "SyncSchedules":
        return [{"source": SECRET, "schedules": []}]
    given: list[dict[str, Any]] = []
    example = {key: value for key, value in kind.example.request.items() if key not in ("jobID", "runID")}
    fields = kind.wire_names
    if "jobid" in fields:
        extra = {"data": {"a": 1}} if kind.__name__ == "UpdateJob" else {}
        rest = {} if "name" in fields and kind.__name__ not in ("RetryJob",) else example
        given += [
            {**rest, **extra, "jobID": numbers[key]} for key in ("queued", "running", "failed", "parent")
        ]
    if "runid" in fields and "jobid" not in fields:
        given.append({**example, "runID": numbers["run"]})
    if kind.__name__ == "Heartbeat":
        given.append({"worker": "w", "runIDs": [numbers["run"]]})
    if "name" in fields and "jobid" not in fields:
        given += [{**example, "name": name}, {**example, "name": "*"}, {**example, "name": f"*{SECRET[:3]}*"}]
    if {"jobid", "name"} <= fields.keys() and kind.__name__ != "RetryJob":
        given.append({"name": name})
    return given or [example]


def words_of(reply: Reply) -> str:
    """Return all that was answered, but what stood in the question."""
    return "\n".join((reply.status, *reply.lines, reply.body))


@pytest.mark.parametrize("role", ROLES)
async def test_no_command_tells_of_other_names(place: Place, role: str) -> None:
    asker = await place.root.token_for(f"t-{role}", role, "mine/*")
    for kind in sorted(ALL, key=lambda kind: (not kind.reads, kind.__name__)):
        for body in bodies(kind, place.theirs, f"theirs/{SECRET}/queued"):
            for reply in (await asker.http(kind.__name__, **body), await asker.raw(kind.__name__, **body)):
                told = words_of(reply).replace(str(body.get("name", "\0")), "")
                assert SECRET not in told, f"{kind.__name__} {body}: {reply}"
                if kind.__name__ in NOT_NARROWED or (
                    kind.role not in roles_held(role) and kind not in ANYBODYS and not kind.open
                ):
                    assert reply.status.split(" ", 1)[-1] in ("Forbidden", "403 Forbidden"), (kind, reply)
    left = await place.root.ok("ListJobs", limit=1_000)
    theirs = {job["name"]: (job["state"], job["data"]) for job in left["jobs"] if SECRET in job["name"]}
    assert theirs[f"theirs/{SECRET}/queued"] == ("QUEUED", {"word": SECRET}), "nothing of theirs was changed"
    assert theirs[f"theirs/{SECRET}/running"][0] == "RUNNING"
    assert theirs[f"theirs/{SECRET}/failed"][0] == "FAILED"
    assert f"theirs/{SECRET}/synced" in theirs


async def test_what_is_not_seen_is_answered_as_what_is_not_there(place: Place) -> None:
    """Word for word, but for the number: nothing tells that there is such a job."""
    asker = await place.root.token_for("asker", "operate", "mine/*")
    nobody = dict.fromkeys(place.theirs, 999_999)
    for kind in ALL:
        if kind.__name__ in NOT_NARROWED or kind.__name__ in FREE:
            continue
        for theirs, none in zip(
            bodies(kind, place.theirs, "theirs/a"), bodies(kind, nobody, "theirs/b"), strict=True
        ):
            if "*" in str(theirs.get("name", "")):
                continue
            found, missing = [await asker.http(kind.__name__, **body) for body in (theirs, none)]
            said = [re.sub(r"\d+|theirs/\w+", "N", f"{one.status} {one.body}") for one in (found, missing)]
            assert said[0] == said[1], f"{kind.__name__} {theirs}"


async def test_lists_events_and_takes_show_what_is_seen(place: Place) -> None:
    asker = await place.root.token_for("asker", "operate", "mine/q*,mine/*")
    names = [job["name"] for job in (await asker.ok("ListJobs"))["jobs"]]
    assert {"mine/queued", "mine/failed", "mine/schedule", "mine/child"} <= set(names)
    assert len(names) == len(set(names)), "what matches two of its patterns comes once"
    pages = [(await asker.ok("ListJobs", limit=1, after=0))["jobs"][0]["jobID"]]
    while found := (await asker.ok("ListJobs", limit=1, after=pages[-1]))["jobs"]:
        pages.append(found[0]["jobID"])
    mine = [place.mine[key] for key in ("queued", "running", "failed", "parent", "child", "schedule")]
    assert pages[:-1] == sorted(mine), "page by page the same, and what was synced behind"
    assert {run["name"] for run in (await asker.ok("ListRuns"))["runs"]} == {
        "mine/running",
        "mine/failed",
        "mine/parent",
    }
    assert (await asker.ok("QueryRun", runID=place.mine["run"]))["name"] == "mine/running"
    kinds = {event["kind"] for event in (await asker.ok("Events"))["events"]}
    assert {"paused", "failed"} <= kinds
    assert [pause["pattern"] for pause in (await asker.ok("ListPauses"))["pauses"]] == ["*none", "mine/none"]
    assert (await asker.ok("GetJob", name="*"))["name"] == "mine/queued"
    assert (await asker.http("GetJob", name="*")).code == 404
    shown = await asker.ok("ListChildren", jobID=place.mine["parent"])
    assert [child["name"] for child in shown["jobs"]] == ["mine/child"]


async def test_a_pause_is_told_to_those_who_see_all_that_it_holds(place: Place) -> None:
    """Its pattern as a text may match where not all of its names do."""
    asker = await place.root.token_for("asker", "read", "mine/?")
    await place.root.ok("PauseJobs", name="mine/*", reason=SECRET)
    await place.root.ok("PauseJobs", name="mine/?", reason="open")
    told = [event["detail"] for event in (await asker.ok("Events", kind="paused"))["events"]]
    assert told == ["open"]


@pytest.mark.parametrize(("names", "role"), crossed(["", "mine/*", "mine/q*,mine/*,other"], ROLES))
async def test_no_route_or_page_tells_of_other_names(place: Place, role: str, names: str) -> None:
    asker = await place.root.token_for("asker", role, names)
    reads = "read" in roles_held(role)
    for path, asked in paths_of(place, place.theirs):
        reply = await asker.get(asked, Accept="text/html")
        sees = not names and reads
        question = f"theirs/{SECRET}/schedule" if "schedule=" in asked else asked
        assert sees or SECRET not in words_of(reply).replace(question, ""), f"{path}: {reply}"
        if path in SEEN_BY_NAME:
            assert reply.code == (200 if reads else 403), (path, reply)
        if path in ("/ui/workers", "/ui/limits", "/ui/kept", "/ui/chart"):
            assert reply.code == (200 if sees else 403), (path, reply)
        if path in FOR_ADMINS:
            assert reply.code == 403, (path, reply)


FOR_ADMINS = ("/ui/notifications", "/ui/access")
"""Pages of which nobody else sees anything."""

SEEN_BY_NAME = (
    "/ui/",
    "/ui/jobs",
    "/ui/runs",
    "/ui/workflows",
    "/ui/schedules",
    "/ui/upcoming",
    "/ui/failures",
    "/ui/queues",
    "/ui/events",
    "/ui/jobs/names",
    "/ui/jobs/matching",
    "/ui/runs/matching",
    "/metrics",
    "/healthz",
    "/events",
)
"""What everybody gets who may read, with no more in it than they see."""


def paths_of(place: Place, numbers: dict[str, int]) -> list[tuple[str, str]]:
    """Return every address that is answered to GET, with what it is asked for: also of some numbers."""
    run = numbers["run"]
    listed = (
        "jobs",
        "runs",
        "workflows",
        "queues",
        "schedules",
        "upcoming",
        "failures",
        "events",
        "jobs/matching",
        "runs/matching",
    )
    found = [
        *((f"/ui/{page}", f"/ui/{page}?name=*{SECRET[:3]}*") for page in listed),
        ("/events", "/events?after=0&limit=1000"),
        ("/runs/{runID}/output", f"/runs/{run}/output"),
        ("/ui/runs/{runID}", f"/ui/runs/{run}"),
        ("/ui/runs/{runID}", f"/ui/runs/{run}?find=line"),
        ("/ui/runs/{runID}/output.txt", f"/ui/runs/{run}/output.txt"),
        ("/ui/jobs/names", "/ui/jobs/names?name=theirs"),
        ("/ui/queues", "/ui/queues?under=theirs/"),
        ("/healthz?schedule", f"/healthz?schedule=theirs/{SECRET}/schedule"),
        *(("/ui/jobs/{jobID}", f"/ui/jobs/{numbers[key]}") for key in numbers if key != "run"),
        ("/ui/schedules/{jobID}", f"/ui/schedules/{numbers['schedule']}"),
        ("/ui/schedules/{jobID}/edit", f"/ui/schedules/{numbers['schedule']}/edit"),
        ("/ui/jobs/new", f"/ui/jobs/new?like={numbers['queued']}"),
    ]
    for route in routes(place.root.live.server):
        path = route.resource.canonical
        asked = path.replace("{unknown}", "x").replace("{name}", "pages.css").replace("{runID}", str(run))
        found.append((path, re.sub(r"\{\w+[^}]*\}+", str(numbers["queued"]), asked)))
    return found


async def test_pages_of_what_is_not_seen_are_those_of_what_is_not_there(place: Place) -> None:
    """Word for word, but for the number; and nothing is counted that is not seen."""
    asker = await place.root.token_for("asker", "operate", "mine/*")
    nobody = dict.fromkeys(place.theirs, 999_999)
    of_theirs = [asked for path, asked in paths_of(place, place.theirs) if "{" in path or "like=" in asked]
    of_nobody = [asked for path, asked in paths_of(place, nobody) if "{" in path or "like=" in asked]
    for theirs, none in zip(of_theirs, of_nobody, strict=True):
        if theirs == none:
            continue
        found, missing = [await asker.get(one, Accept="text/html") for one in (theirs, none)]
        said = [re.sub(r"\d+", "N", f"{one.status} {one.body}") for one in (found, missing)]
        assert found.code == 404, (theirs, found)
        assert said[0] == said[1], theirs


async def test_pages_count_what_is_seen(place: Place) -> None:
    """The numbers of a page are those that it would have if there were nothing else."""
    asker = await place.root.token_for("asker", "operate", "mine/*")
    tiles = dict(
        reversed(found)
        for found in re.findall(
            r'class="figure">([^<]*)<.*?class="what">(?:<span[^>]*></span>)?\s*([^<]+?)\s*</span>',
            (await asker.get("/ui/", Accept="text/html")).body,
            re.DOTALL,
        )
    )
    wanted = {"ready": "1", "running": "2", "waiting": "1", "failed": "1", "schedules": "2"}
    assert {key: tiles[key] for key in wanted} == wanted
    overview = await asker.ok("Overview")
    assert [overview[key] for key in ("ready", "failed", "repeating", "workers")] == [1, 1, 2, 0]
    assert {problem["kind"] for problem in overview["problems"]} <= {"no worker", "failed", "paused"}
    metrics = (await asker.get("/metrics")).body
    assert 'bedrockjobs_jobs{prefix="mine",state="ready"} 1.0' in metrics
    assert "bedrockjobs_jobs_failed 1.0" in metrics
    assert "process_" not in metrics, "the server itself is not theirs"
    queues = (await asker.get("/ui/queues?under=mine/", Accept="text/html")).body
    assert "mine/<wbr>queued" in queues or "mine/queued" in queues
    job = (await asker.get(f"/ui/jobs/{place.mine['parent']}", Accept="text/html")).body
    assert "1 in all" in job, "the child of another name is not counted"


def routes(server: Server) -> list[Any]:
    """Return the routes that are answered to GET."""
    app = server._listener._runner.app  # type: ignore[union-attr]
    return [
        route
        for route in app.router.routes()
        if route.method == "GET" and route.resource.canonical != "/ui/live"
    ]


async def test_failures_are_listed_and_marked_by_those_who_see_them(place: Place) -> None:
    """Also where a name that is not seen failed with the same error: it is not counted."""
    root = place.root
    asker = await root.token_for("asker", "operate", "mine/*")
    listed = await asker.ok("ListFailures")
    assert [group["name"] for kind in ("jobs", "runs") for group in listed[kind]] == ["mine/failed"]
    jobs, runs = [], []
    for name in ("mine/alike", "theirs/alike"):
        await root.ok("CreateJob", name=name)
        taken = await root.ok("GetJob", name=name, worker="w")
        await root.ok("FailJob", jobID=taken["jobID"], runID=taken["runID"], error="it broke alike")
        jobs.append(taken["jobID"])
        runs.append(taken["runID"])
    (every,) = (await root.ok("ListFailures", name="*alike"))["jobs"]
    assert (every["count"], every["names"], every["unseen"], len(every["failures"])) == (2, 2, 2, 2)
    (seen,) = (await asker.ok("ListFailures", fingerprint=every["fingerprint"]))["jobs"]
    assert (seen["name"], seen["count"], seen["names"]) == ("mine/alike", 1, 1)
    assert [one["name"] for one in seen["failures"]] == ["mine/alike"]
    assert await asker.ok("MarkSeen", jobIDs=jobs, runIDs=runs) == {"jobs": 1, "runs": 1}
    (every,) = (await root.ok("ListFailures", name="*alike"))["jobs"]
    assert {one["name"]: bool(one["seen"]) for one in every["failures"]} == {
        "mine/alike": True,
        "theirs/alike": False,
    }
    assert (await asker.ok("ListFailures", name="theirs/*")) == {
        "jobs": [],
        "runs": [],
        "before": None,
        "runsBefore": None,
    }


DATA = f'"word":"{SECRET}"'


@pytest.mark.parametrize("names", ["", "theirs/*"])
async def test_no_data_means_none_on_pages(place: Place, names: str) -> None:
    """Not in what is shown, not by searching for it, and it is said where it would stand."""
    root, run = place.root, place.theirs["run"]
    name = f"theirs/{SECRET}/queued"
    printed, url = "PRINTED", {"url": "http://localhost/FETCHED"}
    await root.ok("AppendOutput", runID=run, seq=2, lines=[printed])
    await root.ok("UpdateJob", jobID=place.theirs["running"], progress={"percent": 7, "message": "TOLD"})
    fetched = (await root.ok("CreateJob", name="theirs/fetch", data={"a": "GIVEN"}, url=url))["jobID"]
    done = (await root.ok("CreateJob", name="theirs/done", data={"a": "GIVEN"}, keep="7d"))["jobID"]
    taken = await root.ok("GetJob", name="theirs/done", worker="w")
    await root.ok("AppendOutput", runID=taken["runID"], seq=1, lines=[printed])
    await root.ok("FinishJob", jobID=done, data={"b": "RESULT"})
    asker = await root.token_for("asker", "read,produce", names, noData=True)
    secret = re.compile(rf"PRINTED|FETCHED|TOLD|GIVEN|RESULT|&#34;{SECRET}|line {SECRET}|\b7 %")
    said: dict[str, int] = {}
    asked = paths_of(place, {**place.theirs, "fetched": fetched, "done": done})
    asked += [("", f"/ui/runs/{taken['runID']}"), ("", f"/ui/jobs/new?like={fetched}")]
    asked += [
        ("", f"/ui/jobs?state={state}") for state in ("RUNNING", "FINISHED", "FAILED", "QUEUED", "PAUSED")
    ]
    for _, path in asked:
        reply = await asker.get(path, Accept="text/html")
        assert not secret.search(words_of(reply)), (path, reply)
        said[path] = reply.body.count("not shown to this token")
        if path.endswith(("/output", "/output.txt")):
            assert reply.code == 403, path
    assert said[f"/ui/runs/{run}"] == 3, "progress, data and result, output"
    assert said[f"/ui/jobs/{place.theirs['running']}"] == 2, "data, output"
    assert said[f"/ui/jobs/{fetched}"] == 2, "data, url"
    assert said[f"/ui/jobs/new?like={fetched}"] == said["/ui/"] == said["/ui/runs"] == 1
    assert said["/ui/jobs?state=RUNNING"] == (2 if names else 4), "for each that runs"
    for path in ("/ui/jobs?text=GIV", "/ui/jobs/matching?text=GIV", "/ui/runs?text=PRINTED"):
        reply = await asker.get(path, Accept="text/html")
        assert (reply.code, "text:" in reply.body) == (403, True), path
    whole = await root.token_for("whole", "read", names)
    assert "PRINTED" in (await whole.get(f"/ui/runs/{run}", Accept="text/html")).body, "the others see it"
    assert name in (await asker.get("/ui/jobs", Accept="text/html")).body.replace("<wbr>", "")


async def test_no_data_means_none(place: Place) -> None:
    asker = await place.root.token_for("asker", "read", noData=True)
    for kind in ALL:
        if not kind.reads or kind.role != "read":
            continue
        for body in bodies(kind, place.theirs, "*"):
            reply = await asker.http(kind.__name__, **body)
            assert DATA not in reply.body, (kind, reply)
            assert f"line {SECRET}" not in reply.body, (kind, reply)
    assert (await asker.get(f"/runs/{place.theirs['run']}/output")).code == 403


HIDDEN = {
    "data",
    "parentData",
    "finishedChildJobs",
    "cancelledChildJobs",
    "failedChildJobs",
    "url",
    "uniqueKey",
    "result",
    "progress",
    "output",
}
"""What a token does not see that sees no data."""

ERROR_TEXTS = {"error", "line", "detail"}
"""Members that may hold what a command printed: they are cut to the kind of the error."""


def check_hidden(whole: Any, blind: Any, place: str) -> int:
    """Compare what two tokens see; return how many objects say that something in them is hidden."""
    if isinstance(whole, list):
        assert len(whole) == len(blind), place
        pairs = zip(whole, blind, strict=True)
        return sum(check_hidden(one, other, f"{place}[{at}]") for at, (one, other) in enumerate(pairs))
    if not isinstance(whole, dict):
        assert type(whole) is type(blind), place
        return 0
    hidden = blind.get("hidden", [])
    assert set(hidden) == whole.keys() & HIDDEN, f"{place}: all of it is named, and nothing else"
    assert blind.keys() - {"hidden"} == whole.keys() - set(hidden), f"{place}: it does not look empty"
    there = [key for key in whole if key not in hidden and key not in ERROR_TEXTS]
    return bool(hidden) + sum(check_hidden(whole[key], blind[key], f"{place}.{key}") for key in there)


@pytest.mark.parametrize("names", ["", "theirs/*,mine/*"])
async def test_what_is_hidden_does_not_look_empty(place: Place, names: str) -> None:
    """Every command that reads, each way it is answered, against a token that sees data."""
    root = place.root
    fetched = await root.ok("CreateJob", name="theirs/fetch", url={"url": "http://localhost/"}, keep="7d")
    done = (await root.ok("CreateJob", name="theirs/done", data={"a": 1}, keep="7d"))["jobID"]
    taken = await root.ok("GetJob", name="theirs/done", worker="w")
    await root.ok("FinishJob", jobID=done, runID=taken["runID"], data={"b": 1})
    readers = [await root.token_for(f"t{blind}", "read", names, noData=blind) for blind in (False, True)]
    given = [(kind, body) for kind in ALL if kind.role == "read" for body in bodies(kind, place.theirs, "*")]
    given += [(QueryJob, {"jobID": number}) for number in (fetched["jobID"], done)]
    keyed = (await root.ok("CreateJob", name="theirs/keyed", uniqueKey=SECRET))["jobID"]
    given += [(QueryJob, {"jobID": keyed}), (ExplainJob, {"jobID": keyed})]
    given += [(QueryRun, {"runID": taken["runID"]}), (ListChildren, {"jobID": place.theirs["parent"]})]
    told: set[str] = set()
    for kind, body in given:
        if kind is ReadOutput or kind.__name__ in FREE | NOT_NARROWED:
            continue
        for way in ("http", "raw", "get"):
            whole, blind = [await asked_by(reader, way, kind, body) for reader in readers]
            assert whole.code == blind.code, (kind, body, way)
            if whole.code == 200 and check_hidden(whole.json, blind.json, f"{kind.__name__} {way}"):
                told.add(kind.__name__)
                kind.reply.model_validate_json(blind.body)
    assert told == {"QueryJob", "ListJobs", "ListChildren", "QueryRun", "ListRuns", "ExplainJob"}


async def asked_by(reader: Bearer, way: str, kind: type[Command[Any]], body: dict[str, Any]) -> Reply:
    """Ask one way."""
    if way == "get":
        return await reader.get(f"/{kind.__name__}?{urlencode(body)}")
    return await (reader.http if way == "http" else reader.raw)(kind.__name__, **body)


async def test_python_programs_cannot_take_hidden_for_empty(place: Place) -> None:
    root, name = place.root, f"theirs/{SECRET}/queued"
    blind = await root.token_for("blind", "read", noData=True)
    client = AsyncClient(f"127.0.0.1:{root.live.port}", token=blind.token)
    async with client:
        found = await client.call(QueryJob(job_id=place.theirs["queued"]))
        assert (found.name, found.hidden) == (name, ["data"])
        assert repr(found.data) == "<not shown to this token>"
        with pytest.raises(Forbidden, match="not shown"):
            found.data["word"]
        run = await client.call(QueryRun(run_id=place.theirs["run"]))
        assert run.hidden == ["data", "result", "progress", "output"]
        squared = (await root.ok("CreateJob", name="square"))["jobID"]
        taken = await root.ok("GetJob", name="square", worker="w")
        await root.ok("FinishJob", jobID=squared, runID=taken["runID"], data={"result": 9})
        handle = square.using(client=client).ahandle(squared)
        with pytest.raises(NoResult, match="may not see its result"):
            await handle.wait(0)
    whole = await root.token_for("whole", "read")
    async with AsyncClient(f"127.0.0.1:{root.live.port}", token=whole.token) as client:
        assert await square.using(client=client).ahandle(squared).wait(0) == 9
        assert (await client.call(QueryJob(job_id=place.theirs["queued"]))).data["word"] == SECRET


@job("square")
async def square(number: int) -> int:
    """Square a number."""
    return number * number


PRINTED = "hunter2"
ERRORS = {
    f"exit status 3\n{PRINTED}": "exit status 3",
    f"timed out after 5 s (SIGKILL)\nx {PRINTED}": "timed out after 5 s (SIGKILL)",
    f"Traceback (most recent call last):\n{PRINTED}\nshop.NoStockError: {PRINTED}": "shop.NoStockError",
    f"{PRINTED}": "not shown",
    f"exit status 3 {PRINTED}": "not shown",
    f"Run over its time: 5 s\n{PRINTED}": "Run over its time: 5 s",
    f"No worker could run it in 4 tries: {PRINTED}": "No worker could run it in 4 tries",
    f"Child job 7 (a/b) failed: {PRINTED}": "Child job 7 (a/b) failed",
}
"""What jobs failed with, and what a token sees of it that sees no data."""


@pytest.mark.parametrize("names", ["", "a*"])
async def test_an_error_is_cut_to_its_kind_for_whoever_sees_no_data(live: Live, names: str) -> None:
    """Every look, over both protocols and on the pages; the control is somebody who sees data."""
    root = await admin_of(live)
    blind = await root.token_for("blind", "read", names, noData=True)
    reader = await root.token_for("reader", "read", names)
    for error in ERRORS:
        await root.ok("CreateJob", name="a")
        job = await root.ok("GetJob", name="a", worker="w")
        await root.ok("FailJob", jobID=job["jobID"], runID=job["runID"], error=error, final=True)
        for asked in (blind.http, blind.raw):
            for command, given in (
                ("QueryJob", {"jobID": job["jobID"]}),
                ("QueryRun", {"runID": job["runID"]}),
            ):
                assert (await asked(command, **given)).json["error"] == ERRORS[error], command
    await root.ok("CreateJob", name="a")
    job = await root.ok("GetJob", name="a", worker="w")
    await root.ok("RetryJob", jobID=job["jobID"], runID=job["runID"], unfit=f"no parameter {PRINTED}")
    looks = [
        *(("ListJobs", {}), ("ListRuns", {}), ("ListFailures", {})),
        *(("Events", {}), ("ExplainJob", {"jobID": 1}), ("Overview", {}), ("ListQueues", {})),
    ]
    seen = 0
    for command, given in looks:
        for who in (blind, reader):
            reply = await who.http(command, **given)
            if reply.code == 200 and who is blind:
                assert PRINTED not in reply.body, command
            seen += who is reader and PRINTED in reply.body
    for path in (
        "/ui/jobs",
        "/ui/jobs/1",
        "/ui/runs",
        "/ui/runs/1",
        "/ui/failures",
        "/ui/events",
        "/ui/",
        "/metrics",
    ):
        page = await blind.get(path, Accept="text/html")
        assert page.code == 200, path
        assert PRINTED not in page.body, path
        seen += PRINTED in (await reader.get(path, Accept="text/html")).body
    assert seen >= 8


def is_of_run(kind: type[Command[Any]], body: dict[str, Any], job_id: int, run_id: int) -> bool:
    """Return whether a request is one of those that a run may send, as they are documented."""
    name = kind.__name__
    if name == "UpdateJob":
        return body.keys() <= {"jobID", "progress"} and body["jobID"] == job_id
    if name == "QueryJob":
        return body["jobID"] == job_id
    if name == "AppendOutput":
        return body["runID"] == run_id
    if name == "AddToWorkflow":
        return "workflowID" not in body and body.get("jobID") == job_id
    jobs = body.get("jobs", [body])
    return name in ("CreateJob", "CreateJobs") and all(one.get("parentJobID") == job_id for one in jobs)


@pytest.mark.parametrize(
    ("names", "role"),
    [*crossed(["", "theirs/*"], ["work", "read,work", "work,produce", "operate"]), ("", "admin")],
)
async def test_a_run_s_token_does_nothing_but_what_is_its_run_s(place: Place, names: str, role: str) -> None:
    """Every command, about its own job and about others, whatever its worker's token may."""
    root = place.root
    worker = await root.token_for("worker", role, names)
    own = (await root.ok("CreateJob", name="theirs/own"))["jobID"]
    taken = await worker.ok("GetJob", name="theirs/own", worker="w", runToken=True)
    run = Bearer(root.live, taken["runToken"])
    itself = {**dict.fromkeys(place.theirs, own), "run": taken["runID"]}
    before = (await root.ok("ListJobs", limit=1_000))["jobs"]
    done: set[str] = set()
    sends = cycle((run.http, run.raw))  # by day each request goes one way
    for kind in ALL:
        for numbers in (place.theirs, place.mine, itself):
            asked = bodies(kind, numbers, "theirs/own")
            if numbers is itself:
                child = {"name": "theirs/own", "parentJobID": own}
                asked += [child] if kind.__name__ == "CreateJob" else []
                asked += [{"jobs": [child]}] if kind.__name__ == "CreateJobs" else []
                asked += [{"jobID": own, "progress": {"a": 1}}] if kind.__name__ == "UpdateJob" else []
            for body in asked:
                for send in (run.http, run.raw) if PROFILE == "random" else (next(sends),):
                    reply = await send(kind.__name__, **body)
                    if kind.open:
                        continue
                    may = is_of_run(kind, body, own, taken["runID"])
                    assert (reply.code == 403) != may, (kind, body, reply)
                    assert SECRET not in words_of(reply).replace(str(body), ""), (kind, body, reply)
                    if reply.code == 200:
                        done.add(kind.__name__)
    assert done == {"UpdateJob", "QueryJob", "AppendOutput", "CreateJob", "CreateJobs"}
    after = {job["jobID"]: job for job in (await root.ok("ListJobs", limit=1_000))["jobs"]}
    assert [after.get(job["jobID"]) for job in before if job["jobID"] != own] == [
        job for job in before if job["jobID"] != own
    ], "no other job is changed"
