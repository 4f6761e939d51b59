"""The program as a whole, and `query`, `call`, `ping` and `status`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from cli_fake import FakeServer, run

from bedrockjobs import cli
from bedrockjobs.base.errors import BadQuery
from bedrockjobs.base.wire import wire_name
from bedrockjobs.client import Response, ServerUnreachable
from bedrockjobs.commands import COMMANDS

ROWS = '{"headers":["jobID","name","data","name"],"rows":[[1,"foo",{"a":1.0},null],[2,"42",{},"x"]]}'


# --- the program ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "env", "server"),
    [
        (["ping"], {}, "127.0.0.1:8888"),
        (["ping"], {"BEDROCKJOBS_SERVER": "a:1"}, "a:1"),
        (["-s", "b:2", "ping"], {"BEDROCKJOBS_SERVER": "a:1"}, "b:2"),
        (["--server", "b:2", "ping", "-s", "c:3"], {"BEDROCKJOBS_SERVER": "a:1"}, "c:3"),
        (["call", "Ping", "-s", "c:3"], {}, "c:3"),
        (["job", "show", "1", "-s", "c:3"], {}, "c:3"),
    ],
)
def test_the_server_is_named_anywhere(
    arguments: list[str], env: dict[str, str], server: str, fake: FakeServer
) -> None:
    assert run(*arguments, env=env).exit_code == 0
    assert fake.addresses == [server]


def test_the_form_may_come_from_the_environment(fake: FakeServer) -> None:
    fake.will("Status", {"version": "1"}, {"version": "1"})
    assert run("status", env={"BEDROCKJOBS_OUTPUT": "jsonl"}).stdout == '{"version":"1"}\n'
    assert run("status", "-o", "name", env={"BEDROCKJOBS_OUTPUT": "jsonl"}).stdout == "1\n"


def test_every_option_has_a_variable(fake: FakeServer) -> None:
    fake.will("ListJobs", {"jobs": []})
    run("job", "list", env={"BEDROCKJOBS_JOB_LIST_LIMIT": "20", "BEDROCKJOBS_JOB_LIST_NAME": "f*"})
    assert fake.wired == [("ListJobs", {"limit": 20, "name": "f*"})]


def test_a_bad_address_is_wrong_usage() -> None:
    result = run("ping", "-s", "ftp://example.org")
    assert result.exit_code == 2
    assert "Error: server: expected host" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["job", "create", "\udcff"], "Error: NAME: expected"),
        (["job", "create", "a", "--data", '{"a":"\udcff"}'], "half of a surrogate pair"),
        (["query", "SELECT '\udcff'"], "without lone surrogates"),
    ],
)
def test_an_argument_that_is_not_utf8_is_wrong(fake: FakeServer, arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, said in result.stderr) == (2, True)
    assert fake.asked == []


def test_version_and_help() -> None:
    assert run("--version").stdout.startswith("bedrockjobs 0.")
    shown = run("-h").stdout
    for words in ("serve", "NO_COLOR", "_BEDROCKJOBS_COMPLETE=bash_source", "124", "BEDROCKJOBS_SERVER"):
        assert words in shown


def test_help_lists_each_command_with_its_own_summary() -> None:
    context = click.Context(cli.main)
    listed = cli.main.summaries(context)
    assert [name for name, _ in listed] == cli.main.list_commands(context)
    for name, summary in listed:
        command = cli.main.get_command(context, name)
        assert command is not None
        assert not command.hidden
        assert summary == command.get_short_help_str(1_000)


@pytest.mark.parametrize(
    ("program", "spared"),
    [
        ("--version", ("pydantic", "bedrockjobs.client", "bedrockjobs.commands", "asyncio")),
        ("--help", ("pydantic", "bedrockjobs.client", "bedrockjobs.commands", "asyncio")),
        ("job list --help", ("asyncio", "aiohttp", "bedrockjobs.commands.overview", "bedrockjobs.job.rows")),
    ],
)
def test_a_call_imports_only_what_it_needs(program: str, spared: Sequence[str]) -> None:
    code = f"import atexit, sys; sys.argv[1:] = {program.split()}; from bedrockjobs.cli import main\n"
    code += f"atexit.register(lambda: print([name for name in {spared} if name in sys.modules]))\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_it_runs_as_a_module_and_completes() -> None:
    command = [sys.executable, "-m", "bedrockjobs"]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=30, check=True)
    assert version.stdout.startswith("bedrockjobs 0.")
    completion = subprocess.run(
        command,
        env={
            "_BEDROCKJOBS_COMPLETE": "bash_complete",
            "COMP_CWORD": "2",
            "COMP_WORDS": "bedrockjobs call CreateJ",
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert completion.stdout.split() == ["plain,CreateJob", "plain,CreateJobs"]


# --- query ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", ["select 1", "select 1;", "  select 1 ;\n"])
def test_query_ends_the_statement(sql: str, fake: FakeServer) -> None:
    fake.will("Query", '{"headers":["1"],"rows":[[1]]}')
    assert run("query", sql, "-o", "name").stdout == "1\n"
    [(name, given)] = fake.wired
    assert (name, given["format"]) == ("Query", "json")
    assert given["query"].replace(" ", "") == "select1;"


def test_query_shows_rows_in_each_form(fake: FakeServer) -> None:
    fake.will("Query", ROWS, ROWS, ROWS)
    assert [line.split() for line in run("query", "select").stdout.splitlines()] == [
        ["jobID", "name", "data", "name_2"],
        ["1", "foo", '{"a":1.0}'],
        ["2", "42", "{}", "x"],
    ]
    assert json.loads(run("query", "select", "-o", "json").stdout) == [
        {"jobID": 1, "name": "foo", "data": {"a": 1.0}, "name_2": None},
        {"jobID": 2, "name": "42", "data": {}, "name_2": "x"},
    ]
    assert run("query", "select", "-o", "jsonl").stdout.splitlines()[0] == (
        '{"jobID":1,"name":"foo","data":{"a":1.0},"name_2":null}'
    )


def test_query_reads_a_file(tmp_path: Path, fake: FakeServer) -> None:
    fake.will("Query", '{"headers":["a"],"rows":[]}')
    (tmp_path / "q.sql").write_text("select a\nfrom b;\n", encoding="utf-8")
    result = run("query", f"@{tmp_path}/q.sql")
    assert (result.exit_code, result.stdout.rstrip()) == (0, "a")
    assert fake.wired[0][1]["query"] == "select a\nfrom b;"


def test_a_query_that_is_stopped(fake: FakeServer) -> None:
    fake.will("Query", BadQuery("Query aborted", "it took longer than 1 s"))
    result = run("query", "select 1")
    assert (result.exit_code, result.stderr) == (1, "Error: 502 Query aborted: it took longer than 1 s\n")


# --- call -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_called_and_lists_its_keys(name: str) -> None:
    shown = run("call", name, "--help").stdout
    for field in COMMANDS[name].model_fields:
        assert f" {wire_name(field)}" in shown


def test_call_takes_keys_without_case_and_values_as_text(tmp_path: Path, fake: FakeServer) -> None:
    fake.will("CreateJob", {"jobID": 7})
    (tmp_path / "data.json").write_text('{"a":1.50}', encoding="utf-8")
    result = run(
        "call", "createjob", "NAME=@@x=y", f"data=@{tmp_path}/data.json", "JOBPRIORITY=1000", "unique=true"
    )
    assert (result.exit_code, result.stdout) == (0, "jobID  7\n")
    assert fake.wired == [
        ("CreateJob", {"name": "@x=y", "data": {"a": 1.5}, "jobPriority": 1000, "unique": True})
    ]


def test_call_reads_stdin(fake: FakeServer) -> None:
    fake.will("CreateJobs", {"jobIDs": [1, 2]})
    result = run("call", "CreateJobs", "jobs=@-", stdin='[{"name":"a"},{"name":"b"}]')
    assert fake.wired == [("CreateJobs", {"jobs": [{"name": "a"}, {"name": "b"}]})]
    assert result.stdout == "jobIDs\n1\n2\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["Nonsense"], "No such command 'Nonsense'"),
        (["QueryJob"], "jobID is required"),
        (["QueryJob", "jobID"], "expected key=value, got 'jobID'"),
        (["QueryJob", "id=1"], "QueryJob has no 'id'; it has connection, jobID, timeout"),
        (["QueryJob", "jobID=1", "jobid=2"], "jobID is given twice"),
        (["QueryJob", "jobID=x"], "jobID: expected digits"),
        (["CreateJob", "name=a", "data=@missing"], "data: cannot read missing"),
    ],
)
def test_a_bad_call_is_told_before_anything_is_sent(
    arguments: list[str], complaint: str, fake: FakeServer
) -> None:
    result = run("call", *arguments)
    assert (result.exit_code, fake.asked) == (2, [])
    assert complaint in result.stderr


@pytest.mark.parametrize(
    ("body", "form", "shown"),
    [
        ("", "table", "OK\n"),
        ("", "json", "{}\n"),
        ("", "name", ""),
        ('{"jobs":[{"jobID":1,"name":"a"}]}', "table", "jobID  name\n1      a\n"),
        ('{"jobs":[{"jobID":1,"name":"a"}]}', "jsonl", '{"jobID":1,"name":"a"}\n'),
        ('{"jobs":[{"jobID":1.0}]}', "json", '{\n  "jobs": [{"jobID":1.0}]\n}\n'),
        ('{"job":null}', "table", "job\n"),
        ('[[1,"a"],[2,"b"]]', "table", "1  2\n1  a\n2  b\n"),
        ("jobID | name\n1     | a\x1b[2J\n", "table", "jobID | name\n1     | a\\u001b[2J\n"),
    ],
)
def test_a_reply_of_any_shape_is_shown(body: str, form: str, shown: str, fake: FakeServer) -> None:
    fake.will("Query", Response(200, "OK", {}, body.encode()))
    assert run("call", "Query", "query=select;", "-o", form).stdout == shown


# --- ping and status ------------------------------------------------------------------------------------


def test_ping_tries_once(fake: FakeServer) -> None:
    result = run("ping")
    assert result.stdout.startswith("127.0.0.1:8888 answered in ")
    fake.will("Ping", ServerUnreachable("cannot connect to 127.0.0.1:8888: Connection refused"))
    assert run("ping").exit_code == 69
    assert fake.tries == [1, 1]
    assert run("status").exit_code == 0
    assert fake.tries == [1, 1, None]


def test_status_is_a_line_for_each_thing(fake: FakeServer) -> None:
    fake.will("Status", {"version": "1.0", "started": "2026-11-21 03:00:00", "waiting": 3})
    assert run("status").stdout.splitlines() == [
        "version        1.0",
        "started (UTC)  2026-11-21 03:00:00 (2d ago)",
        "waiting        3",
    ]
