"""Redacts secrets in output and results, in plain text, JSON and base64.

A secret that a command reverses, splits over lines or encrypts is not found.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator

from bedrock_worker.log import printable
from bedrock_worker.policy.rules import SECRET_CHARS_MIN
from bedrock_worker.report.line_splitter import CUT

MASKED = "***"
"""Replacement of a secret."""

_URL_SAFE = str.maketrans("+/", "-_")


class Mask:
    """Redacts some secrets; without any it changes nothing."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Redact these, and each of their lines that is long enough to be a secret."""
        parts = {
            part
            for secret in secrets
            for part in (secret, *secret.splitlines())
            if len(part) >= SECRET_CHARS_MIN
        }
        forms = {form for part in parts for form in _forms(part)}
        self._forms = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._forms))) if forms else None

    def __call__(self, text: str) -> str:
        """Return a text with every secret replaced.

        A truncated line (``line_splitter.CUT``) may end within a secret, whose beginning is then replaced as
        well.
        """
        if self._pattern is None:
            return text
        found = self._pattern.sub(MASKED, text)
        return self._without_half(found.removesuffix(CUT)) + CUT if found.endswith(CUT) else found

    def _without_half(self, text: str) -> str:
        longest = 0
        for form in self._forms:
            for length in range(min(len(form) - 1, len(text)), longest, -1):
                if text.endswith(form[:length]):
                    longest = length
                    break
        return text[: len(text) - longest] + MASKED if longest else text


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield printable(secret)
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    for offset in range(3):
        encoded = _base64_inside(secret.encode("utf-8", "surrogateescape"), offset)
        yield encoded
        yield encoded.translate(_URL_SAFE)


def _base64_inside(secret: bytes, offset: int) -> str:
    """Return the base64 characters of a secret at an offset of 3n + ``offset`` in any encoded text."""
    encoded = base64.b64encode(bytes(offset) + secret).decode()
    first = (offset * 8 + 5) // 6
    return encoded[first : (offset + len(secret)) * 8 // 6]
