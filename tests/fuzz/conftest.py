"""Clean up after a server that was fuzzed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz import live


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    yield
    live.close()
