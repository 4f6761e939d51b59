"""Writes the generated pages, and the generated parts of other pages: ``python -m docs.generate``.

A part of a page is what stands between ``<!-- generated: NAME -->`` and ``<!-- end of NAME -->``. With
``--check`` nothing is written; the exit status is 1 if a file is not what it should be.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from bedrockjobs.job import lifecycle
from docs.generator import commands, errors, program, python, settings, sqlite_only, tags

DOCS = Path(__file__).parent

PAGES: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands.page,
    "reference/settings.md": settings.page,
    "reference/errors.md": errors.page,
    "reference/cli.md": program.page,
    "reference/python.md": python.page,
}
"""Whole pages, by their path below ``docs``."""

PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("explanation/life-cycle.md", "diagram"): lambda: f"```mermaid\n{lifecycle.diagram()}\n```",
    ("../bedrockjobs/base/README.md", "limits"): settings.own_limits,
    ("explanation/architecture.md", "tags"): tags.page_table,
    ("../bedrockjobs/store/postgresql/README.md", "sqlite only"): sqlite_only.table,
}
"""Parts of pages, by the page and the part's name."""


def rendered() -> dict[Path, str]:
    """Return every file that holds something generated, as it should be."""
    found = {DOCS / page: write() for page, write in PAGES.items()}
    for (page, name), write in PARTS.items():
        path = DOCS / page
        found[path] = _replaced(found.get(path, path.read_text()), name, write())
    return found


def _replaced(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- generated: {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"expected one part between {begin} and {end}")
    return pattern.sub(lambda _: f"{begin}\n{content}\n{end}", text)


def main() -> int:
    """Write the files, or check them; return the exit status."""
    stale = [path for path, text in rendered().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(path.relative_to(DOCS.parent))
        if "--check" not in sys.argv[1:]:
            path.write_text(rendered()[path])
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
