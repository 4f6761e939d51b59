"""Mail: each recipient gets it once, and mail servers that refuse, misbehave or are silent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from bedrockjobs.job.delivery import ERROR_CHARS_KEPT
from bedrockjobs.notify import channels
from bedrockjobs.notify.channels import Channels, NotSent
from bedrockjobs.notify.rule import message_of
from tests.unit.test_messages_sent import sending, told


class Box:
    """A mail server's inbox that refuses one recipient permanently, and another until told otherwise."""

    def __init__(self) -> None:
        """Begin empty."""
        self.mails: list[Any] = []
        self.refuses_somebody = True

    async def handle_RCPT(self, _: Any, __: Any, envelope: Any, address: str, ___: Any) -> str:
        """Accept a recipient, unless the address does not exist."""
        if address.startswith("nobody"):
            return "550 there is no such\tperson"
        if address.startswith("somebody") and self.refuses_somebody:
            return "450 come back later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _: Any, __: Any, envelope: Any) -> str:
        """Take a mail."""
        self.mails.append(envelope)
        return "250 OK"

    def people(self) -> list[list[str]]:
        """Return the recipients of each mail."""
        return [mail.rcpt_tos for mail in self.mails]


@pytest.fixture
def box(unused_tcp_port: int) -> Iterator[tuple[Box, Channels]]:
    """Return a mail server's inbox, and channels that use it."""
    found = Box()
    post = Controller(found, hostname="127.0.0.1", port=unused_tcp_port)
    post.start()
    yield found, sending(smtp=f"smtp://127.0.0.1:{unused_tcp_port}", mail_from="jobs@example.com")
    post.stop()


NAMED = message_of("r", [told(3, name="über\nall")], "https://jobs.example.com")


async def test_mail_reaches_everybody(box: tuple[Box, Channels]) -> None:
    inbox, mailing = box
    assert await mailing.send(NAMED, "mailto:a@example.com,b@example.com", "", 0) == ""
    (mail,) = inbox.mails
    assert (mail.mail_from, mail.rcpt_tos) == ("jobs@example.com", ["a@example.com", "b@example.com"])
    text = mail.content.decode()
    assert "Message-ID: <r.3-3@example.com>" in text
    assert "Auto-Submitted: auto-generated" in text
    with pytest.raises(NotSent, match="smtp: no mail server is set"):
        await sending().send(NAMED, "mailto:a@example.com", "", 0)


async def test_whom_a_mail_server_refuses_for_good_keeps_no_other_from_it(box: tuple[Box, Channels]) -> None:
    inbox, mailing = box
    missed = await mailing.send(NAMED, "mailto:a@example.com,nobody@example.com", "", 0)
    assert missed == "the mail server refused nobody@example.com (550 there is no such person)"
    with pytest.raises(NotSent, match=r"^the mail server refused nobody@example\.com \(550 "):
        await mailing.send(NAMED, "mailto:nobody@example.com", "", 0)
    assert inbox.people() == [["a@example.com"]]


async def test_whoever_has_a_mail_does_not_get_it_again_with_those_refused_for_now(
    box: tuple[Box, Channels],
) -> None:
    inbox, mailing = box
    to = "mailto:a@example.com,somebody@example.com,nobody@example.com"
    for _ in range(2):
        with pytest.raises(
            NotSent, match=r"temporarily refused .*somebody@example\.com \(450 come back later\)"
        ):
            await mailing.send(NAMED, to, "", 0)
    inbox.refuses_somebody = False
    assert "nobody@example.com (550" in await mailing.send(NAMED, to, "", 0)
    assert inbox.people() == [["a@example.com"], ["somebody@example.com"]]
    await mailing.send(message_of("r", [told(4)], ""), to, "", 0)
    assert inbox.people()[2:] == [["a@example.com", "somebody@example.com"]], "the next message is for all"


async def test_a_mail_has_arrived_once_whoever_was_refused_for_now_is_no_longer_to_have_it(
    box: tuple[Box, Channels],
) -> None:
    inbox, mailing = box
    with pytest.raises(NotSent, match="temporarily refused"):
        await mailing.send(NAMED, "mailto:a@example.com,somebody@example.com", "", 0)
    assert await mailing.send(NAMED, "mailto:a@example.com", "", 0) == ""
    assert inbox.people() == [["a@example.com"]]


@pytest.mark.parametrize("to", ["a@example.com\nBcc: b@example.com", "not an address", "", "a@b,<c d>"])
async def test_what_is_no_mail_address_is_told(box: tuple[Box, Channels], to: str) -> None:
    """It may come from a variable, which is not validated."""
    inbox, mailing = box
    with pytest.raises(NotSent, match=r"^to: expected mail addresses"):
        await mailing.send(NAMED, f"mailto:{to}", "", 0)
    assert not inbox.mails


Said = dict[str, bytes | None]
"""What a mail server says to each command; None: nothing, for ever."""


async def mailed(said: Said, **more: str) -> str:
    """Send a mail through a server with wrong replies."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        verb = "hello"
        try:
            while verb:
                words = said.get(verb, b"354 go on\r\n" if verb == "DATA" else b"250 ok\r\n")
                if words is None:
                    await reader.read()
                    break
                writer.write(words)
                await writer.drain()
                if verb == "DATA":
                    await reader.readuntil(b"\r\n.\r\n")
                    writer.write(b"250 ok\r\n")
                verb = (await reader.readline()).decode().strip().partition(" ")[0]
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the test is over
        finally:
            writer.close()

    said.setdefault("hello", b"220 here\r\n")
    async with await asyncio.start_server(talk, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        smtp = more.pop("smtp", "smtp://127.0.0.1:PORT").replace("PORT", str(port))
        return await sending(smtp=smtp, **more).send(NAMED, "mailto:a@example.com", "", 0)


@pytest.mark.parametrize("said", [None, b"", b"500 what?\r\n"])
async def test_a_mail_that_was_taken_has_arrived_whatever_is_said_of_its_end(said: bytes | None) -> None:
    """Otherwise it would be sent repeatedly for a day."""
    assert await mailed({"QUIT": said}, mail_from="jobs@example.com") == ""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"hello": None}, r"no answer within"),
        ({"hello": b"HTTP/1.1 400 Bad Request\r\n\r\n"}, "did not take it"),
        ({"hello": b"220-more\r\n" * 100_000}, "did not take it"),
        ({"hello": b"x" * 1_000_000}, "did not take it"),
        ({"MAIL": b"550 no\x1b[2J\x07 spam\r\n"}, r"no\\x1b\[2J\\x07 spam"),
        ({"RCPT": b"550 \xff\xfe no\r\n"}, "refused a@example.com"),
    ],
)
async def test_a_mail_server_that_misbehaves_is_told_in_one_line(
    said: Said, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "SEND_S", 0.5)
    with pytest.raises(NotSent, match=words) as failure:
        await mailed(said, mail_from="jobs@example.com")
    assert str(failure.value).isprintable()
    assert len(str(failure.value)) < 2 * ERROR_CHARS_KEPT


async def test_a_mail_server_does_not_make_known_what_it_was_shown() -> None:
    said: Said = {"EHLO": b"250-here\r\n250 AUTH PLAIN\r\n", "AUTH": b"535 no: AHVzZXIAc2VjcmV0 secret\r\n"}
    with pytest.raises(NotSent, match=r"^the mail server refused the login: 535$"):
        await mailed(said, smtp="smtp://user:secret@127.0.0.1:PORT")


async def test_a_password_that_is_not_quoted_is_not_made_known() -> None:
    with pytest.raises(NotSent, match="smtp: expected a port") as failure:
        await mailed({}, smtp="smtp://user:se/cret@127.0.0.1:PORT")
    assert "'se'" not in str(failure.value)


async def test_a_bad_sender_is_told() -> None:
    with pytest.raises(NotSent, match="did not take it: ValueError"):
        await mailed({}, mail_from="a@example.com\nX: y")
