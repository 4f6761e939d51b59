"""The disk space of an empty queue equals the documented one."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli import live_server

ROOT = Path(__file__).parents[2]
UNITS = {"KiB": 1_024, "MiB": 1_024**2}


def sizes(folder: Path) -> dict[str, int]:
    """Return the size of each file."""
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def test_the_sizes_of_the_files(tmp_path: Path) -> None:
    page = (ROOT / "docs/explanation/performance.md").read_text()
    told = {
        name: int(number) * UNITS[unit]
        for name, number, unit in re.findall(r"^\| `(jobs\.db[\w-]*)` \| (\d+) (\wiB) \|", page, re.MULTILINE)
    }
    server = live_server.start(tmp_path / "jobs.db", room=())
    try:
        found = sizes(tmp_path)
    finally:
        live_server.stop(server.process)
    assert 0 < found.pop("jobs.db-lock") < 100
    assert found == told
    assert round(sum(found.values()) / UNITS["MiB"]) == 36
    left = sizes(tmp_path)
    assert left.keys() == {"jobs.db", "jobs.db-lock"}
    assert 50 * UNITS["KiB"] < left["jobs.db"] < 210 * UNITS["KiB"]
    for text in (page, (ROOT / "README.md").read_text()):
        assert re.search(r"36 MiB", text)
        assert re.search(r"less than 210 KiB", text)
