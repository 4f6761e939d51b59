"""Notification channels other than mail and HTTP: programs, Apprise, and secrets from files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bedrockjobs.notify import channels
from bedrockjobs.notify.channels import (
    PASSED_VARIABLES,
    SECRET_BYTES_MAX,
    STDERR_BYTES_MAX,
    Channels,
    NotSent,
    resolved,
)
from bedrockjobs.notify.rule import Message, message_of
from tests.protocol.talk import DEADLINE_S
from tests.unit.test_messages_sent import told

MESSAGE: Message = message_of("r", [told(3)], "")


def program(folder: Path, name: str, text: str) -> None:
    """Write a program."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


async def send(to: str, folder: Path | str = "", **environment: str) -> None:
    """Send the message."""
    found = {"PATH": "/usr/bin:/bin", **environment}
    await Channels(smtp="", mail_from="", url="", commands=str(folder), environment=found).send(
        MESSAGE, to, "", 0
    )


async def test_a_program_gets_the_message_and_no_secrets(tmp_path: Path) -> None:
    assert {"PATH", "HOME"} <= set(PASSED_VARIABLES)
    program(tmp_path, "page", f"cat > {tmp_path}/got; env > {tmp_path}/env; echo said >&2")
    secrets = {"BEDROCKJOBS_TOKEN": "bj_secret", "PGPASSWORD": "hidden", "BEDROCKJOBS_NOTIFY_KEY": "k"}
    await send("command:page", tmp_path, **secrets)
    got = json.loads((tmp_path / "got").read_text())
    assert (got["type"], got["subject"], got["data"]["rule"]) == ("bedrockjobs.failed", "a failed", "r")
    environment = (tmp_path / "env").read_text()
    assert "BEDROCKJOBS_NOTIFY_KEY=k" in environment
    assert "BEDROCKJOBS_SUBJECT=a failed" in environment
    assert "bj_secret" not in environment
    assert "hidden" not in environment


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fails", "fails ended with 3: no line is free"),
        ("loud", "loud ended with 1: " + "x" * (STDERR_BYTES_MAX - 1)),
        ("absent", "absent could not be run: FileNotFoundError"),
        ("data", "data could not be run: PermissionError"),
        ("../fails", "expected the name of a program"),
    ],
)
async def test_a_program_that_does_not_end_well_is_no_message(tmp_path: Path, name: str, words: str) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    program(folder, "fails", "echo no line is free >&2; exit 3")
    program(folder, "loud", f"{sys.executable} -c 'import sys; sys.stderr.write(\"x\" * 100000)'; exit 1")
    (folder / "data").write_text("")
    with pytest.raises(NotSent) as refused:
        await send(f"command:{name}", folder)
    assert words in str(refused.value)


async def test_without_a_folder_there_are_no_programs(tmp_path: Path) -> None:
    program(tmp_path, "page", "true")
    with pytest.raises(NotSent, match="no folder of programs"):
        await send("command:page")


async def test_a_program_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "SEND_S", 0.2)
    program(tmp_path, "sleeps", f"echo $$ > {tmp_path}/pid; exec sleep 600")
    with pytest.raises(NotSent, match="no answer within"):
        await send("command:sleeps", tmp_path)
    pid = int((tmp_path / "pid").read_text())
    async with asyncio.timeout(10):
        while Path(f"/proc/{pid}/stat").exists() and "sleep" in Path(f"/proc/{pid}/stat").read_text():
            await asyncio.to_thread(Path("/proc/loadavg").read_text)


async def test_a_program_may_leave_something_behind_that_goes_on(tmp_path: Path) -> None:
    program(tmp_path, "starts", f"sleep 600 & echo $! > {tmp_path}/pid")
    async with asyncio.timeout(DEADLINE_S):
        await send("command:starts", tmp_path)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # it has gone on


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Apprise imports
async def test_apprise_sends_to_what_it_knows() -> None:
    came: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def post(request: web.Request) -> web.Response:
        came.put_nowait(await request.json())
        return web.Response()

    app = web.Application()
    app.router.add_post("/", post)
    async with TestServer(app) as server:
        await send("${BEDROCKJOBS_NOTIFY_TEAM}", BEDROCKJOBS_NOTIFY_TEAM=f"json://127.0.0.1:{server.port}/")
    message = came.get_nowait()
    assert (message["title"], message["message"]) == ("a failed", MESSAGE.text.strip())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_an_address_that_nobody_knows_is_not_shown() -> None:
    with pytest.raises(NotSent) as refused:
        await send("${BEDROCKJOBS_NOTIFY_TEAM}", BEDROCKJOBS_NOTIFY_TEAM="nothing-such://secret")
    assert "secret" not in str(refused.value)
    assert "Apprise" in str(refused.value)


async def test_without_apprise_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(NotSent, match=r"needs the extra bedrockjobs\[notify\]"):
        await send("${BEDROCKJOBS_NOTIFY_TEAM}", BEDROCKJOBS_NOTIFY_TEAM="slack://a/b/c")


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from a file\n")
    text = "a ${BEDROCKJOBS_NOTIFY_KEY} b"
    by_file = {"BEDROCKJOBS_NOTIFY_KEY_FILE": str(file)}
    assert resolved(text, by_file) == "a from a file b"
    assert resolved(text, {**by_file, "BEDROCKJOBS_NOTIFY_KEY": "itself"}) == "a itself b"
    file.write_text("x" * 2 * SECRET_BYTES_MAX)
    assert len(resolved("${BEDROCKJOBS_NOTIFY_KEY}", by_file)) == SECRET_BYTES_MAX
    file.unlink()
    with pytest.raises(NotSent, match="the file of BEDROCKJOBS_NOTIFY_KEY_FILE cannot be read: FileNotFound"):
        resolved(text, by_file)
    with pytest.raises(
        NotSent, match="neither BEDROCKJOBS_NOTIFY_KEY nor BEDROCKJOBS_NOTIFY_KEY_FILE is set"
    ):
        resolved(text, {})
