"""The settings file, `serve --config` and `bedrockjobs config`: precedence, and messages about errors."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import click
import pytest
from bedrock_worker.cli import main as worker
from cli_fake import run
from click.testing import CliRunner
from pydantic.fields import FieldInfo

from bedrockjobs.base import settings_file
from bedrockjobs.base.settings import Settings
from bedrockjobs.base.settings_file import (
    SETTING_LINES_MAX,
    SETTINGS_FILE_BYTES_MAX,
    SettingsFileError,
    read_table,
)
from bedrockjobs.cli import main as bedrockjobs
from bedrockjobs.cli.config import example_text
from bedrockjobs.cli.database import database_named, file_named
from bedrockjobs.cli.session import FILES
from bedrockjobs.cli.settings_sources import (
    PATTERNS,
    found_settings,
    read_settings,
    settings_from,
    variable_name,
)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    monkeypatch.setattr(settings_file, "SYSTEM_PLACE", tmp_path / "etc/config.toml")
    for field in (*Settings.model_fields, "config"):
        monkeypatch.delenv(variable_name(field), raising=False)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Install a fake server that records its settings."""
    seen: list[Settings] = []
    module = ModuleType("bedrockjobs.server")
    module.run_server = lambda settings, _: seen.append(settings) or 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bedrockjobs.server", module)
    return seen


def written(folder: Path, text: str) -> Path:
    path = folder / "bedrockjobs.toml"
    path.write_text(text)
    return path


def test_an_option_beats_a_variable_which_beats_the_file(served: list[Settings], tmp_path: Path) -> None:
    file = written(tmp_path, '[server]\nport = 1\nhost = "::1"\nquery_s = "2m"\nbody_s = 7\nstandby = true\n')
    env = {"BEDROCKJOBS_PORT": "2", "bedrockjobs_host": "localhost", "BEDROCKJOBS_CONFIG": str(file)}
    assert run("serve", "--port", "3", env=env).exit_code == 0
    run("serve", "--config", str(file), env={"BEDROCKJOBS_CONFIG": "/nowhere"})
    first, second = served
    assert (first.port, first.host, first.query_s, first.body_s) == (3, "localhost", 120, 7)
    assert (second.port, second.host, second.standby) == (1, "::1", True)


def test_a_variable_may_hold_a_duration_like_an_option(served: list[Settings]) -> None:
    run("serve", "--body-s", "3m", env={"BEDROCKJOBS_QUERY_S": "2m", "BEDROCKJOBS_HEAD_S": "4"})
    assert [(one.body_s, one.query_s, one.head_s) for one in served] == [(180, 120, 4)]


def test_other_commands_use_the_file_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, f'[server]\ndatabase = "{tmp_path}/none.db"\n')
    monkeypatch.setenv("BEDROCKJOBS_CONFIG", str(file))
    assert settings_from({"database": None}).database == f"{tmp_path}/none.db"
    assert f"{tmp_path}/none.db" in run("backup", str(tmp_path / "copy.db")).stderr


def test_a_file_in_a_usual_place_is_read_where_none_is_named(
    served: list[Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, system = tmp_path / "own/bedrockjobs/config.toml", tmp_path / "etc/config.toml"
    for port, place in ((2, own), (1, system)):
        place.parent.mkdir(parents=True)
        place.write_text(f"[server]\nport = {port}\n")
    named = written(tmp_path, "[server]\nport = 3\n")
    run("serve")
    run("serve", "--config", str(named))
    run("serve", env={"BEDROCKJOBS_CONFIG": str(named)})
    run("serve", env={"BEDROCKJOBS_CONFIG": "/dev/null"})
    own.unlink()
    run("serve")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".config/bedrockjobs").mkdir(parents=True)
    (tmp_path / ".config/bedrockjobs/config.toml").write_text("[server]\nport = 4\n")
    run("serve")
    assert [settings.port for settings in served] == [2, 3, 3, Settings().port, 1, 4]
    (tmp_path / ".config/bedrockjobs/config.toml").write_text("[server]\nprot = 4\n[worker]\nnane = 1\n")
    assert run("serve").exit_code == 78
    result = CliRunner().invoke(worker, ["--", "true"])
    assert (result.exit_code, "nane: there is no such setting, did you mean name?" in result.output) == (
        78,
        True,
    )


def test_the_schema_of_the_settings_is_that_of_all_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert database_named("postgresql://h/d", None).schema == "bedrockjobs"
    monkeypatch.setenv("BEDROCKJOBS_DATABASE_SCHEMA", "jobs")
    assert database_named("postgresql://h/d", None).schema == "jobs"
    assert database_named("postgresql://h/d", "other").schema == "other"


def test_a_database_named_by_hand_is_not_judged_by_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_standby = 'database = "postgresql://h/d"\ndatabase_read = "postgresql://h/e"'
    monkeypatch.setenv("BEDROCKJOBS_CONFIG", str(written(tmp_path, f"[server]\n{of_standby}\n")))
    assert file_named("old.db") == Path("old.db")
    with pytest.raises(click.UsageError, match="expected a path"):
        file_named("mysql://h/d")


def test_all_that_is_bad_is_told_at_once(served: list[Settings], tmp_path: Path) -> None:
    text = """\
# comment
other = 1
[server]
prot = 1
port = "http"
standby = 1
batch_max = 0
durability = "none"
head_s = "soon"
query_s = nan
host = ["a"]
[server.unix]
a = 1
"""
    file = written(tmp_path, text)
    result = run("serve", "--config", str(file), "--pending-max", "0", env={"BEDROCKJOBS_HEADERS_MAX": "1"})
    assert (result.exit_code, result.stdout, served) == (78, "", [])
    for line, words in (
        (2, "other: expected the table [server] or [worker]"),
        (4, "prot: there is no such setting, did you mean port?"),
        (5, "port: expected a whole number, got 'http'"),
        (6, "standby: expected true or false, got '1'"),
        (7, "batch_max: expected at least 1, got '0'"),
        (8, "durability: expected 'full', 'replicated' or 'relaxed', got 'none'"),
        (9, "head_s: expected a duration like 90s"),
        (10, "query_s: expected a duration like 90s"),
        (11, "host: expected text in quotes, got a list"),
        (12, "unix: expected text in quotes, got a table"),
    ):
        assert f"{file}:{line}: {words}" in result.stderr
    assert "--pending-max: expected at least" in result.stderr
    assert "BEDROCKJOBS_HEADERS_MAX: expected at least" in result.stderr
    checked = run("config", "check", str(file))
    assert (checked.exit_code, checked.stderr.count(f"{file}:")) == (78, 10)


def test_faults_outside_the_file_are_wrong_usage(served: list[Settings], tmp_path: Path) -> None:
    file = written(tmp_path, "[server]\nport = 1\n")
    assert run("serve", "--config", str(file), "--batch-max", "0").exit_code == 2
    assert served == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server]\nport = \n", ":2: expected TOML"),
        ("[server]\nport = 1\nport = 2\n", ":3: expected TOML"),
        ("server = 1\n", ":1: server: expected the table"),
        ('[server]\ndatabase_read = "postgresql://h/d"\ndatabase = "x.db"\n', ":2: database_read: a standby"),
        ('[server]\ndatabase = "postgresql://h/d"\nwal_bytes = 0\n', ":3: wal_bytes: is for a file"),
        ("[server]\nport = 1\n[worker]\ncurrency = 1\n", ":4: currency: there is no such setting"),
        ('[worker]\nconcurrency = "two"\n', ":2: concurrency: expected a whole number"),
        ("#" * (SETTINGS_FILE_BYTES_MAX + 1), f": expected at most {SETTINGS_FILE_BYTES_MAX} bytes"),
    ],
)
def test_a_bad_file_is_refused(text: str, words: str, tmp_path: Path) -> None:
    file = written(tmp_path, text)
    of_worker = () if "[worker]" in text else (("config", "show", "--config", str(file)),)
    for command in (("config", "check", str(file)), *of_worker):
        result = run(*command)
        assert (result.exit_code, result.stdout) == (78, "")
        assert f"{file}{words}" in result.stderr


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    assert run("config", "check", str(tmp_path / "none")).exit_code == 78
    assert "No such file" in run("config", "check", str(tmp_path / "none")).stderr
    assert run("config", "check", str(tmp_path)).exit_code == 78
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(SettingsFileError, match="expected UTF-8"):
        read_table(tmp_path / "binary", "server")


def test_a_standby_may_be_in_the_file_while_its_database_is_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, '[server]\ndatabase_read = "postgresql://h/d"\n')
    assert run("config", "check", str(file)).exit_code == 0
    result = run("config", "show", "--config", str(file))
    assert (result.exit_code, f"{file}:2: database_read" in result.stderr) == (78, True)
    monkeypatch.setenv("BEDROCKJOBS_DATABASE", "postgresql://h/d")
    assert found_settings({}, file).settings.database_read == "postgresql://h/d"


def test_lines_are_those_where_a_value_begins(tmp_path: Path) -> None:
    text = 'server.a = """\nb = 1\n"""\r\nserver.b = [\n1,\n]\n[worker]\n"c" = 1\n'
    file = written(tmp_path, text)
    places = {key: entry.place for key, entry in read_table(file, "server").entries.items()}
    assert places == {"a": f"{file}:1", "b": f"{file}:4"}
    assert read_table(file, "worker").entries["c"].place == f"{file}:8"
    long = "[server]\na = [\n" + "\n" * SETTING_LINES_MAX + "]\nb = 1\n"
    assert read_table(written(tmp_path, long), "server").entries["b"].place == str(file)


SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f'database = "mysql://u:{SECRET}@h/d"',
        f'database_read = "mysql://u:{SECRET}@h/d"',
        f'database = "postgresql://u:{SECRET}@h/d"\ndatabase_direct = "postgresql://h/d?password={SECRET}"',
        f'database = "postgresql://u:a?{SECRET}@h/d"',
        f'database = "postgresql://u:a@{SECRET}?{SECRET}@h/d"',
        f'databse = "postgresql://u:{SECRET}@h/d"',
        f'port = "postgresql://u:{SECRET}@h/d"',
        f'database = "postgresql://u:{SECRET}@h/d',
    ],
)
def test_passwords_are_never_shown(text: str, tmp_path: Path) -> None:
    file = written(tmp_path, f"[server]\n{text}\n")
    for command in (
        ("check", str(file)),
        ("show", "--origin", "--config", str(file)),
        ("show", "--config", str(file), "-o", "json"),
    ):
        result = run("config", *command)
        assert SECRET not in result.output + result.stderr
    bad = run("config", "show", env={"BEDROCKJOBS_DATABASE_READ": f"mysql://u:{SECRET}@h/d"})
    assert (bad.exit_code, SECRET in bad.stderr, "***" in bad.stderr) == (2, False, True)


def test_a_url_that_is_a_secret_is_not_shown(tmp_path: Path) -> None:
    file = written(tmp_path, f'[server]\nheartbeat_url = "https://watch.example.com/{SECRET}"\n')
    shown = run("config", "show", "--config", str(file))
    assert (shown.exit_code, SECRET in shown.output, "***" in shown.output) == (0, False, True)


def test_show_says_who_set_each(tmp_path: Path) -> None:
    file = written(tmp_path, "[server]\n\nquery_s = 90\nbatch_max = 5\nport = 4\n")
    arguments = ("config", "show", "--config", str(file), "--port", "1", "--origin")
    result = run(*arguments, "-o", "json", env={"BEDROCKJOBS_BATCH_MAX": "7"})
    found = {each["setting"]: (each["value"], each["origin"]) for each in json.loads(result.stdout)}
    assert list(found) == list(Settings.model_fields)
    assert found["port"] == (1, "--port")
    assert found["batch_max"] == (7, "BEDROCKJOBS_BATCH_MAX")
    assert found["query_s"] == (90, f"{file}:3")
    assert found["host"] == ("127.0.0.1", "default")
    table = run(*arguments).stdout
    assert re.search(rf"^query_s +1m30s +{re.escape(str(file))}:3$", table, re.MULTILINE)
    assert "origin" not in run("config", "show").stdout


def test_the_example_sets_every_default_once_its_marks_are_gone(tmp_path: Path) -> None:
    text = run("config", "example").stdout
    assert text == example_text()
    assert tomllib.loads(text) == {"server": {}}
    whole = re.sub(r"^#(?=\w)", "", text, flags=re.MULTILINE)
    file = written(tmp_path, whole)
    assert list(tomllib.loads(whole)["server"]) == list(Settings.model_fields)
    assert read_settings(file).problems == ()
    assert found_settings({}, file).settings == Settings()
    assert all(
        " ".join((info.description or "").split()[:3]) in whole for info in Settings.model_fields.values()
    )
    assert len(text) * 4 < SETTINGS_FILE_BYTES_MAX


def options_of(command: click.Command, path: str) -> list[tuple[str, click.Option]]:
    """Return every option of a program, but for --help and --version."""
    found = [
        (path, each)
        for each in command.params
        if isinstance(each, click.Option) and each.name not in ("help", "version")
    ]
    for name, inner in getattr(command, "commands", {}).items():
        found += options_of(inner, f"{path}_{name}")
    return found


@pytest.mark.parametrize(
    ("program", "prefix"),
    [(bedrockjobs, "BEDROCKJOBS"), (worker, "BEDROCKJOBS_WORKER")],
    ids=["server", "worker"],
)
def test_every_option_of_both_programs_has_its_variable(program: click.Command, prefix: str) -> None:
    options = options_of(program, prefix)
    assert len(options) > 20
    assert any(option.name == "config" for _, option in options)
    without = []
    for path, option in options:
        of_setting = (
            program is bedrockjobs
            and (option.name in Settings.model_fields or option.name == "schema")
            and "[BEDROCKJOBS_" in (option.help or "")
        )
        of_program = program is bedrockjobs and path == prefix
        # What every command has of the program itself: its variable is the program's.
        shared = option.name in ("server", "output", *FILES) and not of_program
        automatic = program is bedrockjobs and option.allow_from_autoenv
        if not (of_setting or option.envvar or automatic or shared):
            without.append(f"{path} {option.opts}")
    assert without == []


def test_a_text_of_another_form_is_told_what_was_expected_and_no_secret(tmp_path: Path) -> None:
    """The error describes the form in words, not as a regular expression, for each setting that has one."""
    texts = [name for name, info in Settings.model_fields.items() if _has_pattern(info)]
    assert sorted(texts) == sorted(PATTERNS)
    lines = "".join(f'{name} = "\\n secret"\n' for name in texts)
    result = run("config", "check", str(written(tmp_path, f"[server]\n{lines}")))
    assert result.exit_code == 78
    for name, words in PATTERNS.items():
        got = "something else, which is not shown" if name in ("smtp", "heartbeat_url") else "'\\n secret'"
        assert f"{name}: expected {words}, got {got}\n" in result.stderr


def _has_pattern(info: FieldInfo) -> bool:
    return any(getattr(part, "pattern", None) for part in info.metadata)
