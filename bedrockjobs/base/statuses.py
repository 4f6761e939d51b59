"""The statuses of a run, and which of them are failures. It knows nothing of who asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, get_args

RunStatus = Literal["running", "success", "fail", "timeout", "frozen", "terminated", "killed", "returned",
                    "snoozed"]  # fmt: skip

STATUSES: Final = get_args(RunStatus)
"""The statuses, in the order in which a person is offered them."""

FAILED_STATUSES = ("fail", "timeout", "frozen")
"""Statuses of runs that somebody should look at: what was terminated or killed, somebody wanted so."""

ANY_FAILURE: Final = "failed"
"""The word for all of them, wherever runs are asked for by their status."""

AskedStatus = Literal[RunStatus, "failed"]
"""What runs may be asked for by: a status, or the word for all failures."""


def statuses_of(asked: str | None) -> Sequence[str]:
    """Return the statuses that are asked for by one, or by the word for all failures; none for any."""
    if asked == ANY_FAILURE:
        return FAILED_STATUSES
    return (asked,) if asked else ()
