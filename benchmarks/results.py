"""The page `results.md`: each benchmark rewrites its own section and leaves the others as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

PAGE = Path(__file__).with_name("results.md")
TITLE = """# Results

Written by the scripts beside this page; `README.md` says what each measures. Figures of one section come from
one run, so that their ratios mean something; those of two sections may come from two.
"""
ORDER = (
    "Machine",
    "Throughput",
    "Clients",
    "Tokens",
    "Peers",
    "PostgreSQL",
    "Take",
    "Wake",
    "Steady",
    "Unique keys, SQLite",
    "Unique keys, PostgreSQL",
    "Worker",
    "Functions",
    "Schedules",
    "Pages",
)
"""The sections, as they stand on the page."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, all columns but the first right-aligned."""
    lines = [list(head), ["---"] + ["---:"] * (len(head) - 1), *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def verdict(name: str, figure: float, bar: float, *, unit: str = "", at_most: bool = False) -> str:
    """Return a line that says whether a figure reaches its bar."""
    reached = figure <= bar if at_most else figure >= bar
    word = "at most" if at_most else "at least"
    return (
        f"* {'reached' if reached else '**missed**'}: {name} {figure:.3g}{unit} (bar: {word} {bar:g}{unit})"
    )


def write_section(name: str, text: str, page: Path = PAGE) -> None:
    """Replace a section of the page, or add it."""
    sections: dict[str, str] = {}
    if page.exists():
        parts = re.split(r"^## (.+)\n", page.read_text(), flags=re.MULTILINE)[1:]
        sections = dict(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))
    sections[name] = text.strip()
    ordered = sorted(sections, key=lambda each: ORDER.index(each) if each in ORDER else len(ORDER))
    page.write_text("\n".join([TITLE, *(f"## {each}\n\n{sections[each]}\n" for each in ordered)]))


def write_machine(rows: Iterable[tuple[str, str]]) -> None:
    """Write the section on the machine."""
    write_section("Machine", table(("what", "here"), rows))
