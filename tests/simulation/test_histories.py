"""In simulated histories, every reply is one that a correct server could give.

``__main__.py`` has the nightly command, and replays single histories.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.effort import PROFILE, examples
from tests.reliability.faults import FAULTS
from tests.simulation.__main__ import ENDED, environment

FIRST = 43
"""The first history, soon followed by rare ones: a disk that ends a server, and changes by others."""

SHARE = examples(5, night=5_000)
"""Histories that one process goes through."""

SHARES_NIGHT = 4
"""Shares at night, when the nightly command goes through ten times as many more."""

SHARES_DAY_MAX = 18
"""Shares by day at most, until all has happened that histories are about."""

FOUND_WITHIN = 60
"""Histories within which a planted fault must be found."""

Simulated = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def simulated() -> Iterator[Simulated]:
    """Return a function that runs the simulation, and returns its exit status and what it printed."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.simulation", "--forks"],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:  # which ends with its stdin
        assert process.stdin is not None
        assert process.stdout is not None
        asked, told = process.stdin, process.stdout

        @functools.cache
        def run(*arguments: str) -> tuple[int, str]:
            print(json.dumps(arguments), file=asked, flush=True)
            lines: list[str] = []
            for line in told:
                if line.startswith(ENDED):
                    return int(line.removeprefix(ENDED)), "".join(lines)
                lines.append(line)
            raise AssertionError("".join(lines))

        try:
            yield run
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # also a history that does not end


def share(number: int) -> tuple[str, ...]:
    """Return the arguments for a share of the histories."""
    first = FIRST + number * SHARE
    return "--seeds", f"{first}-{first + SHARE - 1}", "--digests"


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
def test_no_history_has_a_fault(simulated: Simulated) -> None:
    happened: set[str] = set()
    for number in range(examples(SHARES_DAY_MAX, night=SHARES_NIGHT)):
        status, told = simulated(*share(number))
        assert status == 0, told
        happened |= {kind for kind in KINDS if f"'{kind}': " in told}
        if PROFILE != "random" and happened == set(KINDS):
            break
    assert happened == set(KINDS), "what the histories are about did not happen"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(simulated: Simulated, fault: str) -> None:
    status, told = simulated("--seeds", f"1-{FOUND_WITHIN}", "--fault", fault, "--until-found")
    assert status == 1, told
    assert "faults: " in told


def test_what_a_power_cut_takes_is_found(simulated: Simulated) -> None:
    """The control of the disk: without a sync, acknowledged jobs are lost."""
    status, told = simulated("--seeds", f"1-{FOUND_WITHIN}", "--durability", "relaxed", "--until-found")
    assert status == 1, told
    assert "lost" in told or "invented" in told or "reused" in told, told


def test_a_number_is_always_the_same_history(simulated: Simulated) -> None:
    number = FIRST + SHARE // 2
    _, alone = simulated("--show", str(number))
    _, among_others = simulated(*share(0))
    digest = alone.splitlines()[0]
    assert digest.startswith(f"seed {number}: digest ")
    assert digest in among_others.splitlines()
