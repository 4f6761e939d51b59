"""What the programs of server and worker share: option types, suggestions, lost output, the event loop."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from bedrockjobs.base.vocabulary import differ_by_typo

if TYPE_CHECKING:
    import asyncio


class WholeNumber(click.IntRange):
    """A whole number within limits; help texts and errors call it by that name."""

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
"""Names of options that do not exist but that people try, each with the options that they may mean."""


class ProgramCommand(click.Command):
    """A program; it suggests options for unknown ones, and exits with 74 if output cannot be written."""

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """Parse the options; this may already write output, as for ``--help`` and ``--version``."""
        try:
            with output_written():
                return super().make_context(*args, **more)
        except click.NoSuchOption as error:
            raise unknown_option(error) from None


OUTPUT_LOST = 74
"""Exit status if the output cannot be written: EX_IOERR of sysexits.h."""

_LOST = {errno.EBADF: "stdout is closed", errno.EPIPE: "the program that read it has ended"}


@contextmanager
def output_written() -> Iterator[None]:
    """Exit with a message and status 74 if output cannot be written."""
    given = sys.stdout
    if given is None:  # closed before the start: Python would silently drop the output
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    try:
        try:
            yield
        except (click.exceptions.Exit, SystemExit):
            sys.stdout.flush()
            raise
        except BaseException:  # this exception is reported, not that of a failed flush
            try:
                sys.stdout.flush()
            except OSError:
                _discard_output()
            raise
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:  # not about stdout
            raise
        _discard_output()
        reason = _LOST.get(error.errno or 0) or error.strerror or str(error)
        click.echo(f"The output was lost: {reason}.", err=True)
        sys.exit(OUTPUT_LOST)
    finally:
        if given is None:
            sys.stdout.close()
            sys.stdout = given


def _discard_output() -> None:
    """Redirect stdout to nowhere, so that Python's own flush at exit raises no error."""
    with suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)


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
