"""`bedrockjobs service install`: the units it writes, what it calls, and what it leaves alone."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bedrockjobs.cli import main as program
from bedrockjobs.cli import service
from bedrockjobs.cli.service import MARK, NAMES, units
from bedrockjobs.client import Client
from bedrockjobs.commands import Status

BIN = Path(sys.executable).parent
DEADLINE_S = 60


class Machine:
    """A machine whose systemctl only records its calls."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.system, self.home, self._notes = folder / "system", folder / "home", folder / "notes"
        monkeypatch.setattr(service, "SYSTEM_FOLDER", self.system)
        monkeypatch.setattr(service, "HIDDEN", ())
        monkeypatch.setenv("XDG_CONFIG_HOME", str(self.home / ".config"))
        self.systemctl = folder / "bin/systemctl"
        self.systemctl.parent.mkdir()
        self.answer(0)
        monkeypatch.setenv("PATH", str(self.systemctl.parent), prepend=os.pathsep)

    def answer(self, status: int) -> None:
        """Let each call end with a status."""
        self.systemctl.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(self._notes))}\nexit {status}\n')
        self.systemctl.chmod(0o755)

    @property
    def called(self) -> list[str]:
        """Return the calls of systemctl since the last check."""
        found = self._notes.read_text().splitlines() if self._notes.exists() else []
        self._notes.unlink(missing_ok=True)
        return found


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return Machine(tmp_path, monkeypatch)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["service", *arguments])


def test_a_service_of_the_system(machine: Machine) -> None:
    done = run("install", "--port", "9999")
    assert done.exit_code == 0, done.output
    assert machine.called == [
        "daemon-reload",
        "enable bedrockjobs.socket bedrockjobs.service",
        "restart bedrockjobs.socket bedrockjobs.service",
    ]
    assert sorted(path.name for path in machine.system.iterdir()) == sorted(NAMES)
    server = (machine.system / "bedrockjobs.service").read_text()
    assert server.startswith(MARK)
    assert f"\nExecStart={BIN}/bedrockjobs serve --database ${{STATE_DIRECTORY}}/jobs.db\n" in server
    assert "\nDynamicUser=yes\n" in server
    listens = (machine.system / "bedrockjobs.socket").read_text()
    assert "\nListenStream=127.0.0.1:9999\nListenStream=[::1]:9999\n" in listens
    again = run("install", "--no-start")
    assert (again.exit_code, machine.called) == (0, ["daemon-reload"])
    assert "ListenStream=127.0.0.1:8888\n" in (machine.system / "bedrockjobs.socket").read_text()
    gone = run("uninstall")
    assert gone.exit_code == 0, gone.output
    assert machine.called == [
        "disable --now bedrockjobs.service bedrockjobs.socket bedrock-worker@.service",
        "stop bedrock-worker@*.service",
        "daemon-reload",
    ]
    assert list(machine.system.iterdir()) == []


def test_a_service_of_a_user(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = run("install", "--user")
    assert done.exit_code == 0, done.output
    assert machine.called[0] == "--user daemon-reload"
    folder = machine.home / ".config/systemd/user"
    server = (folder / "bedrockjobs.service").read_text()
    for words in ("DynamicUser", "Protect", "SystemCallFilter", "Capabilit", "multi-user", "After="):
        assert words not in server
    for words in ("WatchdogSec=30", "Restart=on-failure", "RestartPreventExitStatus=2 78", "default.target"):
        assert words in server
    assert "EnvironmentFile=%E/bedrock-worker/%i.env" in (folder / "bedrock-worker@.service").read_text()
    assert f"{machine.home}/.config/bedrock-worker/mail.env" in done.output
    assert not machine.system.exists()


@pytest.mark.parametrize("user", [False, True])
def test_systemd_reads_what_is_written(user: bool, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    for name, text in units(BIN, user=user).items():
        (tmp_path / name).write_text(text.replace("$COMMAND", "/bin/true"))
    names = [str(tmp_path / name) for name in NAMES]
    with tempfile.TemporaryDirectory() as short:  # the paths of sockets in it have a limit
        runtime = {"XDG_RUNTIME_DIR": short, "HOME": str(tmp_path)}
        done = subprocess.run(
            [analyze, "verify", "--man=no", *(["--user"] if user else []), *names],
            env={**os.environ, **runtime},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "bedrock" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def test_what_a_users_unit_starts_is_a_server(tmp_path: Path) -> None:
    """The exact line, with a socket and a notification socket as from systemd."""
    (line,) = [
        each.removeprefix("ExecStart=")
        for each in units(BIN, user=True)["bedrockjobs.service"].splitlines()
        if each.startswith("ExecStart=")
    ]
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(DEADLINE_S)
        script = f"export LISTEN_PID=$$ LISTEN_FDS=1; exec {line} 3<&{listener.fileno()}"
        environment = {"STATE_DIRECTORY": str(tmp_path), "NOTIFY_SOCKET": str(tmp_path / "notify")}
        process = subprocess.Popen(
            ["bash", "-c", script], env={**os.environ, **environment}, pass_fds=[listener.fileno()]
        )
        try:
            while not manager.recv(4_096).startswith(b"READY=1"):
                pass
            with Client(f"127.0.0.1:{listener.getsockname()[1]}") as client:
                assert client.call(Status()).database == str(tmp_path / "jobs.db")
            process.terminate()
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()


def test_a_dry_run_only_shows(machine: Machine) -> None:
    done = run("install", "--dry-run")
    assert done.exit_code == 0
    assert f"# {machine.system}/bedrockjobs.socket\n{MARK}" in done.output
    assert done.output.endswith("# systemctl restart bedrockjobs.socket bedrockjobs.service\n")
    assert run("uninstall", "--dry-run").exit_code == 1, "there is nothing to remove"
    assert (machine.called, machine.system.exists()) == ([], False)
    run("install")
    gone = run("uninstall", "--dry-run")
    assert f"# remove {machine.system}/bedrockjobs.service\n" in gone.output
    assert (machine.system / "bedrockjobs.service").exists()


def somebody_elses(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.system.mkdir()
    (machine.system / "bedrockjobs.socket").write_text("[Socket]\n")


def no_root(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def no_systemd(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


def no_programs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")


def in_a_home(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "HIDDEN", (BIN.parents[0],))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (somebody_elses, "bedrockjobs.socket exists, and was not written by `bedrockjobs service install`"),
        (no_root, "needs root: use sudo, or --user"),
        (no_systemd, "there is no systemctl"),
        (no_programs, "/nowhere/bedrockjobs does not exist: install bedrockjobs as a package"),
        (in_a_home, "is hidden from system services"),
    ],
)
def test_what_is_refused_before_anything_is_written(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    given: Callable[[Machine, pytest.MonkeyPatch], None],
    words: str,
) -> None:
    given(machine, monkeypatch)
    done = run("install")
    assert done.exit_code == 1
    assert words in done.output
    assert machine.called == []
    assert not (machine.system / "bedrockjobs.service").exists()


def test_a_call_that_fails_is_told(machine: Machine) -> None:
    machine.answer(3)
    done = run("install")
    assert done.exit_code == 1
    assert "systemctl daemon-reload failed with status 3" in done.output
    assert service.SYSTEMCTL_S > 30


def test_signs_that_mean_something_in_a_unit_are_escaped() -> None:
    text = units(Path("/opt/a%b/$c/bin"))["bedrockjobs.service"]
    assert "ExecStart=/opt/a%%b/$$c/bin/bedrockjobs serve" in text
