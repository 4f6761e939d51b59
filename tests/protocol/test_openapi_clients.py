"""The strict description: code generators make a client of all of it, and its examples are accepted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.commands import COMMANDS
from bedrockjobs.protocol.openapi import describe, strict
from bedrockjobs.testing import ServerUnderTest
from tests.effort import PROFILE
from tests.run import ROOT, node_programs

JAVASCRIPT = ROOT / "clients/js"

STRICT = strict(describe("1.2.3"))
PARTS = STRICT["components"]["schemas"]

USE = """
import type { components, paths } from "./api.js";
import { Client, type Handle } from "./index.js";
type Schemas = components["schemas"];
const create: Schemas["CreateJob"] = { name: "mail/send", data: { n: 1 }, runTimeout: "90s", retries: 3 };
const take: Schemas["GetJob"] = { name: "mail/*", connection: "wait", timeout: 60000 };
const finish: paths["/FinishJob"]["post"]["requestBody"] =
  { content: { "application/json": { jobID: 1, data: { x: 2 } } } };
function to(job: Schemas["JobReply"]): unknown { return job.data["to"]; }
function shown(job: Schemas["ShownJobReply"]): unknown {
  return job.data ? job.data["to"] : job.hidden;
}
const client = new Client();
const handle: Promise<Handle<{ sum: number }>> = client.enqueue("sum", { numbers: [1, 2] }, { keep: "1d" });
const reply = client.call("GetJobs", { name: "*", numResults: 9 });
const jobs: Promise<Schemas["JobReply"][]> = reply.then((it) => it.jobs);
// @ts-expect-error no such command
void client.call("GetJbo", { name: "*" });
// @ts-expect-error no such option
void client.enqueue("sum", {}, { retires: 3 });
// @ts-expect-error it may be hidden
function never(job: Schemas["ShownJobReply"]): unknown { return job.data["to"]; }
// @ts-expect-error a number is a number
const wrong: Schemas["FinishJob"] = { jobID: "1" };
// @ts-expect-error no such parameter
const misspelled: Schemas["CreateJob"] = { name: "a", retires: 3 };
export { create, take, finish, to, shown, never, wrong, misspelled, handle, jobs };
"""


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the description in it."""
    folder = tmp_path_factory.mktemp("described")
    (folder / "openapi.json").write_text(json.dumps(STRICT))
    return folder


def run(folder: Path, *command: str, **variables: str) -> str:
    environment = {**os.environ, **variables}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_javascript_client_is_built_from_generated_types_and_works(described: Path) -> None:
    """It is compiled strictly together with a user's module; then node runs its own tests.

    Declarations that come with the compiler are not checked, which takes longer than all else.
    """
    programs = node_programs()
    folder = shutil.copytree(JAVASCRIPT, described / "js")
    run(described, str(programs / "openapi-typescript"), "openapi.json", "-o", "js/src/api.ts")
    (folder / "src/use.ts").write_text(USE)
    run(folder, str(programs / "tsc"), "--skipLibCheck")
    with ServerUnderTest() as server:
        told = run(folder, "node", "--test", "--test-reporter=tap", BEDROCKJOBS_URL=server.url)
    assert "# pass 6" in told


@pytest.mark.skipif(PROFILE != "random", reason="at night only: a generator beside that of types")
def test_a_python_client_is_generated_with_every_command(described: Path) -> None:
    generator = Path(sys.executable).with_name("openapi-python-client")
    (described / "plain.yaml").write_text("post_hooks: []\n")  # its layout is of no interest
    told = run(
        *(described, str(generator), "generate", "--path", "openapi.json", "--meta", "none"),
        *("--config", "plain.yaml"),
    )
    assert not {"WARNING", "Unable"} & set(told.split()), told
    made = {path.stem.rstrip("_") for path in described.rglob("api/*/*.py")}
    assert {snake(verb) for verb in COMMANDS} <= made
    check = "import my.models as m; print(m.CreateJob(name='a', retries=3).to_dict())"
    (package,) = (path.parent for path in described.glob("*/models"))
    assert run(described, sys.executable, "-c", check.replace("my", package.name)).strip() == (
        "{'name': 'a', 'retries': 3}"
    )


def snake(verb: str) -> str:
    """Return the name of a generated module."""
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in verb).lstrip("_")


def inside(value: Any) -> Iterator[Any]:
    yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from inside(item)


def test_each_request_has_one_type_for_each_value() -> None:
    for verb, kind in COMMANDS.items():
        request = PARTS[verb]
        assert request.keys().isdisjoint({"anyOf", "allOf", "oneOf", "not"})
        assert set(request["properties"]) <= set(kind.wire_names.values())
        assert not [part for part in inside(request["properties"]) if part == {"type": "null"}]
    assert PARTS["FinishJob"]["properties"]["jobID"]["type"] == "integer"
    assert PARTS["CreateJob"]["properties"]["unique"]["type"] == "boolean"
    assert PARTS["GetJob"]["properties"]["names"] == {
        **PARTS["GetJob"]["properties"]["names"],
        "$ref": "#/components/schemas/NamePatterns",
    }
    assert PARTS["NamePatterns"]["type"] == "array"


def test_what_may_be_hidden_need_not_be_there() -> None:
    """A job that is taken has its data; one that is shown may list it in ``hidden`` instead."""
    assert "data" in PARTS["JobReply"]["required"]
    for name, members in (("ShownJobReply", {"data", "result"}), ("RunReply", {"data", "result", "output"})):
        assert members.isdisjoint(PARTS[name]["required"])
        assert PARTS[name]["properties"]["hidden"]["description"]


def test_an_object_that_takes_anything_says_so() -> None:
    for part in inside(PARTS):
        if isinstance(part, dict) and part.get("type") == "object" and "properties" not in part:
            assert "additionalProperties" in part
