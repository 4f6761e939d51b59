"""``bedrockjobs``: the command line of the server and its queue.

Each command is a module of this package; this one only puts them together. Results go to stdout, everything
else to stderr.
"""

from __future__ import annotations

from typing import Any

import click

from bedrockjobs.cli import (
    apply,
    audit,
    call,
    config,
    database,
    details,
    doctor,
    events,
    explain,
    failure,
    import_,
    job,
    kept,
    limit,
    move,
    notify,
    ping,
    query,
    queue,
    restore,
    run,
    schedule,
    serve,
    server,
    service,
    token,
    top,
    worker,
)
from bedrockjobs.cli import job_end as ending
from bedrockjobs.cli import schedule_control as holding
from bedrockjobs.cli.groups import Group
from bedrockjobs.cli.session import INTERRUPTED, Session, global_options


class Program(Group):
    """The root command: an interrupt ends it with 130, as a shell expects."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands as they were added, the usual ones first."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)


HELP_WIDTH_MAX = 120
"""Width that a help takes on a wide terminal: longer lines are hard to read."""

EPILOG = """\
\b
Exit status:
  0  done                  4  refused (the job's state)
  1  failed                5  not authorised
  2  wrong usage          69  the server is not available
  3  not found            78  bad settings file
                         124  the wait ran out
                         130  interrupted

\b
Every option can be an environment variable: BEDROCKJOBS_JOB_LIST_LIMIT=20 is
`job list --limit 20`. NO_COLOR takes the colours away.

\b
Completion of the shell (also zsh_source, fish_source):
  eval "$(_BEDROCKJOBS_COMPLETE=bash_source bedrockjobs)"
"""


@click.group(
    cls=Program,
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
    """A durable job queue and cron service in one SQLite file.

    \b
    bedrockjobs serve                            run the server
    bedrockjobs job create foo --data '{}'       create a job
    bedrockjobs schedule add foo '0 9 * * 1-5'   create one that runs by the clock
    bedrockjobs run logs -f 7                    follow what a run prints
    bedrockjobs top                              see how things are
    """
    ctx.ensure_object(Session)


for _command in (*ending.COMMANDS, explain.explain):
    job.job.add_command(_command)

for _command in holding.OF_QUEUES:
    queue.queue.add_command(_command)

for _command in (details.show, *holding.COMMANDS, ping.ping_url):
    schedule.schedule.add_command(_command)

for _command in (
    serve.serve, job.job, schedule.schedule, run.run, failure.failure, queue.queue, worker.worker,
    limit.limit, kept.kept,
    server.server, top.top, events.events, notify.notify, token.token, audit.audit,
    apply.apply, import_.import_, query.query, call.call, ping.ping, query.status,
    database.backup, database.migrate, restore.restore, move.move, doctor.doctor, config.config,
    service.service,
):  # fmt: skip
    main.add_command(_command)
