"""Headers about the client are believed from trusted proxies only."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from bedrockjobs.protocol.authentication import HOPS_MAX, USER_CHARS_MAX, Proxies

PROXIES = Proxies("10.0.0.2, fd00::/64,unix", "X-Forwarded-User")
PROXY = "10.0.0.2"
UNKNOWN = f"unknown via {PROXY}"
OWN = (
    "unknown",
    "_hidden",
    "",
    "127.0.0.1",
    "127.9.9.9:80",
    "::1",
    "[::1]:80",
    "::ffff:127.0.0.1",
    "0.0.0.0",
    "::",
)
"""What a proxy, or its client, may write instead of where a request comes from."""


@pytest.mark.parametrize(
    ("address", "trusted"),
    [
        (PROXY, True),
        ("::ffff:10.0.0.2", True),
        ("fd00::7", True),
        ("fd00::7%eth0", True),
        ("unix", True),
        ("10.0.0.3", False),
        ("::ffff:10.0.0.3", False),
        ("fd01::7", False),
        ("", False),
        ("nonsense", False),
        ("127.0.0.1", False),
    ],
)
def test_who_is_trusted(address: str, trusted: bool) -> None:
    assert PROXIES.trusts(address) is trusted


def test_without_any_nobody_is() -> None:
    nobody = Proxies("", "")
    assert not nobody.any
    assert not nobody.trusts("127.0.0.1")
    assert not nobody.trusts("unix")


@pytest.mark.parametrize(
    ("values", "address", "name"),
    [
        (["ada"], PROXY, "ada"),
        ([" ada@example.com "], "unix", "ada@example.com"),
        (["ada"], "10.0.0.3", ""),
        (["ada"], "127.0.0.1", ""),
        ([], PROXY, ""),
        ([""], PROXY, ""),
        (["ada", "eve"], PROXY, ""),
        (["a\tb"], PROXY, ""),
        (["x" * USER_CHARS_MAX], PROXY, "x" * USER_CHARS_MAX),
        (["x" * (USER_CHARS_MAX + 1)], PROXY, ""),
    ],
)
def test_who_has_logged_in(values: list[str], address: str, name: str) -> None:
    headers = CIMultiDict([("x-forwarded-user", value) for value in values] + [("X-User", "eve")])
    assert PROXIES.user(headers, address) == name
    assert Proxies("10.0.0.2", "").user(headers, address) == ""


@pytest.mark.parametrize(
    ("values", "address", "found"),
    [
        (["192.0.2.7"], PROXY, "192.0.2.7"),
        (["192.0.2.7"], "10.0.0.3", "10.0.0.3"),
        (["203.0.113.9, 192.0.2.7"], PROXY, "192.0.2.7"),
        (["203.0.113.9", "192.0.2.7"], PROXY, "192.0.2.7"),
        (["192.0.2.7, fd00::7, 10.0.0.2"], PROXY, "192.0.2.7"),
        (["fd00::7"], PROXY, "fd00::7"),
        (["192.0.2.7, nonsense"], PROXY, UNKNOWN),
        ([], PROXY, UNKNOWN),
        ([], "unix", "unknown via unix"),
        (["192.0.2.7," + ",".join([PROXY] * HOPS_MAX)], PROXY, PROXY),
        (["2001:DB8::1"], "unix", "2001:db8::1"),
        (["192.0.2.7:1234"], PROXY, "192.0.2.7"),
        (["[2001:db8::1]:443"], PROXY, "2001:db8::1"),
        (["[2001:db8::1]"], PROXY, "2001:db8::1"),
        (["192.0.2.7:port"], PROXY, UNKNOWN),
        (["[2001:db8::1]x"], PROXY, UNKNOWN),
        (["192.0.2.7, 10.0.0.2:80"], PROXY, "192.0.2.7"),
        *(([own], PROXY, UNKNOWN) for own in OWN),
    ],
)
def test_from_where_it_comes(values: list[str], address: str, found: str) -> None:
    assert PROXIES.address(CIMultiDict([("X-Forwarded-For", value) for value in values]), address) == found


@pytest.mark.parametrize(
    ("trusted", "header", "words"),
    [
        ("10.0.0.2/8", "", "networks or unix: 10.0.0.2/8 has host bits set"),
        ("1.2.3", "", "networks or unix: '1.2.3' does not appear to be"),
        ("", "X-User", "proxy_user_header: expected the proxy's address in trusted_proxies"),
    ],
)
def test_what_cannot_be_meant(trusted: str, header: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Proxies(trusted, header)
