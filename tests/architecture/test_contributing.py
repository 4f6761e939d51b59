"""The pages for contributors are accurate: diffs show today's code, and paths exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_DIFF = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"`([\w./-]+(?:\.py|\.sql|\.html|/))`")


def hunks(text: str) -> list[tuple[str, str]]:
    """Return the added lines of each hunk of the diffs in a page, with their file."""
    found = []
    for diff in _DIFF.findall(text):
        for part in re.split(r"^--- .*\n", diff, flags=re.MULTILINE)[1:]:
            head, *groups = re.split(r"^ …\n|(?<=\.py)\n", part, flags=re.MULTILINE)
            path = head.removeprefix("+++ b/")
            found += [(path, re.sub(r"^\+", "", group, flags=re.MULTILINE)) for group in groups]
    return found


def stale(text: str) -> list[str]:
    """Return the hunks whose lines are not in their files."""
    return [f"{path}:\n{lines}" for path, lines in hunks(text) if lines not in (ROOT / path).read_text()]


def test_diffs_of_contributing_are_in_the_code() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert len(_DIFF.findall(text)) == 3
    assert len(hunks(text)) >= 6
    assert all(lines.strip() for _, lines in hunks(text))
    assert not stale(text), "CONTRIBUTING.md shows lines that the code no longer has: copy them again"


def test_a_stale_diff_is_found() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert len(stale(text.replace("PingSecretReply", "Secret"))) == 1


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/explanation/architecture.md"])
def test_paths_in_pages_exist(page: str) -> None:
    """A path may leave out the folders above it, such as ``handlers/end.py``."""
    folders = ("bedrockjobs", "worker", "tests", "docs")
    known = {f"/{path.relative_to(ROOT)}" for folder in folders for path in (ROOT / folder).rglob("*")}
    known |= {f"/{path.name}" for path in ROOT.iterdir()} | {f"/{folder}" for folder in folders}
    missing = [
        path
        for path in _PATH.findall((ROOT / page).read_text())
        if not any(name.endswith(f"/{path.rstrip('/')}") for name in known)
    ]
    assert not missing, f"{page} names files that do not exist"
