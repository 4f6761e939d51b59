"""The statements of code: to walk through all of its expressions takes twenty times as long."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import CodeType

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Where statements stand inside others."""


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield a module and all statements in it, in no order."""
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        yield node
        for block in BLOCKS:
            nodes += getattr(node, block, ())


def names_of(code: CodeType) -> set[str]:
    """Return the names that compiled code defines, imports or uses."""
    inner = [names_of(each) for each in code.co_consts if isinstance(each, CodeType)]
    return {code.co_name, *code.co_names, *code.co_varnames, *code.co_freevars}.union(*inner)
