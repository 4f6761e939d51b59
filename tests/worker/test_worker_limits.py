"""Limits reach the command and never rise above the worker's own."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bedrock_worker.policy.resource_limits import CPU_TO_KILL_S, LIMITS, NICE_MAX, ResourceLimits

SHOW = """
import os, resource
for name in ("cpu", "nofile", "nproc", "fsize", "as", "core"):
    print(name, *resource.getrlimit(getattr(resource, "RLIMIT_" + name.upper())))
print("nice", os.nice(0))
"""


def shown(limits: ResourceLimits) -> dict[str, list[int]]:
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        preexec_fn=limits.before_exec(),
        capture_output=True,
        text=True,
        check=True,
    )
    return {name: list(map(int, values)) for name, *values in map(str.split, done.stdout.splitlines())}


def test_each_limit_is_set() -> None:
    values = {"cpu": 7, "nofile": 50, "nproc": 4_000, "fsize": 4_096, "as": 1 << 31}
    assert values.keys() == LIMITS.keys()
    found = shown(ResourceLimits(values, nice=3))
    assert found.pop("nice") == [shown(ResourceLimits())["nice"][0] + 3]
    assert found.pop("core") == [0, 0]
    assert found.pop("cpu") == [7, 7 + CPU_TO_KILL_S]
    assert found == {name: [value, value] for name, value in values.items() if name != "cpu"}


def test_none_are_set_but_for_core_files() -> None:
    found = shown(ResourceLimits())
    assert found["core"] == [0, 0]
    assert found["nofile"] == list(resource.getrlimit(resource.RLIMIT_NOFILE))


def test_none_rises_above_our_own() -> None:
    _, ours = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert shown(ResourceLimits({"nofile": ours + 5}))["nofile"] == [ours, ours]


@pytest.mark.parametrize(
    ("values", "code", "status"),
    [
        ({"fsize": 10}, "with open('f', 'wb') as file: file.write(b'x' * 11)", 1),
        ({"nofile": 20}, "[open('/dev/null') for _ in range(20)]", 1),
        ({"as": 200 << 20}, "bytearray(400 << 20)", 1),
        ({"cpu": 1}, "while True: pass", -signal.SIGXCPU),
    ],
)
def test_they_hold(values: dict[str, int], code: str, status: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, preexec_fn=ResourceLimits(values).before_exec(),
        capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == status
    assert all(file.stat().st_size <= 10 for file in tmp_path.glob("f"))


def test_nice_ends_where_the_kernel_does() -> None:
    assert shown(ResourceLimits(nice=NICE_MAX))["nice"] == [NICE_MAX]
