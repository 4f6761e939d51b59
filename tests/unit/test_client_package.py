"""The package of the client alone: what it contains suffices, and it needs few others."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.effort import PROFILE

TOP = Path(__file__).parents[2]
PACKAGE = TOP / "clients" / "python"
DECLARED = tomllib.loads((PACKAGE / "pyproject.toml").read_text())
WHOLE = tomllib.loads((TOP / "pyproject.toml").read_text())
CONTAINED: dict[str, str] = DECLARED["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]

NO_EXTRA = {"extra": ""}
PACKAGES_MAX = 10
"""Packages that an application gets with it, itself included."""

LACKING = """
import sys
from pathlib import Path

contained, others = [Path(text) for text in {contained!r}], {others!r}


class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in others:
            raise ModuleNotFoundError(f"the package lacks {{name}}", name=name)
        if name.startswith("bedrockjobs."):
            place = Path({top!r}, *name.split("."))
            files = (place, place.with_suffix(".py"), place / "__init__.py")
            if not any(file == own or own in file.parents for own in contained for file in files):
                raise ModuleNotFoundError(f"the package lacks {{name}}", name=name)
        return None


sys.meta_path.insert(0, Lacking())
"""

EVERYTHING = """
from importlib import import_module
from pkgutil import walk_packages

import bedrock_worker
import bedrockjobs

assert bedrockjobs.Client and [getattr(bedrockjobs, name) for name in bedrockjobs.__all__]
for info in walk_packages(bedrock_worker.__path__, "bedrock_worker."):
    if info.name not in ("bedrock_worker.__main__", "bedrock_worker.run.fetch_url"):
        import_module(info.name)
"""


def needed(names: list[str]) -> set[str]:
    """Return packages and those that they need, by the metadata of what is installed here."""
    found: set[str] = set()
    while names:
        requirement = Requirement(names.pop())
        if requirement.name not in found and (
            not requirement.marker or requirement.marker.evaluate(NO_EXTRA)
        ):
            found.add(requirement.name)
            names += distribution(requirement.name).requires or []
    return found


def modules_of(names: set[str]) -> set[str]:
    """Return the names by which packages are imported."""
    files = (file for name in names for file in distribution(name).files or ())
    return {file.parts[0].removesuffix(".py").partition(".")[0] for file in files if file.suffix == ".py"}


OWN = needed(list(DECLARED["project"]["dependencies"]))
OTHERS = modules_of(needed(list(WHOLE["project"]["dependencies"])) - OWN) - modules_of(OWN)


def run(program: str, *, others: set[str]) -> subprocess.CompletedProcess[str]:
    """Run a program that finds neither the modules ``others`` nor what the package does not contain."""
    contained = [str((PACKAGE / path).resolve()) for path in CONTAINED]
    lacking = LACKING.format(contained=contained, others=sorted(others), top=str(TOP))
    command = [sys.executable, "-c", lacking + program]
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)


def test_it_needs_few_packages() -> None:
    assert len(OWN) + 1 <= PACKAGES_MAX, OWN
    shared = {*WHOLE["project"]["dependencies"], *DECLARED["project"]["optional-dependencies"]["url"]}
    assert {*DECLARED["project"]["dependencies"]} < shared, "they are as new as those of the whole"
    for name in ("version", "license", "requires-python"):
        assert DECLARED["project"][name] == WHOLE["project"][name]


def test_what_it_contains_suffices_for_client_and_worker() -> None:
    assert {"aiohttp", "jinja2", "greenlet"} <= OTHERS
    done = run(EVERYTHING, others=OTHERS)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("lacking", ["import bedrockjobs.server", "import aiohttp"])
def test_the_check_finds_what_is_not_contained(lacking: str) -> None:
    done = run(lacking, others=OTHERS)
    assert "ModuleNotFoundError: the package lacks" in done.stderr


def test_client_and_functions_import_nothing_of_linux() -> None:
    """As far as it can be seen without the other systems: Python's own modules are imported before."""
    before = "import asyncio, multiprocessing, ssl, subprocess, tempfile, uuid\n"
    linux = {"fcntl", "grp", "pwd", "resource", "termios", "uvloop"}
    program = "for name in others:\n    sys.modules.pop(name, None)\n"
    program += (
        "from bedrockjobs import AsyncClient, Client, CreateJob\n"
        "from bedrock_worker import Workflow, chain, cron, job\n"
    )
    program += '@job("x")\ndef x(): ...\nWorkflow("y").add(chain(x.s(), x.si()))\n'
    done = run(before + program, others=OTHERS | linux)
    assert done.returncode == 0, done.stderr


def test_the_url_of_a_job_says_what_it_needs() -> None:
    done = run("import bedrock_worker.run.fetch_url", others=OTHERS)
    assert done.returncode == 1
    assert done.stderr == (
        "the url of a job needs aiohttp: install bedrockjobs-client[url], or bedrockjobs\n"
    )


@pytest.mark.skipif(PROFILE != "random", reason="builds and installs it: at night only")
def test_it_installs_alone(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path)], check=True)
    python = tmp_path / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", str(PACKAGE)], check=True)
    listed = subprocess.run([python, "-m", "pip", "list", "--format=freeze"], capture_output=True, check=True)
    names = {line.partition("==")[0] for line in listed.stdout.decode().splitlines()}
    assert "bedrockjobs-client" in names
    assert len(names - {"pip", "setuptools"}) <= PACKAGES_MAX
    subprocess.run([python, "-c", EVERYTHING], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "bin" / "bedrock-worker", "--version"], check=True)
