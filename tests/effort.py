"""How much a test does: enough to judge a change by day, and much more at night.

It says only how often and in which order; what a test does with each example is always the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from tests.run import SLASH

PROFILE = os.environ.get("BEDROCKJOBS_TEST_PROFILE", "same")
"""``same``: the same examples in each run. ``random``: others in each run, and as many as a night allows.
``fast``: a tenth of the same, half of the tests of servers, and one event loop for both protocols;
``run.py --fast`` sets it."""

LONG = [
    "tests/docs/test_readme.py",
    "tests/worker/warm/test_stopped_supervisors.py",
    "tests/docs/test_failover_page.py",
    "tests/docs/test_backup_page.py",
    "tests/docs/test_python_pages.py",
    "tests/reliability/test_kills.py",
    "tests/reliability/test_shared_kills.py",
    "tests/reliability/test_shared_load.py",
    "tests/reliability/test_runs_killed.py",
    "tests/reliability/test_io_faults.py",
    "tests/reliability/test_other_hands.py",
    "tests/reliability/test_soak.py",
    "tests/reliability/test_workflows_killed.py",
    "tests/reliability/test_takeover.py",
    "tests/reliability/test_power.py",
    "tests/protocol/test_memory_storms.py",
    "tests/worker/test_watchdog_client.py",
    "tests/simulation/test_histories.py",
    "tests/protocol/test_loop_time.py",
    "tests/pages/test_every_page.py",
    "tests/protocol/test_openapi_against_server.py",
    "tests/pages/test_overview.py",
    "tests/protocol/test_openapi_clients.py",
    "tests/worker/warm/test_warm_functions.py",
    "tests/protocol/test_loop_stalls.py",
    "tests/conformance/test_cases.py",
    "tests/pages/test_jobs.py",
    "tests/pages/test_job.py",
    "tests/typed/test_types.py",
    "tests/postgresql/test_dates.py",
    "tests/postgresql/test_reader_rows.py",
    "tests/worker/warm/test_process_state.py",
    "tests/fuzz/test_readers.py",
    "tests/protocol/test_hostile.py",
    "tests/conformance/test_hand_off.py",
    "tests/deploy/test_service.py",
    "tests/cli/test_much_output.py",
    "tests/worker/test_command_line.py",
    "tests/worker/test_program_selector.py",
    "tests/worker/warm/test_pooled.py",
    "tests/worker/warm/test_forked_functions.py",
    "tests/worker/test_job_run.py",
    "tests/worker/test_rights.py",
    "tests/architecture/test_effort.py",
    "tests/architecture/test_query_plans.py",
    "tests/architecture/test_docstrings.py",
]
"""Files that take longest. They come first: a file is run as a whole, and the last one alone."""


def examples(day: int, *, night: int) -> int:
    """Return how many examples a test makes up under the profile of this run."""
    if PROFILE == "fast":
        return max(1, day // 10)
    return night if PROFILE == "random" else day


def crossed(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return combinations of independent parameters: all at night, by day each value in one."""
    values = [list(axis) for axis in axes]
    if PROFILE == "random":
        return list(product(*values))
    return [tuple(axis[at % len(axis)] for axis in values) for at in range(max(map(len, values)))]


def dealt(folder: Path) -> Iterator[str]:
    """Yield the test files that a folder names, the longest first, each to one of those who share it."""
    files = {place.name.replace(SLASH, "/"): place for place in folder.iterdir()}
    places = {file: place for place, file in enumerate(LONG)}
    for file in sorted(files, key=lambda file: (places.get(file, len(LONG)), file)):
        try:
            files[file].unlink()
        except FileNotFoundError:  # another process has it
            continue
        yield file
