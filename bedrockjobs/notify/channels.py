"""Notification channels: HTTP, mail, an operator's program, or Apprise.

Secrets come from environment variables of the server, or from files named by such variables. Each channel
raises NotSent with the reason if a message did not arrive, or may not have arrived.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from email.message import EmailMessage
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import cast
from urllib.parse import unquote, urlsplit

import aiosmtplib
from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientConnectorSSLError,
    ClientError,
    ClientResponseError,
    ClientSession,
    ClientTimeout,
    InvalidURL,
    ServerDisconnectedError,
)

from bedrockjobs.base import jsontext
from bedrockjobs.job.delivery import ERROR_CHARS_KEPT
from bedrockjobs.notify.rule import Message

SEND_S = 30.0
"""Maximum seconds of one attempt to send a message. It is half of the time for which a message is claimed; if
the receiver is slower, the message is retried."""

SECRET_BYTES_MAX = 65_536
"""Maximum bytes read from a secret file; URLs and keys are far shorter."""

STDERR_BYTES_MAX = 2_000
"""Maximum bytes read from the stderr of a program that failed; they become one line of the log."""

PASSED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
"""Environment variables passed to a program, in addition to those for notifications. The program gets no
others, because they may contain secrets."""

_VARIABLE = re.compile(r"\$\{(BEDROCKJOBS_NOTIFY_[A-Z0-9_]+)\}")
_FOR_MESSAGES = "BEDROCKJOBS_NOTIFY_"
_ADDRESS = re.compile(r"[^@\s<>]+@[^@\s<>]+")
_PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


_TROUBLES: dict[type[Exception], str] = {
    TimeoutError: f"no answer within {SEND_S:.0f} s",
    InvalidURL: "the address cannot be posted to",
    ClientConnectorDNSError: "the name of the receiver's host cannot be resolved",
    ClientConnectorCertificateError: "the receiver's certificate is not trusted",
    ClientConnectorSSLError: "the TLS handshake with the receiver failed",
    ClientConnectorError: "the receiver cannot be reached",
    ServerDisconnectedError: "the receiver closed the connection without an answer",
    ClientResponseError: "the answer of the receiver is not HTTP",
}
"""The reason to report for each error of a POST, without the URL, which may be secret; the first class that
matches applies."""


class NotSent(Exception):
    """A message did not arrive, or may not have arrived; the text gives the reason, without secrets."""


def resolved(text: str, environment: Mapping[str, str]) -> str:
    """Return a text with its ``${BEDROCKJOBS_NOTIFY_…}`` expanded; raises NotSent if one is not set."""

    def value(match: re.Match[str]) -> str:
        name, file = match[1], environment.get(f"{match[1]}_FILE")
        if name in environment:
            return environment[name]
        if file is None:
            raise NotSent(f"neither {name} nor {name}_FILE is set in the server's environment")
        try:
            with Path(file).open(encoding="utf-8") as opened:
                return opened.read(SECRET_BYTES_MAX).strip()
        except (OSError, ValueError) as error:
            raise NotSent(f"the file of {name}_FILE cannot be read: {type(error).__name__}") from None

    return _VARIABLE.sub(value, text)


class Channels:
    """The notification channels of one server."""

    def __init__(
        self,
        *,
        smtp: str,
        mail_from: str,
        url: str,
        commands: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Send mail through ``smtp`` from ``mail_from``; ``url`` is the ``source`` of CloudEvents.

        ``commands`` is the folder of the programs that rules may run.
        """
        self._commands = commands
        self._smtp = smtp
        self._mail_from = mail_from
        self._url = url
        self._environment = os.environ if environment is None else environment
        self._delivered_to: dict[str, dict[str, frozenset[str]]] = {}
        """Recipients who already have a message that is retried for the other recipients, by rule and by key
        of the message."""

    async def send(self, message: Message, to: str, secret: str, sent_at: int) -> str:
        """Send a message to ``to``, the target of a rule. ``sent_at`` is in seconds since 1970.

        Returns which recipients were refused permanently, and why; empty if all recipients got the message.
        Raises NotSent.
        """
        place = resolved(to, self._environment)
        try:
            async with asyncio.timeout(SEND_S):
                if place.startswith("mailto:") and not place.startswith("mailto://"):
                    return await self._mail(message, place.removeprefix("mailto:"))
                if place.startswith("command:"):
                    await self._run_program(message, place.removeprefix("command:"))
                elif place.startswith(("http://", "https://")):
                    await self._post(message, place, resolved(secret, self._environment), sent_at)
                else:
                    await self._apprise(message, place)
        except TimeoutError:
            raise NotSent(f"no answer within {SEND_S:.0f} s") from None
        return ""

    async def _post(self, message: Message, place: str, key: str, sent_at: int) -> None:
        """Post a message as a CloudEvent; raises NotSent unless the answer has a 2xx status."""
        body = self._cloud_event(message)
        headers = {
            "Content-Type": "application/cloudevents+json; charset=utf-8",
            "Idempotency-Key": message.key,
            "User-Agent": "bedrockjobs",
        }
        if key:
            signed = hmac.new(key.encode(), b"%d.%b" % (sent_at, body), sha256).hexdigest()
            headers["Bedrockjobs-Signature"] = f"t={sent_at},v1={signed}"
        try:
            async with (
                ClientSession(timeout=ClientTimeout(total=SEND_S)) as session,
                session.post(place, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                if not 200 <= answer.status <= 299:
                    raise NotSent(f"answered {answer.status}")
        except (ClientError, OSError, ValueError) as error:  # the message may contain the secret URL
            reason = next((reason for kind, reason in _TROUBLES.items() if isinstance(error, kind)), "")
            raise NotSent(reason or type(error).__name__) from None

    def _cloud_event(self, message: Message) -> bytes:
        kinds = {event["kind"] for event in message.data["events"]}
        kind = kinds.pop().replace(" ", "-") if len(kinds) == 1 else "several"
        return jsontext.dump(
            {
                "specversion": "1.0",
                "id": message.key,
                "source": self._url or "bedrockjobs",
                "type": f"bedrockjobs.{kind}",
                "time": f"{message.at[:10]}T{message.at[11:]}Z",
                "subject": message.subject,
                "datacontenttype": "application/json",
                "data": {**message.data, "text": message.text},
            }
        ).encode()

    async def _run_program(self, message: Message, name: str) -> None:
        """Run a program with the CloudEvent on stdin; raises NotSent unless the program exits with 0."""
        if not self._commands:
            raise NotSent("notify_commands: the server has no folder of programs")
        if not _PROGRAM.fullmatch(name):
            raise NotSent("command: expected the name of a program in the folder of notify_commands")
        environment = {
            key: value
            for key, value in self._environment.items()
            if key in PASSED_VARIABLES or key.startswith(_FOR_MESSAGES)
        }
        # Files: a program may end before it has read a pipe, and child processes it leaves may hold one open.
        with TemporaryFile() as stdin, TemporaryFile() as stderr:
            stdin.write(self._cloud_event(message))
            stdin.seek(0)
            try:
                program = await asyncio.create_subprocess_exec(
                    Path(self._commands) / name,
                    stdin=stdin,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=stderr,
                    env={**environment, "BEDROCKJOBS_SUBJECT": " ".join(message.subject.split())},
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise NotSent(f"{name} could not be run: {type(error).__name__}") from None
            try:
                await program.wait()
            finally:
                if program.returncode is None:
                    with suppress(ProcessLookupError):
                        os.killpg(program.pid, signal.SIGKILL)
                    await program.wait()
            if program.returncode:
                stderr.seek(0)
                output = " ".join(stderr.read(STDERR_BYTES_MAX).decode(errors="replace").split())
                raise NotSent(f"{name} ended with {program.returncode}: {output}")

    async def _apprise(self, message: Message, place: str) -> None:
        """Send a message with Apprise, which supports many services by URL; raises NotSent."""
        try:
            apprise = import_module("apprise")
        except ImportError:
            raise NotSent("to: an address of Apprise needs the extra bedrockjobs[notify]") from None
        known = apprise.Apprise()
        if not known.add(place):  # its error would contain the secret URL
            raise NotSent("to: expected https://…, mailto:… or an address of Apprise in the variable")
        if not await known.async_notify(title=message.subject, body=message.text):
            raise NotSent("Apprise could not send it")

    async def _mail(self, message: Message, people: str) -> str:
        """Send a message as mail; return which recipients the mail server refused permanently, and why.

        A retry leaves out the recipients who already have the message. Raises NotSent.
        """
        if not self._smtp:
            raise NotSent("smtp: no mail server is set; see `bedrockjobs serve --smtp`")
        everybody = [address.strip() for address in people.split(",")]
        if not all(map(_ADDRESS.fullmatch, everybody)):
            raise NotSent("to: expected mail addresses such as ops@example.com, with commas between them")
        had = self._delivered_to.get(message.rule, {}).get(message.key, frozenset())
        recipients = [one for one in everybody if one not in had]
        try:
            refused = await self._hand_over(message, people, recipients) if recipients else {}
        except aiosmtplib.SMTPAuthenticationError as error:  # the message may contain credentials
            raise NotSent(f"the mail server refused the login: {error.code}") from None
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            raise NotSent(
                f"the mail server did not take it: {type(error).__name__}: {_line(str(error))}"
            ) from None
        refusals = ", ".join(
            f"{_line(one)} ({code} {_line(said)})" for one, (code, said) in sorted(refused.items())
        )
        had |= set(everybody) - refused.keys()
        if not had:
            raise NotSent(f"the mail server refused {refusals}")
        self._delivered_to.pop(message.rule, None)
        if any(400 <= code < 500 for code, _ in refused.values()):
            self._delivered_to[message.rule] = {message.key: had}
            raise NotSent(f"the mail server temporarily refused {refusals}")
        return f"the mail server refused {refusals}" if refused else ""

    async def _hand_over(
        self, message: Message, people: str, recipients: list[str]
    ) -> dict[str, tuple[int, str]]:
        """Submit a message to the mail server; return refused recipients, each with status code and text."""
        server = urlsplit(resolved(self._smtp, self._environment))
        try:
            port = server.port
        except ValueError:  # the message would contain the value, perhaps part of the password
            raise NotSent(
                "smtp: expected a port behind the host; in a password / is %2F, ? is %3F, and # is %23"
            ) from None
        mail = EmailMessage()
        mail["From"] = self._mail_from or f"bedrockjobs@{server.hostname}"
        mail["To"] = people
        mail["Subject"] = " ".join(message.subject.split())
        mail["Message-ID"] = f"<{re.sub('[^A-Za-z0-9._-]', '.', message.key)}@{_host(mail['From'])}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(message.text)
        client = aiosmtplib.SMTP(
            hostname=server.hostname,
            port=port,
            username=unquote(server.username) if server.username else None,
            password=unquote(server.password) if server.password else None,
            use_tls=server.scheme == "smtps",
            start_tls=True if server.scheme == "smtp+starttls" else None,
            timeout=SEND_S,
        )
        try:
            await client.connect()
            refused, _ = await client.send_message(mail, recipients=recipients)
            if client.transport is not None:  # the mail is accepted, whatever follows QUIT
                cast(asyncio.Transport, client.transport).write(b"QUIT\r\n")
        except aiosmtplib.SMTPRecipientsRefused as error:
            return {one.recipient: (one.code, one.message) for one in error.recipients}
        finally:
            client.close()
        return {address: (one.code, one.message) for address, one in refused.items()}


def _line(text: str) -> str:
    """Return untrusted text as one line without control characters."""
    shown = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * ERROR_CHARS_KEPT])
    return " ".join(shown.split())[:ERROR_CHARS_KEPT]


def _host(address: str) -> str:
    return re.sub("[^A-Za-z0-9.-]", "", address.rpartition("@")[2]) or "bedrockjobs"
