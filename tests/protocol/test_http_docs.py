"""The page of the commands: complete, accurate, and without requests to other hosts."""

from __future__ import annotations

import re
import shlex
import subprocess
from base64 import b64encode
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser

import pytest

from bedrockjobs.commands import COMMANDS
from bedrockjobs.protocol.openapi import POLICY, DocsPage, describe
from tests.conftest import Live
from tests.protocol.talk import Talk

PAGE = DocsPage(describe("1.2.3"))
HTML = PAGE.html("localhost:8888")
VOID = {"meta", "input", "br"}


class _Reader(HTMLParser):
    """What a page refers to, and whether its elements are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []
        self.sources += [given["src"] or ""] if "src" in given else []
        if tag not in VOID | {"th"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    assert reader.open == []
    return reader


def test_every_command_has_a_section_that_the_index_leads_to() -> None:
    reader = _read(HTML)
    assert len(reader.ids) == len(set(reader.ids))
    assert set(COMMANDS) <= set(reader.ids)
    for link in reader.links:
        assert link in ("/openapi.json", "/ui/") or link.removeprefix("#") in reader.ids
    for verb in COMMANDS:
        assert f"#{verb}" in reader.links


def test_nothing_comes_from_outside() -> None:
    assert _read(HTML).sources == []
    assert not re.search(r"@import|url\(|<link|<iframe|<img|XMLHttpRequest|//cdn", HTML)
    assert re.findall(r"fetch\([^,)]*", HTML) == ["fetch(path"]
    assert "connect-src 'self'; " in POLICY
    assert not [link for link in _read(HTML).links if "//" in link]


def test_it_is_dark_and_light_and_can_be_searched() -> None:
    assert "prefers-color-scheme:dark" in HTML
    assert '<label for="search">' in HTML
    words = re.search(r'<section id="CreateJob" data-words="([^"]*)"', HTML)
    assert words is not None
    assert {"/createjob", "retryafter", "jobs"} <= set(unescape(words[1]).split())


def test_parameters_are_told_with_their_limits() -> None:
    section = HTML.partition('<section id="ListJobs"')[2].partition("</section>")[0]
    assert "<td><code>limit</code></td><td>whole number, 1 to 1000</td>" in section
    assert "one of QUEUED, RUNNING" in section
    section = HTML.partition('<section id="QueryJob"')[2].partition("</section>")[0]
    assert "whole number from 0, required" in section or "whole number, required" in section


@pytest.mark.parametrize("host", ['"><script>', "a b", "x" * 300, "localhost:8888/evil", ""])
def test_a_strange_host_is_not_repeated(host: str) -> None:
    html = PAGE.html(host)
    assert html == HTML
    assert len(re.findall("<script>", html)) == 1


def test_lines_name_the_server_as_it_was_reached() -> None:
    html = unescape(DocsPage(describe("1"), "/queue").html("[::1]:9000"))
    assert "curl http://[::1]:9000/queue/Ping -d" in html
    assert "| nc -N ::1 9000" in html


MOMENT = re.compile('"(?:now|pulse)"')
"""What is another one with each answer."""


@pytest.mark.parametrize("verb", COMMANDS)
async def test_the_lines_are_taken_as_they_stand(live: Live, verb: str) -> None:
    section = HTML.partition(f'<section id="{verb}"')[2].partition("</section>")[0]
    curl, *get, nc = (unescape(line) for line in re.findall("<pre>(.*?)</pre>", section))
    assert COMMANDS[verb].example.request or "'{}'" in curl
    await live.settle()  # what the server writes when it starts is there
    program, address, flag, body = shlex.split(curl)
    assert (program, flag) == ("curl", "-d")
    reply = await live.http(address.rpartition("/")[2], body)
    assert reply.code in (200, 404, 409), reply
    assert bool(get) is COMMANDS[verb].reads
    for line in get:
        path = shlex.split(line)[1].removeprefix("http://localhost:8888")
        async with await Talk.open(live.port) as talk:
            talk.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
            got = (await talk.reply()).body
        assert MOMENT.split(got)[0] == MOMENT.split(reply.body)[0]
    typed = shlex.split(nc.partition(" | ")[0])
    sent = subprocess.run(typed, capture_output=True, check=True).stdout
    async with await Talk.open(live.port) as talk:
        talk.send(sent)
        answered = await talk.reply()
    assert answered.code in (200, 404, 405), answered


async def test_it_is_served_with_a_policy_that_fits(live: Live) -> None:
    async with await live.connect() as talk:
        talk.send(f"GET /docs HTTP/1.1\r\nHost: localhost:{live.port}\r\n\r\n")
        reply = await talk.reply()
    assert reply.code == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert f"http://localhost:{live.port}/CreateJob" in reply.body
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    for tag in ("style", "script"):
        inside = re.search(f"<{tag}>(.*?)</{tag}>", reply.body, re.DOTALL)
        assert inside is not None
        assert b64encode(sha256(inside[1].encode()).digest()).decode() in policy


def test_each_command_may_be_tried_where_it_is() -> None:
    html = unescape(DocsPage(describe("1"), "/queue").html("localhost"))
    found = re.findall(
        r'<details class="trial" data-path="(\S+?)" data-role="(\w+)"( data-changes="1")?', html
    )
    wanted = [(f"/queue/{verb}", kind.role, not kind.reads) for verb, kind in COMMANDS.items()]
    assert sorted((path, role, bool(changes)) for path, role, changes in found) == sorted(wanted)
    assert 'href="/queue/ui/"' in html
