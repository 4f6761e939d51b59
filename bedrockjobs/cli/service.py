"""``bedrockjobs service``: install the server as a systemd service of the system or of a user."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click

from bedrockjobs.base.programs import WholeNumber
from bedrockjobs.cli.parameters import SubcommandGroup
from bedrockjobs.cli.session import FAILED, Failure

NAMES = ("bedrockjobs.service", "bedrockjobs.socket", "bedrock-worker@.service")
"""Names of the systemd units that are installed: the server, its port, and a template for workers."""

MARK = "# Written by `bedrockjobs service install`, which writes it again; change it with `systemctl edit`."
"""The first line of units that this program may overwrite and remove."""

_PROGRAMS = re.compile(r"/opt/bedrockjobs/bin/(?=bedrock)")
_PORTS = re.compile(r"^(ListenStream=.*:)\d+$", re.MULTILINE)

_OF_THE_SYSTEM = re.compile(
    r"^(?:DynamicUser|After|Protect\w+|Private\w+|Restrict(?!art)\w+|RemoveIPC|\w*Capabilit\w+|SystemCall\w+"
    r"|LockPersonality|NoNewPrivileges)=.*\n",
    re.MULTILINE,
)
"""Matches settings that work only for system services, and are removed from the units of a user."""

_SANDBOX_WORDS = re.compile(r"^# These bind the commands as well.*\n", re.MULTILINE)


def units(folder: Path, *, port: int | None = None, user: bool = False) -> dict[str, str]:
    """Return the text of each systemd unit by name, for programs that are in ``folder``.

    ``port`` is the port of the socket; None means 8888. With ``user`` the units are for services of a user.
    """
    return {name: _unit(name, folder, port, user=user) for name in NAMES}


def _unit(name: str, folder: Path, port: int | None, *, user: bool) -> str:
    text = _PROGRAMS.sub(lambda _: f"{_escaped(folder)}/", _shipped(name))
    if port is not None:
        text = _PORTS.sub(rf"\g<1>{port}", text)
    if user:
        text = _SANDBOX_WORDS.sub("", _OF_THE_SYSTEM.sub("", text))
        text = text.replace("WantedBy=multi-user.target", "WantedBy=default.target")
        text = text.replace("/etc/bedrock-worker/", "%E/bedrock-worker/")
        text = re.sub(r"\n{3,}", "\n\n", text)
    return f"{MARK}\n{text}"


def _escaped(folder: Path) -> str:
    """Return a path for a unit, with ``%`` and ``$`` escaped."""
    return str(folder).replace("%", "%%").replace("$", "$$")


def _shipped(name: str) -> str:
    """Return a unit as it was shipped: in a wheel next to this module, in a checkout in ``deploy``."""
    packaged = Path(__file__).with_name("units.d") / name
    shipped = packaged if packaged.exists() else Path(__file__).parents[2] / "deploy/systemd" / name
    return shipped.read_text()


SYSTEM_FOLDER = Path("/etc/systemd/system")

STARTED = ("bedrockjobs.socket", "bedrockjobs.service")
"""The units that ``install`` starts; a worker needs a configuration first."""

WORKERS = "bedrock-worker@*.service"
"""Pattern of the units of all workers; disabling the template also disables these units."""

SYSTEMCTL_S = 120
"""Maximum seconds of a systemctl call: a starting server may have to recover a large write-ahead log."""

HIDDEN = (Path("/home"), Path("/root"), Path("/run/user"))
"""Folders that a system service cannot see, because of ``ProtectHome``."""

_user = click.option("--user", is_flag=True, help="Install user services in your own folder; needs no root.")
_dry_run = click.option("--dry-run", is_flag=True, help="Show the files and commands, and change nothing.")


@click.group(cls=SubcommandGroup)
def service() -> None:
    """Run the server and workers as systemd services.

    \b
    sudo bedrockjobs service install
    bedrockjobs service install --user --dry-run
    """


@service.command()
@_user
@_dry_run
@click.option(
    "--port", type=WholeNumber(1, 65_535), metavar="NUMBER", help="Port on loopback; 8888 if left out."
)
@click.option("--no-start", is_flag=True, help="Only write the units; start nothing.")
def install(user: bool, dry_run: bool, port: int | None, no_start: bool) -> None:
    """Install the units, and start the server.

    There is a unit for the server, one for its port, and a template for workers. The server starts with the
    machine (with --user: when the user logs in), and is restarted if it fails. Its database is in
    /var/lib/bedrockjobs (with --user: in the user's state folder). After an upgrade, run it again: it
    rewrites the units and restarts the server.
    """
    program = Path(sys.executable).parent
    _check_programs(program, user=user)
    folder, files = _folder(user=user), units(program, port=port, user=user)
    calls = [["daemon-reload"]]
    if not no_start:
        calls += [["enable", *STARTED], ["restart", *STARTED]]
    if dry_run:
        for name, text in files.items():
            click.echo(f"# {folder / name}\n{text}")
        for call in calls:
            click.echo(f"# {shlex.join(_systemctl(call, user=user))}")
        return
    _check_system(user=user)
    for name in files:
        _check_replaceable(folder / name)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        _write(folder / name, text)
    for call in calls:
        _call(call, user=user)
    _print_next_steps(folder, user=user, started=not no_start)


@service.command()
@_user
@_dry_run
def uninstall(user: bool, dry_run: bool) -> None:
    """Stop the server and workers, and remove the units; the database stays."""
    folder = _folder(user=user)
    installed = [name for name in NAMES if _is_installed_unit(folder / name)]
    if not installed:
        raise Failure(f"no units of `bedrockjobs service install` are in {folder}", FAILED)
    calls = [["disable", "--now", *installed], ["stop", WORKERS]]
    if dry_run:
        for call in calls:
            click.echo(f"# {shlex.join(_systemctl(call, user=user))}")
        for name in installed:
            click.echo(f"# remove {folder / name}")
        return
    _check_system(user=user)
    for call in calls:
        _call(call, user=user)
    for name in installed:
        (folder / name).unlink()
    _call(["daemon-reload"], user=user)
    click.echo(f"Removed {', '.join(installed)} from {folder}. The database was not touched.")


def _folder(*, user: bool) -> Path:
    """Return the folder of the units."""
    if not user:
        return SYSTEM_FOLDER
    given = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".config") / "systemd/user"


def _check_programs(folder: Path, *, user: bool) -> None:
    for name in ("bedrockjobs", "bedrock-worker"):
        if not os.access(folder / name, os.X_OK):
            raise Failure(f"{folder / name} does not exist: install bedrockjobs as a package")
    if re.search(r"[\s'\"\\]", str(folder)):
        raise Failure(f"{folder}: systemd wants a path without blanks, quotes and backslashes")
    if not user and any(folder.is_relative_to(hidden) for hidden in HIDDEN):
        raise Failure(
            f"{folder} is hidden from system services: install bedrockjobs elsewhere"
            " (python3 -m venv /opt/bedrockjobs), or use --user"
        )


def _check_system(*, user: bool) -> None:
    if shutil.which("systemctl") is None:
        raise Failure("there is no systemctl: this machine does not run systemd; see --dry-run")
    if not user and os.geteuid() != 0:
        raise Failure("installing system services needs root: use sudo, or --user")


def _is_installed_unit(unit: Path) -> bool:
    try:
        return unit.read_text(errors="replace").startswith(MARK)
    except OSError:
        return False


def _check_replaceable(unit: Path) -> None:
    if os.path.lexists(unit) and not _is_installed_unit(unit):
        raise Failure(f"{unit} exists, and was not written by `bedrockjobs service install`: remove it first")


def _write(unit: Path, text: str) -> None:
    """Write a unit atomically."""
    draft = unit.with_name(f".{unit.name}.new")
    draft.write_text(text)
    draft.chmod(0o644)
    draft.replace(unit)
    click.echo(f"Wrote {unit}")


def _systemctl(arguments: list[str], *, user: bool) -> list[str]:
    return ["systemctl", *(["--user"] if user else []), *arguments]


def _call(arguments: list[str], *, user: bool) -> None:
    command = _systemctl(arguments, user=user)
    try:
        done = subprocess.run(command, check=False, timeout=SYSTEMCTL_S)  # noqa: S603  a fixed command
    except subprocess.TimeoutExpired:
        raise Failure(f"{shlex.join(command)}: not done within {SYSTEMCTL_S} s") from None
    if done.returncode:
        raise Failure(f"{shlex.join(command)} failed with status {done.returncode}: see the lines above")


def _print_next_steps(folder: Path, *, user: bool, started: bool) -> None:
    flag = " --user" if user else ""
    if started:
        click.echo(f"The server runs: systemctl{flag} status bedrockjobs; bedrockjobs doctor")
    else:
        click.echo(f"Start it: systemctl{flag} enable --now {' '.join(STARTED)}")
    settings = folder.parents[1] / "bedrock-worker" if user else Path("/etc/bedrock-worker")
    click.echo(f"A worker: write {settings}/mail.env, then systemctl{flag} enable --now bedrock-worker@mail")
    if user:
        click.echo("It ends when you log out, unless you are allowed to linger: loginctl enable-linger")
