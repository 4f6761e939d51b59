"""Shared parts of the server's and the worker's programs: option types, suggestions, the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bedrockjobs.base.vocabulary import differ_by_typo

if TYPE_CHECKING:
    import asyncio


class WholeNumber(click.IntRange):
    """A whole number within limits, named so in help texts and errors."""

    name = "whole number"


SYNONYMS = {
    "--after": ("--since",),
    "--at": ("--first-run", "--until"),
    "--db": ("--database",),
    "--file": ("--database", "--from"),
    "--force": ("--yes",),
    "--format": ("--output",),
    "--glob": ("--name",),
    "--in": ("--delay",),
    "--json": ("--output json",),
    "--pattern": ("--name",),
    "--run-at": ("--first-run",),
    "--url": ("--server",),
}
"""Options that people try, with the options that they may mean."""


class OneCommand(click.Command):
    """A program with a single command."""

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """Parse the options, with suggestions for unknown ones."""
        try:
            return super().make_context(*args, **more)
        except click.NoSuchOption as error:
            raise unknown_option(error) from None


def unknown_option(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error with better suggestions than click's, which considers only similar spelling."""
    option_name, context = error.option_name, error.ctx
    if context is None or not option_name.startswith("--"):
        return error
    known = [
        name
        for parameter in context.command.get_params(context)
        if isinstance(parameter, click.Option) and not parameter.hidden
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--")
    ]
    meant = [name for name in SYNONYMS.get(option_name, ()) if name.split()[0] in known]
    meant += [name for name in known if name.startswith(option_name) or differ_by_typo(option_name, name)]
    suggestions = " or ".join(f"'{name}'" for name in dict.fromkeys(meant))
    message = f"No such option '{option_name}'." + (f" Did you mean {suggestions}?" if suggestions else "")
    return click.NoSuchOption(option_name, message, ctx=context)


def runner() -> asyncio.Runner:
    """Return a runner for the event loop, with uvloop if it is installed."""
    import asyncio  # most commands need no event loop

    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
