"""The two checks that every target must pass: random inputs for some time, and hostile inputs.

``gates.py`` has the limits for one input, ``mutate.py`` makes inputs.
"""

from __future__ import annotations

import functools
import os

import pytest

from tests.effort import PROFILE, examples
from tests.fuzz.campaign import Campaign, seeds_of
from tests.fuzz.gates import Meter
from tests.fuzz.hostile import HOSTILE
from tests.fuzz.targets import TARGETS

SECONDS = float(os.environ.get("FUZZ_SECONDS", examples(10, night=6_000) / 100))
"""Time for the made-up inputs of each target."""

MEMORY_EACH = examples(5, night=1)
"""By day, memory is measured for one in this many hostile inputs of a target, since it takes long."""

SEED = int.from_bytes(os.urandom(4), "big") if PROFILE == "random" else 1


def cases(*names: str) -> list[tuple[str, str]]:
    """Return the targets with each of their hostile inputs."""
    return [(name, case) for name in names for case in HOSTILE[name]]


def check_made_up(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Read random inputs for some time; none may exceed the limits."""
    target = TARGETS[name]
    report = Campaign(target, seeds_of(target), SEED).run(SECONDS)
    with capsys.disabled():
        print(f"\nseed {SEED}: {report}")
    assert report.findings == [], "\n".join(map(str, report.findings))


@functools.cache
def warm_meter(name: str) -> Meter:
    """Return a meter of a target that has loaded all that it loads when it is needed first."""
    meter = Meter(TARGETS[name])
    for seed in seeds_of(TARGETS[name])[:3]:
        meter.check(seed)
    return meter


def check_hostile(name: str, case: str) -> None:
    """Read a hostile input."""
    meter = warm_meter(name)
    data = HOSTILE[name][case]()
    _, slow = meter.check(data)
    assert slow is None, slow
    if list(HOSTILE[name]).index(case) % MEMORY_EACH == 0:
        _, heavy = meter.memory(data)
        assert heavy is None, heavy
