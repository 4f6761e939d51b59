"""A command is declared once: its class says everything, and whoever needs something of it asks the class."""

from __future__ import annotations

from typing import Any, get_args

import pytest

import bedrockjobs
from bedrockjobs import commands
from bedrockjobs.commands import ALL, Command
from bedrockjobs.commands.base import Group, Role
from bedrockjobs.engine import service
from bedrockjobs.engine.handlers.registry import HANDLERS, handles

assert service.VERSION  # importing it is what imports all handlers


def by_name(kind: type[Command[Any]]) -> str:
    """Return the name of a test's command."""
    return kind.__name__


def test_every_command_has_a_handler_and_every_handler_a_command() -> None:
    assert HANDLERS.keys() == set(ALL)


def test_a_second_handler_is_refused() -> None:
    with pytest.raises(ValueError, match="Ping is handled by ping already"):
        handles(commands.Ping)(lambda *_: None)


@pytest.mark.parametrize("kind", ALL, ids=by_name)
def test_its_example_is_what_it_takes_and_answers(kind: type[Command[Any]]) -> None:
    asked, answered = kind.example
    command = kind.read_json(bedrockjobs.base.jsontext.dump(asked))
    assert {name for name in asked if name not in kind.wire_names.values()} == set()
    assert command.connection is None
    if kind is commands.Query:
        assert all(isinstance(row, list) for row in answered)
        return
    reply = kind.reply.model_validate(answered, strict=True)
    assert reply.model_dump(by_alias=True, exclude_unset=True) == answered


@pytest.mark.parametrize("kind", ALL, ids=by_name)
def test_what_it_says_of_itself_fits_together(kind: type[Command[Any]]) -> None:
    assert kind.sentence().endswith(".")
    assert kind.group in get_args(Group)
    assert kind.role in get_args(Role)
    if kind.where in ("reader", "at once"):
        assert kind.reads
    if kind.reads:
        assert kind.repeatable
        assert not kind.all_or_nothing
        assert kind.role in ("read", "admin")
    for parameter in kind.headers.values():
        assert parameter in kind.wire_names.values()
    if kind.paging is not None:
        rows, key, cursor = kind.paging
        assert {cursor, "limit"} <= set(kind.wire_names.values())
        assert key in kind.example.reply[rows][0]
    assert len(set(kind.all_refusals())) == len({refusal[:2] for refusal in kind.all_refusals()})


def test_all_names_can_be_imported_from_the_package() -> None:
    for kind in ALL:
        assert getattr(bedrockjobs, kind.__name__) is kind
        assert getattr(bedrockjobs, kind.reply.__name__) is kind.reply
    assert {kind.__name__ for kind in ALL} <= set(bedrockjobs.__all__)
    assert all(name.isidentifier() for name in bedrockjobs.__all__)


def test_what_is_only_there_to_inherit_from_is_no_command() -> None:
    assert not {"Ending", "StopRun", "Command"} & commands.COMMANDS.keys()


def test_refusals_are_inherited() -> None:
    then_get = (402, "Malformed thenGet")
    for kind in (commands.FinishJob, commands.RetryJob, commands.FailJob):
        assert then_get in {refusal[:2] for refusal in kind.all_refusals()}
    assert then_get not in {refusal[:2] for refusal in commands.DeleteJob.all_refusals()}
