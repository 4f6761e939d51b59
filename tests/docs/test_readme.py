"""The README, the tutorial and pages with sessions are executed against a server process, reply by reply."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import live_server
from tests.docs.sessions import Player, alike, steps, turns

ROOT = Path(__file__).parents[2]


def test_the_sessions_of_the_readme(player: Player) -> None:
    """Functions, curl, nc and bedrock-worker do what the README shows."""
    assert player.play(ROOT / "README.md") >= 8


@pytest.mark.parametrize("page", ["first-job", "every-way-in"])
def test_the_tutorials(player: Player, page: str) -> None:
    """Every step works as shown."""
    assert player.play(ROOT / f"docs/tutorial/{page}.md") >= 15


def test_the_readme_is_short() -> None:
    """It can be read before the decision to try the program."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize(
    ("page", "count"), [("schedules", 10), ("runs-and-retries", 15), ("recover-from-a-failed-night", 15)]
)
def test_the_pages_on_runs(player: Player, page: str, count: int) -> None:
    """The sessions of the pages on schedules and on runs work as shown."""
    assert player.play(ROOT / f"docs/how-to/{page}.md") >= count


def test_the_page_on_the_standing_clock(tmp_path: Path) -> None:
    """The sessions of the page on the test clock work as shown."""
    server = live_server.start(tmp_path / "jobs.db", "--test-clock")
    try:
        assert Player(server, tmp_path).play(ROOT / "docs/how-to/use-a-test-clock.md") >= 10
    finally:
        live_server.stop(server.process)


def test_a_wrong_answer_is_found(player: Player, tmp_path: Path) -> None:
    """A page with a wrong output fails."""
    page = tmp_path / "page.md"
    page.write_text("```console\n$ bedrockjobs job create foo\nCreated job 2.\n```\n")
    with pytest.raises(AssertionError, match="bedrockjobs job create foo"):
        player.play(page)
    page.write_text("```console\n$ nc localhost 8888\nPing\n\n404 No job found\nContent-Length: 0\n```\n")
    with pytest.raises(AssertionError, match="200 OK"):
        player.play(page)


def test_the_test_command_is_where_ci_looks_for_it() -> None:
    """One line, in its own block, directly after the comment."""
    found = re.search(r"^<!-- test -->\n```sh\n(.+)\n```$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert found is not None
    assert found[1].endswith(".venv-test/bin/python tests/run.py")


def test_the_run_command_names_what_is_installed() -> None:
    """`bedrockjobs` and `bedrock-worker` are installed beside the interpreter."""
    for program in ("bedrockjobs", "bedrock-worker"):
        path = Path(sys.executable).parent / program
        assert os.access(path, os.X_OK)
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
        assert "0.1.0" in done.stdout


def test_sessions_are_read_as_they_are_written() -> None:
    """Commands over several lines, conversations with and without bodies."""
    assert list(steps("$ cat <<X\n> a\n> X\na\n$ true\n")) == [("cat <<X\na\nX", "a"), ("true", "")]
    text = "A\nb: c\n\n200 OK\nContent-Length: 2\n\n{}\n\nD\n\n404 No\nContent-Length: 0\n"
    assert list(turns(text)) == [
        ("A\nb: c\n\n", "200 OK\nContent-Length: 2\n\n{}"),
        ("D\n\n", "404 No\nContent-Length: 0"),
    ]
    assert alike("2026-11-21 10:00:37.074  pid=12") == "TIME pid=N"
