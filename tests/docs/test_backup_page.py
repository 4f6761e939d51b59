"""The page on a nightly backup is executed, and the mails equal those on the page."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from tests.cli import live_server
from tests.cli.live_server import DEADLINE_S
from tests.docs.sessions import Player, alike, blocks

PAGE = Path(__file__).parents[2] / "docs/how-to/watch-a-nightly-backup.md"


class Mailbox:
    """A mail server that accepts every mail."""

    def __init__(self) -> None:
        """Begin empty."""
        self.mails: queue.Queue[str] = queue.Queue()

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        """Store a mail as readable text."""
        mail = message_from_bytes(envelope.content, policy=policy.default)
        self.mails.put(f"Subject: {mail['subject']}\n\n{mail.get_content()}")
        return "250 OK"


@pytest.fixture
def mailbox(unused_tcp_port: int) -> Iterator[Mailbox]:
    """Return a mailbox, whose server listens at ``unused_tcp_port``."""
    found = Mailbox()
    server = Controller(found, hostname="127.0.0.1", port=unused_tcp_port)
    server.start()
    yield found
    server.stop()


def test_a_failed_backup_is_one_mail_and_its_recovery_another(
    mailbox: Mailbox, unused_tcp_port: int, tmp_path: Path
) -> None:
    server = live_server.start(
        tmp_path / "backup.db",
        "--test-clock",
        "--smtp",
        f"smtp://127.0.0.1:{unused_tcp_port}",
        "--mail-from",
        "jobs@example.com",
        "--public-url",
        "https://jobs.example.com",
    )
    try:
        folder = tmp_path / "folder"
        folder.mkdir()
        assert Player(server, folder).play(PAGE) == 12
        shown = [alike(block.text) for block in blocks(PAGE) if block.kind == "text"]
        came = [alike(mailbox.mails.get(timeout=DEADLINE_S)) for _ in shown]
        assert came == shown
    finally:
        assert live_server.stop(server.process) == 0
    assert mailbox.mails.empty()
