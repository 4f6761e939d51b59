"""The pages: everything is documented, and all links and references to tests resolve."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.base.errors import ERRORS
from bedrockjobs.base.settings import Settings
from bedrockjobs.base.wire import wire_name
from bedrockjobs.cli import main as bedrockjobs
from bedrockjobs.cli.settings_sources import option_name, variable_name
from bedrockjobs.commands import ALL, Command
from bedrockjobs.job import lifecycle
from docs.generator import tags
from docs.generator.errors import reasons_of_code
from docs.generator.settings import constants_of_config

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OTHERS = [
    ROOT / folder / "README.md"
    for folder in (
        "bedrockjobs/base",
        "bedrockjobs/store/postgresql",
        "benchmarks",
        "clients/js",
        "examples/shop",
        "tests",
        "worker/bedrock_worker/run",
    )
]
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *OTHERS])

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_PICTURE = re.compile(r"!\[[^\]]+\]\(([^)\s]+)\)")
PICTURE_BYTES_MAX = 100_000
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_MACHINE = re.compile(r"/(?:work|tmp|root|home)/|\bvm-\d+|\bsite-packages\b")
_FORBIDDEN_WORDS = re.compile(r"\b(?:TODO|FIXME|TBD|lorem)\b", re.IGNORECASE)


def name_of(page: Path) -> str:
    """Return a page's path as a test's name."""
    return page.relative_to(ROOT).as_posix()


def section(page: str, heading: str) -> str:
    """Return the text under a heading of the second level."""
    text = (DOCS / page).read_text()
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no section {heading}"
    return found[1]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as the usual renderers make them."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_command_and_parameter_is_documented(kind: type[Command[Any]]) -> None:
    """Each command has a section that explains every parameter."""
    text = section("reference/commands.md", kind.__name__)
    for name, field in kind.model_fields.items():
        if name not in ("connection", "timeout"):
            assert field.description, f"{kind.__name__}.{name} has no description"
            assert f"`{wire_name(name)}`" in text
    for name in kind.reply.model_fields:
        assert f"`{wire_name(name)}`" in text


def test_every_setting_and_constant_is_documented() -> None:
    """Each has its option, its variable and its reason."""
    text = (DOCS / "reference/settings.md").read_text()
    for name, field in Settings.model_fields.items():
        assert field.description
        assert f"| `{option_name(name)}` | `{variable_name(name)}` |" in text
    constants = {name for name, _, _ in constants_of_config()}
    text += (ROOT / "bedrockjobs/base/README.md").read_text()
    source = (ROOT / "bedrockjobs/base/config.py").read_text()
    assert constants == set(re.findall(r"^([A-Z][A-Z_]+) = ", source, re.MULTILINE)), "one has no reason"
    assert all(f"| `{name}` |" in text for name in constants)


def test_every_error_is_documented() -> None:
    """Each error is listed with its code and all status lines."""
    text = (DOCS / "reference/errors.md").read_text()
    for kind in ERRORS:
        assert f"| {kind.code} | " in text
        assert f"`{kind.__name__}`" in text
        assert f"`{kind.default_reason}`" in text


def test_refusals_of_commands_are_the_servers_words() -> None:
    """No page documents a refusal that the code cannot send."""
    reasons = reasons_of_code()
    for kind in ALL:
        for code, words, _ in kind.all_refusals():
            assert words in reasons[code], f"{kind.__name__}: {code} {words}"


def test_every_word_of_the_command_line_is_documented() -> None:
    """Every subcommand has its section."""
    text = (DOCS / "reference/cli.md").read_text()
    for name in bedrockjobs.commands:
        assert f"## bedrockjobs {name}\n" in text
    assert "## bedrock-worker\n" in text


def test_the_diagram_is_the_life_cycle() -> None:
    """The diagram equals the server's transitions, and every state is described."""
    text = (DOCS / "explanation/life-cycle.md").read_text()
    assert f"```mermaid\n{lifecycle.diagram()}\n```" in text
    assert all(f"| `{state}` |" in text for state in lifecycle.STATES)


def test_every_tag_in_the_code_is_listed() -> None:
    """Each `Differs from Bedrock:` in the code has a row in the table."""
    text = (DOCS / "explanation/architecture.md").read_text()
    places = tags.tagged()
    paths = [path for folder in ("bedrockjobs", "worker") for path in (ROOT / folder).rglob("*.py")]
    source = "".join(path.read_text() for path in paths)
    assert len(places) == source.count(tags.TAG) == source.count(tags.TAG.rstrip(":")) > 0, "one has no colon"
    assert all(f"| {place} |" in text for place, _, _ in places)


def test_every_dependency_is_explained() -> None:
    """Each package of pyproject.toml has a row, and no other package has one."""
    text = (DOCS / "explanation/dependencies.md").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    listed = re.findall(r'^    "([a-z][a-z-]+)(?:\[[a-z]+\])?(?:[>=;].*)?",$', project, re.MULTILINE)
    assert {"aiohttp", "pytest"} <= set(listed)
    rows = re.findall(r"^\| ([a-z][a-z.-]+) \| \d", text, re.MULTILINE)
    assert sorted(row.replace(".", "-") for row in rows) == sorted(listed)


def test_every_promise_names_a_test() -> None:
    """Each of the eight promises names its tests, in the guarantees and in the README."""
    text = (DOCS / "explanation/guarantees.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    promises = [part for part in sections if re.match(r"P\d ", part)]
    assert [part[:2] for part in promises] == [f"P{number}" for number in range(1, 9)]
    assert all("../../tests/" in part and "Limit" in part for part in promises if not part.startswith("P2"))
    readme = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| \*\*(.+?)\.\*\* .* \| (.+) \|$", readme, re.MULTILINE)
    assert len(rows) == len(promises)
    assert all("](tests/" in tests for _, tests in rows)


def links() -> Iterator[tuple[Path, str]]:
    """Yield every link that is not to another site, with its page."""
    for page in PAGES:
        for target in _LINK.findall(_FENCE.sub("", page.read_text())):
            if not target.startswith(("http://", "https://")):
                yield page, target


def test_links_lead_somewhere() -> None:
    """They lead to an existing file and an existing heading."""
    broken = []
    for page, target in links():
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(f"{name_of(page)}: {target}")
    assert not broken


def test_pictures_are_there_and_small() -> None:
    """The README has four pictures, which must not make a clone large."""
    shown = {
        (page.parent / target).resolve() for page in PAGES for target in _PICTURE.findall(page.read_text())
    }
    assert len(_PICTURE.findall((ROOT / "README.md").read_text())) == 4
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in shown)
    sizes = {path.name: path.stat().st_size for path in (DOCS / "screenshots").iterdir()}
    assert {name for name, size in sizes.items() if size >= PICTURE_BYTES_MAX} == set()


def test_every_page_is_linked() -> None:
    """A link leads there from the README or from a linked page."""
    linked = {(page.parent / target.partition("#")[0]).resolve() for page, target in links()}
    assert not [name_of(page) for page in DOCS.rglob("*.md") if page not in linked]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_are_of_this_project(page: Path) -> None:
    """No page names a person's machine, and none is unfinished."""
    text = page.read_text()
    assert not _MACHINE.search(text), _MACHINE.search(text)
    assert not _FORBIDDEN_WORDS.search(text), _FORBIDDEN_WORDS.search(text)
    assert text.startswith(("# ", "<!-- Written by"))
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_json_in_pages_is_json(page: Path) -> None:
    """Blocks marked as JSON are valid JSON."""
    for block in re.findall(r"^```json\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        json.loads(block)
