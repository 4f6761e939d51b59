"""Raw requests that clients send again and again, with the commands they were read as. It does no I/O.

Some are the same to the last byte, as a waiting worker's GetJob. Most are the same but for their last line:
the ``data:`` of a job to create, the ``jobID:`` of one that is finished. Of those the value of that line is
read and validated, by the same validator as ever, and the rest is taken over.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bedrockjobs.base.config import HEAD_REMEMBERED_BYTES_MAX, HEADS_REMEMBERED_MAX
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands import Command

KEPT_APART = frozenset({"connection", "timeout", "content-length", "transfer-encoding"})
"""Headers that say how a request is dealt with: one that ends with them is read anew."""


@dataclass(slots=True)
class Request:
    """One request: its verb as it was typed, headers by lower-case name, and the body."""

    verb: str
    headers: dict[str, str]
    body: str = ""
    head: bytes = b""
    """The head as it was sent; empty where a body belongs to it."""
    command: Command[Any] | None = None
    """The parsed command, if cached."""
    ordinary: bool = False
    """Whether the command is cached, and may run in one transaction with those before and after it."""
    authorization: str = ""
    like_http: bool = False
    """Whether its first line is one of HTTP, by a method that HTTP does not have."""


@dataclass(frozen=True, slots=True)
class _Template:
    """A request without the value of its last line."""

    request: Request
    command: Command[Any]
    field: str
    """What the last line gives, by its name in Python."""
    validator: Any


class RequestCache:
    """Requests without a body that were read before; the oldest are forgotten."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._whole: OrderedDict[bytes, Request] = OrderedDict()
        self._templates: OrderedDict[bytes, _Template] = OrderedDict()

    def find(self, head: bytes) -> Request | None:
        """Return the cached request of a head, or of one that differs in the last value only.

        Short requests that differ in it share one object: it counts until the next call. None also if the
        last value needs full parsing, which then reports any error.
        """
        known = self._whole.get(head)
        if known is not None:
            return known
        line = head.rfind(b"\n") + 1
        if not line:
            return None
        value_at = head.find(b":", line) + 1
        template = self._templates.get(head[:value_at])
        if template is None:
            return None
        try:
            text = head[value_at:].decode().strip()
            if not text or "\\" in text:
                return None
            value = template.validator.validate_python(text)
        except (UnicodeDecodeError, ValidationError):
            return None
        found = template.request
        command = template.command.with_value(template.field, value)
        if len(head) > HEAD_REMEMBERED_BYTES_MAX:
            return Request(found.verb, found.headers, command=command, authorization=found.authorization)
        found.command = command
        return found

    def remember(self, request: Request, command: Command[Any], *, ordinary: bool) -> None:
        """Cache a request, unless it is long or has a body."""
        head = request.head
        if not head or len(head) > HEAD_REMEMBERED_BYTES_MAX:
            return
        if command.asked_again:
            request.command, request.ordinary = command, ordinary
            _put(self._whole, head, request)
            return
        line = head.rfind(b"\n") + 1
        value_at = head.find(b":", line) + 1
        if not line or not value_at or head[line : line + 1] in (b" ", b"\t"):
            return
        name = head[line : value_at - 1].decode().strip().lower()
        if name in KEPT_APART or not request.headers.get(name):
            return
        field, validator = _last_field(type(command), name)
        if validator is not None:
            request.command, request.ordinary = command, ordinary
            _put(self._templates, head[:value_at], _Template(request, command, field, validator))


def _put(known: OrderedDict[bytes, Any], key: bytes, value: Any) -> None:
    if len(known) >= HEADS_REMEMBERED_MAX:
        known.popitem(last=False)
    known[key] = value


@cache
def _last_field(kind: type[Command[Any]], name: str) -> tuple[str, Any]:
    """Return the field that a header of a lower-case name gives, and what validates it.

    None for the validator where there is no such field, or where a command is validated as a whole.
    """
    if not kind.__pydantic_decorators__.model_validators:
        for field, info in kind.model_fields.items():
            if wire_name(field).lower() == name:
                return field, TypeAdapter(info.rebuild_annotation()).validator
    return "", None
