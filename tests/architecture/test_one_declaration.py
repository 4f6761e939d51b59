"""A command is declared once: everything about it is derived from its class."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

import bedrockjobs
from bedrockjobs import commands, service
from bedrockjobs.commands import ALL, Command
from bedrockjobs.commands.base import Group, Role
from bedrockjobs.engine.handlers.context import HANDLERS, handles
from bedrockjobs.engine.handlers.create import TakeIn
from bedrockjobs.engine.handlers.serving import PackOutput

assert service.VERSION  # importing it is what imports all handlers


def by_name(kind: type[Command[Any]]) -> str:
    """Return the name of a test's command."""
    return kind.__name__


def test_every_command_has_a_handler_and_every_handler_a_command() -> None:
    known = {*ALL, PackOutput, TakeIn}  # the last two are the server's own
    without = [kind.__name__ for kind in known - HANDLERS.keys()]
    assert not without, "write a function marked @handles(...) in engine/handlers/, or a method of Views"
    assert HANDLERS.keys() == known, "a handler's command is not in a module of bedrockjobs/commands/"


def test_a_second_handler_is_refused() -> None:
    with pytest.raises(ValueError, match="Ping is handled by ping already"):
        handles(commands.Ping)(lambda *_: None)


@pytest.mark.parametrize("kind", ALL, ids=by_name)
def test_its_example_is_what_it_takes_and_answers(kind: type[Command[Any]]) -> None:
    asked, answered = kind.example
    command = kind.read_json(bedrockjobs.base.jsontext.dump(asked))
    assert {name for name in asked if name not in kind.wire_names.values()} == set()
    assert command.connection is None
    if kind is commands.Query:
        assert all(isinstance(row, list) for row in answered)
        return
    reply = kind.reply.model_validate(answered, strict=True)
    assert reply.model_dump(by_alias=True, exclude_unset=True) == answered


@pytest.mark.parametrize("kind", ALL, ids=by_name)
def test_what_it_says_of_itself_fits_together(kind: type[Command[Any]]) -> None:
    assert kind.sentence().endswith("."), "its docstring begins with one sentence on one line"
    assert kind.group in get_args(Group)
    assert kind.role in get_args(Role)
    if kind.where in ("reader", "at once"):
        assert kind.reads
    if kind.reads:
        assert kind.repeatable
        assert not kind.all_or_nothing, "it only reads"
        assert kind.role in ("read", "admin"), "it only reads: leave role out, or set admin"
    for parameter in kind.headers.values():
        assert parameter in kind.wire_names.values()
    if kind.paging is not None:
        rows, key, cursor = kind.paging
        assert {cursor, "limit"} <= set(kind.wire_names.values())
        assert key in kind.example.reply[rows][0]
    assert len(set(kind.all_refusals())) == len({refusal[:2] for refusal in kind.all_refusals()})


def test_all_names_can_be_imported_from_the_package() -> None:
    for kind in ALL:
        assert getattr(bedrockjobs, kind.__name__) is kind
        assert getattr(bedrockjobs, kind.reply.__name__) is kind.reply
    assert {kind.__name__ for kind in ALL} <= set(bedrockjobs.__all__)
    assert all(name.isidentifier() for name in bedrockjobs.__all__)


def test_every_module_of_commands_is_known_to_type_checkers() -> None:
    source = Path(commands.__file__).read_text()
    modules = {kind.__module__ for kind in ALL}
    missing = [module for module in modules if f"from {module} import *" not in source]
    assert not missing, "import it in commands/__init__.py, under TYPE_CHECKING"


def test_names_of_the_package_are_typed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from bedrockjobs import AsyncClient, Client, JobsReply, ListChildren, NotFound, QueryJob\n"
        "children: JobsReply = Client().call(ListChildren(job_id=1))\n"
        "reveal_type(Client().call(QueryJob(job_id=1)).run_timeout)\n"
        "reveal_type(Client().call(QueryJob(job_id=1)).url)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'Revealed type is "int | None"' in done.stdout, done.stdout
    assert 'Revealed type is "dict[str, Any] | None"' in done.stdout, done.stdout
    assert "error:" not in done.stdout


def test_what_is_only_there_to_inherit_from_is_no_command() -> None:
    assert not {"Ending", "StopRun", "Command"} & commands.COMMANDS.keys()


def test_refusals_are_inherited() -> None:
    then_get = (402, "Malformed thenGet")
    for kind in (commands.FinishJob, commands.RetryJob, commands.FailJob):
        assert then_get in {refusal[:2] for refusal in kind.all_refusals()}
    assert then_get not in {refusal[:2] for refusal in commands.DeleteJob.all_refusals()}


# --- a command and an attribute that only this test has --------------------------------------------------

ROOT = Path(__file__).parents[2]

COMMAND = '''
"""A command of a test."""

from __future__ import annotations

from pydantic import Field

from bedrockjobs.base.wire import Name
from bedrockjobs.commands.base import Command, Example, Refusal, Reply


class GreetReply(Reply):
    """What was said."""

    greeting: str


class GreetSomebody(Command[GreetReply]):
    """Say something kind to somebody."""

    role = "read"
    reads = True
    example = Example({"name": "Ada"}, {"greeting": "Dear Ada"})
    refusals = [Refusal(404, "No job found", "Nobody has this name.")]

    name: Name = Field(description="Whom to greet.")
'''

HANDLER = '''
"""The handler of a command of a test."""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import NotFound
from bedrockjobs.commands import GreetSomebody
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.context import handles


@handles(GreetSomebody)
def greet(_: Context, command: GreetSomebody) -> Answer:
    """Greet all but one."""
    if command.name == "nobody":
        raise NotFound("No job found")
    return Answer(jsontext.dump({"greeting": f"Dear {command.name}"}))
'''

ATTRIBUTE = """    colour: str | None = Field(None, max_length=9, description="What it is painted in.")
"""

ASK = """
import asyncio, json, socket, urllib.request
from click.testing import CliRunner
from bedrockjobs import AsyncClient, GreetReply, GreetSomebody, NotFound, QueryJob, UpdateJob
from bedrockjobs.cli import main
from bedrockjobs.protocol.openapi import describe
from bedrockjobs.testing import ServerUnderTest
from docs.generator import commands as reference

found = {}


def raw(text):
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(text.encode())
        with link.makefile("rb") as lines:
            status = lines.readline().decode().strip()
            length = 0
            while (line := lines.readline().strip()):
                name, _, value = line.decode().partition(": ")
                length = int(value) if name.lower() == "content-length" else length
            return status, lines.read(length).decode()


def post(path, **body):
    request = urllib.request.Request(f"{http}/{path}", json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request))


def call(*words):
    done = CliRunner().invoke(main, ["--server", server.url, *words])
    return done.output


async def both():
    async with AsyncClient(server.url) as client:
        return [await client.call(GreetSomebody(name="Ada")), await client.call(QueryJob(job_id=1))]


with ServerUnderTest() as server:
    port = int(server.url.rpartition(":")[2])
    http = f"http://127.0.0.1:{port}"
    found["raw"] = raw("GreetSomebody\\nname: Ada\\n\\n")
    found["raw refused"] = raw("greetsomebody\\nname: nobody\\n\\n")[0]
    found["http"] = post("GreetSomebody", name="Ada")
    found["get"] = json.load(urllib.request.urlopen(f"{http}/GreetSomebody?name=Ada"))
    found["docs"] = 'id="GreetSomebody"' in urllib.request.urlopen(f"{http}/docs").read().decode()
    found["call"] = call("--output", "json", "call", "GreetSomebody", "name=Ada")
    found["help"] = call("call", "GreetSomebody", "--help")
    reply = server.client.call(GreetSomebody(name="Ada"))
    found["client"] = [type(reply) is GreetReply, reply.greeting]
    try:
        server.client.call(GreetSomebody(name="nobody"))
    except NotFound as error:
        found["client refused"] = error.reason
    raw("CreateJob\\nname: a\\ncolour: red\\n\\n")
    found["attribute raw"] = json.loads(raw("QueryJob\\njobID: 1\\n\\n")[1])["colour"]
    post("UpdateJob", jobID=1, colour="green")
    found["attribute http"] = post("QueryJob", jobID=1)["colour"]
    found["attribute call"] = call("--output", "json", "call", "QueryJob", "jobID=1")
    server.client.call(UpdateJob(job_id=1, colour="blue"))
    found["attribute client"] = server.client.call(QueryJob(job_id=1)).colour
    greeted, shown = asyncio.run(both())
    found["async client"] = [greeted.greeting, shown.colour]
    found["attribute too long"] = raw("CreateJob\\nname: a\\ncolour: ultramarine\\n\\n")[0]
    found["attribute flag"] = "--colour" in call("job", "create", "--help")
described = describe("1")
has = {name: schema.get("properties", {}) for name, schema in described["components"]["schemas"].items()}
found["openapi"] = described["paths"]["/GreetSomebody"]["post"]["operationId"]
found["openapi get"] = "get" in described["paths"]["/GreetSomebody"]
found["schemas"] = ["name" in has["GreetSomebody"], "greeting" in has["GreetReply"]]
found["attribute schemas"] = ["colour" in has[name] for name in ("CreateJob", "UpdateJob", "JobReply")]
page = reference.page()
found["reference"] = page.partition("## GreetSomebody")[2].partition("\\n## ")[0]
sections = [page.partition(f"## {name}\\n")[2].partition("\\n## ")[0] for name in ("CreateJob", "UpdateJob")]
found["attribute reference"] = ["`colour`" in section for section in sections]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return where a command and an attribute appear that were added to a copy of the package."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("bedrockjobs", "docs", "worker"):  # with what is compiled, which is still valid
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*-pytest-*", "*.pyc.*"))
    shutil.copy(ROOT / "schema.sql", folder)
    (folder / "bedrockjobs/commands/greet.py").write_text(COMMAND)
    (folder / "bedrockjobs/engine/handlers/greet.py").write_text(HANDLER)
    options = folder / "bedrockjobs/commands/options.py"
    before, field, after = options.read_text().partition("    traceparent: str | None")
    options.write_text(before + ATTRIBUTE + field + after)
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}:{folder / 'worker'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_command_is_its_class_and_its_handler(found: Any) -> None:
    answer = {"greeting": "Dear Ada"}
    assert found["raw"][0] == "200 OK"
    assert json.loads(found["raw"][1]) == found["http"] == found["get"] == json.loads(found["call"]) == answer
    assert found["client"] == [True, "Dear Ada"]
    assert found["async client"][0] == "Dear Ada"
    assert found["raw refused"] == "404 No job found"
    assert found["client refused"] == "No job found"
    assert "Say something kind to somebody." in found["help"]
    assert "Whom to greet." in found["help"]
    assert found["openapi"] == "GreetSomebody"
    assert found["openapi get"]
    assert found["schemas"] == [True, True]
    assert found["docs"]
    for words in (
        "Say something kind",
        "| `name` |",
        "`greeting`",
        "`404 No job found` | Nobody",
        "Dear Ada",
    ):
        assert words in found["reference"]


def test_an_attribute_of_a_job_is_its_field(found: Any) -> None:
    assert found["attribute raw"] == "red"
    assert found["attribute http"] == json.loads(found["attribute call"])["colour"] == "green"
    assert found["attribute client"] == found["async client"][1] == "blue"
    assert found["attribute too long"] == "402 Malformed colour"
    assert found["attribute flag"]
    assert found["attribute schemas"] == [True, True, True]
    assert found["attribute reference"] == [True, True], "of CreateJob and of UpdateJob"


def test_every_default_of_a_field_is_seen_by_type_checkers() -> None:
    """Type checkers need the keyword: with `Field(None, ...)` they would treat the field as required."""
    for path in Path(commands.__file__).parent.glob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        fields = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Field"]
        assert not [call.lineno for call in fields if call.args], f"{path.name}: write Field(default=...)"
