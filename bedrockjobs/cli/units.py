"""The units of systemd for this installation: those of ``deploy/systemd``, with its paths."""

from __future__ import annotations

import re
from pathlib import Path

NAMES = ("bedrockjobs.service", "bedrockjobs.socket", "bedrock-worker@.service")
"""The units that are installed: the server, its port, and a template for workers."""

MARK = "# Written by `bedrockjobs service install`, which writes it again; change it with `systemctl edit`."
"""The first line of a unit that is ours to write and to remove."""

_PROGRAMS = re.compile(r"/opt/bedrockjobs/bin/(?=bedrock)")
_PORTS = re.compile(r"^(ListenStream=.*:)\d+$", re.MULTILINE)

_OF_THE_SYSTEM = re.compile(
    r"^(?:DynamicUser|After|Protect\w+|Private\w+|Restrict(?!art)\w+|RemoveIPC|\w*Capabilit\w+|SystemCall\w+"
    r"|LockPersonality|NoNewPrivileges)=.*\n",
    re.MULTILINE,
)
"""What only the manager of the system can do, or orders its units; a user's has none of it."""

_SANDBOX_WORDS = re.compile(r"^# These bind the commands as well.*\n", re.MULTILINE)


def units(folder: Path, *, port: int | None = None, user: bool = False) -> dict[str, str]:
    """Return the text of each unit by its name, for the programs in a folder.

    ``port`` is that of the socket, 8888 if left out. For a ``user`` they are units of his own manager.
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
    """Return a path as a unit has it; ``%`` and ``$`` mean something there."""
    return str(folder).replace("%", "%%").replace("$", "$$")


def _shipped(name: str) -> str:
    """Return a unit as it is shipped: beside this module in a wheel, in ``deploy`` of a checkout."""
    packaged = Path(__file__).with_name("units.d") / name
    shipped = packaged if packaged.exists() else Path(__file__).parents[2] / "deploy/systemd" / name
    return shipped.read_text()
