"""Rules: which command runs for which job, and which arguments come from its data.

The operator decides what runs. A job can only fill open arguments of its rule, each as a whole and with a
value that matches the rule's pattern.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bedrock_worker.policy.resource_limits import ResourceLimits
from bedrockjobs.base import jsontext
from bedrockjobs.base.glob import glob

NO_RULE = "no rule"
"""Error of a job without a rule."""

VALUE_BYTES_MAX = 4_096
"""Max size of a value in an argument: the longest path on Linux. Larger data comes by stdin."""

MATCH_S = 0.2
"""CPU time limit for matching one value; some patterns take years for malicious texts."""

SECRET_CHARS_MIN = 8
"""Min length of a secret: a shorter one would be redacted within words, and can be guessed anyway."""

SECRET_BYTES_MAX = 65_536
"""Max size of a secret: keys and certificates fit, and it fits into the environment of a command."""

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)\}")
"""An open argument: ``{source}``, or ``{size.width}`` for a nested member."""


class Refused(ValueError):
    """A job's data does not fit its rule, so the job fails permanently."""


@dataclass(frozen=True)
class Secret:
    """The location of a secret: a variable of the worker's environment, or a file."""

    variable: str = ""
    file: Path | None = None

    def read(self) -> str:
        """Return the secret without its trailing newline; raises ValueError."""
        if self.file is None:
            if self.variable not in os.environ:
                raise ValueError(f"expected {self.variable} in the worker's environment")
            found = os.environ[self.variable]
        else:
            try:
                with self.file.open("rb") as file:
                    found = file.read(SECRET_BYTES_MAX + 1).decode().rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"expected a file of UTF-8 text that can be read: {error}") from None
        if len(found) < SECRET_CHARS_MIN:
            raise ValueError(f"expected a secret of at least {SECRET_CHARS_MIN} characters")
        if len(found.encode("utf-8", "surrogateescape")) > SECRET_BYTES_MAX or "\0" in found:
            raise ValueError(f"expected a secret of at most {SECRET_BYTES_MAX} bytes, without NUL")
        return found


@dataclass(frozen=True)
class Rule:
    """One valid rule."""

    name: str
    """GLOB pattern of its jobs."""
    argv: tuple[str, ...]
    fields: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    """The pattern of each open argument, by its path in the job's data."""
    timeout_s: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    """Secrets by the command's variable."""
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    cwd: Path | None = None

    def fill(self, data: str) -> list[str]:
        """Return the command for a job's data, the text of a JSON object; raises Refused.

        Main thread only: a signal enforces the time limit of the patterns.
        """
        found: list[str] = []
        for argument in self.argv:
            open_for = PLACEHOLDER.fullmatch(argument)
            found.append(self._value(open_for[1], data, found) if open_for else argument)
        return found

    def read_secrets(self) -> dict[str, str]:
        """Return the current secrets by variable; raises ValueError that names a missing one."""
        found = {}
        for variable, secret in self.secrets.items():
            try:
                found[variable] = secret.read()
            except ValueError as error:
                raise ValueError(f"secrets.{variable}: {error}") from None
        return found

    def _value(self, path: str, data: str, before: Sequence[str]) -> str:
        value = _text_at(path, data)
        if "\0" in value:
            raise Refused(f"field {path}: expected no NUL character")
        if len(value.encode()) > VALUE_BYTES_MAX:
            raise Refused(f"field {path}: expected at most {VALUE_BYTES_MAX} bytes")
        if not _matches(self.fields[path], value, path):
            raise Refused(f"field {path}: expected text that matches {self.fields[path].pattern}")
        if value.startswith("-") and "--" not in before[1:]:
            raise Refused(f"field {path}: expected text that does not begin with a hyphen")
        return value


class Rules:
    """The rules of a file, in order."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Hold them."""
        self.rules = tuple(rules)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the name patterns of the rules."""
        return tuple(rule.name for rule in self.rules)

    def rule_for(self, name: str) -> Rule | None:
        """Return the first rule for a job name."""
        return next((rule for rule in self.rules if glob(name, rule.name)), None)


def _text_at(path: str, data: str) -> str:
    """Return the string, number or boolean at a path; a number is spelled as in the job."""
    raw = data
    try:
        for key in path.split("."):
            members = jsontext.members(raw) if raw.startswith("{") else {}
            if key not in members:
                raise Refused(f"field {path}: expected a value, the job has none")
            raw = members[key]
        if raw.startswith(("{", "[", "n")):
            raise Refused(f"field {path}: expected a string, a number, true or false")
        return str(jsontext.parse(raw)) if raw.startswith('"') else raw
    except ValueError as error:
        raise Refused(f"field {path}: {error}") from None


class _TooLong(Exception):
    """A pattern exceeded its time limit."""


def _matches(pattern: re.Pattern[str], value: str, path: str) -> bool:
    """Return whether a whole value matches, within the time limit."""
    timing = True

    def time_out(_: int, __: object) -> None:
        if timing:
            raise _TooLong

    before = signal.signal(signal.SIGVTALRM, time_out)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, MATCH_S)
        try:
            return pattern.fullmatch(value) is not None
        finally:
            timing = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TooLong:
        raise Refused(f"field {path}: its pattern took more than {MATCH_S} s for this value") from None
    finally:
        signal.signal(signal.SIGVTALRM, before)
