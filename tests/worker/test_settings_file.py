"""`bedrock-worker --config`: the table [worker] sets options; an option and a variable take precedence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bedrock_worker import cli
from bedrock_worker.options import WorkerOptions
from click.testing import CliRunner, Result


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[WorkerOptions]:
    """Put a worker in place that notes its options."""
    seen: list[WorkerOptions] = []

    async def work(options: WorkerOptions, _: Any) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(cli, "_work", work)
    monkeypatch.setattr(cli, "switch_user", lambda *_, **__: None)
    monkeypatch.setattr(cli.log, "start_logging", lambda *_: None)
    return seen


def worker(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(cli.main, arguments, env=env)


def written(folder: Path, text: str) -> Path:
    path = folder / "worker.toml"
    path.write_text(text)
    return path


def test_the_file_sets_what_neither_an_option_nor_a_variable_does(
    begun: list[WorkerOptions], tmp_path: Path
) -> None:
    text = """\
[server]
port = 1
[worker]
name = ["mail/*", "a b"]
concurrency = 3
timeout = "5m"
grace = "7s"
burst = true
env = ["A=1"]
max_load = 2
"""
    file = str(written(tmp_path, text))
    result = worker("--config", file, "--concurrency", "4", "--", "true", BEDROCKJOBS_WORKER_GRACE="8s")
    assert result.exit_code == 0, result.output
    (found,) = begun
    assert (found.names, found.concurrency, found.timeout_s, found.grace_s) == (("mail/*", "a b"), 4, 300, 8)
    assert (found.burst, found.env, found.load_max) == (True, {"A": "1"}, 2)
    assert worker("--", "true", BEDROCKJOBS_CONFIG=file).exit_code == 0
    assert begun[1].concurrency == 3


def test_all_that_is_bad_is_told_at_once(begun: list[WorkerOptions], tmp_path: Path) -> None:
    text = """\
[worker]
nam = ["a"]
concurrency = 0
timeout = 5
grace = "soon"
burst = "yes"
env = "A=1"
isolation = "thread"
max_load = "much"
"""
    file = written(tmp_path, text)
    result = worker("--config", str(file), "--", "true")
    assert (result.exit_code, begun) == (78, [])
    for line, words in (
        (2, "nam: there is no such setting, did you mean name?"),
        (3, "concurrency: 0 is not in the range"),
        (4, "timeout: expected text in quotes"),
        (5, "grace: expected a duration like 90s"),
        (6, "burst: expected true or false"),
        (7, "env: expected a list of texts"),
        (8, "isolation: 'thread' is not one of"),
        (9, "max_load: expected a number"),
    ):
        assert f"{file}:{line}: {words}" in result.stderr
    absent = worker("--config", str(tmp_path / "none"), "--", "true")
    assert (absent.exit_code, "No such file" in absent.stderr) == (78, True)
