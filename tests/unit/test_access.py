"""Tokens as text, intersections of patterns, and identities: for any input, in constant time."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from dataclasses import fields, replace
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.errors import CommandError, TooMany, Unauthenticated
from bedrockjobs.base.glob import COMMON_MAX, TooManyPatterns, common_of_all, glob, intersection, lies_within
from bedrockjobs.base.principal import (
    ANONYMOUS,
    COMPARED_CHARS_MAX,
    COMPARED_MAX,
    NAMES_SEEN_MAX,
    TOKEN_CHARS_MAX,
    Permission,
    Principal,
    Scope,
    digest_of,
    is_whole,
    net_of,
    new_token,
    roles_held,
)
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine import access as module
from bedrockjobs.engine.access import ADDRESSES_MAX, ADDRESSES_PER_GRANT_MAX, PROXIED_MAX, Access, is_local
from bedrockjobs.engine.events import TokensChanged
from bedrockjobs.engine.handlers.access import TOKEN_ADDRESSES_MAX
from bedrockjobs.job.rows import LoginRow, TokenRow
from bedrockjobs.job.take_request import Names, TakeRequest
from tests.conftest import START

RIGHT = new_token()
PATTERNS = st.text("ab/*?", min_size=1, max_size=6)
NAMES = ["".join(name) for size in range(6) for name in itertools.product("ab/", repeat=size)]


def row(name: str, token: str, role: str = "admin", names: str = "[]") -> TokenRow:
    """Return a valid token."""
    return TokenRow(name, digest_of(token), role, names, 0, "", "2026-01-01 00:00:00", "", "", "", "[]")


FUZZED = Access(ManualClock(START), Settings(), reachable=False)
FUZZED.set_initial((row("right", RIGHT),), ())


@pytest.fixture
def access() -> Access:
    """Return an ``Access`` with 100 tokens."""
    found = Access(ManualClock(START), Settings(), reachable=False)
    found.set_initial((row("right", RIGHT), *(row(f"t{n}", new_token()) for n in range(99))), ())
    return found


def test_a_token_is_told_from_what_was_copied_in_part() -> None:
    assert is_whole(RIGHT)
    assert len(RIGHT) == 52
    assert not any(is_whole(text) for text in (RIGHT[:-1], RIGHT + "a", RIGHT.lower(), "bj_", ""))
    assert len({new_token() for _ in range(100)}) == 100


@given(PATTERNS, PATTERNS)
def test_what_patterns_have_in_common_matches_what_both_match(one: str, other: str) -> None:
    try:
        found = intersection(one, other)
    except TooManyPatterns:
        return
    for name in NAMES:
        assert any(glob(name, pattern) for pattern in found) == (glob(name, one) and glob(name, other)), name
    if lies_within(one, [other]):
        assert all(glob(name, other) for name in NAMES if glob(name, one))


def test_what_a_token_sees_of_a_request_is_remembered_up_to_a_limit() -> None:
    scope = Scope(["mail/*"])
    for number in range(COMPARED_MAX + 5):
        assert scope.narrow([f"mail/{number}*"]) == (f"mail/{number}*",)
    assert scope.narrow(["mail/1*"]) == scope.narrow(["mail/1*"]) == ("mail/1*",)
    scope.narrow(["mail/" + "x" * COMPARED_CHARS_MAX])
    assert 0 < len(scope._narrow) <= COMPARED_MAX
    assert max(len(wanted) for request in scope._narrow for wanted in request) < COMPARED_CHARS_MAX


def test_patterns_that_cannot_be_compared_are_told() -> None:
    assert set(intersection("*a*", "*b*")) == {"*a*b*", "*b*a*"}
    assert intersection("mail/[ab]", "mail/?") == ("mail/[ab]",)
    assert intersection("mail/[ab]", "mail/b") == ("mail/b",)
    for one, other in (
        ("[ab]*", "[bc]*"),
        ("*a*b*c*d*e*", "*v*w*x*y*z*"),
        ("a*" + "b" * 200, "*" + "c" * 200),
    ):
        with pytest.raises(TooManyPatterns):
            intersection(one, other)
    with pytest.raises(TooManyPatterns):
        common_of_all([f"*a{n}*" for n in range(COMMON_MAX)], ["*x*"])
    assert not lies_within("[ab]*", ["[bc]*"])


def test_a_scope_sees_its_names_alone() -> None:
    scope = Scope(("mail/*", "report"))
    assert [scope.covers(name) for name in ("mail/a", "report", "reports", "mail")] == [
        True,
        True,
        False,
        False,
    ]
    assert [scope.includes_pattern(pattern) for pattern in ("mail/*", "mail/a*", "*", "m*", "report")] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert set(scope.narrow(["*"])) == {"mail/*", "report"}


def test_roles_hold_each_other() -> None:
    assert roles_held("operate") == {"read", "produce", "work", "operate"}
    assert roles_held("work,read") == {"read", "work"}
    assert roles_held("admin") == {"read", "produce", "work", "operate", "admin"}


@given(st.one_of(st.text(max_size=300), st.text("bj_rAZaz09-_ .", max_size=300)))
def test_any_text_in_place_of_a_token_is_refused(text: str) -> None:
    for ask in (FUZZED.by_token, FUZZED.by_header, FUZZED.by_login, FUZZED.by_certificate, FUZZED.by_bearer):
        with pytest.raises(CommandError) as told:
            ask(text, "192.0.2.7")
        assert isinstance(told.value, Unauthenticated | TooMany)
    is_whole(text)


def test_a_long_text_costs_no_more_than_a_short_one() -> None:
    assert TOKEN_CHARS_MAX == 200
    assert digest_of("a" * TOKEN_CHARS_MAX) == digest_of("a" * 10_000)


def test_a_wrong_token_takes_the_same_steps_as_a_right_one(access: Access) -> None:
    """Every token is hashed, looked up, and compared in constant time."""
    for token in (RIGHT, RIGHT[:-1] + "!", new_token(), "x"):
        steps: list[str] = []

        def noted(name: str, call: Any, steps: list[str] = steps) -> Any:
            return lambda *given: (steps.append(name), call(*given))[1]

        with (
            patch.object(module, "digest_of", noted("hash", module.digest_of)),
            patch.object(module, "compare_digest", noted("compare", module.compare_digest)),
            suppress(CommandError),
        ):
            access.by_token(token, "127.0.0.1")
        assert steps == ["hash", "compare"], token


def test_the_time_of_a_wrong_token_tells_nothing_of_right_ones(access: Access) -> None:
    """A token that differs from a valid one only in its last character takes as long as any other."""

    def took(token: str) -> float:
        begun = perf_counter()
        for _ in range(20):
            with suppress(CommandError):
                access.by_token(token, "127.0.0.1")
        return perf_counter() - begun

    near, far = RIGHT[:-1] + ("A" if RIGHT[-1] != "A" else "B"), new_token()
    times: dict[str, list[float]] = {near: [], far: []}
    for _ in range(100):
        for token in (near, far):
            times[token].append(took(token))
    assert median(times[near]) < median(times[far]) * 1.5
    assert median(times[far]) < median(times[near]) * 1.5


def test_addresses_with_wrong_tokens_are_remembered_up_to_a_limit(access: Access) -> None:
    assert ADDRESSES_MAX == 10_000
    for number in range(ADDRESSES_MAX + 5):
        with pytest.raises(Unauthenticated):
            access.by_token("x", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(access._wrong) <= ADDRESSES_MAX

    def codes(addresses: list[str]) -> list[int]:
        found = []
        for address in addresses:
            with pytest.raises(CommandError) as told:
                access.by_token("x", address)
            found.append(told.value.code)
        return found

    one_customers = [f"2001:db8::{number:x}" for number in range(12)]  # a client with many IPv6 addresses
    assert codes(one_customers) == [403] * 10 + [429] * 2
    assert codes([f"::ffff:192.0.2.{number}" for number in range(12)]) == [403] * 12
    assert codes(["::ffff:192.0.2.77", "192.0.2.77"] * 6) == [403] * 10 + [429] * 2


CUSTOMERS = [
    ["192.0.2.1", "::ffff:192.0.2.1", "::FFFF:C000:201"],
    ["2001:db8::1", "2001:db8::ffff:1", "2001:DB8:0:0:ffff:ffff:ffff:ffff", "2001:db8::2%eth0"],
    ["192.0.2.2"],
    ["2001:db8:0:1::1", "2001:db8:0:1::2"],
    ["fe80::1%eth0", "fe80::2%eth1"],
    ["unix"],
]
"""Addresses of which those of a line are one customer's: IPv4, IPv6 by /64, and mapped ones."""


@pytest.mark.parametrize("mine", CUSTOMERS, ids=lambda mine: mine[0])
def test_a_customer_with_many_addresses_ends_sessions_of_its_own(access: Access, mine: list[str]) -> None:
    logins: list[LoginRow] = []
    ended: list[str] = []

    def write(act: Any, _: object) -> None:
        if "gone" in act.keywords:
            ended.append(act.keywords["gone"])
            logins.append(
                LoginRow(act.keywords["digest"], "right", "2026-01-01 00:00:00", "2100-01-01 00:00:00")
            )
            tokens = (row("right", RIGHT),)
            access.event_handlers()[TokensChanged](TokensChanged(tokens, tuple(logins)))

    access.write = write
    for addresses in CUSTOMERS:
        if addresses != mine:
            access.log_in(access.by_token(RIGHT, addresses[0]), lambda _: True)
    for address in mine * 3:
        access.log_in(access.by_token(RIGHT, address), lambda _: True)
    own = {login.digest for login in logins[len(CUSTOMERS) - 1 :]}
    assert set(ended[len(CUSTOMERS) :]) <= own, "but for the first, which had none to end"


def test_addresses_of_one_customer_count_as_one() -> None:
    nets = [{net_of(address) for address in addresses} for addresses in CUSTOMERS]
    assert [len(found) for found in nets] == [1] * len(CUSTOMERS)
    assert len(set().union(*nets)) == len(CUSTOMERS)


def test_people_behind_a_proxy_are_remembered_up_to_a_limit(access: Access) -> None:
    assert PROXIED_MAX == 1_000
    for number in range(PROXIED_MAX + 5):
        assert access.by_proxy(f"u{number}", "127.0.0.1").name == f"u{number}"
    assert len(access._proxied) <= PROXIED_MAX


def test_addresses_of_a_token_are_noted_once_and_remembered_up_to_a_limit(access: Access) -> None:
    noted: list[object] = []
    access.write = lambda act, done: noted.append(act)
    assert ADDRESSES_PER_GRANT_MAX == 1_000
    for number in range(ADDRESSES_PER_GRANT_MAX + 5):
        for _ in range(2):
            caller = access.by_token(RIGHT, f"10.0.{number >> 8}.{number & 255}")
    assert len(noted) == ADDRESSES_PER_GRANT_MAX + 5
    assert len(caller.grant.addresses) <= ADDRESSES_PER_GRANT_MAX


def test_a_grant_that_did_not_change_stays_the_same(access: Access) -> None:
    caller = access.by_token(RIGHT, "127.0.0.1")
    ended: list[str] = []
    caller.grant.ends.add(lambda: ended.append("ended"))
    access._replace_tokens((row("right", RIGHT), row("other", new_token())), ())
    assert access.is_still_allowed(caller)
    assert not ended
    access._replace_tokens((row("right", RIGHT, "read"), row("other", new_token())), ())
    assert not access.is_still_allowed(caller)
    assert ended == ["ended"]


def test_what_is_of_this_machine() -> None:
    assert all(map(is_local, ("127.0.0.1", "127.1.2.3", "::1", "unix", "")))
    assert not any(map(is_local, ("192.0.2.7", "2001:db8::7", "nonsense")))


def test_whole_grants_are_told_from_narrow_ones() -> None:
    assert Permission("a", "read").is_unrestricted
    assert not Permission("a", "read", ["x"]).is_unrestricted
    assert not Permission("a", "read", no_data=True).is_unrestricted
    assert json.loads(Access.identity(Principal(Permission("a", "read,work"), "")).body)["roles"] == [
        "read",
        "work",
    ]


def test_what_a_token_sees_is_remembered_for_so_many_names() -> None:
    assert NAMES_SEEN_MAX == 1_000
    scope = Scope(["a/*"])
    for number in range(2 * NAMES_SEEN_MAX):
        assert scope.covers(f"a/{number}")
        assert not scope.covers(f"b/{number}")
    assert scope.covers("a/0")
    assert not scope.covers("b/0")


def test_a_request_of_somebody_is_the_same_but_for_who_asks_and_what_they_see() -> None:
    names, scope = Names(frozenset(["a"]), ()), Scope(["a/*"])
    given = {field.name: f"value of {field.name}" for field in fields(TakeRequest)}
    request = TakeRequest(**given)  # type: ignore[arg-type]
    found = request.of_caller(names, scope, "ann")
    assert found == replace(request, names=names, scope=scope, by="ann")


def test_strangers_without_a_token_make_few_records_of_their_addresses() -> None:
    clock, written = ManualClock(START), list[object]()
    access = Access(clock, Settings(insecure=True), reachable=True)
    anonymous = row(ANONYMOUS, RIGHT, "read")._replace(digest="")
    access.set_initial((row("right", RIGHT), anonymous), ())
    access.write = lambda act, done: written.append(act)
    for number in range(1_000):
        access.note_anonymous(access.visitor(f"10.0.{number // 256}.{number % 256}"))
    assert len(written) == TOKEN_ADDRESSES_MAX
    clock.advance(60)
    access.note_anonymous(access.visitor("10.1.0.1"))
    access.note_anonymous(access.visitor("10.1.0.2"))
    assert len(written) == TOKEN_ADDRESSES_MAX + 1
    with pytest.raises(Unauthenticated):
        access.by_token("", "10.0.0.1")
