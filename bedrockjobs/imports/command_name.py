"""Derive a schedule's name from its shell command."""

from __future__ import annotations

import re

NAME_MAX = 60
"""Maximum length of a derived name."""

WORDS_MAX = 3
"""Maximum words in a name: a program and its subcommands, as in ``restic-backup``."""

WRAPPERS = frozenset(
    {
        "sudo",
        "doas",
        "env",
        "nice",
        "ionice",
        "timeout",
        "flock",
        "nohup",
        "exec",
        "time",
        "chronic",
        "setsid",
        "chrt",
        "stdbuf",
        "systemd-cat",
        "cronic",
        "su-exec",
        "gosu",
    }
)
"""Programs that run another program, which determines the name."""

OPTIONS_WITH_VALUES = frozenset({"-u", "-g", "-n", "-c", "-k", "-s", "-t", "-p"})
"""Options of wrappers that have a value."""

OF_FLOCK = frozenset({"-w", "-E"})
"""Options of flock that have a value; its ``-n`` has none."""

INTERPRETERS = re.compile(r"(?:ba|da|k|z)?sh|python[\d.]*|perl[\d.]*|ruby[\d.]*|node|php[\d.]*|java")
"""Programs that run a script, which determines the name."""

PASSED = frozenset({"cd", ".", "source", "export", "umask", "set", "test", "[", "[[", "true", "sleep"})
"""Commands that are skipped because they only prepare the next one."""

BRACKETS = frozenset("(){}")
"""Words that group commands."""

_ENDS = re.compile(r"&&|\|\||[;|&\n]")
_REDIRECTION = re.compile(r"\d*[<>]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_DURATION = re.compile(r"[\d.]+[smhd]?")
_SUFFIX = re.compile(r"(?<=.)\.(?:sh|bash|py|pl|rb|php|js|jar)$")
_TASK = re.compile(r"[A-Za-z][\w:-]*")
_UNNAMEABLE = re.compile(r"[^\w.:+-]+")


def name_of(command: str) -> str:
    """Return a name: ``backup`` for ``cd /srv && ./backup.sh --full``; empty if no word is suitable."""
    for part in _ENDS.split(command):
        words = [word for word in part.split() if word not in BRACKETS and not _ASSIGNMENT.match(word)]
        if words and _base(words[0]) not in PASSED:
            return _named(_unwrapped(words))
    return ""


def _unwrapped(words: list[str]) -> list[str]:
    """Strip wrappers and their options from a command."""
    while len(words) > 1 and _base(words[0]) in WRAPPERS:
        wrapper, words = _base(words[0]), words[1:]
        valued = OF_FLOCK if wrapper == "flock" else OPTIONS_WITH_VALUES
        while len(words) > 1 and (
            words[0].startswith("-") or _ASSIGNMENT.match(words[0]) or _DURATION.fullmatch(words[0])
        ):
            words = words[2:] if words[0] in valued and len(words) > 2 else words[1:]
        if wrapper == "flock" and len(words) > 1:
            words = words[1:]  # the file of the lock
    return words


def _named(words: list[str]) -> str:
    if len(words) > 1 and INTERPRETERS.fullmatch(_base(words[0])):
        script = next((word for word in words[1:] if not word.startswith("-")), words[0])
        words = words[words.index(script) :]
    parts = [_SUFFIX.sub("", _base(words[0]))]
    for word in words[1:WORDS_MAX]:
        if not _TASK.fullmatch(word) or _REDIRECTION.match(word):
            break
        parts.append(word)
    name = "-".join(filter(None, (_UNNAMEABLE.sub("", part) for part in parts)))[:NAME_MAX]
    return name if any(map(str.isalnum, name)) else ""


def _base(word: str) -> str:
    return word.strip("\"'()").rstrip("/").rpartition("/")[2]
