"""Decides what runs for a job: its own command, where one is allowed, a function, a rule, or COMMAND.

The operator decides, not the job: a job whose own command no option allows fails for good, and so does one
that nothing is for. Starts nothing and knows no server.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bedrock_worker.options import FORK, Options
from bedrock_worker.policy.python_module import Function, PythonModule, load
from bedrock_worker.policy.resource_limits import ResourceLimits
from bedrock_worker.policy.rules import NO_RULE, Refused, Rule, Rules
from bedrock_worker.policy.rules_file import read_rules
from bedrock_worker.pull.job import Job
from bedrockjobs.base import jsontext
from bedrockjobs.base.glob import glob

FETCH_URL = (sys.executable, "-P", "-X", "utf8", "-m", "bedrock_worker.run.fetch_url")
"""What makes the request of a job with ``url``; ``-P``: it takes no module from the current folder."""

PRIVATE_TOO = "--allow-private"
"""What tells it that the request may go to an address that is not public."""

SHELL = "/bin/sh"
"""What runs the ``cmd`` of a job."""

NO_COMMAND = "no command: the job brings none, and this worker has none for it"
"""Why a job fails for good where there are no rules either."""


@dataclass(frozen=True)
class Program:
    """A command to start, and under which limits."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables beside those that every command gets."""
    cwd: Path | None = None
    timeout_s: float | None = None
    limits: ResourceLimits | None = None
    secrets: tuple[str, ...] = ()
    """What is to be masked in what it prints and returns."""
    function: Function | None = None
    """The Python function that it is, where a process that imported its module may be forked for it."""
    tells_progress: bool = False
    """Whether it tells progress by a pipe: Python functions do."""


class ProgramSelector:
    """Selects the program for each job out of what the operator allowed and declared."""

    def __init__(self, options: Options) -> None:
        """Read the rules and import the module, if there are any; raises ValueError for a bad one."""
        self._options = options
        self._rules: Rules | None = None
        self._calls: dict[Function, Program] = {}
        """The program of each function that has been called."""
        self._module: PythonModule | None = None if options.module is None else load(options.module)
        self.read_rules()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the name patterns to ask for: those given, else those that something is declared for."""
        if self._options.names:
            return self._options.names
        declared = [part.names for part in (self._rules, self._module) if part is not None]
        return tuple(dict.fromkeys(name for names in declared for name in names))

    @property
    def module(self) -> PythonModule | None:
        """Return the module whose schedules are the server's to keep."""
        return self._module

    def read_rules(self) -> None:
        """Read the rules anew; raises BadRules, and the old ones stay."""
        if self._options.rules_file is not None:
            self._rules = read_rules(self._options.rules_file)

    def program_for(self, job: Job) -> Program:
        """Return what runs for a job.

        Raises Refused where nothing ever will, and ValueError where something is missing here, as a secret.
        """
        name = job.reply.name
        own = self._own(job)
        if own is not None:
            return Program(own, cwd=self._options.cwd)
        if self._module is not None and (function := self._module.function_for(name)):
            return self._call(self._module, function)
        if self._rules is not None and (rule := self._rules.rule_for(name)):
            return self._fill(rule, job)
        if self._options.argv:
            return Program(self._options.argv, cwd=self._options.cwd)
        raise Refused(NO_COMMAND if self._rules is None else NO_RULE)

    def _own(self, job: Job) -> Sequence[str] | None:
        """Return the command that a job brings, None where it brings none; raises Refused."""
        reply, options = job.reply, self._options
        if reply.cmd is not None:
            self._check(job, "cmd", options.allow_shell, "--allow-shell")
            return (SHELL, "-c", reply.cmd)
        if reply.argv is not None:
            self._check(job, "argv", (*options.allow_cmd, *options.allow_shell), "--allow-cmd")
            return reply.argv
        if reply.url is not None:
            self._check(job, "url", options.allow_url, "--allow-url")
            return (*FETCH_URL, PRIVATE_TOO) if options.allow_private else FETCH_URL
        return None

    @staticmethod
    def _check(job: Job, kind: str, patterns: Sequence[str], option: str) -> None:
        if not any(glob(job.reply.name, pattern) for pattern in patterns):
            raise Refused(
                f"{kind}: expected a name that {option} of this worker allows, got {job.reply.name}"
            )

    def _call(self, module: PythonModule, function: Function) -> Program:
        found = self._calls.get(function)
        if found is None:
            found = self._calls[function] = Program(
                function.argv, env=module.environment, cwd=self._options.cwd, timeout_s=function.timeout_s,
                function=function if self._options.start_method == FORK else None, tells_progress=True,
            )  # fmt: skip
        return found

    def _fill(self, rule: Rule, job: Job) -> Program:
        secrets = rule.read_secrets()
        return Program(
            rule.fill(jsontext.members(job.text)["data"]),
            env={**rule.env, **secrets},
            cwd=rule.cwd or self._options.cwd,
            timeout_s=rule.timeout_s,
            limits=rule.limits,
            secrets=tuple(secrets.values()),
        )
