"""Docstrings name only exceptions that exist, also after a rename."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from tests.architecture.statements import names_of, statements

ROOT = Path(__file__).parents[2]
_NAME = r"(?:``)?(?:\w+\.)*_*[A-Z]\w+(?:``)?"
_RAISES = re.compile(rf"\b[Rr]aises? ({_NAME}(?:(?:, | or |, or | and ){_NAME})*)")
_OURS = re.compile(r"(?<![\w.])_*[A-Z]\w+")


def raised_in(docstring: str) -> list[str]:
    """Return the exceptions that a docstring names, but for those of libraries (``click.Abort``)."""
    return [name for named in _RAISES.finditer(docstring) for name in _OURS.findall(named[1])]


@functools.cache
def read(code: str) -> tuple[set[str], list[tuple[int, str]]]:
    """Return the names that code defines, imports or uses, and each docstring with its line."""
    tree, docstrings = ast.parse(code), []
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            text = ast.get_docstring(node)
            if text:
                docstrings.append((getattr(node, "lineno", 1), " ".join(text.split())))
    return names_of(compile(tree, "code", "exec")), docstrings


def unknown(texts: dict[str, str]) -> list[str]:
    """Return the places of exceptions that no code mentions."""
    known = set[str]().union(*(read(code)[0] for code in texts.values()))
    return [
        f"{name}:{line}: {raised}"
        for name, code in texts.items()
        for line, text in read(code)[1]
        for raised in raised_in(text)
        if raised not in known
    ]


def test_docstrings_name_exceptions_that_exist() -> None:
    texts = {
        str(path.relative_to(ROOT)): path.read_text()
        for folder in ("bedrockjobs", "worker/bedrock_worker")
        for path in (ROOT / folder).rglob("*.py")
    }
    named = [raised_in(text) for code in texts.values() for _, text in read(code)[1]]
    assert sum(map(len, named)) > 300, "the docstrings are not read"
    assert unknown(texts) == []


def test_a_former_name_is_found() -> None:
    code = 'class Held(Exception):\n    pass\n\n\ndef claim():\n    """Raises {}, Held or ValueError."""\n'
    assert unknown({"a.py": code.format("_Held") + "\n\nValueError\n"}) == ["a.py:5: _Held"]
    assert unknown({"a.py": code.format("Held") + "\n\nValueError\n"}) == []
