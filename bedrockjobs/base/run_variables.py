"""The variables of the current run, for runs that share a process and its environment. Imports little."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any


class RunVariables(dict[str, str]):
    """The variables of one of several runs that share this process."""

    client: Any = None
    """The blocking client of this run, if its token needs one of its own."""


run_variables: ContextVar[RunVariables | None] = ContextVar("run variables", default=None)
"""The variables of the current run, unless the process belongs to one run only."""


def environment() -> Mapping[str, str]:
    """Return the environment variables, with those of the current run."""
    own = run_variables.get()
    return os.environ if own is None else ChainMap(own, os.environ)
