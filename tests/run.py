"""The check of a change: lint, types, imports and tests, with what they need from the system.

``run.py`` is the whole check: it is what the README's test command calls with the Python of a fresh virtual
environment, and so what CI does. Everything that is missing and can be installed is installed; a check that
cannot run fails. ``run.py --fast`` is for the time between two changes: it needs nothing of the system, no
browser and no rights, installs nothing, and takes a minute or two. Other arguments go to pytest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROGRAMS = {"nc": "netcat-openbsd", "curl": "curl", "chromium": "chromium"}
"""Programs that the README's sessions and the tests of the pages use, with the Debian package of each."""

PARALLEL = ["-n", "2", "--dist", "loadfile"]
"""Two at a time, file by file: most tests wait for a disk or a process."""

FAST = ["tests/architecture", "tests/conformance", "tests/unit", "tests/runs"]
"""What nearly every mistake breaks: rules, model, parts, and runs over the wire."""

RELIABILITY = "tests/reliability"
"""Tests that load the machine themselves: nothing else runs beside them, and they write to the real disk."""

MEMORY = Path("/dev/shm")
MEMORY_BYTES = 1 << 30
"""Room there must be in memory for the files of all other tests, which are not about a disk: about 0.2 GB."""


def install_programs() -> None:
    """Install the programs that are missing; ends with a sentence where that cannot be done."""
    packages = sorted({package for program, package in PROGRAMS.items() if not shutil.which(program)})
    if not packages:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.exit(f"The tests need these packages, please install them: {' '.join(packages)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=quiet)
    subprocess.run(["apt-get", "install", "-y", "-qq", *packages], check=True, env=quiet)


def checks(arguments: list[str]) -> list[list[str]]:
    """Return the commands of a check."""
    pytest = [sys.executable, "-m", "pytest"]
    if arguments == ["--fast"]:
        tests = [[*pytest, *PARALLEL, *FAST]]
    elif arguments:
        tests = [[*pytest, *arguments]]
    else:
        tests = [[*pytest, *PARALLEL, f"--ignore={RELIABILITY}"], [*pytest, *PARALLEL, RELIABILITY]]
    return [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"], ["lint-imports"], *tests]


@contextmanager
def quick_files() -> Iterator[dict[str, str]]:
    """Yield variables that put temporary files into memory, where there is room and programs may run."""
    found = os.statvfs(MEMORY) if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
    if found is None or found.f_flag & os.ST_NOEXEC or found.f_bavail * found.f_frsize < MEMORY_BYTES:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="b-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        yield {"TMPDIR": folder}


def main() -> int:
    """Run every check, also after one has failed; return the exit status."""
    arguments = sys.argv[1:]
    if "--fast" not in arguments:
        install_programs()
    elif len(arguments) > 1:
        sys.exit("--fast stands alone: with arguments for pytest, leave it out")
    bin_folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    failed = []
    for check in checks(arguments):
        name = " ".join(check).replace(sys.executable, "python")
        print(f"+ {name}", flush=True)
        began = time.monotonic()
        real_disk = any(part.startswith(RELIABILITY) for part in check)
        with nullcontext({}) if real_disk else quick_files() as files:
            if subprocess.run(check, cwd=ROOT, env=environment | files, check=False).returncode:
                failed.append(name)
        print(f"= {time.monotonic() - began:.0f} s", flush=True)
    for name in failed:
        print(f"failed: {name}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
