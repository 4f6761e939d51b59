"""What the error of a failed run says: its message in one line, and a fingerprint that like failures share.

An error is what a worker sent: a sentence, a traceback, or how a command ended above the last lines that it
printed. This module knows text only, neither jobs nor runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b

from bedrockjobs.base.config import ERROR_CHARS_MAX

MESSAGE_CHARS_COMPARED = 500
"""Characters of a message that its fingerprint is made of: what differs behind them is data."""

HOW_IT_ENDED = re.compile(r"exit status -?\d+|SIG\w+|timed out after .+")
"""What a worker writes above the last lines of a command."""

_TRACEBACK = re.compile(r"\s*(?:\+ Exception Group )?Traceback \(most recent call last\):\s*")
_GROUP_MARK = re.compile(r"(?:\s*[|+] ?|\s*\+[-+]+.*)")
"""What the traceback of an exception group puts before its lines, and between its members."""

_FRAME = re.compile(r'\s*(?:\| *)*File "([^"]+)", line \d+, in (.+)')
_FOLDERS = re.compile(r"[\\/]")
_LIBRARY = re.compile(
    r"[\\/](?:site-packages|dist-packages|bedrock_worker)[\\/]"
    r"|[\\/]lib(?:64)?[\\/]python3[^\\/]*[\\/]|^<frozen "
)
"""Paths of frames that are not the user's code."""

_VARIABLE = (
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://\S+", re.IGNORECASE), "<url>"),
    (re.compile(r"(?<!\w)'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`|“[^”\n]*”|«[^»\n]*»"), "<text>"),
    (re.compile(r"(?<![\w.])(?:[A-Za-z]:)?(?:[\\/][^\s\\/:,;()<>]+){2,}[\\/]?|(?<![\w.])/[\w.-]+"), "<path>"),
    (re.compile(r"\b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b(?=[a-f]*[0-9])[0-9a-f]{7,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<n>"),
)
"""What differs between failures of one cause, in the order in which it is replaced."""

_SILENT_WORKER = re.compile(r"Run lost: worker .* was silent for")

_CUT = "\n  [...] "
"""What stands for the middle of a long error, indented: the rest of a line is no line of an exception."""


def shortened(error: str, most: int = ERROR_CHARS_MAX) -> str:
    """Return an error of at most ``most`` characters: of a long one its beginning and its end.

    A traceback says what was wrong in its last line.
    """
    if len(error) <= most:
        return error
    behind = (most - len(_CUT)) // 2
    return error[: most - len(_CUT) - behind] + _CUT + error[-behind:]


def line_of(error: str) -> str:
    """Return the line that says what was wrong; empty if nothing does.

    Of a Python traceback that is the line of the exception, of what a command printed the last line, of
    anything else the first one.
    """
    lines = [line for line in error.splitlines() if line.strip()]
    if not lines:
        return ""
    printed = HOW_IT_ENDED.fullmatch(lines[0].strip()) is not None
    if not printed and _TRACEBACK.fullmatch(lines[0]) is None:
        return lines[0].strip()  # a sentence says it, also if a traceback follows
    found = _line_of_exception(lines)
    return found or lines[-1].strip()


def _line_of_exception(lines: list[str]) -> str:
    """Return the line of the exception in the last traceback of some lines; empty if there is none.

    Of a group it is that of the group itself: the tracebacks of its members are marked, and so not sought.
    """
    found, sought = "", False
    for line in lines:
        if _TRACEBACK.fullmatch(line) is not None:
            found, sought = "", True
        elif sought and (text := _unmarked(line)) and not text[0].isspace():
            found, sought = text.strip(), False
    return found


def _unmarked(line: str) -> str:
    """Return a line of a traceback without what an exception group puts before it."""
    mark = _GROUP_MARK.match(line)
    return line[mark.end() :] if mark is not None else line


def frame_of(error: str) -> str:
    """Return the deepest frame of the user's code in a Python traceback, as ``file.py in function``.

    Empty if there is no traceback. If all frames are those of libraries, the deepest of these is returned.
    """
    deepest = own = ""
    for path, function in _frames(error):
        deepest = f"{_FOLDERS.split(path)[-1]} in {function}"
        if not _LIBRARY.search(path):
            own = deepest
    return own or deepest


def _frames(error: str) -> Iterator[tuple[str, str]]:
    for line in error.splitlines():
        if found := _FRAME.fullmatch(line):
            yield found[1], found[2]


@lru_cache(maxsize=64)  # what fails alike fails in a row, and a job fails with the words of its run
def fingerprint_of(error: str) -> str:
    """Return what the failures of one cause have in common: 16 hexadecimal digits.

    Numbers, ids, quoted texts, paths and addresses in the message do not matter; the exception's type, the
    deepest frame of the user's code, and whether the run was killed or took too long do.
    """
    how = error.partition("\n")[0].strip()
    if HOW_IT_ENDED.fullmatch(how) is None or how.startswith("exit"):
        how = ""
    line = line_of(error)[:MESSAGE_CHARS_COMPARED]
    if not HOW_IT_ENDED.fullmatch(line) or not line.startswith("exit"):  # the number is all that this says
        line = _plain(_SILENT_WORKER.sub("Run lost: worker was silent for", line))
    text = "\n".join((_plain(how), line, frame_of(error)))
    return blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


def _plain(line: str) -> str:
    """Return a line without what differs between failures of one cause."""
    for pattern, word in _VARIABLE:
        line = pattern.sub(word, line)
    return line
