"""The whole check of a change: lint, types, imports and tests, with what they need from the system.

Called by the README's test command with the Python of a fresh virtual environment, and so by CI. Everything
that is missing and can be installed is installed; a check that cannot run fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROGRAMS = {"nc": "netcat-openbsd", "curl": "curl", "chromium": "chromium"}
"""Programs that the README's sessions and the tests of the pages use, with the Debian package of each."""

PARALLEL = ["-n", "2", "--dist", "loadfile"]
"""Two at a time, file by file: most tests wait for a disk or a process."""

ALONE = "tests/reliability"
"""Tests that load the machine themselves, and run one after another."""


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


def main() -> int:
    """Run every check, also after one has failed; return the exit status."""
    install_programs()
    bin_folder = Path(sys.executable).parent
    checks: list[list[str]] = [
        ["ruff", "check"],
        ["ruff", "format", "--check"],
        ["mypy"],
        ["lint-imports"],
    ]
    pytest = [sys.executable, "-m", "pytest"]
    if sys.argv[1:]:
        checks.append([*pytest, *sys.argv[1:]])
    else:
        checks += [[*pytest, *PARALLEL, f"--ignore={ALONE}"], [*pytest, ALONE]]
    environment = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    failed = []
    for check in checks:
        name = " ".join(check).replace(sys.executable, "python")
        print(f"+ {name}", flush=True)
        if subprocess.run(check, cwd=ROOT, env=environment, check=False).returncode:
            failed.append(name)
    for name in failed:
        print(f"failed: {name}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
