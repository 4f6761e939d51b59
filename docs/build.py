"""Builds the documentation as a site of files: ``python -m docs.build [FOLDER]``, by default ``site``.

The navigation is the list of pages in ``README.md``. A link to a page or a heading that does not exist ends
the build with status 1. The site asks no other site for anything, and its search works without a server.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

DOCS = Path(__file__).parent
INDEX = "README.md"
SHIM = "https://unpkg.com/iframe-worker/shim"
"""The script that the theme loads from elsewhere; ``site/iframe-worker.js`` is the same one."""

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_GROUP = re.compile(r"^\* \*\*(?P<name>[^*]+)\*\*:(?P<pages>.*?)(?=^\* \*\*|\Z)", re.MULTILINE | re.DOTALL)
_LOADED = re.compile(
    r"<(?:script|img|iframe|link)\b[^>]*\s(?:src|href)=[\"']?(?:https?:)?//[^>]*>"
    r"|url\([\"']?(?:https?:)?//[^)]*\)|class=\"mermaid\""
)


class BrokenSite(Exception):
    """A site that cannot be published, with the reason."""


def navigation() -> list[dict[str, object]]:
    """Return the groups of pages that the list in ``README.md`` names, with a title for each page."""
    groups: list[dict[str, object]] = [{"Overview": INDEX}]
    for group in _GROUP.finditer((DOCS / INDEX).read_text()):
        pages = [
            {_title(text): target}
            for text, target in _LINK.findall(group["pages"])
            if target.endswith(".md") and not target.startswith("../")
        ]
        groups.append({group["name"]: pages})
    return groups


def _title(text: str) -> str:
    words = " ".join(text.replace("`", "").split())
    return words[:1].upper() + words[1:]


def pages() -> Iterator[tuple[PurePosixPath, str]]:
    """Yield the path and the text of each page of the site."""
    for path in sorted(DOCS.rglob("*.md")):
        page = PurePosixPath(path.relative_to(DOCS).as_posix())
        yield page, staged(page, path.read_text())


def staged(page: PurePosixPath, text: str) -> str:
    """Return a page for the site: a link to a file of the repository becomes its text with the path."""

    def replaced(link: re.Match[str]) -> str:
        target = link[2].partition("#")[0]
        if not target or ":" in target:
            return link[0]
        path = (DOCS / page.parent / target).resolve()
        if path.is_relative_to(DOCS.resolve()) and path.suffix in (".md", ".png"):
            return link[0]
        return f'<span title="{path.relative_to(DOCS.parent.resolve())}">{link[1]}</span>'

    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [
            _LINK.sub(replaced, text[end : fence.start()]),
            fence[0].replace("```mermaid", "```text", 1),
        ]
        end = fence.end()
    return "".join([*parts, _LINK.sub(replaced, text[end:])])


def build(folder: Path) -> None:
    """Write the site into a folder, which is new or holds an earlier one; raises BrokenSite."""
    if folder.exists() and not (folder / "sitemap.xml").exists():
        raise BrokenSite(f"{folder}: expected a new folder, or one with an earlier site")
    with tempfile.TemporaryDirectory() as temporary:
        stage = Path(temporary)
        for page, text in pages():
            path = stage / "docs" / page
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        shutil.copytree(DOCS / "screenshots", stage / "docs/screenshots")
        (stage / "mkdocs.yml").write_text(json.dumps(settings()))  # JSON is YAML
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "mkdocs.yml"]
        done = subprocess.run(  # noqa: S603 - a fixed command
            command, cwd=stage, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BrokenSite(re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr))
        made = stage / "site"
        shutil.copy(DOCS / "site/iframe-worker.js", made / "assets")
        for path in made.rglob("*.html"):
            up = "../" * (len(path.relative_to(made).parts) - 1)
            path.write_text(path.read_text().replace(SHIM, f"{up}assets/iframe-worker.js"))
        check(made)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)


def settings() -> dict[str, object]:
    """Return the settings of the generator, in MkDocs' words."""
    return {
        "site_name": "bedrockjobs",
        "use_directory_urls": False,
        "theme": {
            "name": "material",
            "font": False,
            "features": ["navigation.indexes", "navigation.top", "search.highlight", "content.code.copy"],
            "palette": [
                {"media": "(prefers-color-scheme: light)", "scheme": "default"},
                {"media": "(prefers-color-scheme: dark)", "scheme": "slate"},
            ],
        },
        "plugins": ["search", "offline"],
        "nav": navigation(),
    }


def check(folder: Path) -> None:
    """Raise BrokenSite if a file of the site makes the browser ask another site."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".html", ".css") and (found := _LOADED.search(path.read_text())):
            raise BrokenSite(f"{path.relative_to(folder)} is not self-contained: {found[0]}")


def main() -> int:
    """Build the site; return the exit status."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "site")
    try:
        build(folder)
    except BrokenSite as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Wrote {folder / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
