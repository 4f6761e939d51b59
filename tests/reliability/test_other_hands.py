"""Changes to the file by others: removed, moved, replaced, truncated, linked, opened by a second server.

A server must notice, exit, and acknowledge nothing written to a removed or replaced file, and a new server
must not start afresh silently if something was lost.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.servers import Launcher
from tests.reliability.wire import Cut, Wire

pytestmark = pytest.mark.reliability

EXIT_OK, EXIT_FAILURE, EXIT_OWNED, EXIT_DISK = 0, 1, 69, 74
BEFORE = 20
"""Jobs created before the file is touched."""


class Site:
    """A database in a folder, and the servers that a launcher starts for it."""

    def __init__(self, folder: Path, launcher: Launcher) -> None:
        """Remember the folder of the database."""
        self.database = folder / "jobs.db"
        self._log = folder / "log"
        self._launcher = launcher
        self.pid = 0

    def beside(self, suffix: str) -> Path:
        """Return the path of a file next to the database."""
        return Path(f"{self.database}{suffix}")

    def log(self) -> str:
        """Return the log of all servers."""
        return self._log.read_text()

    async def start(self, **settings: Any) -> Wire:
        """Start a server and connect to it."""
        self._launcher.forget()
        self.pid, port = await self._launcher.start({"database": str(self.database), **settings})
        while not all(map(_has_a_database, self._helpers())):
            await asyncio.sleep(0.01)  # by opening the database, they would create a removed log again
        return await Wire.connect(port)

    def _helpers(self) -> list[Path]:
        """Return the Query processes of the last server."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [Path("/proc", pid) for pid in children]

    async def refused(self, **settings: Any) -> int:
        """Start a server that exits by itself; return its exit status."""
        pid = await self._launcher.order({"database": str(self.database), **settings})
        return await self._launcher.ended(pid)

    async def ended(self) -> int:
        """Wait until the server exits; return its exit status."""
        return await self._launcher.ended(self.pid)

    async def kill(self) -> None:
        """Kill the server, and wait until no process has its files open."""
        helpers = self._helpers()
        await self._launcher.kill(self.pid)
        while any(map(_has_a_database, helpers)):
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Stop the server cleanly."""
        assert await self._launcher.terminate(self.pid) == EXIT_OK

    async def filled(self) -> Wire:
        """Start a server that has some jobs."""
        wire = await self.start()
        for number in range(BEFORE):
            assert (await wire.ask("CreateJob", name=f"job/{number}")).code == 200
        return wire


def _has_a_database(process: Path) -> bool:
    with suppress(OSError):
        return any(str(file.readlink()).endswith(".db") for file in (process / "fd").iterdir())
    return False


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Return a folder for a database and the servers on it."""
    async with Launcher(tmp_path / "log") as launcher:
        yield Site(tmp_path, launcher)


async def names(wire: Wire) -> int:
    """Return the number of jobs."""
    answer = await wire.ask("Query", query="SELECT count(*) FROM jobs;", format="rows")
    return int(answer.reply[0][0])


async def nothing_is_acknowledged(wire: Wire) -> None:
    """Create jobs; none may be acknowledged."""
    with pytest.raises(Cut):
        await wire.ask("CreateJob", name="after")


def _remove(path: Path) -> None:
    path.unlink()


def _move(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def _replace(path: Path) -> None:
    shutil.copyfile(path, path.with_name("another"))
    path.with_name("another").rename(path)


def _empty(path: Path) -> None:
    path.unlink()
    path.touch()


def _cut(path: Path) -> None:
    os.truncate(path, 0)


# --- while a server runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "harm", "words"),
    [
        ("", _remove, "was removed or moved"),
        ("", _move, "was removed or moved"),
        ("", _replace, "was replaced by another file"),
        ("", _cut, "was cut to 0 bytes"),
        ("-wal", _remove, "Its content was saved"),
        ("-wal", _empty, "Its content was saved"),
        ("-wal", _replace, "was replaced by another file"),
    ],
)
async def test_nothing_is_acknowledged_into_a_file_that_is_gone(
    site: Site, suffix: str, harm: Callable[[Path], None], words: str
) -> None:
    wire = await site.filled()
    harm(site.beside(suffix))
    await nothing_is_acknowledged(wire)
    assert await site.ended() == EXIT_DISK
    assert f"{site.beside(suffix)} was " in site.log()
    assert words in site.log()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-lock"])
async def test_an_idle_server_notices_as_well(site: Site, suffix: str) -> None:
    await site.start()
    site.beside(suffix).unlink()
    assert await site.ended() == EXIT_DISK
    # A server process that opens the database just then creates some of these files again.
    assert re.search(f"{re.escape(str(site.beside(suffix)))} was (removed|replaced)", site.log())


@pytest.mark.parametrize("harm", [_remove, _empty])
async def test_what_a_removed_log_held_is_not_lost(site: Site, harm: Callable[[Path], None]) -> None:
    """Also if a later reader created an empty log."""
    await site.filled()
    harm(site.beside("-wal"))
    assert await site.ended() == EXIT_DISK
    assert await names(await site.start()) == BEFORE


async def test_a_database_that_is_put_back_has_all_that_was_acknowledged(site: Site) -> None:
    await site.filled()
    _move(site.database)
    assert await site.ended() == EXIT_DISK
    assert await site.refused() == EXIT_DISK
    assert "is gone. It was last used by the server with pid" in site.log()
    site.database.with_name("elsewhere").rename(site.database)
    assert await names(await site.start()) == BEFORE


async def test_a_vacuum_and_a_checkpoint_by_others_are_no_harm(site: Site) -> None:
    wire = await site.filled()
    with closing(sqlite3.connect(site.database, isolation_level=None, timeout=10)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        other.execute("VACUUM")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert (await wire.ask("CreateJob", name="after")).code == 200
    await site.kill()
    assert await names(await site.start()) == BEFORE + 1


# --- a second server -------------------------------------------------------------------------------------


async def test_a_second_server_is_refused_by_another_name_of_the_file(site: Site) -> None:
    await site.filled()
    link = site.database.with_name("link.db")
    os.link(site.database, link)
    assert await site.refused(database=str(link)) == EXIT_OWNED
    assert "under another name" in site.log()
    link.unlink()
    link.symlink_to(site.database)
    assert await site.refused(database=str(link)) == EXIT_OWNED


async def test_a_second_server_is_refused_without_the_lock_file(site: Site) -> None:
    await site.filled()
    os.kill(site.pid, signal.SIGSTOP)  # or it would notice, and end
    site.beside("-lock").unlink()
    assert await site.refused() == EXIT_OWNED
    assert "with its lock file removed" in site.log()
    os.kill(site.pid, signal.SIGCONT)
    assert await site.ended() == EXIT_DISK


@pytest.mark.parametrize("suffix", ["-lock", "-ballast"])
@pytest.mark.parametrize("link", [os.symlink, os.link])
async def test_a_planted_link_is_refused(
    site: Site, tmp_path: Path, suffix: str, link: Callable[[Path, Path], None]
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("do not touch")
    link(precious, site.beside(suffix))
    assert await site.refused() == EXIT_FAILURE
    assert f"{site.beside(suffix)} is a link" in site.log()
    assert precious.read_text() == "do not touch"


# --- a start after something was lost --------------------------------------------------------------------


async def test_a_database_that_was_cut_is_not_started_on(site: Site) -> None:
    await site.filled()
    await site.stop()
    _cut(site.database)
    assert await site.refused() == EXIT_DISK
    assert f"{site.database} was cut to 0 bytes" in site.log()
    assert await names(await site.start(accept_loss=True)) == 0
    assert "the loss is accepted" in site.log()


async def test_a_database_that_was_cut_after_a_kill_keeps_its_log(site: Site) -> None:
    await site.filled()
    await site.kill()
    _cut(site.database)
    assert await site.refused() == EXIT_DISK
    assert "-wal holds " in site.log()
    assert site.beside("-wal").exists(), "SQLite would have removed it"


@pytest.mark.parametrize("harm", [_cut, _remove])
async def test_a_log_without_its_database_is_not_thrown_away(
    site: Site, harm: Callable[[Path], None]
) -> None:
    """Also if it is no longer known which process had it open."""
    await site.filled()
    await site.kill()
    harm(site.database)
    site.beside("-lock").unlink()
    assert await site.refused() == EXIT_DISK
    assert "-wal holds " in site.log()
    assert site.beside("-wal").exists()


@pytest.mark.parametrize("checkpoint", [False, True])
async def test_a_log_that_is_gone_after_a_kill_is_not_passed_over(site: Site, checkpoint: bool) -> None:
    """Also if the server had checkpointed the log before, and then continued."""
    wire = await site.filled()
    if checkpoint:
        before = site.database.stat().st_mtime_ns
        while site.database.stat().st_mtime_ns == before:
            assert (await wire.ask("CreateJob", name="large", data={"x": "x" * 1_000_000})).code == 200
        assert (await wire.ask("CreateJob", name="last")).code == 200
    await site.kill()
    site.beside("-wal").unlink()
    assert await site.refused() == EXIT_DISK
    assert "-wal is gone, with the last commits. It was last used by the server with pid" in site.log()
    await site.start(accept_loss=True)
    await site.stop()
    await site.start()


async def test_a_log_that_another_program_copied_into_the_database_is_not_missed(site: Site) -> None:
    await site.filled()
    await site.kill()
    with closing(sqlite3.connect(site.database)) as other:
        other.execute("SELECT count(*) FROM jobs").fetchone()
    assert not site.beside("-wal").exists()
    assert await names(await site.start()) == BEFORE


async def test_a_restored_backup_is_started_on(site: Site) -> None:
    await site.filled()
    await site.stop()
    shutil.copyfile(site.database, site.database.with_name("backup"))
    await site.start()
    await site.kill()
    for suffix in ("", "-wal", "-shm", "-lock"):
        site.beside(suffix).unlink()
    site.database.with_name("backup").rename(site.database)
    assert await names(await site.start()) == BEFORE


async def test_a_database_removed_after_a_good_stop_begins_anew(site: Site) -> None:
    await site.filled()
    await site.stop()
    site.database.unlink()
    assert await names(await site.start()) == 0
