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

from bedrockjobs.commands import COMMANDS
from tests.cli.warm import program
from tests.effort import PROFILE, examples
from tests.run import ROOT

EXAMPLES = examples(1, night=20)
"""Made-up requests for each command that gets some."""

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
include-operation-id = [
    "Query", "getQuery", "PauseJobs", "MuteFailures", "UpdateJob", "CreateWorkflow", "AddToWorkflow"
]
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "409"]
"""
"""No schema can tell which text is SQL, which moment is still to come, that something is to be changed, or
which refs a workflow has."""

PHASES = """
[[operations]]
include-path-regex = "NOT_MADE_UP"
phases.fuzzing.enabled = false

[[operations]]
exclude-path-regex = "BOUNDARIES"
phases.coverage.enabled = false
"""

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
    if case.meta.phase.name.value != "coverage":
        return True
    tried[context.operation.label] += 1
    return tried[context.operation.label] % EACH == 1 % EACH
"""
"""For JSON Schema 5.0 is an integer; here a whole number is spelled without a point. The filter counts the
boundaries of each command."""

BOUNDARY_EACH = examples(32, night=1)
"""By day one in so many boundaries of a command is tried, at night all 8,000 of them."""

LARGE = {"FinishJobs", "SyncRules", "SyncSchedules", "UpdateJob", "GetJobs", "RetryJob", "FailJob", "KillRun"}
"""Commands whose boundaries are those of others as well: they get made-up requests."""

JOBS = {"CreateJob", "CreateJobs", "CreateWorkflow", "AddToWorkflow"}
"""Commands with too many rules for made-up requests."""

NIGHT = PROFILE == "random"

SKIPPED = set() if NIGHT else JOBS | {"SyncSchedules", "UpdateJob", "SyncRules", "FailJob"}
"""Commands of which only the examples are tried by day: they have all options of CreateJob, or those of
others, and each takes as long as ten others."""

TOKENS = "^/CreateToken$"
"""From the first token on the server answers nothing without one."""

REST = sorted(set(COMMANDS) - LARGE - JOBS)
EACH = examples(48, night=1)
"""By day one in so many of the rest gets boundaries, and another one made-up requests, as preparing a schema
for them takes longest. The examples of all commands are tried."""

BOUNDARIES = (sorted(JOBS) if NIGHT else ["RetryJob"]) + REST[::EACH]
"""Commands whose boundaries are tried, by day with the most common options of jobs."""

NOT_MADE_UP = sorted(JOBS | SKIPPED) + [name for at, name in enumerate(REST) if at % EACH != 1 % EACH]
"""Commands without made-up requests."""

METHODS = ["get", "put", "patch", "delete", "options", "post", "trace"][:: examples(3, night=1)]
"""Methods that a command which is not for them must refuse."""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Return the address of a server with an empty database."""
    command = [program("bedrockjobs"), "serve", "--port", "0", "--database", tmp_path / "jobs.db"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            listens = re.search(r"127\.0\.0\.1:\d+", server.stdout.readline())
            assert listens is not None
            yield f"http://{listens[0]}"
        finally:
            server.terminate()


def test_every_answer_is_as_described(address: str, tmp_path: Path) -> None:
    config = (CONFIG + PHASES).replace("EXAMPLES", str(EXAMPLES)).replace("METHODS", json.dumps(METHODS))
    config = config.replace("NOT_MADE_UP", paths(NOT_MADE_UP)).replace("BOUNDARIES", paths(BOUNDARIES))
    (tmp_path / "schemathesis.toml").write_text(config)
    (tmp_path / "hooks.py").write_text(HOOKS.replace("EACH", str(BOUNDARY_EACH)))
    command = [
        Path(sys.executable).with_name("st"),
        *("--config-file", tmp_path / "schemathesis.toml"),
        *("run", f"{address}/openapi.json?lax=1", "--checks", "all"),
        *("--phases", "examples,coverage,fuzzing", "--exclude-path-regex", TOKENS),
        *("--suppress-health-check", "all", "--warnings", "off", "--no-color"),
    ]
    folders = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ,
        "PYTHONPATH": folders,
        "SCHEMATHESIS_HOOKS": "hooks",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis"),  # tables of characters take seconds
    }
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=RUN_S
    )
    assert run.returncode == 0, run.stdout[-8_000:] + run.stderr[-2_000:]
    tested = re.search(r"Tested: (\d+)", run.stdout)
    assert tested is not None
    assert int(tested[1]) >= len(COMMANDS) - 1
    for phase in ("Examples", "Coverage", "Fuzzing"):
        assert re.search(rf"✅ +{phase} \(in", run.stdout), run.stdout[-8_000:]


def paths(commands: list[str]) -> str:
    """Return a regular expression of the paths of commands."""
    return f"^/({'|'.join(commands)})$"
