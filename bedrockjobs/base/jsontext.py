"""JSON handled as text, so that a job's data keeps its spelling.

``2.50``, ``12345678901234567890`` and the order of keys survive every change made here: only the members that
change are rewritten.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from itertools import accumulate
from json.encoder import encode_basestring
from typing import Any

import msgspec
from pydantic_core import from_json

from bedrockjobs.base.config import (
    JSON_CONTAINERS_MAX,
    JSON_DEPTH_MAX,
    JSON_HUGE_NUMBERS_MAX,
    MERGE_BYTES_MAX,
)

# Validation of JSON and its limits, in time linear to the length of the text.
#
# No values are built: doing that for 4 MB of text with a million numbers would block the server for too long.


_VALID = msgspec.json.Decoder(msgspec.Raw).decode
_ZEROS = bytes.maketrans(b"123456789E", b"000000000e")
"""Maps all digits to 0, so that a run of digits can be found by a plain text search."""
_LONG_RUN = b"0" * 309
"""A run of 309 digits, as ``_ZEROS`` maps it: the largest double has as many before its decimal point."""
_HUGE_EXPONENTS = (b"e000", b"e+000")
_SUSPECT = re.compile(r"[eE]\+?[0-9]{3}")
"""A huge exponent, the only way to write a huge number in a text shorter than ``_LONG_RUN``."""
_MANTISSA_BYTES_MAX = 400
_EXPONENT = re.compile(rb"[eE]\+?[0-9]+")
_RUN = re.compile(rb"[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = [0] * 256
for _opening, _closing in ("[]", "{}"):
    _STEP[ord(_opening)], _STEP[ord(_closing)] = 1, -1


_TOO_DEEP = f"nested deeper than {JSON_DEPTH_MAX} levels"


class RawJSON(str):
    """A JSON value as it was spelled inside a larger JSON text."""

    __slots__ = ()


def check(text: str) -> None:
    """Raise ValueError unless a text is JSON that may be stored.

    It refuses NaN, lone surrogates, nesting deeper than JSON_DEPTH_MAX, numbers that a double cannot hold,
    and too many objects and arrays or numbers with huge exponents.
    """
    try:
        _VALID(str(text))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair") from None
    if text.startswith('"'):  # a string has no nesting and no numbers
        return
    if len(text) > 2 * JSON_DEPTH_MAX and text.count("{") + text.count("[") > JSON_DEPTH_MAX:
        _check_levels(_without_strings(text))
    if _SUSPECT.search(text) if len(text) < len(_LONG_RUN) else _is_suspect(text):
        _check_numbers(_without_strings(text).encode())


def check_count(text: str, values: int) -> None:
    """Raise ValueError if a JSON text has more than ``values`` values, judged by its commas and quotes."""
    if text.count(",") <= values:
        return
    ends_of_strings = text.count('"') - text.count('\\"')
    if ends_of_strings > 4 * values or _without_strings(text).count(",") > values:
        raise ValueError(f"more than {values} values")


def _without_strings(text: str) -> str:
    """Return a valid JSON text without its strings, to count its brackets and commas."""
    if "\\" in text:
        text = text.replace("\\\\", "").replace('\\"', "")
    return "".join(text.split('"')[::2])


def _check_levels(text: str) -> None:
    brackets = text.encode().translate(None, _NO_BRACKETS)
    if len(brackets) > 2 * JSON_CONTAINERS_MAX:
        raise ValueError(f"more than {JSON_CONTAINERS_MAX} objects and arrays")
    if max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > JSON_DEPTH_MAX:
        raise ValueError(_TOO_DEEP)


def _is_suspect(text: str) -> bool:
    """Return whether a number in a text may exceed a double; faster than a regex, tenfold for long texts."""
    zeros = text.encode().translate(_ZEROS)
    return _LONG_RUN in zeros or any(shape in zeros for shape in _HUGE_EXPONENTS)


def _check_numbers(text: bytes) -> None:
    """Check numbers with many digits or a huge exponent, in a text without strings."""
    zeros = text.translate(_ZEROS)
    at = zeros.find(_LONG_RUN)
    while at >= 0:
        match = _RUN.match(text, at)
        assert match is not None
        if not text[max(0, at - 2) : at].endswith((b".", b"e-", b"E-")) and float(match[0]) == float("inf"):
            raise ValueError("a number is beyond the range of a double")
        at = zeros.find(_LONG_RUN, match.end())
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


class NumberTooLong(ValueError):
    """A whole number has more digits than Python converts."""

    def __init__(self) -> None:
        super().__init__(f"expected a number of at most {sys.get_int_max_str_digits():,} digits")


def whole_number(text: str, base: int = 10) -> int:
    """Return the number that a text from outside spells, as ``int`` reads it in the given base.

    Raises NumberTooLong, or ValueError if the text is no whole number.
    """
    try:
        number = int(text, base)
    except ValueError:
        if len(text) > sys.get_int_max_str_digits() and text.lstrip("+-").replace("_", "").isalnum():
            raise NumberTooLong from None
        raise
    check_digits(number)
    return number


def check_digits(number: int) -> None:
    """Raise NumberTooLong if Python cannot print a number: a hexadecimal text may parse to one."""
    try:
        str(number)
    except ValueError:
        raise NumberTooLong from None


_TWICE = re.compile(r"Cannot (?:overwrite a value|declare .* twice) \(at (?:line (\d+)|end of document)")
_TOML_NUMBERS = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""|"(?:[^"\\\n]|\\.)*+"'''
    r"""|'''.*?'''|'[^'\n]*+'|#[^\n]*+|(?P<number>0[xob][0-9a-fA-F_]++|[0-9_]++)(?P<float>[.eE])?""",
    re.DOTALL,
)
"""Matches numbers, and also texts and comments, so that digits inside a text or comment are skipped."""
_LONG_WITH_PREFIX = re.compile(r"0[xob][0-9a-fA-F_]{3000}")
"""The beginning of a number that tomllib converts, and that may have too many decimal digits."""
_TOML_HEAD = re.compile(r"""[ \t]*(?:(?P<key>[\w.-]+|"[^"]*"|'[^']*')[ \t]*=|(?P<table>\[+[^\]]*\]+))""")


def toml_document(text: str) -> dict[str, Any]:
    """Parse a TOML text; raises TOMLDecodeError, also for numbers that are too long for Python."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        if (twice := _TWICE.match(str(error))) is None:
            raise
        lines = text.rstrip().split("\n")
        line = int(twice[1] or len(lines))
        head = _TOML_HEAD.match(lines[line - 1])
        what = "a key" if head is None else f"the key {head['key']}" if head["key"] else head["table"]
        raise tomllib.TOMLDecodeError(f"{what} is given twice (at line {line}, column 1)") from None
    except ValueError as error:
        raise _too_long_in_toml(text) or tomllib.TOMLDecodeError(str(error)) from None
    if _LONG_WITH_PREFIX.search(text) and (long := _too_long_in_toml(text)):
        raise long
    return document


def _too_long_in_toml(text: str) -> tomllib.TOMLDecodeError | None:
    """Return the error for the first number that is too long, if there is one."""
    for found in _TOML_NUMBERS.finditer(text):
        try:
            if (word := found["number"]) and not found["float"]:
                whole_number(word, 0 if word[1:2] in "xob" else 10)
        except NumberTooLong as error:
            line = text.count("\n", 0, found.start()) + 1
            return tomllib.TOMLDecodeError(f"{error} (at line {line}, column 1)")
        except ValueError:  # a date, or the beginning of one
            pass
    return None


quoted: Callable[[str], str] = encode_basestring
"""Return a string as JSON text, with non-ASCII characters as they are."""

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_STRING = msgspec.json.Decoder(str)
_NOTHING = msgspec.Raw(b"{}")
_BLANKS = " \t\r\n"
_NESTING = re.compile(r'[\[{\]}]|"(?:[^"\\]|\\.)*+"?|\n+', re.DOTALL)


def parse(text: str, *, values: int | None = None) -> Any:
    """Parse a JSON text.

    Raises ValueError if it is not JSON (also for NaN, lone surrogates, raw control characters), nests deeper
    than JSON_DEPTH_MAX, has a number that a double cannot hold, or more than ``values`` values.
    """
    if text.startswith('"') and "\\" not in text:  # the usual case, to which no limit applies
        try:
            return _STRING.decode(str(text))
        except (msgspec.DecodeError, UnicodeEncodeError):  # the checks below refuse it
            pass
    if values is not None:
        check_count(text, values)
    check(text)
    return from_json(text, allow_inf_nan=False)


def check_object(text: str) -> None:
    """Raise ValueError unless ``text`` is one JSON object within the limits of ``parse``."""
    check(text)
    if not text.startswith("{") and not text.lstrip(_BLANKS).startswith("{"):
        raise ValueError("not a JSON object")


def check_depth(text: str) -> None:
    """Raise ValueError with the line at which a text, JSON or not, nests deeper than JSON_DEPTH_MAX."""
    if text.count("{") + text.count("[") <= JSON_DEPTH_MAX:
        return
    depth, line = 0, 1
    for match in _NESTING.finditer(text):
        piece = match[0]
        if piece in "[{":
            depth += 1
            if depth > JSON_DEPTH_MAX:
                raise ValueError(f"line {line}: {_TOO_DEEP}")
        elif piece in "]}":
            depth -= 1
        else:
            line += piece.count("\n")


def members(text: str) -> dict[str, str]:
    """Split a JSON object into its keys and the texts of their values, in order; the last duplicate wins.

    Raises ValueError if the text is not an object.
    """
    return {key: str(raw, "utf-8") for key, raw in _decoded(_MEMBERS, text, "object").items()}


def elements(text: str) -> list[str]:
    """Split a JSON array into the texts of its elements; raises ValueError if it is not an array."""
    return [str(raw, "utf-8") for raw in _decoded(_ELEMENTS, text, "array")]


class Attributes:
    """Extracts known attributes from the text of a JSON object, in linear time."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._known = frozenset(self._names)
        fields = [(name, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for name in self._names]
        self._lenient = msgspec.json.Decoder(msgspec.defstruct("Lenient", fields))
        self._strict = msgspec.json.Decoder(msgspec.defstruct("Strict", fields, forbid_unknown_fields=True))

    def texts_of(self, text: str, *, strict: bool) -> dict[str, str]:
        """Return the texts of the attributes that are present and not null.

        An unknown attribute is ignored, or with ``strict`` raises UnknownAttribute. Raises ValueError if the
        text is not a JSON object.
        """
        if len(text) <= 500:  # a short object has fewer members than there are known attributes
            present = members(text)
            if strict and not present.keys() <= self._known:
                raise UnknownAttribute(next(name for name in present if name not in self._known))
            return {name: value for name, value in present.items() if value != "null" and name in self._known}
        try:
            by_key = _decoded(self._strict if strict else self._lenient, text, "object")
        except msgspec.ValidationError as error:
            raise UnknownAttribute(str(error).partition("`")[2].rpartition("`")[0]) from None
        attributes = zip(self._names, msgspec.structs.astuple(by_key), strict=True)
        texts = {name: str(raw, "utf-8") for name, raw in attributes if raw is not msgspec.UNSET}
        return {name: value for name, value in texts.items() if value != "null"}


class UnknownAttribute(Exception):
    """The object has an attribute that is not known; the message is its name."""


def _decoded(decoder: msgspec.json.Decoder[Any], text: str, kind: str) -> Any:
    try:
        return decoder.decode(str(text))
    except RecursionError:
        raise ValueError("nested too deep") from None
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair") from None
    except msgspec.ValidationError as error:
        if "unknown field" in str(error):
            raise
        raise ValueError(f"not a JSON {kind}") from None
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None


def join(parts: dict[str, str]) -> str:
    """Return a JSON object from its members; each value is given as JSON text."""
    return "{" + ",".join(f"{quoted(key)}:{value}" for key, value in parts.items()) + "}"


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # `dumps` would build one per value


def dump(value: Any) -> str:
    """Return a value as compact JSON text, with non-ASCII characters as they are."""
    return _ENCODER.encode(value)


def with_members(text: str, changes: dict[str, str | None]) -> str:
    """Return a JSON object in which each member of ``changes`` has its new text, or is removed if None."""
    parts = members(text)
    for key, value in changes.items():
        if value is None:
            parts.pop(key, None)
        else:
            parts[key] = value
    return join(parts)


class Merging:
    """The merges of one command, with a limit on the bytes that they read: once per level of nesting."""

    def __init__(self) -> None:
        """Start with the whole ``MERGE_BYTES_MAX`` left."""
        self._left = MERGE_BYTES_MAX

    def patched(self, target: str, patch: str) -> str:
        """Return ``target`` with a JSON merge patch applied (RFC 7396); both are objects.

        Raises ValueError if the limit is exceeded.
        """
        self._count(len(target) + len(patch))
        changes = _decoded(_MEMBERS, patch, "object")
        return self._merged(_decoded(_MEMBERS, target, "object"), changes) if changes else target

    def _merged(self, target: dict[str, msgspec.Raw], patch: dict[str, msgspec.Raw]) -> str:
        parts: dict[str, msgspec.Raw | str] = {**target}
        for key, raw in patch.items():
            beginning = _beginning(raw)
            if beginning == b"null":
                parts.pop(key, None)
            elif beginning[:1] == b"{":
                below = target.get(key, _NOTHING)
                below = below if _beginning(below)[:1] == b"{" else _NOTHING
                parts[key] = self._merged(self._opened(below), self._opened(raw))
            else:
                parts[key] = raw
        return join({key: it if isinstance(it, str) else str(it, "utf-8") for key, it in parts.items()})

    def _opened(self, raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
        self._count(memoryview(raw).nbytes)
        return _MEMBERS.decode(raw)

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ValueError(f"objects are merged in objects of more than {MERGE_BYTES_MAX} bytes together")


def _beginning(raw: msgspec.Raw) -> bytes:
    return bytes(memoryview(raw)[:4])


def without_zeros(text: str) -> str:
    """Return a text that every engine can store: each NUL becomes U+FFFD."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text
