"""The check runs each file once, and the files that it names exist: a wrong name would have no effect."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import effort, run
from tests.cli.warm import program
from tests.effort import LONG, crossed, dealt

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [*LONG, *run.FAST, *sorted(run.SLOW), run.RELIABILITY])
def test_what_the_check_names_is_there(name: str) -> None:
    assert (ROOT / name).exists(), "tests/run.py or tests/effort.py names a file that is gone"


def test_independent_parameters_are_crossed_at_night_and_each_has_its_turn_by_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    axes = ["abc", [1, 2], range(5)]
    monkeypatch.setattr(effort, "PROFILE", "random")
    assert len(set(crossed(*axes))) == 3 * 2 * 5
    monkeypatch.setattr(effort, "PROFILE", "same")
    found = crossed(*axes)
    assert len(found) == 5
    assert [set(values) for values in zip(*found, strict=True)] == [set(axis) for axis in axes]


def lay_out(folder: Path, *files: str) -> None:
    for file in files:
        (folder / file.replace("/", run.SLASH)).touch()


def test_each_file_goes_to_one_process_and_the_longest_come_first(tmp_path: Path) -> None:
    files = ["tests/unit/test_b.py", LONG[1], "tests/cli/test_a.py", LONG[0]]
    lay_out(tmp_path, *files)
    one, two = dealt(tmp_path), dealt(tmp_path)
    assert [next(one), next(two), next(one), next(two)] == [LONG[0], LONG[1], files[2], files[0]]
    assert [*one, *two] == []


def test_a_process_runs_all_files_that_it_gets(tmp_path: Path) -> None:
    """Fixtures of all folders above them are there for each."""
    files = ["tests/unit/test_turns.py", "tests/runs/test_list_children.py", "tests/worker/test_then_get.py"]
    (folder := tmp_path / "dealt").mkdir()
    lay_out(folder, *files)
    (tmp_path / "run.py").write_text("import pytest, sys\n\nsys.exit(pytest.console_main())\n")
    command = [program("python"), tmp_path / "run.py", "-vv", "--assert=plain", f"--dealt={folder}"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert all(file in done.stdout for file in files)
    assert not list(folder.iterdir())


def test_every_test_file_is_dealt_out_once(tmp_path: Path) -> None:
    steps = run.checks([], tmp_path)
    assert len(steps[0]) == run.AT_ONCE + len(run.READING)
    assert len(steps[1]) == run.RELIABILITY_AT_ONCE
    found = [file for folder in tmp_path.iterdir() for file in dealt(folder)]
    wanted = (ROOT / "tests").glob("**/test_*.py")
    assert sorted(found) == sorted(str(path.relative_to(ROOT)) for path in wanted)


def test_no_two_test_files_share_a_name() -> None:
    """Their folders are no packages, so a process cannot import the second one."""
    names = Counter(path.name for path in (ROOT / "tests").glob("**/test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


COMMAND = """
import os, sys, time
try:
    print(os.getpid(), flush=True)
    time.sleep(1000)
except KeyboardInterrupt:
    print("stopped what it had started", flush=True)
"""

CHECK = """
import collections, os, sys
from tests import run
run.heed_signals()
run.run([[sys.executable, "-c", sys.argv[1]]], dict(os.environ), collections.Counter())
"""


def test_a_check_that_is_told_to_end_ends_its_tests_first() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHECK, COMMAND], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as check:
        assert check.stdout is not None
        try:
            pid = next(line for line in check.stdout if line.strip().isdecimal()).strip()
            check.send_signal(signal.SIGTERM)
            assert check.stdout.read() == "stopped what it had started\n"
            assert check.wait(run.ENDING_S) == 128 + signal.SIGTERM
        finally:
            check.kill()
    assert not Path("/proc", pid).exists()
