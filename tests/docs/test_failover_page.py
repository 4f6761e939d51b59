"""The page on losing a PostgreSQL is executed: servers, a worker, a primary killed, a standby promoted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli import warm
from tests.cli.live_server import clean_environment
from tests.docs.sessions import alike, steps
from tests.effort import PROFILE
from tests.postgresql.cluster import quiet_port
from tests.postgresql.pair import Pair, pair

PAGE = Path(__file__).parents[2] / "docs/how-to/fail-over-postgresql.md"
_PART = re.compile(
    r"^(?P<fails><!-- pg1 fails -->)$"
    r"|^(?P<runs><!-- keeps running -->\n)?```(?P<kind>sh|console)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)

COMMAND_S = 90
"""Time for one command of the page, which runs in parallel to other tests."""
END_S = 5
NEVER_S = 5
"""Time for the command that waits for a run which never ends."""


class Rehearsal:
    """Plays the page with this machine's hosts and ports."""

    def __init__(self, both: Pair, folder: Path) -> None:
        """Play on a pair of databases."""
        self._both = both
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        hosts = f"{both.primary.port},127.0.0.1:{both.standby.port}"
        self._places = {
            "jobs@pg1,pg2/jobs": f"tester@127.0.0.1:{hosts}/postgres",
            "-h pg2": f"-h 127.0.0.1 -p {both.standby.port} -U tester",
            "127.0.0.1:8881": f"127.0.0.1:{(one := quiet_port())}",
            "127.0.0.1:8882": f"127.0.0.1:{(two := quiet_port())}",
            "--port 8881": f"--port {one}",
            "--port 8882": f"--port {two}",
        }
        path = os.pathsep.join([str(warm.programs()), str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment = clean_environment(
            PATH=path, BEDROCKJOBS_WORKER_AS_ROOT="1", NO_COLOR="1", COLUMNS="200", TZ="UTC"
        )

    def _placed(self, text: str) -> str:
        for words, here in self._places.items():
            text = text.replace(words, here)
        return text

    def play(self, page: str) -> int:
        """Play it; return the number of compared outputs."""
        compared = 0
        for part in _PART.finditer(page):
            if part["fails"]:
                self._both.primary.kill()
                self._both.stream.close()
            elif part["runs"]:
                for command in part["text"].splitlines():
                    self._begin(command)
            elif part["kind"] == "console":
                for command, printed in steps(part["text"]):
                    compared += self._compare(command, printed)
        return compared

    def _begin(self, command: str) -> None:
        with (self._folder / f"log{len(self._processes)}").open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self._placed(command)}"],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        self._processes.append(process)

    def _compare(self, command: str, printed: str) -> bool:
        name, _, value = command.partition("=")
        if name.startswith("export "):
            self._environment[name.removeprefix("export ")] = self._placed(value)
            return False
        done = subprocess.run(
            ["timeout", str(COMMAND_S), "bash", "-c", self._placed(command)],
            cwd=self._folder,
            env=self._environment,
            check=False,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert alike(done.stdout) == alike(printed), f"{self.logs()}\n{command}\n{done.stdout}"
        return True

    def logs(self) -> str:
        """Return the logs of servers and workers."""
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("log*")))

    def close(self) -> None:
        """Stop all processes; kill those that do not end soon, such as a worker without its servers."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.kill()
            process.wait()


@contextmanager
def rehearsal(folder: Path) -> Iterator[Rehearsal]:
    """Yield a player with its own two databases."""
    with pair() as both:
        player = Rehearsal(both, folder)
        try:
            yield player
        finally:
            player.close()


def test_the_page_is_what_happens(tmp_path: Path) -> None:
    with rehearsal(tmp_path) as player:
        assert player.play(PAGE.read_text()) >= 9


@pytest.mark.skipif(PROFILE != "random", reason="the control, with databases of its own: at night only")
def test_a_page_on_which_nobody_promotes_fails(tmp_path: Path) -> None:
    """The control: without the standby's promotion, the page fails."""
    page = PAGE.read_text().replace("SELECT pg_promote()", "SELECT true")
    page = page.replace("until curl -sf http://127.0.0.1:8881/readyz > ready; do sleep 0.1; done", "true")
    page = page.replace(
        "$ bedrockjobs run logs --follow", f"$ timeout {NEVER_S} bedrockjobs run logs --follow"
    )
    with rehearsal(tmp_path) as player, pytest.raises(AssertionError, match="run logs --follow"):
        player.play(page.replace("bedrockjobs job create report/tuesday > tuesday", "true"))
