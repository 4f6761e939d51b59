"""The description at /openapi.json against a live server: schemathesis with all of its checks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.effort import PROFILE, examples

EXAMPLES = examples(2, night=20)
"""Made-up requests for each command."""

RUN_S = examples(600, night=7_200)
"""Time after which a run has failed, many times what it takes on a machine with nothing else to do."""

pytestmark = pytest.mark.timeout(RUN_S + 60)

CONFIG = """
[generation]
deterministic = true
max-examples = EXAMPLES

[phases.coverage]
unexpected-methods = METHODS

[[operations]]
include-operation-id = ["Query", "getQuery", "PauseJobs", "UpdateJob"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "409"]
"""
"""No schema can tell which text is SQL, which moment is still to come, or that something is to be changed."""

HOOKS = """
from collections import Counter

import schemathesis

tried = Counter()


def whole(value):
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list) else value


@schemathesis.hook
def map_body(context, body):
    return whole(body)


@schemathesis.hook
def filter_case(context, case):
    tried[context.operation.label] += 1
    return tried[context.operation.label] % EACH == 1 % EACH
"""
"""For JSON Schema 5.0 is an integer; here a whole number is spelled without a point. The filter counts the
cases of each command."""

BOUNDARY_EACH = examples(5, night=1)
"""By day one in so many boundaries of each command is tried, at night all 8,000 of them."""

NOT_MADE_UP = "^/(CreateToken|CreateJobs)$"
"""From the first token on the server answers nothing without one. A job has too many rules for made-up lists
of jobs; CreateJob has the same rules for one."""

METHODS = ["get", "put", "patch", "delete", "options", "post", "trace"][:: examples(3, night=1)]
"""Methods that a command which is not for them must refuse."""

LARGE = (
    "^/(CreateToken|FinishJobs|SyncRules|SyncSchedules|UpdateJob|GetJobs|RetryJob|FailJob|KillRun"
    "|cronken/events)$"
)
"""Paths whose boundaries are those of others as well: the phase that tries each boundary leaves them out. By
day made-up requests are for these alone, so that each command is tried in one phase; at night for all."""

MADE_UP = ["--exclude-path-regex", NOT_MADE_UP]
if PROFILE != "random":
    MADE_UP += ["--include-path-regex", LARGE]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Return the address of a server with an empty database."""
    command = [
        sys.executable,
        "-m",
        "bedrockjobs",
        "serve",
        "--port",
        "0",
        "--database",
        tmp_path / "jobs.db",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            listens = re.search(r"127\.0\.0\.1:\d+", server.stdout.readline())
            assert listens is not None
            yield f"http://{listens[0]}"
        finally:
            server.terminate()


@pytest.mark.parametrize(
    ("phases", "more", "each", "least"),
    [("examples,fuzzing", MADE_UP, 1, 9), ("coverage", ["--exclude-path-regex", LARGE], BOUNDARY_EACH, 30)],
    ids=["values", "boundaries"],
)
def test_every_answer_is_as_described(
    address: str, tmp_path: Path, phases: str, more: list[str], each: int, least: int
) -> None:
    config = CONFIG.replace("EXAMPLES", str(EXAMPLES)).replace("METHODS", json.dumps(METHODS))
    (tmp_path / "schemathesis.toml").write_text(config)
    (tmp_path / "hooks.py").write_text(HOOKS.replace("EACH", str(each)))
    command = [
        Path(sys.executable).with_name("st"),
        *("--config-file", tmp_path / "schemathesis.toml"),
        *("run", f"{address}/openapi.json?lax=1", "--checks", "all", "--phases", phases),
        *("--suppress-health-check", "all", "--warnings", "off", "--no-color", *more),
    ]
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "SCHEMATHESIS_HOOKS": "hooks"}
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=RUN_S
    )
    assert run.returncode == 0, run.stdout[-8_000:] + run.stderr[-2_000:]
    tested = re.search(r"Tested: (\d+)", run.stdout)
    assert tested is not None
    assert int(tested[1]) >= least
