"""Takes secrets out of what a command prints or returns, in plain text, in JSON and in base64.

It knows texts only. It cannot find a secret that a command spells backwards, splits over lines or encrypts.
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
"""What stands where a secret was."""

_URL_SAFE = str.maketrans("+/", "-_")


class Mask:
    """Masks some secrets. Without any it changes nothing."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Mask these, and each line of them that is long enough to be one."""
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
        """Return a text with every secret in it replaced.

        A line that was cut (``line_splitter.CUT``) may end inside a secret; what is left of it is replaced
        as well.
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
    """Return the characters that a secret has in the base64 of anything that holds it at 3n + offset."""
    encoded = base64.b64encode(bytes(offset) + secret).decode()
    first = (offset * 8 + 5) // 6
    return encoded[first : (offset + len(secret)) * 8 // 6]
