"""Selects the program of a job: the job's own command if allowed, else a function, a rule, or COMMAND.

The operator decides what runs, not the job: a job fails permanently if its own command is not allowed, or if
the worker has no program for it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bedrock_worker.options import FORK, REUSE, SPAWN, WorkerOptions
from bedrock_worker.policy.python_module import Function, PythonModule, load
from bedrock_worker.policy.rules import NO_RULE, JobRefused, ResourceLimits, Rule, Rules, read_rules
from bedrock_worker.pull.job import TakenJob
from bedrockjobs.base import jsontext
from bedrockjobs.base.glob import TooManyPatterns, glob, intersection, lies_within

FETCH_URL = (sys.executable, "-P", "-X", "utf8", "-m", "bedrock_worker.run.fetch_url")
"""The command that performs the request of a job's ``url``; ``-P`` ignores modules in the current folder."""

PRIVATE_TOO = "--allow-private"
"""The argument of ``FETCH_URL`` that allows private addresses."""

SHELL = "/bin/sh"
"""The shell that runs the ``cmd`` of a job."""

NO_COMMAND = "no command: the job has none of its own, and this worker has none for it"
"""The error of a job for which there is no program, if the worker has no rules."""


@dataclass(frozen=True)
class Program:
    """A command to start, and its limits."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables in addition to those of every command."""
    cwd: Path | None = None
    timeout_s: float | None = None
    limits: ResourceLimits | None = None
    secrets: tuple[str, ...] = ()
    """Texts to redact in the output and the result."""
    function: Function | None = None
    """The Python function, if a process may be forked for it."""
    tells_progress: bool = False
    """True if the command reports progress through a pipe, as Python functions do."""
    on_loop: bool = False
    """True for an async function that runs in the process which async functions share."""
    is_single: bool = False
    """True if the process of the function serves only one run."""


class ProgramSelector:
    """Selects the program of each job from the options, the rules and the module."""

    def __init__(self, options: WorkerOptions) -> None:
        """Read the rules and import the module; raises ValueError if one of the two is bad."""
        self._options = options
        self._rules: Rules | None = None
        self._calls: dict[Function, Program] = {}
        """The programs of functions, cached."""
        self.names: tuple[str, ...] = ()
        """The name patterns to request: those of the options, or else of the rules and the module."""
        self._names_of: dict[bool, tuple[str, ...]] = {}
        """The results of ``names_of``, cached."""
        self._kinds: dict[str, frozenset[bool]] = {}
        """The results of ``kinds_of``, cached."""
        self.module: PythonModule | None = None if options.module is None else load(options.module)
        self.read_rules()

    def names_of(self, on_loop: bool) -> tuple[str, ...]:
        """Return the name patterns whose jobs all run on the shared event loop, or never if False."""
        found = self._names_of.get(on_loop)
        if found is None:
            found = tuple(name for name in self.names if self.kinds_of(name) == {on_loop})
            self._names_of[on_loop] = found
        return found

    def read_rules(self) -> None:
        """Reload the rules; raises BadRules and then keeps the old ones."""
        if self._options.rules_file is not None:
            self._rules = read_rules(self._options.rules_file)
        declared = [part.names for part in (self._rules, self.module) if part is not None]
        found = tuple(dict.fromkeys(name for names in declared for name in names))
        self.names = self._options.names or found
        self._kinds, self._names_of = {}, {}

    @property
    def has_loop(self) -> bool:
        """Return whether any function runs on the shared event loop."""
        return any(map(self._is_on_loop, self._functions))

    def kinds_of(self, pattern: str) -> frozenset[bool]:
        """Return whether jobs of a pattern run on the shared event loop: a set of True, False or both."""
        found = self._kinds.get(pattern)
        if found is None:
            found = self._kinds[pattern] = self._find_kinds(pattern)
        return found

    def is_on_loop(self, job: TakenJob) -> bool:
        """Return whether a job runs on the shared event loop."""
        reply = job.reply
        if self.module is None or not (reply.cmd is None and reply.argv is None and reply.url is None):
            return False
        function = self.module.function_for(reply.name)
        return function is not None and self._is_on_loop(function)

    @property
    def _functions(self) -> tuple[Function, ...]:
        return () if self.module is None else self.module.functions

    def _is_on_loop(self, function: Function) -> bool:
        return function.is_async and not function.isolation and self._options.isolation == REUSE

    def _find_kinds(self, pattern: str) -> frozenset[bool]:
        options, functions = self._options, self._functions
        shared = [each.pattern for each in functions if self._is_on_loop(each)]
        own = [each.pattern for each in functions if not self._is_on_loop(each)]
        own += (*options.allow_cmd, *options.allow_shell, *options.allow_url)
        if not lies_within(pattern, (each.pattern for each in functions)):
            own += self._rules.names if self._rules is not None else ()
            own += ("*",) if options.argv else ()
        if not _meets(pattern, shared):
            return frozenset((False,))
        return frozenset((False, True) if _meets(pattern, own) else (True,))

    def program_for(self, job: TakenJob) -> Program:
        """Return the program of a job.

        Raises JobRefused if this worker may never run the job, and ValueError if something is missing on this
        machine, such as a secret.
        """
        name = job.reply.name
        own = self._command_of(job)
        if own is not None:
            return Program(own, cwd=self._options.cwd)
        if self.module is not None and (function := self.module.function_for(name)):
            return self._call(self.module, function)
        if self._rules is not None and (rule := self._rules.rule_for(name)):
            return self._fill(rule, job)
        if self._options.argv:
            return Program(self._options.argv, cwd=self._options.cwd)
        raise JobRefused(NO_COMMAND if self._rules is None else NO_RULE)

    def _command_of(self, job: TakenJob) -> Sequence[str] | None:
        """Return the job's own command (``cmd``, ``argv``, ``url``), or None; raises JobRefused."""
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
    def _check(job: TakenJob, member: str, patterns: Sequence[str], option: str) -> None:
        if not any(glob(job.reply.name, pattern) for pattern in patterns):
            raise JobRefused(
                f"{member}: expected a name that {option} of this worker allows, got {job.reply.name}"
            )

    def _call(self, module: PythonModule, function: Function) -> Program:
        call = self._calls.get(function)
        if call is None:
            call = self._calls[function] = Program(
                function.argv,
                env=module.environment,
                cwd=self._options.cwd,
                timeout_s=function.timeout_s,
                function=None if SPAWN in (function.isolation, self._options.isolation) else function,
                tells_progress=True,
                on_loop=self._is_on_loop(function),
                is_single=function.isolation == FORK,
            )
        return call

    def _fill(self, rule: Rule, job: TakenJob) -> Program:
        secrets = rule.read_secrets()
        return Program(
            rule.fill(jsontext.members(job.text)["data"]),
            env={**rule.env, **secrets},
            cwd=rule.cwd or self._options.cwd,
            timeout_s=rule.timeout_s,
            limits=rule.limits,
            secrets=tuple(secrets.values()),
        )


def _meets(pattern: str, others: Sequence[str]) -> bool:
    """Return whether some name matches both a pattern and one of the ``others``; True if that is unknown."""
    try:
        return any(intersection(pattern, other) for other in others)
    except TooManyPatterns:
        return True
