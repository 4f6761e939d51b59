"""The vocabulary of scenarios: a list of steps, each a command and its expected reply.

Parameters are given under their wire names, as a client gives them, so that a refusal of the command class
counts as much as one of the engine. jobIDs count from 1 in the order of the creates.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.settings import Compatibility
from bedrockjobs.commands import command_named
from tests.conformance.engine import Engine
from tests.model import Outcome

ABSENT: Any = object()
"""Expected of a member that must not be in the body."""

BOTH: tuple[Compatibility, ...] = ("document", "current")


@dataclass(frozen=True)
class Step:
    """One command, the time before it, and its expected reply."""

    verb: str
    given: dict[str, Any] = field(default_factory=dict)
    headers: bool = False
    """Whether ``given`` came as the headers of a raw request, names in lower case."""
    wait: float = 0.0
    status: str = "200 OK"
    body: Any = ABSENT

    def gives(self, status: str, body: Any = ABSENT) -> Step:
        """Expect a status line, and these members of the body, if any."""
        return replace(self, status=status, body=body)

    def shows(self, **members: Any) -> Step:
        """Expect 200 and these members, among others."""
        return replace(self, body=members)

    def after(self, seconds: float) -> Step:
        """Let time pass before the command."""
        return replace(self, wait=seconds)

    def run(self, engine: Engine) -> None:
        """Send the command and compare the answer."""
        engine.advance(self.wait)
        outcome = self._outcome(engine)
        where = f"{self.verb} {self.given}"
        found = f"{outcome.code} {outcome.reason}"
        assert found == self.status, f"{where}: expected {self.status!r}, found {found!r}"
        if self.body is not ABSENT:
            differences = different(self.body, outcome.body)
            assert not differences, f"{where}: {'; '.join(differences)} in {outcome.body}"

    def _outcome(self, engine: Engine) -> Outcome:
        try:
            kind = command_named(self.verb)
            command = kind.read_raw(self.given, "") if self.headers else kind.read(self.given)
        except CommandError as error:
            return Outcome(error.code, error.reason)
        return engine.call(command)


@dataclass(frozen=True)
class Scenario:
    """A named scenario; ``rules`` are the rules of the notes that it demonstrates."""

    name: str
    rules: tuple[int | str, ...]
    steps: tuple[Step, ...]
    modes: tuple[Compatibility, ...] = BOTH


def different(expected: Any, found: Any, path: str = "body") -> list[str]:
    """Return the differences from the expectation; bodies and jobs may have more members than expected."""
    if not isinstance(expected, dict) or not isinstance(found, dict):
        return [] if expected == found else [f"{path}: expected {expected!r}, found {found!r}"]
    differences: list[str] = []
    for key, value in expected.items():
        below = f"{path}.{key}"
        if value is ABSENT:
            differences += [f"{below} is there"] if key in found else []
        elif key not in found:
            differences.append(f"{below} is missing")
        elif key == "jobs" and isinstance(value, list) and len(value) == len(found[key]):
            for number, (one, other) in enumerate(zip(value, found[key], strict=True)):
                differences += different(one, other, f"{below}[{number}]")
        elif key == "job":
            differences += different(value, found[key], below)
        elif value != found[key]:
            differences.append(f"{below}: expected {value!r}, found {found[key]!r}")
    return differences


def scenario(
    name: str, rules: int | str | tuple[int | str, ...], *steps: Step, modes: tuple[Compatibility, ...] = BOTH
) -> Scenario:
    """Write a scenario."""
    return Scenario(name, rules if isinstance(rules, tuple) else (rules,), steps, modes)


def do(verb: str, /, **given: Any) -> Step:
    """Send any command."""
    return Step(verb, given)


def raw(verb: str, /, **headers: str) -> Step:
    """Send any command as the headers of a raw request."""
    return Step(verb, headers, headers=True)


def create(name: str, /, **given: Any) -> Step:
    """Create a job."""
    return Step("CreateJob", {"name": name, **given})


def get(name: str, /, **given: Any) -> Step:
    """Take a job."""
    return Step("GetJob", {"name": name, **given})


def none(name: str, /, **given: Any) -> Step:
    """Expect a take to find no job."""
    return get(name, **given).gives("404 No job found")


def show(job_id: int, /, **members: Any) -> Step:
    """Read a row, which must have these members."""
    return Step("QueryJob", {"jobID": job_id}, body=members)


def gone(job_id: int, /) -> Step:
    """Expect that a job no longer exists."""
    return Step("QueryJob", {"jobID": job_id}, status="404 No job with this jobID")


def finish(job_id: int, /, **given: Any) -> Step:
    """Finish a job."""
    return Step("FinishJob", {"jobID": job_id, **given})


def retry(job_id: int, /, **given: Any) -> Step:
    """Retry a job."""
    return Step("RetryJob", {"jobID": job_id, **given})


def fail(job_id: int, /, **given: Any) -> Step:
    """Fail a job."""
    return Step("FailJob", {"jobID": job_id, **given})


def update(job_id: int, /, **given: Any) -> Step:
    """Change a job."""
    return Step("UpdateJob", {"jobID": job_id, **given})


def cancel(job_id: int, /, **given: Any) -> Step:
    """Cancel a child, or with ``any`` any job."""
    return Step("CancelJob", {"jobID": job_id, **given})


def delete(job_id: int, /) -> Step:
    """Delete a job."""
    return Step("DeleteJob", {"jobID": job_id})


def requeue(*job_ids: int, **given: Any) -> Step:
    """Requeue jobs."""
    return Step("RequeueJobs", {"jobIDs": list(job_ids), **given})
