"""Secrets are redacted in every spelling."""

from __future__ import annotations

import base64
import json

import pytest
from bedrock_worker.log import printable
from bedrock_worker.policy.program import SECRET_CHARS_MIN
from bedrock_worker.report.output import CUT
from bedrock_worker.run.pipes import MASKED, Mask

SECRET = 'p4ss"w\\örd\x07!'


def test_exact() -> None:
    assert Mask([SECRET])(f"a {SECRET} b {SECRET}") == f"a {MASKED} b {MASKED}"


def test_as_the_log_escapes_it() -> None:
    assert Mask([SECRET])(printable(f"it is {SECRET}")) == f"it is {MASKED}"


@pytest.mark.parametrize("ascii_only", [True, False])
def test_in_json_which_stays_json(ascii_only: bool) -> None:
    text = json.dumps({"token": f"Bearer {SECRET}"}, ensure_ascii=ascii_only)
    assert json.loads(Mask([SECRET])(text)) == {"token": f"Bearer {MASKED}"}


@pytest.mark.parametrize("before", range(7))
@pytest.mark.parametrize("behind", range(4))
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_at_any_place(before: int, behind: int, encode) -> None:  # type: ignore[no-untyped-def]
    """At most what shares a character with its neighbours is left."""
    secret = "~~~>>>???s3cret"
    text = encode(b"u" * before + secret.encode() + b"v" * behind).decode()
    masked = Mask([secret])(text)
    assert MASKED in masked
    left = masked.replace(MASKED, "")
    assert len(left) <= len(text) - (len(secret) * 8 // 6 - 2)


def test_each_line_of_a_key() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADAN\nabc\n-----END KEY-----"
    assert Mask([key])("line: MIIEvQIBADAN") == f"line: {MASKED}"
    assert Mask([key])("abc") == "abc"


def test_the_longer_of_two_goes_first() -> None:
    assert Mask(["12345678", "1234567890"])("1234567890") == MASKED


def test_half_a_secret_at_a_cut() -> None:
    assert Mask(["correct horse"])(f"x correct ho{CUT}") == f"x {MASKED}{CUT}"
    assert Mask(["correct horse"])("x correct ho") == "x correct ho"


def test_short_ones_and_none_change_nothing() -> None:
    assert Mask()("text") == "text"
    assert Mask(["a" * (SECRET_CHARS_MIN - 1)])("a" * 20) == "a" * 20
    assert Mask(["a" * SECRET_CHARS_MIN])("a" * SECRET_CHARS_MIN) == MASKED
