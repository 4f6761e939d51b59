"""Resource limits of a command: kernel limits and priority."""

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
"""Kernel limits, named as in ``setrlimit(2)``; address space last: it stops allocation."""

NICE_MAX = 19
"""The lowest priority."""

CPU_TO_KILL_S = 1
"""Seconds of CPU time between SIGXCPU, which shows the reason, and KILL."""


@dataclass(frozen=True)
class ResourceLimits:
    """Limits of one command, inherited by its children."""

    values: Mapping[str, int] = field(default_factory=dict)
    """Seconds (``cpu``), bytes (``as``, ``fsize``) or numbers (``nofile``, ``nproc``) by name."""
    nice: int = 0
    """Increment of the nice value, 0 to ``NICE_MAX``."""

    def wanted(self) -> list[tuple[int, int, int]]:
        """Return the soft and hard limit of each kind, to be set before the command starts.

        None exceeds the worker's own limits. Core files are disabled: they would contain the secrets.
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
