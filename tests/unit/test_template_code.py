"""Templates are compiled by another process, or at first use if that fails."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.base.config import TEMPLATES_S_MAX
from bedrockjobs.pages import templates
from bedrockjobs.pages.templates import TemplateCode, Templates
from tests.effort import examples
from tests.protocol.talk import DEADLINE_S


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the templates that are compiled in this process."""
    names: list[str] = []
    compile_ = Templates.compile

    def noted(self: Templates, source: Any, name: str, *given: Any, **named: Any) -> Any:
        names.append(name)
        return compile_(self, source, name, *given, **named)

    monkeypatch.setattr(Templates, "compile", noted)
    return names


LOADED = examples(5, night=1_000)
"""How many templates are loaded where the server compiles them, which takes it long."""


def prepared(loaded: int | None = None) -> Templates:
    """Return templates after two concurrent preparations, with all or so many of them loaded."""
    made = Templates(TemplateCode())

    async def prepare() -> None:
        await asyncio.gather(made.prepare(), made.prepare())

    asyncio.run(prepare())
    for name in made.list_templates()[:loaded]:
        made.get_template(name)
    return made


def test_no_template_is_compiled_in_the_server(monkeypatch: pytest.MonkeyPatch, compiled: list[str]) -> None:
    made = prepared()
    assert len(made.list_templates()) > 20
    assert compiled == []
    monkeypatch.setattr(sys, "executable", "/nowhere")
    asyncio.run(made.prepare())
    assert compiled == [], "a second look has started a process"


@pytest.mark.parametrize("program", ["exit 3", "echo nonsense", "sleep 60"])
def test_where_no_process_compiles_them_the_server_does(
    program: str, monkeypatch: pytest.MonkeyPatch, compiled: list[str], tmp_path: Path
) -> None:
    assert TEMPLATES_S_MAX == 30.0
    assert TEMPLATES_S_MAX < DEADLINE_S, "tests wait longer for a page than its templates may take"
    monkeypatch.setattr(templates, "TEMPLATES_S_MAX", 0.5)
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{program}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    made = prepared(LOADED)
    assert compiled == made.list_templates()[:LOADED]
