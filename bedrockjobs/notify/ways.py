"""How a message gets there: posted to an address, or as mail. Secrets come from variables of the server.

Each way raises NotSent with a sentence where the message did not arrive, or where nobody knows.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
from collections.abc import Mapping
from email.message import EmailMessage
from hashlib import sha256
from urllib.parse import unquote, urlsplit

import aiosmtplib
from aiohttp import ClientError, ClientSession, ClientTimeout

from bedrockjobs.base import jsontext
from bedrockjobs.notify.message import Message

SEND_S = 30.0
"""Time for one try, half of what is claimed for it: a receiver that is slower is tried again later."""

_VARIABLE = re.compile(r"\$\{(BEDROCKJOBS_NOTIFY_[A-Z0-9_]+)\}")


class NotSent(Exception):
    """A message did not arrive; the sentence says why, without secrets."""


def resolved(text: str, environment: Mapping[str, str]) -> str:
    """Return a text with the values of its variables; raises NotSent for one that is not set."""

    def value(found: re.Match[str]) -> str:
        try:
            return environment[found[1]]
        except KeyError:
            raise NotSent(f"{found[1]} is not set where the server runs") from None

    return _VARIABLE.sub(value, text)


class Ways:
    """The ways of one server."""

    def __init__(
        self, *, smtp: str, mail_from: str, url: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """Send mail by the server at ``smtp``, from ``mail_from``; ``url`` says where messages come from."""
        self._smtp = smtp
        self._mail_from = mail_from
        self._url = url
        self._environment = os.environ if environment is None else environment

    async def send(self, message: Message, to: str, secret: str, sent_at: int) -> None:
        """Send a message to where a rule says, at a second since 1970; raises NotSent."""
        place = resolved(to, self._environment)
        try:
            async with asyncio.timeout(SEND_S):
                if place.startswith("mailto:"):
                    await self._mail(message, place.removeprefix("mailto:"))
                elif place.startswith(("http://", "https://")):
                    await self._post(message, place, resolved(secret, self._environment), sent_at)
                else:
                    raise NotSent("to: expected https://… or mailto:… in the variable")
        except TimeoutError:
            raise NotSent(f"no answer within {SEND_S:.0f} s") from None

    async def _post(self, message: Message, place: str, key: str, sent_at: int) -> None:
        """Post a message as a CloudEvent; a 2xx says that it arrived."""
        kinds = {event["kind"] for event in message.data["events"]}
        kind = kinds.pop().replace(" ", "-") if len(kinds) == 1 else "several"
        body = jsontext.dump(
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
        except (ClientError, OSError, ValueError) as error:
            raise NotSent(
                type(error).__name__
            ) from None  # its words may hold the address, which may be secret

    async def _mail(self, message: Message, people: str) -> None:
        """Send a message as mail; it arrived when the mail server has taken it for everybody."""
        if not self._smtp:
            raise NotSent("smtp: no mail server is set; see `bedrockjobs serve --smtp`")
        server = urlsplit(resolved(self._smtp, self._environment))
        mail = EmailMessage()
        mail["From"] = self._mail_from or f"bedrockjobs@{server.hostname}"
        mail["To"] = people
        mail["Subject"] = " ".join(message.subject.split())
        mail["Message-ID"] = f"<{re.sub('[^A-Za-z0-9._-]', '.', message.key)}@{_host(mail['From'])}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(message.text)
        try:
            refused, _ = await aiosmtplib.send(
                mail,
                hostname=server.hostname,
                port=server.port,
                username=unquote(server.username) if server.username else None,
                password=unquote(server.password) if server.password else None,
                use_tls=server.scheme == "smtps",
                start_tls=True if server.scheme == "smtp+starttls" else None,
                timeout=SEND_S,
            )
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            raise NotSent(f"the mail server did not take it: {type(error).__name__}: {error}") from None
        if refused:
            raise NotSent(f"the mail server refused {', '.join(sorted(refused))}")


def _host(address: str) -> str:
    return re.sub("[^A-Za-z0-9.-]", "", address.rpartition("@")[2]) or "bedrockjobs"
