"""Whether a text is JSON, and within what a request may hold, in time of the length of the text.

Nothing is built of the values: of a text of 4 MB with a million numbers that would stop the server for longer
than a request may.
"""

from __future__ import annotations

import re
import sys
import tomllib
from itertools import accumulate
from typing import Any

import msgspec

from bedrockjobs.base.config import JSON_CONTAINERS_MAX, JSON_DEPTH_MAX, JSON_HUGE_NUMBERS_MAX

_VALID = msgspec.json.Decoder(msgspec.Raw).decode
_ZEROS = bytes.maketrans(b"123456789E", b"000000000e")
"""Makes all digits the same, so that a shape of digits is found as a text is."""
_LONG_RUN = b"0" * 309
"""As many digits as the largest double has before its point."""
_HUGE_EXPONENTS = (b"e000", b"e+000")
_SUSPECT = re.compile(r"[eE]\+?[0-9]{3}")
"""What makes a number huge in a text that is too short for ``_LONG_RUN``."""
_SHORT_CHARS = len(_LONG_RUN)
_MANTISSA_BYTES_MAX = 400
_EXPONENT = re.compile(rb"[eE]\+?[0-9]+")
_RUN = re.compile(rb"[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = [0] * 256
for _opening, _closing in ("[]", "{}"):
    _STEP[ord(_opening)], _STEP[ord(_closing)] = 1, -1


def check(text: str, *, levels: int = JSON_DEPTH_MAX) -> None:
    """Raise ValueError unless a text is JSON that may be kept.

    It may not be NaN or hold half of a surrogate pair, nest deeper than ``levels``, or hold a number that a
    double cannot; and it may have so many objects and arrays, and so many numbers with a huge exponent.
    """
    try:
        _VALID(str(text))
    except RecursionError:
        raise ValueError(f"nested deeper than {levels} levels") from None
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair") from None
    if text.startswith('"'):  # a string nests nothing and holds no number
        return
    if len(text) > 2 * levels and text.count("{") + text.count("[") > levels:
        _check_levels(_without_strings(text), levels)
    if _SUSPECT.search(text) if len(text) < _SHORT_CHARS else _is_suspect(text):
        _check_numbers(_without_strings(text).encode())


def check_count(text: str, values: int) -> None:
    """Raise ValueError where a JSON text has more values than that, by its commas and quotes."""
    if text.count(",") <= values:
        return
    ends_of_strings = text.count('"') - text.count('\\"')
    if ends_of_strings > 4 * values or _without_strings(text).count(",") > values:
        raise ValueError(f"more than {values} values")


def _without_strings(text: str) -> str:
    """Return a valid JSON text without its strings, so that its brackets and commas can be counted."""
    if "\\" in text:
        text = text.replace("\\\\", "").replace('\\"', "")
    return "".join(text.split('"')[::2])


def _check_levels(text: str, levels: int) -> None:
    brackets = text.encode().translate(None, _NO_BRACKETS)
    if len(brackets) > 2 * JSON_CONTAINERS_MAX:
        raise ValueError(f"more than {JSON_CONTAINERS_MAX} objects and arrays")
    if max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > levels:
        raise ValueError(f"nested deeper than {levels} levels")


def _is_suspect(text: str) -> bool:
    """Tell whether a number may be beyond a double: ten times as fast as an expression for long texts."""
    zeros = text.encode().translate(_ZEROS)
    return _LONG_RUN in zeros or any(shape in zeros for shape in _HUGE_EXPONENTS)


def _check_numbers(text: bytes) -> None:
    """Look at the numbers with very many digits or a huge exponent in a text without strings."""
    zeros = text.translate(_ZEROS)
    at = zeros.find(_LONG_RUN)
    while at >= 0:
        found = _RUN.match(text, at)
        assert found is not None
        if not text[max(0, at - 2) : at].endswith((b".", b"e-", b"E-")) and float(found[0]) == float("inf"):
            raise ValueError("a number is beyond the range of a double")
        at = zeros.find(_LONG_RUN, found.end())
    looked = 0
    for shape in _HUGE_EXPONENTS:
        at = zeros.find(shape)
        while at >= 0:
            looked += 1
            if looked > JSON_HUGE_NUMBERS_MAX:
                raise ValueError(f"more than {JSON_HUGE_NUMBERS_MAX} numbers like 1e100")
            _check_exponent(text, zeros, at)
            at = zeros.find(shape, at + 1)


def _check_exponent(text: bytes, zeros: bytes, at: int) -> None:
    before = zeros[max(0, at - _MANTISSA_BYTES_MAX) : at]
    digits = len(before) - len(before.rstrip(b"-0."))
    exponent = _EXPONENT.match(text, at)
    assert exponent is not None
    if digits == _MANTISSA_BYTES_MAX:
        raise ValueError(f"a number has {digits} digits or more before its exponent")
    if abs(float(text[at - digits : exponent.end()])) == float("inf"):
        raise ValueError("a number is beyond the range of a double")


def toml_document(text: str) -> dict[str, Any]:
    """Return what a TOML text holds; raises TOMLDecodeError, also for numbers that Python would not read."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        digits = sys.get_int_max_str_digits()
        long = re.search(rf"[0-9_]{{{digits + 1},}}", text)
        line = text.count("\n", 0, long.start()) + 1 if long else 1
        raise tomllib.TOMLDecodeError(
            f"expected a number of at most {digits:,} digits (at line {line}, column 1)"
        ) from None
