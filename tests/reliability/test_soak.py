"""A short soak finds no growth in the server, and finds a planted leak."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.effort import examples
from tests.reliability.servers import Server
from tests.reliability.soak import NOISE_MB, Soaked, soak

pytestmark = pytest.mark.reliability

SECONDS = float(examples(4, night=12))
"""Enough for every kind of client to come several times."""

START_MB_MAX = 40.0
"""What a fresh server still grows by in the first seconds, at the most."""

KINDS = {
    *("CreateJob", "GetJob", "FinishJob", "FailJob", "RetryJob", "DeleteJob", "Heartbeat", "AppendOutput"),
    *("HTTP", "pages", "left"),
}


class Leaky(Server):
    """A server that leaks a little memory with each request."""

    module = "tests.reliability.leaky"


def tell(found: Soaked, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{found}")


async def test_a_server_that_keeps_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = await soak(tmp_path, SECONDS, kinds=KINDS)
    tell(found, capsys)
    assert found.done.keys() >= KINDS
    assert not [fault for fault in found.faults if not fault.startswith("memory")]
    assert found.grown < START_MB_MAX


async def test_a_leak_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = await soak(tmp_path, SECONDS, Leaky)
    tell(found, capsys)
    assert found.grown > NOISE_MB
    assert any(fault.startswith("memory grows") for fault in found.faults)
    assert any("descriptors" in fault for fault in found.faults)
