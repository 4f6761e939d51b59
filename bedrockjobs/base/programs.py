"""What both command lines share: whole numbers, and suggestions for options. Knows neither of them."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from bedrockjobs.base.wire import one_slip


class WholeNumber(click.IntRange):
    """A whole number within limits; the help and errors call it that."""

    name = "whole number"


SYNONYMS = {
    "--after": ("--since",),
    "--at": ("--first-run", "--until"),
    "--db": ("--database",),
    "--delay": ("--first-run",),
    "--file": ("--database", "--from"),
    "--force": ("--yes",),
    "--format": ("--output",),
    "--glob": ("--name",),
    "--json": ("--output json",),
    "--pattern": ("--name",),
    "--run-at": ("--first-run",),
    "--url": ("--server",),
}
"""Options that people try, with those that they may mean."""


class OneCommand(click.Command):
    """A program that is one command."""

    def make_context(self, *given: Any, **more: Any) -> click.Context:
        """Read the options."""
        try:
            return super().make_context(*given, **more)
        except click.NoSuchOption as error:
            raise unknown_option(error) from None


def unknown_option(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error with suggestions that are worth reading: click's own are similar letters only."""
    given, context = error.option_name, error.ctx
    if context is None or not given.startswith("--"):
        return error
    known = [
        name
        for parameter in context.command.get_params(context)
        if isinstance(parameter, click.Option) and not parameter.hidden
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--")
    ]
    meant = [name for name in SYNONYMS.get(given, ()) if name.split()[0] in known]
    meant += [name for name in known if name.startswith(given) or one_slip(given, name)]
    words = " or ".join(f"'{name}'" for name in dict.fromkeys(meant))
    message = f"No such option '{given}'." + (f" Did you mean {words}?" if words else "")
    return click.NoSuchOption(given, message, ctx=context)


# What runs the event loop of a program, the server or the worker. Knows neither of them.


def runner() -> asyncio.Runner:
    """Return what runs an event loop: the quicker one where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
