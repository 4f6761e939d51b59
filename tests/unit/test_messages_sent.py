"""Messages: their content, their delays, and their delivery to mail servers and URLs."""

from __future__ import annotations

import asyncio
import hmac
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bedrockjobs.job.delivery import (
    CLAIM_S,
    ERROR_CHARS_KEPT,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    NEW,
    delivery_of,
    with_delivery,
)
from bedrockjobs.job.rows import RuleRow
from bedrockjobs.notify import channels, dispatcher
from bedrockjobs.notify.channels import SEND_S, Channels, NotSent, resolved
from bedrockjobs.notify.rule import EVENTS_SHOWN, NotifiedEvent, message_of, quiet_s, without_output

NOW = "2026-11-21 10:00:00"


def told(seq: int, **given: Any) -> NotifiedEvent:
    """Return an event of a run that failed."""
    event = {
        "seq": seq,
        "at": "2026-11-21 09:59:58.332",
        "kind": "failed",
        "name": "a",
        "jobID": 1,
        "runID": 7,
        "by": "",
        "detail": "no disk",
        **given,
    }
    lines = [f"line {number}" for number in range(30)]
    run = {
        "runID": 7,
        "attempt": 4,
        "status": "fail",
        "exitCode": 1,
        "worker": "w",
        "output": lines,
        "started": "2026-11-21 09:59:00",
        "ended": "2026-11-21 09:59:58",
    }
    return NotifiedEvent(event, run)


def test_a_message_says_what_happened_where_to_look_and_what_to_do() -> None:
    text = message_of("r", [told(3)], "https://jobs.example.com").text
    lines = text.splitlines()
    assert lines[0] == "a failed at 2026-11-21 09:59:58 UTC"
    assert "  no disk" in lines
    assert "  run 7, attempt 4, on w, begun 2026-11-21 09:59:00 UTC, exit status 1" in lines
    assert next(line for line in lines if "|" in line) == "  | line 10"
    assert "  https://jobs.example.com/ui/runs/7" in lines
    assert "`bedrockjobs run logs 7`" in lines[-1]


def test_a_message_without_data_has_no_output() -> None:
    event, run = told(3, detail="Exit status 1\nSECRET")
    assert run is not None
    message = message_of("r", [without_output(event, run)], "https://jobs.example.com")
    assert "SECRET" not in message.text + str(message.data)
    assert "line 29" not in message.text + str(message.data)
    assert "  Exit status 1\n  run 7, attempt 4, on w" in message.text
    assert without_output(event, None).run is None


def test_a_message_tells_so_many_events_and_counts_the_others() -> None:
    message = message_of("r", [told(seq) for seq in range(1, EVENTS_SHOWN + 6)], "", repeated=True)
    assert message.subject == f"a failed, and {EVENTS_SHOWN + 4} more"
    assert len(message.data["events"]) == EVENTS_SHOWN == 20
    assert message.data["count"] == EVENTS_SHOWN + 5
    assert "and 5 more." in message.text
    assert "may be a duplicate" in message.text
    assert message.key == f"r/1-{EVENTS_SHOWN + 5}"


@pytest.mark.parametrize(
    ("quiet", "now", "seconds"),
    [
        ("", "10:00:00", 0),
        ("22:00-07:00", "21:59:59", 0),
        ("22:00-07:00", "22:00:00", 9 * 3600),
        ("22:00-07:00", "06:59:59", 1),
        ("22:00-07:00", "07:00:00", 0),
        ("09:00-17:00", "10:00:00", 7 * 3600),
        ("22:00-07:00 Europe/Berlin", "05:30:00", 1800),
        ("22:00-07:00 Europe/Berlin", "06:30:00", 0),
    ],
)
def test_quiet_hours_end(quiet: str, now: str, seconds: float) -> None:
    moment = datetime.fromisoformat(f"2026-11-21 {now}").replace(tzinfo=UTC)
    assert quiet_s(quiet, moment) == seconds


def test_each_try_waits_twice_as_long_up_to_a_limit() -> None:
    delivery, pauses = NEW.claimed("s", 5, NOW), []
    for _ in range(8):
        delivery = delivery.failed("x" * 2 * ERROR_CHARS_KEPT, NOW)
        pauses.append(
            (datetime.fromisoformat(delivery.next_try) - datetime.fromisoformat(NOW)).total_seconds()
        )
    assert pauses == [FIRST_PAUSE_S * 2**number for number in range(7)] + [LONGEST_PAUSE_S]
    assert len(delivery.last_error) == ERROR_CHARS_KEPT
    assert CLAIM_S >= 2 * SEND_S
    assert dispatcher.POLL_S <= FIRST_PAUSE_S


def test_a_delivery_is_read_as_it_was_written() -> None:
    row = RuleRow("r", "{}", "", NOW, 3, "{}")
    delivery = NEW.claimed("s", 5, NOW).failed("no", NOW)._replace(sent=2, muted_until=NOW)
    again = with_delivery(row, delivery, 4)
    assert (delivery_of(again), again.cursor) == (delivery, 4)
    assert delivery_of(row._replace(state="not JSON")) == NEW
    assert delivery_of(row._replace(state='{"sent":"x","lost":1}')) == NEW._replace(lost=1)
    assert with_delivery(row, NEW) == row


def test_limits_of_the_messenger() -> None:
    assert dispatcher.EVENTS_READ == dispatcher.EVENTS_PER_MESSAGE == 1_000


def test_a_variable_of_the_server_stands_for_a_secret() -> None:
    environment = {"BEDROCKJOBS_NOTIFY_A": "s3cret"}
    assert resolved("https://x/${BEDROCKJOBS_NOTIFY_A}", environment) == "https://x/s3cret"
    assert resolved("${HOME}", {"HOME": "/root"}) == "${HOME}", "no other is read"
    with pytest.raises(NotSent, match="neither BEDROCKJOBS_NOTIFY_B nor BEDROCKJOBS_NOTIFY_B_FILE is set"):
        resolved("${BEDROCKJOBS_NOTIFY_B}", environment)


def sending(**given: Any) -> Channels:
    """Return channels with a secret."""
    return Channels(
        **{"smtp": "", "mail_from": "", "url": "", "environment": {"BEDROCKJOBS_NOTIFY_K": "key"}, **given}
    )


async def test_what_is_posted_is_signed() -> None:
    came: list[tuple[str, bytes]] = []

    async def take(request: web.Request) -> web.Response:
        came.append((request.headers["Bedrockjobs-Signature"], await request.read()))
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/", take)
    async with TestServer(app) as server:
        url = str(server.make_url("/"))
        await sending().send(message_of("r", [told(3)], ""), url, "${BEDROCKJOBS_NOTIFY_K}", 1_795_000_000)
    ((signature, body),) = came
    signed = hmac.new(b"key", b"1795000000." + body, sha256).hexdigest()
    assert signature == f"t=1795000000,v1={signed}"


@pytest.mark.parametrize(
    ("status", "words"), [(302, "answered 302"), (404, "answered 404"), (500, "answered 500")]
)
async def test_anything_but_success_is_no_arrival(status: int, words: str) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": "/"})

    app = web.Application()
    app.router.add_post("/", refuse)
    async with TestServer(app) as server:
        with pytest.raises(NotSent, match=f"^{words}$"):
            await sending().send(message_of("r", [told(3)], ""), str(server.make_url("/")), "", 0)


async def test_an_address_that_nobody_listens_at_is_not_told(unused_tcp_port: int) -> None:
    with pytest.raises(NotSent) as failure:
        await sending().send(
            message_of("r", [told(3)], ""), f"http://127.0.0.1:{unused_tcp_port}/s3cret", "", 0
        )
    assert str(failure.value) == "the receiver cannot be reached"


async def test_a_receiver_that_does_not_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silence(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(channels, "SEND_S", 0.05)
    app = web.Application()
    app.router.add_post("/", silence)
    async with TestServer(app) as server:
        with pytest.raises(NotSent):
            await sending().send(message_of("r", [told(3)], ""), str(server.make_url("/")), "", 0)
