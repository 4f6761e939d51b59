"""``bedrockjobs``: the command line of the server and its queue.

Each group of commands is a module of this package, imported when it is used. Results go to stdout, everything
else to stderr.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import click

from bedrockjobs.base.programs import unknown_option
from bedrockjobs.cli.groups import Group
from bedrockjobs.cli.output import output_written
from bedrockjobs.cli.session import INTERRUPTED, Session, global_options

HOMES = {
    "serve": "serve.serve",
    "job": "job.job",
    "workflow": "workflow.workflow",
    "schedule": "schedule.schedule ping.ping_url",
    "run": "run.run",
    "failure": "failure.failure",
    "queue": "queue.queue",
    "worker": "worker.worker",
    "limit": "limits.limit",
    "kept": "limits.kept",
    "server": "worker.server",
    "top": "top.top",
    "events": "events.events",
    "notify": "notify.notify",
    "token": "access.token",
    "audit": "access.audit",
    "apply": "apply.apply",
    "import": "import_.import_",
    "outbox": "outbox.outbox",
    "query": "call.query",
    "call": "call.call",
    "ping": "ping.ping",
    "status": "call.status",
    "backup": "database.backup",
    "migrate": "database.migrate",
    "restore": "database.restore",
    "move": "database.move",
    "doctor": "doctor.doctor",
    "config": "config.config",
    "service": "service.service",
}
"""The module and the name of each command, the usual ones first; more names are subcommands to add."""


class Commands(MutableMapping[str, click.Command]):
    """The commands by name. Modules are imported on first use, as importing all of them takes a second."""

    def __init__(self) -> None:
        self._names = dict.fromkeys(HOMES)
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        """Return a command; raises KeyError if there is none."""
        if name not in self._loaded and name in self._names:
            home, *below = (_found(place) for place in HOMES[name].split())
            for some in below:
                for command in (some,) if isinstance(some, click.Command) else some:
                    home.add_command(command)
            self._loaded[name] = home
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        """Add a command."""
        self._names[name] = None
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        """Remove a command."""
        del self._names[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return the number of commands."""
        return len(self._names)


def _found(place: str) -> Any:
    module, _, name = place.partition(".")
    return getattr(import_module(f"{__name__}.{module}"), name)


class RootCommand(Group):
    """The root command; it exits with 130 after an interrupt and with 74 if output cannot be written."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in order, the usual ones first."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and check that its output was written."""
        try:
            with output_written():
                return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise unknown_option(error) from None
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        """Parse the options of the program; ``--help`` and ``--version`` write output."""
        try:
            with output_written():
                return super().make_context(*arguments, **more)
        except click.NoSuchOption as error:
            raise unknown_option(error) from None


HELP_WIDTH_MAX = 120
"""Maximum width of help texts: longer lines are hard to read."""

EPILOG = """\
\b
Exit status:
  0  done                  4  refused (the job's state)
  1  failed                5  not authorised
  2  wrong usage          69  the server is not available
  3  not found            74  the output was lost
                          78  bad settings file
                         124  the wait timed out
                         130  interrupted

\b
Every option can be an environment variable: BEDROCKJOBS_JOB_LIST_LIMIT=20 is
`job list --limit 20`. NO_COLOR turns colours off.

\b
Completion of the shell (also zsh_source, fish_source):
  eval "$(_BEDROCKJOBS_COMPLETE=bash_source bedrockjobs)"
"""


@click.group(
    cls=RootCommand,
    commands=Commands(),
    epilog=EPILOG,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "BEDROCKJOBS",
        "max_content_width": HELP_WIDTH_MAX,
    },
)
@click.version_option(package_name="bedrockjobs", prog_name="bedrockjobs", message="%(prog)s %(version)s")
@global_options
@click.pass_context
def main(ctx: click.Context) -> None:
    """A durable job queue and cron server, on a SQLite file or PostgreSQL.

    \b
    bedrockjobs serve                            run the server
    bedrockjobs job create foo --data '{}'       create a job
    bedrockjobs schedule add foo '0 9 * * 1-5'   create one that runs on a schedule
    bedrockjobs run logs -f 7                    follow what a run prints
    bedrockjobs top                              watch the queue live
    """
    ctx.ensure_object(Session)
