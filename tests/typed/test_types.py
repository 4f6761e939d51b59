"""What type checkers see of the package: a user's module passes them strictly, without plugins."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bedrockjobs
from bedrockjobs import Client, CreateJob
from bedrockjobs.commands import ALL
from bedrockjobs.testing import ServerUnderTest
from tests.docs.sessions import blocks
from tests.docs.test_python_pages import FILES, SHOP
from tests.effort import PROFILE
from tests.typed import users_module

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SOURCES = (ROOT, ROOT / "worker")
DEADLINE_S = 120
MYPY = ("--strict", "--follow-imports=silent", f"--cache-dir={os.devnull}")

ROOMS = ("server", "service", "protocol", "pages", "views", "engine", "store", "observe", "notify", "imports")
BENEATH = (
    *(f"bedrockjobs.{room}.*" for room in ROOMS),
    *(f"{package}.*" for package in ("aiohttp", "cryptography", "rich")),
)
"""What no user's type is from, and half of what there is to read: at night it is read too."""


def tutorial() -> str:
    """Return the programs of a tutorial."""
    page = ROOT / "docs/tutorial/every-way-in.md"
    return "\n".join(block.text for block in blocks(page) if block.kind == "python")


def all_names() -> str:
    """Return a module that imports each public name, and each reply by what its command answers."""
    names = "".join(f"    {name},\n" for name in bedrockjobs.__all__)  # type: ignore[attr-defined]
    calls = "".join(
        f"def ask_{kind.__name__}(client: b.Client, it: b.{kind.__name__}) -> b.{kind.reply.__name__}:\n"
        "    return client.call(it)\n\n\n"
        for kind in ALL
    )
    return f"import bedrockjobs as b\nfrom bedrockjobs import (\n{names})\n\n{calls}" + "\n".join(
        f"print({name})"
        for name in bedrockjobs.__all__  # type: ignore[attr-defined]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with users' modules, without our configuration."""
    found = tmp_path_factory.mktemp("user")
    for name in ("users_module.py", "users_jobs.py", "users_mistakes.py"):
        shutil.copy(HERE / name, found)
    shutil.copytree(SHOP, found, dirs_exist_ok=True)
    for name, text in FILES.findall((ROOT / "docs/how-to/from-celery.md").read_text()):
        with (found / name).open("a") as file:
            file.write(text)
    (found / "tutorial.py").write_text(tutorial())
    (found / "all_names.py").write_text(all_names())
    return found


def mypy(folder: Path) -> set[tuple[str, int]]:
    """Return the file and line of each error that mypy finds, which reads the package as an installed one."""
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(map(str, SOURCES))}
    skipped = () if PROFILE == "random" else BENEATH
    settings = folder / "mypy.ini"
    settings.write_text("[mypy]\n" + "".join(f"[mypy-{name}]\nfollow_imports = skip\n" for name in skipped))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *MYPY, f"--config-file={settings}", *map(str, folder.rglob("*.py"))],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert "checked" in done.stdout + done.stderr or "no issues" in done.stdout, done.stdout + done.stderr
    return {
        (Path(found[1]).name, int(found[2]))
        for found in re.finditer(r"^(.+?):(\d+): error: ", done.stdout, re.M)
    }


def pyright(folder: Path) -> set[tuple[str, int]]:
    """Return the file and line of each error that pyright finds."""
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(source) for source in SOURCES]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(list(folder.rglob("*.py")))
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1)
        for each in found["generalDiagnostics"]
        if each["severity"] == "error"
    }


MISTAKES = {
    ("users_mistakes.py", number)
    for number, line in enumerate((HERE / "users_mistakes.py").read_text().splitlines(), 1)
    if line.endswith("# wrong")
}


def test_mypy_finds_the_mistakes_and_nothing_else(folder: Path) -> None:
    assert len(MISTAKES) >= 8
    assert mypy(folder) == MISTAKES


@pytest.mark.skipif(PROFILE != "random", reason="at night only: it sees what mypy sees")
def test_pyright_finds_the_mistakes_and_nothing_else(folder: Path) -> None:
    assert pyright(folder) == MISTAKES


def test_every_command_and_its_reply_can_be_imported() -> None:
    for kind in ALL:
        for each in (kind, kind.reply):
            assert getattr(bedrockjobs, each.__name__) is each


def test_what_takes_an_option_back_is_exported() -> None:
    assert (
        bedrockjobs.UpdateJob(job_id=1, run_timeout=bedrockjobs.EMPTIED).wire()
        == '{"jobID":1,"runTimeout":""}'
    )


def test_every_error_is_of_one_family() -> None:
    names = bedrockjobs.__all__  # type: ignore[attr-defined]
    errors = [
        found
        for found in (getattr(bedrockjobs, name) for name in names)
        if isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, Warning)
    ]
    assert len(errors) > 20
    assert all(issubclass(error, bedrockjobs.BedrockjobsError) for error in errors)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: CreateJob(name=""),
        lambda: Client("two words"),
        lambda: Client(token="no token"),
        lambda: Client("https://localhost", ca="/nowhere.pem"),
    ],
)
def test_a_wrong_argument_is_an_invalid_one_and_a_value_error(wrong: object) -> None:
    with pytest.raises(bedrockjobs.InvalidArgument) as refused:
        wrong()  # type: ignore[operator]
    assert isinstance(refused.value, ValueError)


def test_the_users_module_does_what_it_says() -> None:
    with ServerUnderTest() as server:
        client = server.client
        cat = users_module.Picture("cat", 800)
        users_module.order(client, cat)
        others = [users_module.Picture("dog", 64), users_module.Picture("owl", 0)]
        assert len(users_module.order_many(client, others)) == 2
        assert users_module.work(client) == {"resize/cat": 800, "resize/dog": 64, "resize/owl": 0}
        assert users_module.one_by_one(client) == "No job found"
        assert asyncio.run(users_module.look(server.address)) == [
            ("resize/owl", "fail", "FAILED"),
            ("resize/dog", "success", None),
        ]
        assert users_module.schedule(client) == ["report/nightly"]
    assert users_module.mistake() == ", ".join(["Missing name", *["CreateJob: name is required"] * 2])
