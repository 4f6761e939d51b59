"""The table of places in the code that are tagged ``Differs from Bedrock:``."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from docs.generator.markdown import cell, table

ROOT = Path(__file__).parents[2]
TAG = "Differs from Bedrock:"

_SENTENCE = re.compile(rf"{TAG}\s*(.+?)(?=\n\s*\n|\"\"\"|$)", re.DOTALL)


def tagged() -> list[tuple[str, str, str]]:
    """Return place, what is done there, and the words of every tag, in the order of the files."""
    found = []
    for folder in ("bedrockjobs", "worker"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if TAG in text:
                place = path.relative_to(ROOT).as_posix()
                found += [(f"`{place}`, `{name}`", does, words) for name, does, words in _in_file(text)]
    return found


def _in_file(text: str) -> list[tuple[str, str, str]]:
    tree = ast.parse(text)
    owners = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    ]
    found = []
    for match in re.finditer(re.escape(TAG), text):
        line = text.count("\n", 0, match.start()) + 1
        around = [node for node in owners if node.lineno <= line <= (node.end_lineno or node.lineno)]
        owner = max(around, key=lambda node: node.lineno) if around else tree
        first_line = (ast.get_docstring(owner) or "").partition("\n")[0]
        does = "" if TAG in first_line else first_line
        found.append((getattr(owner, "name", "module"), does, _words(text, line)))
    return found


def _words(text: str, line: int) -> str:
    """Return the sentence behind a tag: of a comment its lines, of a docstring the paragraph."""
    lines = text.splitlines()[line - 1 :]
    if lines[0].lstrip().startswith("#"):
        comment = []
        for one in lines:
            if not one.lstrip().startswith("#"):
                break
            comment.append(one.lstrip().lstrip("# "))
        lines = comment
    match = _SENTENCE.search("\n".join(lines))
    assert match is not None
    return cell(match[1])


def page_table() -> str:
    """Return the table as Markdown."""
    rows = ((does, _sentence(words), place) for place, does, words in tagged())
    return table(("what the code does", "how that differs", "where"), rows)


def _sentence(words: str) -> str:
    text = words.replace("``", "`").rstrip(".") + "."
    return text[0].upper() + text[1:]
