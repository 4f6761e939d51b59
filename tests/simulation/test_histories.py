"""In simulated histories, every reply is one that a correct server could give.

``__main__.py`` has the nightly command, and replays single histories.
"""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest

from tests.effort import examples
from tests.reliability.faults import FAULTS
from tests.simulation.__main__ import environment

SHARES = examples(1, night=4)
SEEDS = examples(60, night=20_000)
"""Histories of one run, by day as many as it takes until a disk ends a server; the nightly command goes
through ten times as many as a night of these tests."""

FOUND_WITHIN = 60
"""Histories within which a planted fault must be found."""


@functools.cache
def simulated(*arguments: str) -> tuple[int, str]:
    """Run the simulation; return its exit status and what it printed."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    done = subprocess.run(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


KINDS = (
    "ended: failure",
    "ended: killed",
    "ended: power",
    "ended: stopped",
    "clock set",
    "changed by others",
    "hand-outs lost with their answer",
)
"""What histories are about; some of it is rare."""


@pytest.mark.timeout(examples(900, night=28_800))
def test_no_history_has_a_fault() -> None:
    size, happened = SEEDS // SHARES, set()
    for share in range(SHARES):
        first = share * size + 1
        status, told = simulated("--seeds", f"{first}-{first + size - 1}", "--digests")
        assert status == 0, told
        happened |= {kind for kind in KINDS if f"'{kind}': " in told}
    assert happened == set(KINDS), "what the histories are about did not happen"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    status, told = simulated("--seeds", f"1-{FOUND_WITHIN}", "--fault", fault, "--until-found")
    assert status == 1, told
    assert "faults: " in told


def test_what_a_power_cut_takes_is_found() -> None:
    """The control of the disk: without a sync, acknowledged jobs are lost."""
    status, told = simulated("--seeds", f"1-{FOUND_WITHIN}", "--durability", "relaxed", "--until-found")
    assert status == 1, told
    assert "lost" in told or "invented" in told or "reused" in told, told


def test_a_number_is_always_the_same_history() -> None:
    _, alone = simulated("--show", "7")
    _, among_others = simulated("--seeds", f"1-{SEEDS // SHARES}", "--digests")
    digest = alone.splitlines()[0]
    assert digest.startswith("seed 7: digest ")
    assert digest in among_others.splitlines()
