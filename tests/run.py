"""The check of a change: lint, types, imports and tests, with what they need from the system.

``run.py`` is the whole check: it is what the README's test command calls with the Python of a fresh virtual
environment, and so what CI does. Everything that is missing and can be installed is installed, the packages
of ``pyproject.toml`` too; a check that cannot run fails. ``run.py --fast`` is for the time between two
changes: it needs nothing of the system, no browser and no rights, installs nothing, and leaves out what takes
long. ``run.py --nightly`` takes hours: it runs all tests with random examples and more of them, and then the
storms. Other arguments go to pytest.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
PROGRAMS = {
    "nc": "netcat-openbsd",
    "curl": "curl",
    "pg_ctlcluster": "postgresql",
    "pgbouncer": "pgbouncer",
    "node": "nodejs",
    "npm": "npm",
}
"""Programs that the README's sessions and the tests use, with the Debian package of each. The tests start a
PostgreSQL of their own; the one that comes with the package is left alone."""

BROWSERS = ("chromium-headless-shell", "chromium")
"""Browsers that the tests can use, with Debian's names; if there is none, the first one is installed."""

NODE_PACKAGES = ("openapi-typescript@7.13.0", "typescript@5.9.3")
"""What the tests need of npm: a generator of types from the OpenAPI description, and a compiler."""

NODE_PROGRAMS = Path(sys.prefix, "node", "node_modules", ".bin")

INSTALL_PYTHON = '"$0" -m pip install -q -U pip && exec "$0" -m pip install -q --no-compile -e ".[test]"'
"""Installs the project, given the interpreter. Older versions of pip take three times as long to choose among
versions, and to compile all files takes longer than to compile those that the tests import."""

INSTALL_DEBIAN = 'export DEBIAN_FRONTEND=noninteractive; $0 update -qq && exec $0 install -y -qq "$@"'
"""Installs packages of Debian, given the program and their names."""

SEARCHED = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
"""Where programs are, also where it is not root who asks."""

AT_ONCE = 6
"""Processes that share the test files on two cores, as tests often wait. Bars on time allow for the pace of
the machine (``pace.py``)."""

SHARED_FILES = "SHARED_TEST_FILES"
"""A variable: the folder for what one process makes for the tests of all."""

SLASH = "+"
"""What stands for a slash in the name by which such a file is dealt out (``dealt`` in ``effort.py``)."""

FAST_AT_ONCE = 2
"""Few of those tests wait."""

FAST = (
    "tests/architecture",
    "tests/conformance",
    "tests/unit",
    "tests/runs",
    "tests/protocol",
    "tests/views",
)
"""What nearly every mistake breaks: rules, model, parts, runs, and both protocols."""

SLOW = {
    # They take long, as they ask for the worst or wait for the time that something may take:
    "tests/protocol/test_deadlines.py",
    "tests/protocol/test_hostile.py",
    "tests/protocol/test_hostile_queries.py",
    "tests/protocol/test_loop_stalls.py",
    "tests/protocol/test_loop_time.py",
    "tests/protocol/test_memory_storms.py",
    "tests/protocol/test_openapi_against_server.py",
    "tests/protocol/test_openapi_clients.py",
    "tests/protocol/test_nothing_left.py",
    "tests/protocol/test_waiting_gone.py",
    "tests/unit/test_cli_import.py",
    "tests/unit/test_cron_oracles.py",
    "tests/unit/test_imports_ftl.py",
    "tests/unit/test_imports_hostile.py",
    "tests/unit/test_worker_registry.py",
    # Each of them starts processes:
    "tests/unit/test_cli_program.py",
    "tests/unit/test_benchmark_peers.py",
    "tests/unit/test_template_code.py",
    "tests/unit/test_testing.py",
}
"""Files of these that ``--fast`` leaves out."""

FAST_ENVIRONMENT = {"BEDROCKJOBS_TEST_PROFILE": "fast"}
"""Fewer examples, half of the tests of servers, and one event loop: see ``effort.py``."""

READING = [["mypy"], ["ruff", "check"], ["ruff", "format", "--check"], ["lint-imports"]]
"""What reads the code: beside the tests, as alone it would keep one core of two waiting for mypy."""

RELIABILITY = "tests/reliability"
"""Tests that load the machine themselves: nothing else runs beside them, and they write to the real disk."""

RELIABILITY_AT_ONCE = 4
"""Twice as many as there are cores: they spend half of their time waiting for servers."""

NIGHTLY_STEP_S_MAX = 12 * 3600
"""Time for one step of a night, and for each of its tests."""

NIGHTLY = (
    f"pytest -o timeout={NIGHTLY_STEP_S_MAX}",
    f"pytest -o timeout={NIGHTLY_STEP_S_MAX} --engine postgresql"
    " tests/runs tests/protocol tests/pages tests/cli",
    "tests.reliability --kills 5000",
    "tests.reliability --power 20000",
    "tests.reliability --schedules 1000",
    "tests.reliability --workflows 200",
    *(f"tests.reliability --postgresql {storm}" for storm in ("kills", "ticks", "events", "waits")),
    *(f"tests.reliability --postgresql {storm}" for storm in ("takes", "stalls", "failovers", "cuts")),
    "tests.reliability --postgresql workflows",
    "tests.simulation --seeds 1-50000 --processes 2",
    "tests.fuzz --seconds 600",
    "tests.reliability --soak 1h",
)
"""What runs at night, one after the other: modules with their arguments, first all tests and then storms."""

NIGHTLY_ENVIRONMENT = {"BEDROCKJOBS_TEST_PROFILE": "random"}

STEP_S_MAX = 2400
"""Time for one step, several times what it needs: a test has a limit of its own, the end of Python none."""

ENDING_S = 30
"""Time that tests have after SIGTERM to stop what they have started."""

SLOWEST = 10
"""Test files whose time is printed at the end: where to begin if the check takes too long."""

MEMORY = Path("/dev/shm")
MEMORY_BYTES = 2 << 30
"""Room there must be in memory for the files of all other tests, which are not about a disk."""


def missing_packages() -> list[str]:
    """Return the Debian packages that are missing; ends with a sentence if they cannot be installed."""
    packages = sorted(
        {package for program, package in PROGRAMS.items() if not shutil.which(program, path=SEARCHED)}
    )
    if not any(map(shutil.which, BROWSERS)):
        packages.append(BROWSERS[0])
    if packages and (os.geteuid() != 0 or not shutil.which("apt-get")):
        sys.exit(f"The tests need these packages, please install them: {' '.join(packages)}")
    return packages


def preparing(*, fast: bool) -> list[list[list[str]]]:
    """Return the steps before a check: install what is missing, and compile on a fresh clone.

    Each process that runs tests would compile the same otherwise.
    """
    first, second = [], []
    if not fast and find_spec("pytest") is None:
        first.append(["sh", "-c", INSTALL_PYTHON, sys.executable])
    if not fast and (packages := missing_packages()):
        first.append(["sh", "-c", INSTALL_DEBIAN, "apt-get", *packages])
    if not (ROOT / ".hypothesis").exists():
        first.append([sys.executable, "-m", "compileall", "-q", "bedrockjobs", "worker"])
        second.append([sys.executable, "-m", "pytest", "--collect-only", "-qq", IMPORTING])  # in its own way
        second.append([sys.executable, "-c", ANY_TEXT])
    if not fast and not NODE_PROGRAMS.exists():
        second.append([sys.executable, "-c", "from tests import run; run.node_programs()"])
    return [step for step in (first, second) if step]


def node_programs() -> Path:
    """Return the folder of the programs of ``NODE_PACKAGES``; installs them once, next to this Python."""
    if not NODE_PROGRAMS.exists():
        folder = NODE_PROGRAMS.parents[1]
        folder.mkdir(exist_ok=True)
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder)]
        subprocess.run([*command, *NODE_PACKAGES], check=True)
    return NODE_PROGRAMS


ANY_TEXT = "from hypothesis import given, strategies; given(strategies.text())(lambda text: None)()"
"""A program after which Hypothesis has written down which characters there are, which takes seconds."""


IMPORTING = "tests/pages/test_jobs.py"
"""A test file that imports the server and what most tests share."""


def files_in(folders: Iterable[str], *, without: Container[str] = ()) -> list[str]:
    """Return the test files below some folders."""
    found = sorted(
        str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).glob("**/test_*.py")
    )
    return [file for file in found if file not in without]


def checks(arguments: list[str], folder: Path) -> list[list[list[str]]]:
    """Return the steps of a check, each a list of commands that run in parallel.

    Processes share test files by a folder, of which each takes one after the other.
    """
    pytest = [sys.executable, "-m", "pytest"]

    def shared(name: str, files: list[str], at_once: int) -> list[list[str]]:
        (folder / name).mkdir()
        for file in files:
            (folder / name / file.replace("/", SLASH)).touch()
        # Percentages would be of one file.
        return [[*pytest, "-o", "console_output_style=classic", f"--dealt={folder / name}"]] * at_once

    if arguments == ["--fast"]:
        steps = [shared("fast", files_in(FAST, without=SLOW), FAST_AT_ONCE)]
    elif arguments == ["--nightly"]:
        return [[[sys.executable, "-m", *words.split()]] for words in NIGHTLY]
    elif arguments:
        steps = [[[*pytest, *arguments]]]
    else:
        reliability = files_in([RELIABILITY])
        steps = [
            shared("tests", files_in(["tests"], without=reliability), AT_ONCE),
            shared("reliability", reliability, RELIABILITY_AT_ONCE),
        ]
    steps[0] += READING
    return steps


def run(commands: list[list[str]], environment: dict[str, str], spent_s: Counter[str]) -> list[str]:
    """Run commands in parallel, and count the seconds of each test file; return what failed, with its tests.

    The first command prints as it goes; the output of the others follows at the end.
    """
    names = [" ".join(command).replace(sys.executable, "python") for command in commands]
    print("\n".join(f"+ {name}" for name in names), flush=True)
    began, worked = time.monotonic(), worked_s()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        reports = [folder / f"{number}.xml" for number in range(len(commands))]
        commands = [
            [*command, f"--junit-xml={report}", "-o", "junit_family=xunit1"]
            if "pytest" in command
            else command
            for command, report in zip(commands, reports, strict=True)
        ]
        outputs = [None, *(stack.enter_context(tempfile.TemporaryFile()) for _ in commands[1:])]
        running = stack.enter_context(ended_with_us())
        for command, output in zip(commands, outputs, strict=True):
            running.append(subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output))
        failed = [name for name, process in zip(names, running, strict=True) if status_of(process)]
        for name, output in zip(names, outputs, strict=True):
            if output is not None:
                output.seek(0)
                print(f"= {name}\n{output.read().decode(errors='replace')}", flush=True)
        for report in filter(Path.exists, reports):
            for case in ElementTree.parse(report).iter("testcase"):
                spent_s[case.get("file", "")] += float(case.get("time", 0))
                if case.find("failure") is not None or case.find("error") is not None:
                    failed.append(f"{case.get('file')}::{case.get('name')}")
    print(f"= {time.monotonic() - began:.0f} s, {worked_s() - worked:.0f} s of processor time", flush=True)
    return failed


def heed_signals() -> None:
    """Let SIGTERM end this process as an error does, and let commands hear SIGINT: a shell may ignore it."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def ended_with_us() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yield a list of processes; if an error or a signal ends this one, they stop what they have started."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        yield running
    except BaseException as error:
        for process in running:
            if not isinstance(error, KeyboardInterrupt):  # which the terminal has sent to all of them
                process.send_signal(signal.SIGINT)
        end = time.monotonic() + ENDING_S
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0, end - time.monotonic()))
            process.kill()
            process.wait()
        raise


def worked_s() -> float:
    """Return the processor time of all processes that have ended, over all cores."""
    spent = os.times()
    return spent.children_user + spent.children_system


def status_of(process: subprocess.Popen[bytes]) -> int:
    """Return the exit status of a command, which is killed if it does not end in time."""
    limit_s = NIGHTLY_STEP_S_MAX if "--nightly" in sys.argv else STEP_S_MAX
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        print(f"killed after {limit_s} s", flush=True)
        process.kill()
        return process.wait()


@contextmanager
def files_of(commands: list[list[str]]) -> Iterator[dict[str, str]]:
    """Yield variables that put temporary files into memory, if it has space and allows programs."""
    real_disk = any(RELIABILITY in part or part.endswith("/reliability") for part in chain(*commands))
    usable = not real_disk and MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    found = os.statvfs(MEMORY) if usable else None
    if found is None or found.f_flag & os.ST_NOEXEC or found.f_bavail * found.f_frsize < MEMORY_BYTES:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="b-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)  # PostgreSQL has a user of its own
        yield {"TMPDIR": folder}


def main() -> int:
    """Run every check, also after one has failed; return the exit status."""
    arguments = sys.argv[1:]
    if len(arguments) > 1 and {"--fast", "--nightly"} & set(arguments):
        sys.exit("--fast and --nightly stand alone: with arguments for pytest, leave them out")
    heed_signals()
    bin_folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    # Each worker of pytest and each server would compile everything again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if arguments == ["--fast"]:
        environment |= FAST_ENVIRONMENT
    elif arguments == ["--nightly"]:
        environment |= NIGHTLY_ENVIRONMENT
    spent_s: Counter[str] = Counter()
    for commands in preparing(fast=arguments == ["--fast"]):
        if failed := run(commands, environment, spent_s):
            sys.exit("failed: " + "\n".join(failed))
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # PostgreSQL has a user of its own
        environment[SHARED_FILES] = folder
        for commands in checks(arguments, Path(folder)):
            with files_of(commands) as files:
                failed += run(commands, environment | files, spent_s)
    print(f"The slowest of {len(spent_s)} test files:")
    for file, seconds in spent_s.most_common(SLOWEST):
        print(f"{seconds:8.1f} s  {file}")
    for name in failed:
        print(f"failed: {name}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
