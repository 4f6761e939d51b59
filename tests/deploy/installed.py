"""Installation of the package: the README's lines for pipx and uvx, and the steps of the container's image.

``python -m tests.reliability --install`` does all of it from a copy of the checkout, in a folder of its own,
with the index that pip uses. A container engine is not needed: the steps of the Containerfile are run as they
stand there, with that folder in place of ``/``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.cli.live_server import clean_environment

ROOT = Path(__file__).parents[2]
CONTAINERFILE = ROOT / "deploy/container/Containerfile"
STEP_S = 900
"""Time that one step may take: packages are fetched and unpacked."""


STOP_S = 15
"""Time to stop: the image's page promises 10 s."""


def readme_lines() -> list[str]:
    """Return the lines of the README that install the package or run it, below ``<!-- install -->``."""
    found = re.search(r"^<!-- install -->\n```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert found is not None
    return [line.partition("  #")[0].strip() for line in found[1].splitlines()]


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Containerfile, each in one line, with its name."""
    text = "\n".join(line for line in CONTAINERFILE.read_text().splitlines() if not line.startswith("#"))
    text = text.replace("\\\n", " ")
    return [(words[0], words[1]) for line in text.splitlines() if len(words := line.split(maxsplit=1)) == 2]


def copy_checkout(target: Path) -> None:
    """Copy the files of the project, without other files in the folder."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)


def pip_index() -> dict[str, str]:
    """Return variables that make uv use pip's index, since it does not read pip's settings."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    given = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    found = {name.rpartition(".")[2]: value.strip("'\"") for name, value in given.items()}
    names = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS"}
    return {names[name]: value.replace("\\n", " ").strip() for name, value in found.items() if name in names}


def run(command: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run a line of a shell and return what it prints; raises with its output if it fails."""
    print(f"+ {command}", flush=True)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=dict(environment),
        timeout=STEP_S,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}"
    return done.stdout


def serve(
    command: list[str], health: list[str], stop: int, folder: Path, environment: Mapping[str, str]
) -> None:
    """Start a server, check its health by ``health``, and stop it."""
    print(f"+ {shlex.join(command)}", flush=True)
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=dict(environment),
        stdout=subprocess.PIPE,
        text=True,
        executable=shutil.which(command[0], path=environment["PATH"]),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = re.search(r"(?:127\.0\.0\.1|0\.0\.0\.0):(\d+)", line)
        assert port is not None, f"expected where it listens, got {line!r}"
        asks = {**environment, "BEDROCKJOBS_SERVER": f"127.0.0.1:{port[1]}"}
        run(shlex.join(health), folder, asks)
        process.send_signal(stop)
        assert process.wait(STOP_S) == 0
    finally:
        process.kill()
        process.communicate()


def tools(folder: Path) -> None:
    """Install by the README's lines, with pipx and uv from the index, and run the installed server."""
    run(f"{sys.executable} -m venv tools && tools/bin/pip install -q pipx uv", folder, clean_environment())
    environment = clean_environment(
        PATH=f"{folder}/bin{os.pathsep}{folder}/tools/bin{os.pathsep}{os.environ['PATH']}",
        HOME=str(folder),
        PIPX_HOME=f"{folder}/pipx",
        PIPX_BIN_DIR=f"{folder}/bin",
        UV_CACHE_DIR=f"{folder}/uv",
        UV_TOOL_DIR=f"{folder}/uv-tools",
        UV_PYTHON=sys.executable,
        UV_PYTHON_DOWNLOADS="never",
        **pip_index(),
    )
    for line in readme_lines():
        install, _, served = line.rpartition("bedrockjobs serve")
        ready = install.strip().removesuffix("&&").strip()
        words = shlex.split(ready) if ready.startswith("uvx") else []
        if not words:
            run(ready, folder / "src", environment)
        command = [*words, "bedrockjobs"]
        assert "0.1.0" in run(shlex.join([*command, "--version"]), folder / "src", environment)
        assert served == ""
        arguments = ["serve", "--port", "0", "--database", str(folder / "tools.db")]
        serve([*command, *arguments], [*command, "ping"], signal.SIGTERM, folder / "src", environment)
    print(run("bedrockjobs service install --user --dry-run | head -1", folder, environment), end="")


def placed(text: str, folder: Path) -> str:
    """Return arguments of the Containerfile with a folder in place of the root."""
    return re.sub(r"(?<![\w.])/(opt|src|var)(?=/|\b)", lambda found: f"{folder}/{found[1]}", text)


def image(folder: Path) -> None:
    """Execute the steps of the image in a folder, then run it like the container engine."""
    builds = [words for name, words in instructions() if name == "RUN" and "useradd" not in words]
    assert len(builds) == 1
    command = placed(builds[0], folder).replace("python -m venv", f"{sys.executable} -m venv")
    run(command, folder, clean_environment())
    run_image(folder)


def run_image(folder: Path) -> None:
    """Run the image's command with its environment and folder, check its health, and stop it."""
    last = dict(instructions())
    (folder / "var/lib/bedrockjobs").mkdir(parents=True)
    given = dict(re.findall(r"(\w+)=(\S+)", placed(last["ENV"], folder)))
    path = given.pop("PATH").replace("$PATH", os.environ["PATH"])
    environment = clean_environment(**given, PATH=path, BEDROCKJOBS_PORT="0")
    health = json.loads(last["HEALTHCHECK"].partition("CMD ")[2])
    stop = getattr(signal, last["STOPSIGNAL"])
    at = Path(placed(last["WORKDIR"], folder))
    serve(json.loads(last["CMD"]), health, stop, at, environment)
    assert (at / "jobs.db").stat().st_size > 0


def nightly() -> int:
    """Run all of it and return the exit status; the folder is kept if something fails."""
    folder = Path(tempfile.mkdtemp(prefix="bedrockjobs-installed-"))
    copy_checkout(folder / "src")
    for part in (tools, image):
        try:
            part(folder)
        except (AssertionError, subprocess.SubprocessError, OSError) as error:
            print(f"{part.__name__}: {error}\nfolder: {folder}")
            return 1
    shutil.rmtree(folder)
    print("installed by each of the README's lines and by the image's steps, and served")
    return 0
