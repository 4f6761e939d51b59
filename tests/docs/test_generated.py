"""Generated pages are fresh."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from docs.generate import rendered

ROOT = Path(__file__).parents[2]


def test_generated_pages_are_fresh() -> None:
    """`python -m docs.generate` would change nothing."""
    stale = [str(path.relative_to(ROOT)) for path, text in rendered().items() if path.read_text() != text]
    assert not stale, "run: python -m docs.generate"


def test_the_generator_is_a_program() -> None:
    """With --check its exit status shows whether the pages are fresh."""
    done = subprocess.run([sys.executable, "-m", "docs.generate", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0
