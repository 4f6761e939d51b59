"""Generated pages are fresh."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs import generate
from tests.cli import warm

ROOT = Path(__file__).parents[2]


def test_generated_pages_are_fresh() -> None:
    """`python -m docs.generate` would change nothing: with --check its exit status says so."""
    command = [warm.program("python"), "docs/generate.py", "--check"]
    around = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=around, stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), "run: python -m docs.generate"


def test_a_stale_page_is_found_and_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = "reference/errors.md"
    before = (generate.DOCS / page).read_text()
    monkeypatch.setattr(generate, "PAGES", {page: lambda: "other words"})
    monkeypatch.setattr(generate, "PARTS", {})
    monkeypatch.setattr(sys, "argv", ["generate", "--check"])
    assert generate.main() == 1
    assert capsys.readouterr().out == f"docs/{page}\n"
    assert (generate.DOCS / page).read_text() == before
