"""Rules: which command runs for which job, with what of its data as arguments. ``rules_file`` reads them.

The operator decides what runs. A job can fill arguments that its rule leaves open, one whole argument each,
and only with what the rule's pattern allows. Starts nothing and knows no server.
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
"""Why a job fails for good that no rule is for."""

VALUE_BYTES_MAX = 4_096
"""Size of one value that becomes an argument: the longest path Linux takes. Larger things come by stdin."""

MATCH_S = 0.2
"""Processor time that a pattern may take for one value; some need years for a text made for them."""

SECRET_CHARS_MIN = 8
"""Length of a secret: a shorter one would be masked in words that are none, and can be guessed anyway."""

SECRET_BYTES_MAX = 65_536
"""Size of a secret: keys and certificates fit, and so does it into the environment of a command."""

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)\}")
"""An argument that a job fills: ``{source}``, or ``{size.width}`` for a member of a member."""


class Refused(ValueError):
    """A job's data cannot fill its rule; it never will, so the job fails for good."""


@dataclass(frozen=True)
class Secret:
    """Where a secret is: a variable of the worker's environment, or a file."""

    variable: str = ""
    file: Path | None = None

    def read(self) -> str:
        """Return it, without the line end behind it; raises ValueError where there is none to be used."""
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
    """One rule, checked."""

    name: str
    """GLOB pattern of the names of the jobs it is for."""
    argv: tuple[str, ...]
    fields: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    """What each open argument must match, by its path in the job's data."""
    timeout_s: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    """Secrets by the variable that the command gets them in."""
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    cwd: Path | None = None

    def fill(self, data: str) -> list[str]:
        """Return the command for a job with this data, the text of a JSON object; raises Refused.

        Main thread only: a signal bounds the time of the patterns.
        """
        found: list[str] = []
        for argument in self.argv:
            open_for = PLACEHOLDER.fullmatch(argument)
            found.append(self._value(open_for[1], data, found) if open_for else argument)
        return found

    def read_secrets(self) -> dict[str, str]:
        """Return the secrets by variable, as they are now; raises ValueError that names the one missing."""
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
        """Return the name patterns, for a worker that asks for what it has rules for."""
        return tuple(rule.name for rule in self.rules)

    def rule_for(self, name: str) -> Rule | None:
        """Return the first rule for a job of this name."""
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
    """The time for a pattern is over."""


def _matches(pattern: re.Pattern[str], value: str, path: str) -> bool:
    """Tell whether a whole value matches, within the time for it."""
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
