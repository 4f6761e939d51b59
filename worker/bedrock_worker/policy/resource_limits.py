"""What a command may use of the machine: kernel limits and priority. Knows no jobs and no files."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import dataclass, field

LIMITS = {
    "cpu": resource.RLIMIT_CPU,
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "fsize": resource.RLIMIT_FSIZE,
    "as": resource.RLIMIT_AS,
}
"""Kernel limits by the names of ``setrlimit(2)``; address space last: nothing is allocated after it."""

NICE_MAX = 19
"""The lowest priority there is."""

CPU_TO_KILL_S = 1
"""Seconds of processor time between SIGXCPU, which says what happened, and KILL."""


@dataclass(frozen=True)
class ResourceLimits:
    """Limits of one command; what it starts inherits them."""

    values: Mapping[str, int] = field(default_factory=dict)
    """Seconds (``cpu``), bytes (``as``, ``fsize``) or numbers (``nofile``, ``nproc``) by name."""
    nice: int = 0
    """How much lower than the worker's its priority is, 0 to ``NICE_MAX``."""

    def wanted(self) -> list[tuple[int, int, int]]:
        """Return what is to be set before the command begins: for each kind the soft and the hard limit.

        Nothing is raised above what the worker itself may use. There is never a core file: it would hold
        the secrets.
        """
        found = [(resource.RLIMIT_CORE, 0, 0)]
        for name, kind in LIMITS.items():
            if name not in self.values:
                continue
            soft = self.values[name]
            hard = soft + CPU_TO_KILL_S if name == "cpu" else soft
            _, ours = resource.getrlimit(kind)
            if ours != resource.RLIM_INFINITY:
                soft, hard = min(soft, ours), min(hard, ours)
            found.append((kind, soft, hard))
        return found
