"""``bedrockjobs``: the command line of the server and its queue.

Each group of commands is a module of this package, imported when it is used. Results go to stdout; everything
else goes to stderr.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import click

from bedrockjobs.base.programs import ProgramCommand, output_written, unknown_option
from bedrockjobs.cli.parameters import SubcommandGroup
from bedrockjobs.cli.session import INTERRUPTED, Session, global_options

HOMES = {
    "serve": ("serve.serve", "Run the server until it is stopped."),
    "job": ("job.job", "Create, take, change and end jobs."),
    "workflow": (
        "workflow.workflow",
        "Create and follow workflows: jobs of which some start after others have ended.",
    ),
    "schedule": ("schedule.schedule ping.ping_url", "Add, show, change, pause and trigger schedules."),
    "run": ("run.run", "List runs, follow their output, stop them, run them again, delete them."),
    "failure": ("failure.failure", "List failures by cause; retry, delete, acknowledge or mute them."),
    "queue": ("queue.queue", "Show which queues are long and why; pause and resume them."),
    "worker": ("worker.worker", "List the live workers, and drain them."),
    "limit": (
        "queue.limit",
        "Limit how many jobs of a name are queued, created a second (more is refused with 429),"
        " started and run, or take those of many keys or names in turn.",
    ),
    "kept": (
        "queue.kept",
        "Limit how long runs, output, events and the history of schedules are kept, and see how much"
        " there is.",
    ),
    "server": ("worker.server", "List the servers that share the database."),
    "top": (
        "top.top",
        "Show a live view of jobs, problems, running and failed runs, and long queues. q quits.",
    ),
    "events": ("events.events", "List the last events, in the order in which they happened."),
    "notify": ("events.notify", "Send notifications about events, by mail or webhook."),
    "token": ("access.token", "Create, list, renew and revoke access tokens."),
    "audit": (
        "access.audit",
        "List what operators and admins changed, the newest first; kept for 90 days by default.",
    ),
    "apply": ("apply.apply", "Apply the schedules and notification rules of FILE to its source."),
    "import": (
        "import_.import_",
        "Import schedules from crontab, Kubernetes, whenever, Solid Queue, Cronken, castle-cron, FTL"
        " or LUCI.",
    ),
    "outbox": (
        "outbox.outbox",
        "Carry jobs from a table of your own database to the queue, at least once and in order per key.",
    ),
    "query": ("call.query", "Run one query on the server's database, read-only: 'select * from jobs'."),
    "call": ("call.call", "Send any command: call CreateJob name=foo data='{\"a\":1}'."),
    "ping": (
        "ping.ping",
        "Check that the server answers; or send a ping for the schedule NAME, which expects pings.",
    ),
    "status": ("call.status", "Show the version and the status of the server."),
    "backup": ("database.backup", "Copy the database to FILE while the server keeps running."),
    "migrate": (
        "database.migrate",
        "Migrate a database to this version's schema, or import a Bedrock database.",
    ),
    "restore": ("database.restore", "Replace the database with BACKUP, and hold the queue until --release."),
    "move": ("database.move", "Move all jobs and runs from a SQLite file to PostgreSQL, or back."),
    "doctor": ("doctor.doctor", "Check for common problems, and advise; changes nothing."),
    "config": ("config.config", "Show the server's settings, and check a settings file."),
    "service": ("service.service", "Run the server and workers as systemd services."),
}
"""For each command, the usual ones first, where it is defined (``module.name``), and its summary. If more
than one place is named, the further ones are added as subcommands. The summary is the first sentence of the
command's help, so that ``--help`` need not import all modules."""


class Commands(MutableMapping[str, click.Command]):
    """The commands by name. Modules are imported at first use, since importing all of them takes a second."""

    def __init__(self) -> None:
        self._names = dict.fromkeys(HOMES)
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        """Return a command; raises KeyError if there is none."""
        if name not in self._loaded and name in self._names:
            home, *below = (_found(place) for place in HOMES[name][0].split())
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


class RootCommand(ProgramCommand, SubcommandGroup):
    """The root command; it exits with 130 after an interrupt and with 74 if output cannot be written."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in order, the usual ones first."""
        return list(self.commands)

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Return the commands with their summaries; imports none of them."""
        known = {name: summary for name, (_, summary) in HOMES.items()}
        return [(name, known[name]) for name in self.list_commands(ctx) if name in known]

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
        "max_content_width": 120,  # longer lines are hard to read
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
