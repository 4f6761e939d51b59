"""How many examples a test makes up: enough to judge a change, and many more in the night.

It says only how often; what a test does with each example is the same by day and by night.
"""

from __future__ import annotations

import os

PROFILE = os.environ.get("BEDROCKJOBS_TEST_PROFILE", "same")
"""``same``: the same examples in each run. ``random``: others in each run, and as many as a night allows."""


def examples(day: int, *, night: int) -> int:
    """Return how many examples a test makes up under the profile of this run."""
    return night if PROFILE == "random" else day
