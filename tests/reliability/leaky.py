"""A server with a planted leak: ``python -m tests.reliability.leaky serve …``.

This is the negative control of ``soak``; the product does not contain it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from bedrockjobs.base import jsontext
from bedrockjobs.cli import main

KEPT_BYTES = 200_000
"""Bytes that are kept of each request with a body: a few seconds of load are then megabytes."""

FILE_EACH = 2
"""Requests with a body of which one leaves a file open."""

_kept: list[Any] = []


def _plant() -> None:
    check = jsontext.check_object

    def keeping(text: str, **limits: int) -> None:
        _kept.append(bytearray(os.urandom(KEPT_BYTES)))
        if len(_kept) % FILE_EACH == 0:
            _kept.append(os.open(os.devnull, os.O_RDONLY))
        check(text, **limits)

    jsontext.check_object = keeping


if __name__ == "__main__":
    _plant()
    sys.exit(main())
