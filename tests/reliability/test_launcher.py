"""The launcher keeps track of its servers, however many it has started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reliability.same_pid import PID
from tests.reliability.servers import Launcher

pytestmark = pytest.mark.reliability


class SamePid(Launcher):
    """A launcher whose servers get the pid of an ended server, as after 32,768 processes."""

    module = "tests.reliability.same_pid"


async def test_a_pid_that_comes_again_is_that_of_another_server(tmp_path: Path) -> None:
    async with SamePid(tmp_path / "log") as launcher:
        for status in (-9, 0, 1):
            assert await launcher.start({}, status=status) == (PID, 8888)
            assert await launcher.ended(PID) == status
