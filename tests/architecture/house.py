"""Print figures of the project's structure: ``python -m tests.architecture.house [FOLDER] [--since COMMIT]``.

``--call`` runs a server in this process and also counts what one CreateJob over HTTP passes through. For
another working copy use its own Python, so that its own package is imported.
"""

from __future__ import annotations

import argparse
import ast
import http.client
import io
import subprocess
import sys
import threading
import time
import tokenize
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
PRODUCT = ("bedrockjobs", "worker")
SUBJECT_CHARS_MAX = 72
VAGUE = ("close", "read", "forget", "run", "begin", "undo", "open", "of", "look")
"""Function names that need an object unless a type provides it."""

WARM_CALLS = 300
MEASURED_CALLS = 51
SETTLE_S = 0.01
"""Wait after an answer, so that work after the commit counts as well."""

_LAYOUT = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.COMMENT,
    tokenize.ENCODING,
}


def lines_in(*folders: Path) -> int:
    """Return the number of lines of all Python files."""
    return sum(len(path.read_text().splitlines()) for folder in folders for path in folder.rglob("*.py"))


def is_no_code(node: ast.stmt) -> bool:
    """Return whether a statement is an import or a docstring."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Import | ast.ImportFrom) or is_text


def code_lines(text: str, tree: ast.Module) -> int:
    """Return the number of lines with code: no blank lines, comments, docstrings or imports."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and is_no_code(node):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT and token.string:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - left_out)


def is_number(node: ast.expr | None) -> bool:
    """Return True for a number, or an expression of numbers and names with at least one number."""
    if node is None:
        return False
    allowed = (
        ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop | ast.Name | ast.expr_context
    )
    parts = list(ast.walk(node))
    numbers = [part for part in parts if isinstance(part, ast.Constant)]
    return (
        bool(numbers)
        and all(isinstance(part, allowed) for part in parts)
        and all(type(part.value) in (int, float) for part in numbers)
    )


def constants_in(tree: ast.Module) -> Iterator[str]:
    """Yield the names of numeric constants of a module and its classes."""
    scopes: list[ast.Module | ast.ClassDef] = [tree]
    scopes += (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    for statement in (statement for scope in scopes for statement in scope.body):
        if isinstance(statement, ast.Assign) and is_number(statement.value):
            targets: list[ast.expr] = statement.targets
        elif isinstance(statement, ast.AnnAssign) and is_number(statement.value):
            targets = [statement.target]
        else:
            continue
        yield from (name.id for name in targets if isinstance(name, ast.Name) and name.id.isupper())


def figures(root: Path, since: str) -> Iterator[tuple[str, object]]:
    """Yield each figure of the tree in ``root`` with its name."""
    texts = {path: path.read_text() for folder in PRODUCT for path in (root / folder).rglob("*.py")}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    functions = Counter(
        node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    classes = Counter(
        node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)
    )
    lines = sum(len(text.splitlines()) for text in texts.values())
    tests = lines_in(root / "tests")
    again = sorted(name for name, count in classes.items() if count > 1)
    yield "Python files of the product", len(texts)
    yield "lines of the product", lines
    yield "code lines", sum(code_lines(text, trees[path]) for path, text in texts.items())
    yield "statements", sum(isinstance(node, ast.stmt) and not is_no_code(node) for node in nodes)
    yield "lines of the longest file", max(len(text.splitlines()) for text in texts.values())
    yield "class names used more than once", f"{len(again)}: {' '.join(again)}"
    yield "functions by vague name", " ".join(f"{name} {functions[name]}" for name in VAGUE)
    yield "named numeric constants", sum(1 for tree in trees.values() for _ in constants_in(tree))
    yield "fmt: skip", sum(text.count("fmt: skip") for text in texts.values())
    yield "lines of tests", tests
    yield "lines of tests per line of the product", round(tests / lines, 2)
    log = ["git", "-C", str(root), "log", "--no-merges", "--format=%s", f"{since}..HEAD" if since else "HEAD"]
    subjects = subprocess.run(log, check=True, capture_output=True, text=True).stdout.splitlines()
    long = sum(len(subject) > SUBJECT_CHARS_MAX for subject in subjects)
    yield f"commit subjects over {SUBJECT_CHARS_MAX} characters", f"{long} of {len(subjects)}"


class CallCounter:
    """Counts the calls of the product's own Python functions on the server's thread."""

    def __init__(self, root: Path) -> None:
        """Count calls of code below ``root``."""
        self.folders = tuple(f"{root / folder}/" for folder in PRODUCT)
        self.files: list[str] | None = None
        """File of each call, in order, while calls are counted."""

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call; see ``sys.setprofile``."""
        name = frame.f_code.co_filename
        if event == "call" and self.files is not None and name.startswith(self.folders):
            self.files.append(name)

    def of_one(self, ask: Any) -> tuple[int, int, int]:
        """Return the files passed, the changes of file and the calls while ``ask`` runs and just after."""
        files = self.files = []
        ask()
        time.sleep(SETTLE_S)
        self.files = None
        changes = sum(one != other for one, other in pairwise(files))
        return len(set(files)), changes, len(files)


def call_figures(root: Path) -> Iterator[tuple[str, object]]:
    """Yield what a warm CreateJob over HTTP passes through in the server: medians of some."""
    from bedrockjobs.testing import ServerUnderTest

    counter = CallCounter(root)
    threading.setprofile(counter.profile)
    with ServerUnderTest() as server:
        threading.setprofile(None)
        link = http.client.HTTPConnection(server.address)

        def ask() -> None:
            link.request("POST", "/CreateJob", b'{"name":"mail/welcome","data":{"to":"ada"}}')
            answer = link.getresponse()
            assert answer.read().startswith(b'{"jobID"'), answer.status

        for _ in range(WARM_CALLS):
            ask()
        found = [counter.of_one(ask) for _ in range(MEASURED_CALLS)]
    yield (
        "files passed, changes of file, own calls of one CreateJob",
        [median(part) for part in zip(*found, strict=True)],
    )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT, help="Working copy to measure.")
    parser.add_argument("--since", default="", help="Commit after which subjects of commits are counted.")
    parser.add_argument("--call", action="store_true", help="Also count the calls of one CreateJob.")
    asked = parser.parse_args()
    root = asked.folder.resolve()
    for name, figure in figures(root, asked.since):
        print(f"{name}: {figure}")
    if asked.call:
        sys.path.insert(0, str(root))
        for name, figure in call_figures(root):
            print(f"{name}: {figure}")


if __name__ == "__main__":
    main()
