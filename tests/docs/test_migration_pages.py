"""The pages about definitions and other systems are executed: every file is read, every reply compared.

A comment ``file: NAME`` gives the block below it a name: one that does not exist yet is written, one that a
command has written is compared. ``answers`` lists the server's reply to each command on this page.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from bedrockjobs.cli import main, session
from bedrockjobs.client import Response
from bedrockjobs.commands import Command
from bedrockjobs.definitions import format_of, read
from tests.docs.sessions import steps

FOLDER = Path(__file__).parents[2] / "docs/how-to"
PAGES = [
    "schedules-as-code",
    "migrate-from-cronken",
    "migrate-from-castle-cron",
    "migrate-from-ftl",
    "migrate-from-luci",
    "migrate-from-kubernetes",
    "migrate-from-rails",
]

_PART = re.compile(
    r"^(?:<!-- (?P<key>file|answers): (?P<value>(?:(?!-->).)*) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Answering:
    """A fake client: replies as the page says, or with an empty body."""

    def __init__(self) -> None:
        self.answers: dict[str, object] = {}

    def exchange(self, command: Command[object]) -> Response:
        answer = self.answers.get(type(command).__name__)
        return Response(200, "OK", {}, b"" if answer is None else json.dumps(answer).encode())

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_happens(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file can be read, each command prints what the page says and writes what it shows."""
    monkeypatch.chdir(tmp_path)
    server = Answering()
    monkeypatch.setattr(session, "connect", lambda *_: server)
    ran = files = 0
    for part in _PART.finditer((FOLDER / f"{page}.md").read_text()):
        if part["key"] == "answers":
            server.answers = json.loads(part["value"])
        elif part["key"] == "file":
            _file(part["value"], part["text"])
            files += 1
        if part["kind"] == "console":
            for command, printed in steps(part["text"]):
                program, *arguments = shlex.split(command)
                assert program == "bedrockjobs"
                result = CliRunner().invoke(main, arguments, prog_name=program)
                assert result.output.strip() == printed.strip(), command
                assert result.exit_code == 0
                ran += 1
    assert ran
    assert files > 1


def _file(named: str, text: str) -> None:
    """Write a file, or compare it; ``NAME, SCHEDULE`` compares one schedule of it."""
    name, _, schedule = named.partition(", ")
    path = Path(name)
    if schedule:
        (shown,) = read(text, "toml", name).schedules
        found = {entry.name: entry for entry in read(path.read_text(), "toml", name).schedules}
        assert found[schedule] == shown
    elif path.exists():
        assert path.read_text() == text
    else:
        path.write_text(text)


def test_the_three_formats_of_the_page_say_the_same() -> None:
    """TOML, YAML and JSON."""
    found = []
    for part in _PART.finditer((FOLDER / "schedules-as-code.md").read_text()):
        if part["key"] == "file" and (part["value"]).startswith("jobs."):
            form = format_of(part["value"])
            assert form is not None
            found.append(read(part["text"], form, part["value"]))
    assert len(found) == 3
    assert found[0] == found[1] == found[2]


def test_the_page_names_what_a_definition_takes() -> None:
    """Every key in the page's table is a key of definitions."""
    text = (FOLDER / "schedules-as-code.md").read_text()
    table = re.search(r"^\| key \| what \|\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    assert table is not None
    keys = {key for row in table[1].splitlines()[1:] for key in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert {"name", "schedule", "zone", "cmd", "argv", "url", "data", "paused", "job_priority"} == keys
