"""Build the shims between server and kernel, if there is a compiler."""

from __future__ import annotations

import atexit
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

SOURCE = Path(__file__).with_name("shim.c")
"""Between SQLite and its files."""

CLOCK = Path(__file__).with_name("clock.c")
"""Between a server and the machine's clock."""


@cache
def built(source: Path = SOURCE) -> Path:
    """Return a shim as a library to preload, deleted with this process; skips the test without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = Path(mkdtemp(prefix="bedrockjobs-shim-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "shim.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-o", str(library), str(source), "-ldl"], check=True
    )
    return library
