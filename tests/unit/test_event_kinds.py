"""The list of the kinds of events is complete, and a rule about any other is refused."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import bedrockjobs
from bedrockjobs.base.errors import BadArguments
from bedrockjobs.base.vocabulary import EVENT_KINDS, unknown_kind
from bedrockjobs.commands import PutRule
from bedrockjobs.commands.workflows import WORKFLOW_STATES
from bedrockjobs.pages import tables

PLACES = {"note": 0, "_note": 1, "_tell": 0, "_add_news": 0, "EventRow": 0, "Noted": 0, "_written": 2}
"""Functions that write events, and the position of the argument with the kind."""


def written() -> Iterator[str]:
    """Yield the kinds of events in the server's code."""
    for file in Path(bedrockjobs.__file__).parent.rglob("*.py"):
        text = file.read_text()
        if not any(f"{name}(" in text for name in (*PLACES, "resume")):
            continue  # to parse all takes seconds
        for call in ast.walk(ast.parse(text)):
            if not isinstance(call, ast.Call):
                continue
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            given = [word.value for word in call.keywords if word.arg == "kind" and name == "resume"]
            given += call.args[PLACES[name] :][:1] if name in PLACES else []
            yield from (
                one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)
            )


def test_every_kind_that_is_written_is_known() -> None:
    found = set(written())
    assert len(found) > 25, "the functions of PLACES are those that write"
    assert found <= EVENT_KINDS
    assert set(tables.EVENT_KINDS) <= EVENT_KINDS
    assert "held" in EVENT_KINDS, "a restored copy says so by itself"
    ends = {f"workflow {state.lower()}" for state in WORKFLOW_STATES} - {"workflow running"}
    assert ends <= EVENT_KINDS, "the end of a workflow names its state"


def test_what_is_none_is_refused_with_what_is_meant() -> None:
    assert unknown_kind(["failed", "late over", "new address"]) == ""
    for wrong, near in (("fail", "failed"), ("time-out", "timeout"), ("missed tick", "missed")):
        with pytest.raises(BadArguments, match=f"{wrong} is unknown, did you mean {near}\\?"):
            PutRule.read({"name": "r", "on": f"failed,{wrong}", "to": "mailto:a@example.com"})
    with pytest.raises(BadArguments, match=r"zzz is unknown$"):
        PutRule.read({"name": "r", "on": ["zzz"], "to": "mailto:a@example.com"})
