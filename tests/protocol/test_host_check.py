"""Checks of ``Host`` and ``Origin``: any name for load balancers, no command from pages of other sites."""

from __future__ import annotations

import pytest

from tests.conftest import Live, Serve
from tests.protocol.talk import Reply, Talk

PROBES = ("/livez", "/readyz", "/status/handlingCommands")
LOOKS = ("/QueryJob?jobID=1", "/ListJobs", "/Overview", "/events", "/runs/1/output")


async def _get(live: Live, path: str, **headers: str) -> Reply:
    async with await live.connect() as talk:
        return await _got(talk, path, **headers)


async def _got(talk: Talk, path: str, **headers: str) -> Reply:
    lines = [
        f"GET {path} HTTP/1.1",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    talk.send("\r\n".join((*lines, "", "")))
    return await talk.reply()


@pytest.mark.parametrize("path", PROBES)
@pytest.mark.parametrize("host", ["evil.example", "10.0.0.7:8888", "[::1", "queue.internal"])
async def test_a_load_balancer_names_the_server_as_it_likes(live: Live, path: str, host: str) -> None:
    assert (await _get(live, path, Host=host)).code == 200
    assert (await _get(live, "/ListJobs", Host=host)).code == 403


@pytest.mark.parametrize("header", ["Host: local\x83", "Host: localhost\r\nOrigin: http://\x83"])
async def test_a_header_that_is_not_utf_8_is_refused_like_others(live: Live, header: str) -> None:
    async with await live.connect() as talk:
        talk.send(f"POST /ListJobs HTTP/1.1\r\n{header}\r\nContent-Length: 0\r\n\r\n".encode("latin-1"))
        reply = await talk.reply()
    assert reply.code == 403
    assert "?" in reply.json["detail"]


async def test_an_expectation_that_is_not_utf_8_is_the_clients_fault(live: Live) -> None:
    async with await live.connect() as talk:
        talk.send(b"POST /Ping HTTP/1.1\r\nHost: localhost\r\nExpect: \x83\r\nContent-Length: 0\r\n\r\n")
        assert (await talk.reply()).code == 400


async def test_probes_are_answered_below_the_root_path_too(serve: Serve) -> None:
    live = await serve(root_path="/queue")
    for path in PROBES:
        assert (await _get(live, f"/queue{path}", Host="balancer.example")).code == 200


async def test_bedrock_s_probe_has_bedrock_s_words(live: Live) -> None:
    talk = await live.connect()
    reply = await _got(talk, "/status/handlingCommands", Host="balancer.example")
    assert (reply.status, reply.body) == ("HTTP/1.1 200 LEADING", "")
    await live.server.service.drain()
    reply = await _got(talk, "/status/handlingCommands", Host="balancer.example")
    assert reply.code == 503


@pytest.mark.parametrize("path", LOOKS)
async def test_a_page_of_another_site_gets_no_answer_to_a_command(live: Live, path: str) -> None:
    await live.ask("CreateJob", name="a")
    refused = await _get(live, path, Host="localhost", Sec_Fetch_Site="cross-site")
    assert refused.code == 403
    assert refused.json["detail"] == "Sec-Fetch-Site: expected same-origin or none, not cross-site"
    codes = {
        (await _get(live, path, Host="localhost", Sec_Fetch_Site=site)).code
        for site in ("same-origin", "none")
    }
    codes.add((await _get(live, path, Host="localhost")).code)
    assert codes <= {200, 404}


async def test_a_link_of_another_site_leads_to_the_pages(live: Live) -> None:
    assert (await _get(live, "/docs", Host="localhost", Sec_Fetch_Site="cross-site")).code == 200
