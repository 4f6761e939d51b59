"""The environment variables of the current run, for runs that share a process. Imports little."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any


class RunVariables(dict[str, str]):
    """The environment variables of one run of several that share this process."""

    client: Any = None
    """The blocking client of this run, if its run token requires a client of its own."""


run_variables: ContextVar[RunVariables | None] = ContextVar("run variables", default=None)
"""The environment variables of the current run; None if the process belongs to one run only."""


def environment() -> Mapping[str, str]:
    """Return the environment of the process, with the variables of the current run in front."""
    own = run_variables.get()
    return os.environ if own is None else ChainMap(own, os.environ)
