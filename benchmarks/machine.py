"""What the benchmarks ran on: the machine, its software, and how long its disk takes to sync."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

SYNCS = 200
"""Syncs that are timed."""
PAGE_BYTES = 4_096


def file_system(directory: Path) -> str:
    """Return the type of the file system that holds a directory."""
    found = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind = line.split()[:3]
        if directory.resolve().is_relative_to(point) and len(point) >= len(found[0]):
            found = (point, kind)
    return found[1]


def real_directory(given: Path | None) -> Path:
    """Return where databases go: what was given, or a temporary directory on a disk.

    Raises SystemExit where there is no disk behind it: a sync would cost nothing there.
    """
    for directory in [given] if given else [Path(tempfile.gettempdir()), Path("/var/tmp")]:
        if directory.is_dir() and file_system(directory) not in ("tmpfs", "ramfs"):
            return directory
    raise SystemExit("--directory: expected a directory on a real disk, where a sync costs something")


def sync_times_us(directory: Path, step: Callable[[int], None] = os.fdatasync) -> list[float]:
    """Return the microseconds that each of some syncs of one overwritten page took, sorted."""
    file, name = tempfile.mkstemp(dir=directory)
    try:
        os.write(file, bytes(PAGE_BYTES * SYNCS))
        os.fsync(file)
        took = []
        for number in range(SYNCS):
            begun = time.perf_counter()
            os.pwrite(file, bytes([number % 255 + 1]) * PAGE_BYTES, number * PAGE_BYTES)
            step(file)
            took.append((time.perf_counter() - begun) * 1e6)
    finally:
        os.close(file)
        Path(name).unlink()
    return sorted(took)


def processor() -> str:
    """Return what the processor calls itself."""
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return found[1].strip() if found else platform.machine()


def describe(directory: Path) -> list[tuple[str, str]]:
    """Return what there is to know, as rows of a table."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    took = sync_times_us(directory)
    return [
        ("processor", f"{processor()}, {os.cpu_count()} cores"),
        ("memory", f"{memory:.0f} GiB"),
        ("kernel", f"{platform.system()} {platform.release()}"),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
        ("SQLite", sqlite3.sqlite_version),
        ("libraries", ", ".join(f"{name} {version(name)}" for name in ("uvloop", "aiohttp", "pydantic"))),
        ("file system", file_system(directory)),
        (
            "write and fdatasync of one page",
            f"median {statistics.median(took):.0f} µs, p99 {took[len(took) * 99 // 100]:.0f} µs",
        ),
    ]


def family(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # one that has ended meanwhile
            children.setdefault(int(_stat(path)[1]), []).append(int(path.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def _stat(path: Path) -> list[str]:
    """Return the fields of a process from its state on; its name before them may hold anything."""
    return path.read_text().rpartition(") ")[2].split()


def cpu_s(pids: list[int]) -> float:
    """Return the seconds of processor time of these processes, and of the ended children of the first."""
    used = sum(map(int, _stat(Path(f"/proc/{pids[0]}/stat"))[13:15])) / os.sysconf("SC_CLK_TCK")
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                used += int(task.read_text().split()[0]) / 1e9
    return used


def moment() -> str:
    """Return the time, and how busy the machine is with other things."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load average before {os.getloadavg()[0]:.1f}"
