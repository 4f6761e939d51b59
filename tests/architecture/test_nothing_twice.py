"""No ten lines occur twice: code that two modules need is in one place."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.architecture.statements import statements

ROOT = Path(__file__).parents[2]
LINES = 10
_ITEM = re.compile(r"\*?[\w.]+,")


def lines_of(text: str) -> list[tuple[int, str]]:
    """Return the significant lines with their numbers, without indentation.

    Imports, docstrings, comments and items such as ``run.name,`` are left out: the formatter gives each item
    of a long list its own line.
    """
    left_out: set[int] = set()
    for node in statements(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or is_text:
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        code = line.strip()
        if "#" in code:
            code = re.sub(r"(^|\s\s)#.*", "", code).strip()
        if code and number not in left_out and not _ITEM.fullmatch(code):
            found.append((number, code))
    return found


def twice(texts: dict[str, str]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the modules that share a number of consecutive lines, with the first line in each."""
    places: defaultdict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, text in texts.items():
        numbers, codes = zip(*lines_of(text) or [(0, "")], strict=True)
        for at in range(len(codes) - LINES + 1):
            places[codes[at : at + LINES]].append((name, numbers[at]))
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for (first, line), *others in places.values():
        for other, other_line in others:
            found.setdefault((first, other), (line, other_line))
    return found


def test_no_ten_lines_stand_twice() -> None:
    paths = [path for folder in ("bedrockjobs", "worker") for path in sorted((ROOT / folder).rglob("*.py"))]
    found = twice({str(path.relative_to(ROOT)): path.read_text() for path in paths})
    again = [f"{one}:{lines[0]} and {other}:{lines[1]}" for (one, other), lines in found.items()]
    assert not again, "the same ten lines twice, make them one function: " + "; ".join(again)


def test_the_search_finds_what_stands_twice() -> None:
    body = [f"value{n} = {n}  # {n}" for n in range(LINES)]
    one = "import ast\n" + "\n".join(body)
    other = '"""Text."""\n\nif True:\n' + "\n\n".join(f"    {line.partition('  #')[0]}" for line in body)
    assert twice({"one": one, "other": other}) == {("one", "other"): (2, 4)}
    assert twice({"one": one, "other": other.replace("value5", "value")}) == {}
