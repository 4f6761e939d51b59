"""Error texts of failed runs: shortening, the message in one line, and fingerprints of similar failures.

An error is what a worker reports: a sentence, a traceback, or how a command ended followed by its last lines
of output. The module works on text alone.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

from bedrockjobs.base.config import ERROR_CHARS_MAX

HOW_IT_ENDED = re.compile(r"exit status -?\d+|SIG\w+|timed out after .+")
"""Matches the line that a worker writes above the last lines of a command's output."""

_TRACEBACK = re.compile(r"\s*(?:\+ Exception Group )?Traceback \(most recent call last\):\s*")
_GROUP_MARK = re.compile(r"(?:\s*[|+] ?|\s*\+[-+]+.*)")
"""Matches the prefixes of lines in an exception group's traceback, and the separators between its members."""

_FRAME = re.compile(r'\s*(?:\| *)*File "([^"]+)", line \d+, in (.+)')
_FOLDERS = re.compile(r"[\\/]")
_LIBRARY = re.compile(
    r"[\\/](?:site-packages|dist-packages|bedrock_worker)[\\/]"
    r"|[\\/]lib(?:64)?[\\/]python3[^\\/]*[\\/]|^<frozen "
)
"""Matches paths of frames that are not the user's code."""

_VARIABLE = (
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://\S+", re.IGNORECASE), "<url>"),
    (re.compile(r"(?<!\w)'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`|“[^”\n]*”|«[^»\n]*»"), "<text>"),
    (re.compile(r"(?<![\w.])(?:[A-Za-z]:)?(?:[\\/][^\s\\/:,;()<>]+){2,}[\\/]?|(?<![\w.])/[\w.-]+"), "<path>"),
    (re.compile(r"\b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b(?=[a-f]*[0-9])[0-9a-f]{7,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<n>"),
)
"""Patterns of text that varies between failures of one cause, with their replacements, in the order of
application."""

_SILENT_WORKER = re.compile(r"Run lost: worker .* was silent for")

_CUT = "\n  [...] "
"""Replaces the middle of a long error. It is indented so that the remains of a line do not look like an
exception."""


def shortened(error: str, most: int = ERROR_CHARS_MAX) -> str:
    """Return an error of at most ``most`` characters, keeping the beginning and the end.

    The last line of a traceback holds the message.
    """
    if len(error) <= most:
        return error
    behind = (most - len(_CUT)) // 2
    return error[: most - len(_CUT) - behind] + _CUT + error[-behind:]


def line_of(error: str) -> str:
    """Return the line that states the error; empty if there is none.

    That is the exception line of a Python traceback, the last line of a command's output, and the first line
    of anything else.
    """
    lines = [line for line in error.splitlines() if line.strip()]
    if not lines:
        return ""
    printed = HOW_IT_ENDED.fullmatch(lines[0].strip()) is not None
    if not printed and _TRACEBACK.fullmatch(lines[0]) is None:
        return lines[0].strip()  # the first line is the message, even if a traceback follows
    last_line = _line_of_exception(lines)
    return last_line or lines[-1].strip()


def _line_of_exception(lines: list[str]) -> str:
    """Return the exception line of the last traceback in some lines; empty if there is none.

    For an exception group it is the line of the group itself: the indented tracebacks of members are skipped.
    """
    exception_line, sought = "", False
    for line in lines:
        if _TRACEBACK.fullmatch(line) is not None:
            exception_line, sought = "", True
        elif sought and (text := _unmarked(line)) and not text[0].isspace():
            exception_line, sought = text.strip(), False
    return exception_line


def _unmarked(line: str) -> str:
    """Return a line of a traceback without the prefix of an exception group."""
    mark = _GROUP_MARK.match(line)
    return line[mark.end() :] if mark is not None else line


def frame_of(error: str) -> str:
    """Return the deepest frame of the user's code in a Python traceback, as ``file.py in function``.

    If all frames belong to libraries, return the deepest frame. Return an empty text if there is no
    traceback.
    """
    deepest = own = ""
    for frame in filter(None, map(_FRAME.fullmatch, error.splitlines())):
        path, function = frame.groups()
        deepest = f"{_FOLDERS.split(path)[-1]} in {function}"
        if not _LIBRARY.search(path):
            own = deepest
    return own or deepest


def split_frames(error: str) -> list[tuple[bool, str]]:
    """Split an error into groups of lines, each with whether its lines are frames of libraries.

    The source lines below a frame belong to the group of the frame.
    """
    parts: list[tuple[bool, list[str]]] = []
    library = False
    for line in error.splitlines():
        frame = _FRAME.fullmatch(line)
        if frame is not None:
            library = _LIBRARY.search(frame[1]) is not None
        elif not line.startswith("    "):
            library = False
        if not parts or parts[-1][0] != library:
            parts.append((library, []))
        parts[-1][1].append(line)
    return [(of_library, "\n".join(lines)) for of_library, lines in parts]


@lru_cache(maxsize=64)  # similar failures come in a row, and a job fails with the error of its run
def fingerprint_of(error: str) -> str:
    """Return a hash that failures of the same cause share, as 16 hexadecimal digits.

    Numbers, ids, quoted texts, paths and URLs in the message are ignored. The type of the exception, the
    deepest frame of the user's code, and whether the run was killed or timed out are included.
    """
    how = error.partition("\n")[0].strip()
    if HOW_IT_ENDED.fullmatch(how) is None or how.startswith("exit"):
        how = ""
    # Characters of a message that the fingerprint covers; differences beyond are assumed to be data
    line = line_of(error)[:500]
    # an exit status is kept: its number is all the information
    if not HOW_IT_ENDED.fullmatch(line) or not line.startswith("exit"):
        line = _plain(_SILENT_WORKER.sub("Run lost: worker was silent for", line))
    text = "\n".join((_plain(how), line, frame_of(error)))
    return blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


def _plain(line: str) -> str:
    """Return a line with placeholders for the parts that vary between failures of one cause."""
    for pattern, word in _VARIABLE:
        line = pattern.sub(word, line)
    return line
