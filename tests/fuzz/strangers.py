"""Credentials that clients present: tokens, certificates, and headers of proxies.

Only the exact text of an existing token authenticates a client.
"""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_address

from multidict import CIMultiDict

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.errors import TooManyWrong, Unauthenticated
from bedrockjobs.base.principal import (
    RunOfToken,
    digest_of,
    is_whole,
    job_of_ping,
    ping_secret_of,
    run_of_token,
    run_token_of,
)
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.access import Access, is_local
from bedrockjobs.job.rows import LoginRow, TokenRow
from bedrockjobs.protocol.authentication import UNKNOWN_CLIENT, USER_CHARS_MAX, Proxies
from bedrockjobs.tls import certificate_name

KEY = "0" * 64
TOKEN = "bj_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDENOM20w"
"""An existing token, which is also in the corpus."""

RUN = RunOfToken(7, 9, "root")
RUN_TOKEN = run_token_of(KEY, RUN)
PING = ping_secret_of(KEY, 9)
SESSION = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE"
WORDS_CHARS = 200
"""Maximum length of a reply to an unauthenticated client, independent of the request."""

PROXY, CLIENT = "10.0.0.2", "192.0.2.7"

TOKEN_WORDS = [
    *(b"bj_", b"bjr_", b"bjp_", b"_", b"-", b" ", b"\t", b"Bearer ", b"bearer", b"Basic ", b"=", b"root"),
    *(TOKEN.encode(), RUN_TOKEN.encode(), PING.encode(), SESSION.encode(), b"7_9_", b"@/:.", b"\xd9\xa3"),
]
PROXY_WORDS = [
    *(
        b"X-Forwarded-For: ",
        b"x-remote-user: ",
        b"\n",
        b",",
        b", ",
        b"10.0.0.2",
        b"fd00::1",
        b"::ffff:10.0.0.2",
    ),
    *(b"%eth0", b"unix", b"root", b":", b"[::1]:80", b"\xc2\xa0", b"\xe2\x80\xae"),
]
CERTIFICATE_WORDS = [b"commonName=", b"DNS=", b"organizationName=", b"\n", b"root", b"*.", b"xn--", b"\0"]

_clock = ManualClock(datetime(2026, 11, 21, tzinfo=UTC))


def _made() -> Access:
    settings = Settings()
    access = Access(_clock, settings, reachable=True)
    row = TokenRow("root", digest_of(TOKEN), "admin", "[]", 0, "", "", "", "", "", "[]")
    access.set_initial((row,), (LoginRow(digest_of(SESSION), "root", "", "2030-01-01 00:00:00.000"),))
    access.run_of_token = lambda token: run_of_token(KEY, token)
    return access


_access = _made()
_proxies = Proxies(f"{PROXY},fd00::/64", "X-Remote-User")


def _expect(refused: Unauthenticated | TooManyWrong, right: bool) -> None:
    if not right or len(refused.detail or "") >= WORDS_CHARS:
        raise AssertionError(f"refused with {refused.detail!r:.300}")


def read_token(data: bytes) -> None:
    """Present a text as a token in every place; only an existing token may authenticate."""
    text = data.decode("latin-1")
    bare = text.strip()
    scheme, _, rest = bare.partition(" ")
    behind = rest.strip() if scheme.lower() == "bearer" else "" if rest else bare
    for let_in, shown, right in (
        (_access.by_header, text, behind in (TOKEN, RUN_TOKEN)),
        (_access.by_token, text, text in (TOKEN, RUN_TOKEN)),
        (_access.by_login, text, text == SESSION),
    ):
        _clock.advance(1)  # otherwise all but the first would get only the rate limiter's refusal
        try:
            caller = let_in(shown, CLIENT)
        except (Unauthenticated, TooManyWrong) as refused:
            _expect(refused, not right)
        else:
            assert right, f"{shown[:80]!r} was let in"
            assert caller.name == "root"
    assert is_whole(text) == (text == TOKEN)
    text = data.decode(errors="replace")
    found = run_of_token(KEY, text)
    assert found is None or run_token_of(KEY, found) == text
    job = job_of_ping(KEY, text)
    assert job is None or ping_secret_of(KEY, job) == text


def read_proxy(data: bytes) -> None:
    """Read the headers of a request, one per line, from the proxy and from another client."""
    headers: CIMultiDict[str] = CIMultiDict()
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        name, _, value = line.partition(":")
        headers.add(name.strip(), value)
    assert _proxies.user(headers, CLIENT) == ""
    assert _proxies.address(headers, CLIENT) == CLIENT
    user = _proxies.user(headers, PROXY)
    assert len(user) <= USER_CHARS_MAX
    assert user.isprintable()
    assert not user or (headers.getall("X-Remote-User") and len(headers.getall("X-Remote-User")) == 1)
    found = _proxies.address(headers, PROXY)
    assert not is_local(found)
    assert found == UNKNOWN_CLIENT.format(PROXY) or ip_address(found)


def read_certificate(data: bytes) -> None:
    """Read the name in a signed certificate, which authenticates only as a token of exactly that name."""
    pairs = [line.partition("=")[::2] for line in data.decode(errors="replace").split("\n")]
    name = certificate_name(
        {
            "subject": tuple((pair,) for pair in pairs if pair[0] != "DNS"),
            "subjectAltName": tuple(pair for pair in pairs if pair[0] == "DNS"),
        }
    )
    try:
        caller = _access.by_certificate(name, CLIENT)
    except Unauthenticated as refused:
        _expect(refused, name != "root")
    else:
        assert caller.name == name == "root"
