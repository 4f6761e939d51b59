"""Output that cannot be written: an error, an exit status, and no job is lost."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import click
import pytest
from bedrock_worker.cli import main as worker_main
from live_server import DEADLINE_S, Running, clean_environment
from program import Program, asked, made, shown

from bedrockjobs.base.programs import OUTPUT_LOST
from bedrockjobs.cli import main
from bedrockjobs.cli.service import MARK
from bedrockjobs.commands import COMMANDS
from bedrockjobs.commands.take import TakeOptions
from bedrockjobs.store.outbox import table_sql
from tests.cli import warm
from tests.effort import crossed

Opened = Callable[[ExitStack], int | None]


def full(stack: ExitStack) -> int:
    """Return a stdout on a full disk."""
    return stack.enter_context(Path("/dev/full").open("w")).fileno()


def unread(stack: ExitStack) -> int:
    """Return a pipe whose reader has gone, as with ``| true``."""
    reads, writes = os.pipe()
    os.close(reads)
    stack.callback(os.close, writes)
    return writes


def closed(_: ExitStack) -> None:
    """Return a closed stdout, as with ``>&-``."""


STDOUTS: dict[str, Opened] = {"full": full, "unread": unread, "closed": closed}
SAID = {
    "full": "The output was lost: No space left on device.",
    "unread": "The output was lost: the program that read it has ended.",
    "closed": "The output was lost: stdout is closed.",
}


def without_output(server: Running, how: str, *arguments: str) -> tuple[int, str]:
    """Run the program with such a stdout; return its exit status and stderr."""
    with ExitStack() as stack:
        stdout = STDOUTS[how](stack)
        command = [warm.program("bedrockjobs"), *arguments]
        if stdout is None:
            command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
        done = subprocess.run(
            command,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            env=clean_environment(BEDROCKJOBS_SERVER=server.address),
        )
    return done.returncode, done.stderr


PROGRAMS = {"bedrockjobs": main, "bedrock-worker": worker_main}


def inside(how: str, *arguments: str, program: str = "bedrockjobs") -> tuple[int, str]:
    """Do the same in this process, as starting one takes long."""
    said = io.StringIO()
    with ExitStack() as stack:
        handle = STDOUTS[how](stack)
        stdout = None if handle is None else stack.enter_context(open(handle, "w", closefd=False))
        stack.enter_context(redirect_stdout(stdout))
        stack.enter_context(redirect_stderr(said))
        with pytest.raises(SystemExit) as ended:
            PROGRAMS[program].main(list(arguments), prog_name=program)
        if sys.stdout is not None:
            with suppress(OSError):  # what could not be written is still in its buffer
                sys.stdout.close()
    assert isinstance(ended.value.code, int)
    return ended.value.code, said.getvalue()


@pytest.mark.parametrize(
    ("how", "more"),
    [*((how, []) for how in STDOUTS), *(("full", more) for more in (["--count", "2"], ["--worker", "w"]))],
)
def test_a_job_that_cannot_be_shown_is_returned(
    server: Running, bedrockjobs: Program, how: str, more: list[str]
) -> None:
    job_id = made(bedrockjobs, f"lost/{how}{''.join(more)}", "--repeat", "finished, +1 DAY")
    status, said = without_output(server, how, "job", "get", f"lost/{how}{''.join(more)}", *more)
    assert status == OUTPUT_LOST
    assert said == f"Job {job_id} was returned.\n{SAID[how]}\n"
    assert shown(bedrockjobs, job_id)["state"] == "QUEUED"
    assert bedrockjobs("job", "delete", job_id, "--yes").returncode == 0


TAKES = {
    "GetJob": ["name={name}"],
    "GetJobs": ["name={name}", "numResults=2"],
    "FinishJob": ["jobID={running}", "thenGet={name}"],
    "FailJob": ["jobID={running}", "thenGet={name}"],
    "RetryJob": ["jobID={running}", "thenGet={name}", "delay=9"],
    "FinishJobs": ['jobs=[{{"jobID": {running}}}]', "thenGet={name}"],
}
"""Each command of the protocol that takes jobs."""


def test_each_command_that_takes_jobs_is_walked() -> None:
    assert TAKES.keys() == {name for name, kind in COMMANDS.items() if issubclass(kind, TakeOptions)}


@pytest.mark.parametrize("how", STDOUTS)
def test_jobs_taken_by_any_command_are_returned(bedrockjobs: Program, how: str) -> None:
    for command, pairs in TAKES.items():
        taken = made(bedrockjobs, f"running/{how}/{command}")
        assert bedrockjobs("job", "get", f"running/{how}/{command}").returncode == 0
        name = f"taken/{how}/{command}"
        job_id = made(bedrockjobs, name)
        given = [pair.format(name=name, running=taken) for pair in pairs]
        status, said = inside(how, "call", command, *given)
        assert (status, said) == (OUTPUT_LOST, f"Job {job_id} was returned.\n{SAID[how]}\n"), command
        assert shown(bedrockjobs, job_id)["state"] == "QUEUED", command


def test_a_command_between_pings_goes_on_and_its_end_is_reported(
    bedrockjobs: Program, tmp_path: Path
) -> None:
    script = 'for each in 1 2 3; do echo $each; sleep 0.01; done; echo done > "$0"'
    for how in STDOUTS:
        name = f"pinged/{how}"
        assert bedrockjobs("schedule", "add", name, "0 3 * * *", "--expect", "ping").returncode == 0
        status, said = inside(how, "ping", name, "--", "sh", "-c", script, str(tmp_path / how))
        assert (status, said) == (OUTPUT_LOST, f"{SAID[how]}\n")
        assert (tmp_path / how).read_text() == "done\n"
        (run,) = asked(bedrockjobs, "run", "list", "--name", name)
        assert run["status"] == "success"


def test_it_is_noticed_if_a_command_ends_with_a_status_of_its_own(
    server: Running, bedrockjobs: Program
) -> None:
    for how in STDOUTS:
        made(bedrockjobs, f"many/{how}")
        deleting = ("job", "delete", "--name", f"many/{how}", "--yes")
        assert without_output(server, how, *deleting) == (OUTPUT_LOST, f"{SAID[how]}\n")
        status, said = without_output(server, how, "job", "show", "none")
        assert (status, said.count("\n")) == (3, 1), said


@pytest.mark.parametrize("how", STDOUTS)
def test_help_and_version_of_both_programs_are_noticed(how: str) -> None:
    for program in PROGRAMS:
        for option in ("--help", "--version"):
            assert inside(how, option, program=program) == (OUTPUT_LOST, f"{SAID[how]}\n"), (program, option)


@pytest.mark.parametrize("program", PROGRAMS)
def test_options_are_suggested_although_stdout_is_closed(program: str) -> None:
    status, said = inside("closed", "--versoin", program=program)
    assert status == 2
    assert said.endswith("Error: No such option '--versoin'. Did you mean '--version'?\n")


@pytest.mark.parametrize("how", STDOUTS)
def test_a_server_serves_without_output_and_says_so_at_its_end(
    bedrockjobs: Program, tmp_path: Path, how: str
) -> None:
    """It writes one line, where it listens, which systemd learns too; a worker writes none."""
    with ExitStack() as stack:
        told = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        told.bind(str(tmp_path / "notify"))
        told.settimeout(DEADLINE_S)
        stdout = STDOUTS[how](stack)
        command = [
            warm.program("bedrockjobs"),
            "serve",
            "--port",
            "0",
            "--database",
            str(tmp_path / "jobs.db"),
        ]
        if stdout is None:
            command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
        process = stack.enter_context(
            subprocess.Popen(
                command,
                stdout=stdout,
                stderr=subprocess.PIPE,
                text=True,
                env=clean_environment(NOTIFY_SOCKET=str(tmp_path / "notify")),
            )
        )
        stack.callback(process.kill)
        found = re.search(r"READY=1\nSTATUS=listening on .*(127\.0\.0\.1:\d+)", told.recv(1_000).decode())
        assert found is not None
        assert bedrockjobs("--server", found[1], "ping").returncode == 0
        process.terminate()
        said = process.communicate(timeout=DEADLINE_S)[1].splitlines()
        assert (process.returncode, said[-1]) == (OUTPUT_LOST, SAID[how])
        assert not [line for line in said if "Traceback" in line]


CALLED: dict[str, str] = {
    "job cancel": "{job}",
    "job create": "created",
    "job delete": "{job} --yes",
    "job explain": "{job}",
    "job fail": "{running} --error boom",
    "job finish": "{running}",
    "job get": "{queued}",
    "job list": "",
    "job retry": "{running}",
    "job show": "{job}",
    "job update": "{job} --data {{}}",
    "job wait": "{finished}",
    "workflow cancel": "{workflow}",
    "workflow create": "{nightly} --format yaml",
    "workflow list": "",
    "workflow retry": "{broken}",
    "workflow show": "{workflow}",
    "schedule add": "{name} 0_3_*_*_*",
    "schedule delete": "{schedule}",
    "schedule list": "",
    "schedule next": "0_3_*_*_*",
    "schedule pause": "{schedule}",
    "schedule ping-url": "{pinged}",
    "schedule resume": "{paused}",
    "schedule show": "{schedule}",
    "schedule trigger": "{schedule}",
    "schedule update": "{schedule} 0_4_*_*_*",
    "run again": "{ended}",
    "run delete": "{ended} --yes",
    "run kill": "{run}",
    "run list": "",
    "run logs": "{spoken}",
    "run show": "{ended}",
    "run stop": "{ended}",
    "run terminate": "{run}",
    "failure delete": "--fingerprint {fingerprint} --yes",
    "failure list": "",
    "failure mute": "a --until 1d",
    "failure retry": "--fingerprint {fingerprint} --yes",
    "failure seen": "--run {failed}",
    "failure show": "{fingerprint}",
    "queue explain": "{queued}",
    "queue history": "{name} -o json",
    "queue list": "",
    "queue pause": "{name}",
    "queue resume": "{paused}",
    "worker drain": "{worker}",
    "worker list": "",
    "worker quiet": "{worker}",
    "limit list": "",
    "limit remove": "{limit}",
    "limit set": "{name} --running 3",
    "kept list": "",
    "kept remove": "{kept}",
    "kept set": "{name} --runs-for 1h",
    "server list": "",
    "top": "--once",
    "events": "--limit 1",
    "notify add": "{name} --on failed --to mailto:ann@example.com",
    "notify list": "",
    "notify mute": "{rule} --until 2h",
    "notify remove": "{rule}",
    "notify test": "{rule}",
    "token anonymous": "--role read --database {tokens}",
    "token create": "{name} --role admin --database {database}",
    "token list": "-o json",
    "token revoke": "ann --database {tokens}",
    "token rotate": "ann --database {tokens}",
    "audit": "",
    "apply": "{definitions} --yes",
    "import castle": "{castle}",
    "import cronken": "{cronken}",
    "import crontab": "{crontab}",
    "import ftl": "{ftl}",
    "import kubernetes": "{kubernetes}",
    "import luci": "{luci}",
    "import solid-queue": "{recurring}",
    "import whenever": "{whenever}",
    "outbox sql": "--dialect sqlite",
    "outbox list": "--from {outbox}",
    "outbox relay": "--from {outbox} --once",
    "query": "SELECT_1;",
    "ping": "",
    "status": "",
    "backup": "{new} --database {serving}",
    "migrate": "--database {database}",
    "restore": "{backup} --database {new}",
    "doctor": "",
    "config check": "{settings}",
    "config example": "",
    "config show": "",
    "service install": "--user --dry-run",
    "service uninstall": "--user --dry-run",
}
"""How each command is called; ``_`` is a blank."""

ELSEWHERE = {"serve", "move", "call"}
"""Not walked: ``serve`` has a test of its own, ``move`` needs PostgreSQL and writes as ``migrate`` does, and
those of ``call`` are alike, but for those that take jobs."""


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the commands that do something, but for those of ``call``, which are alike."""
    if isinstance(command, click.Group) and path != ("call",):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from leaves(below, (*path, name))
    else:
        yield " ".join(path)


def test_each_command_is_walked() -> None:
    assert CALLED.keys() | ELSEWHERE == set(leaves(main))


CRONJOB = {
    "kind": "CronJob",
    "metadata": {"name": "a"},
    "spec": {
        "schedule": "0 3 * * *",
        "jobTemplate": {"spec": {"template": {"spec": {"containers": [{"command": ["true"]}]}}}},
    },
}
FILES = {
    "definitions": '[[schedules]]\nname = "applied"\nrepeat = "CRON 0 3 * * *"\ncmd = "true"\n',
    "castle": json.dumps({"Name": "a", "Cmd": "/bin/date", "Schedule": "0 */3 * * * *"}),
    "cronken": json.dumps(
        {"a": {"cron_args": {"cronstring": "0 0 * * 0"}, "job_args": {"cmd": "x", "lock": True, "ttl": 10}}}
    ),
    "crontab": "0 3 * * * true\n",
    "ftl": "//ftl:cron 0 0 * * *\nfunc ExampleJob(ctx context.Context) error {\n}\n",
    "kubernetes": json.dumps(CRONJOB),
    "luci": 'job { id: "a" schedule: "0 1/3 * * *" noop {} }\n',
    "nightly": "name: nightly\njobs: [{ref: a, name: lost/a}]\n",
    "settings": "[server]\nport = 8888\n",
    "recurring": "a: {class: A, schedule: every hour}\n",
    "whenever": "every :hour do\n  command 'x'\nend\n",
}


class Given(dict[str, str]):
    """What commands are given, by its name: made when it is asked for, and new each time."""

    def __init__(self, server: Running, bedrockjobs: Program, folder: Path) -> None:
        super().__init__()
        self._server, self._program, self._folder = server, bedrockjobs, folder
        self._count = 0

    def __missing__(self, name: str) -> str:
        """Make it."""
        self._count += 1
        new = f"{self._folder.name}/{name}{self._count}"
        if name in FILES:
            path = self._folder / f"{name}{'.go' if name == 'ftl' else '.toml'}"
            path.write_text(FILES[name])
            return str(path)
        return getattr(self, f"_{name}")(new)  # type: ignore[no-any-return]

    def _done(self, *arguments: str) -> str:
        result = self._program(*arguments)
        assert result.returncode == 0, (arguments, result.stderr)
        return result.stdout

    def _asked(self, *arguments: str) -> Any:
        return json.loads(self._done(*arguments, "-o", "json"))

    def _name(self, new: str) -> str:
        return new

    def _new(self, new: str) -> str:
        return str(self._folder / new.rpartition("/")[2])

    def _job(self, new: str) -> str:
        return made(self._program, new)

    def _queued(self, new: str) -> str:
        self._job(new)
        return new

    def _taken(self, new: str) -> Any:
        return self._asked("job", "get", self._queued(new), "--worker", new)

    def _running(self, new: str) -> str:
        return str(self._taken(new)["jobID"])

    def _run(self, new: str) -> str:
        return str(self._taken(new)["runID"])

    def _worker(self, new: str) -> str:
        self._taken(new)
        return new

    def _spoken(self, new: str) -> str:
        run_id = self._run(new)
        self._done("call", "AppendOutput", f"runID={run_id}", "seq=1", 'lines=["said"]')
        return run_id

    def _ended(self, new: str) -> str:
        job = self._taken(new)
        self._done("job", "finish", str(job["jobID"]))
        return str(job["runID"])

    def _finished(self, new: str) -> str:
        job_id = self._running(new)
        self._done("job", "finish", job_id)
        return job_id

    def _failed(self, new: str) -> str:
        job = self._taken(new)
        self._done("job", "fail", str(job["jobID"]), "--error", new)
        return str(job["runID"])

    def _fingerprint(self, new: str) -> str:
        self._failed(new)
        return str(self._asked("failure", "list", new)[0]["fingerprint"])

    def _workflow(self, new: str) -> str:
        jobs = json.dumps([{"ref": "a", "name": new}])
        return str(self._asked("call", "CreateWorkflow", f"name={new}", f"jobs={jobs}")["workflowID"])

    def _broken(self, new: str) -> str:
        workflow_id = self._workflow(new)
        self._done("job", "fail", str(self._asked("job", "get", new)["jobID"]))
        return workflow_id

    def _schedule(self, new: str) -> str:
        self._done("schedule", "add", new, "0 3 * * *")
        return new

    def _pinged(self, new: str) -> str:
        self._done("schedule", "add", new, "0 3 * * *", "--expect", "ping")
        return new

    def _paused(self, new: str) -> str:
        self._done("queue", "pause", new)
        return new

    def _limit(self, new: str) -> str:
        self._done("limit", "set", new, "--running", "3")
        return new

    def _kept(self, new: str) -> str:
        self._done("kept", "set", new, "--runs-for", "1h")
        return new

    def _rule(self, new: str) -> str:
        self._done("notify", "add", new, "--on", "failed", "--to", "mailto:ann@example.com")
        self._failed(f"of {new}")
        return new

    def _backup(self, new: str) -> str:
        self._done("backup", self._new(new), "--database", str(self._server.database))
        return self._new(new)

    def _database(self, new: str) -> str:
        self._done("restore", self._backup(new), "--database", f"{self._new(new)}.db")
        return f"{self._new(new)}.db"

    def _outbox(self, new: str) -> str:
        path = f"{self._new(new)}.outbox"
        with closing(sqlite3.connect(path)) as database:
            row = "(1, 'k', '', '[', 1, '', 'aside', 'it is not JSON')"
            database.executescript(f"{table_sql('sqlite')} INSERT INTO bedrockjobs_outbox VALUES {row};")
        return path

    def _serving(self, new: str) -> str:
        return str(self._server.database)

    def _tokens(self, new: str) -> str:
        database = self["database"]
        for name in ("ann", "bob"):
            self._done("token", "create", name, "--role", "admin", "--database", database)
        return database


@pytest.mark.parametrize("how", STDOUTS)
def test_each_command_exits_with_an_error_and_a_status(
    server: Running, bedrockjobs: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    units = tmp_path / ".config/systemd/user"
    units.mkdir(parents=True)
    (units / "bedrockjobs.service").write_text(MARK)
    given = Given(server, bedrockjobs, tmp_path)
    lists_have = ("limit", "kept", "rule", "paused", "schedule", "spoken")
    assert all(given[name] for name in lists_have)
    wrong = []
    for command in [command for stdout, command in crossed(STDOUTS, CALLED) if stdout == how]:
        words = [word.replace("_", " ").format_map(given) for word in CALLED[command].split()]
        status, said = inside(how, *command.split(), *words)
        if status != OUTPUT_LOST or said.strip().splitlines()[-1:] != [SAID[how]] or "Traceback" in said:
            wrong.append(f"{command}: {status}, {said[:300]}")
    assert wrong == []
