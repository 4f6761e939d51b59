"""One history on both engines: created on SQLite, and copied table by table to PostgreSQL."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import psycopg

from bedrockjobs import commands as c
from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.glob import anchored_regex
from bedrockjobs.base.settings import Settings
from bedrockjobs.store.sqlite import SQLiteEngine
from tests.conformance.engine import START, SQLiteQueue
from tests.postgresql.cluster import CLUSTER, SCHEMA

STEPS = 800
NAMES = ("mail", "mail/a", "mail/b", "mail/c/d", "Mail", "a_b", "a%b", "a[1]", "é", "zoo/1", "zoo/2", "clean")
PATTERNS = ("mail*", "m*l", "*", "a[[]1]", "?lean", "[a-z]oo/[12]", "a_*", "cron/*", "cron/*", "cron/*")
LOCKS = (*[""] * 8, "db", "disk x")
REPEATS = ("CRON 5m", "cron 0 3 * * *", " \tCRON @hourly", "FINISHED, +1 HOUR", "CRON */7 * * * *")

TABLES = (
    "jobs",
    "runs",
    "output",
    "ticks",
    "keys",
    "pauses",
    "drains",
    "events",
    "stats",
    "tokens",
    "logins",
    "audit",
    "rules",
    "seen",
    "workflows",
    "workflowJobs",
    "workflowEdges",
)


class History:
    """A random history, the same each time."""

    def __init__(self, path: Path) -> None:
        """Begin empty."""
        self.store = SQLiteEngine(path, Settings(wal_bytes=0, ballast_bytes=0))
        self.queue = SQLiteQueue(self.store, "document", ManualClock(START))
        self.dice = random.Random(4)
        self.running: list[tuple[int, int]] = []
        self.last = 0

    def do(self, kind: type[c.Command[Any]], **given: Any) -> Any:
        """Execute a command; return its body, or None if it is refused."""
        try:
            command = kind.read(given)
        except CommandError as error:
            raise AssertionError(f"{kind.__name__} {given}: {error}") from None
        return self.queue.call(command).body

    def create(self) -> None:
        """Create a job of any kind."""
        dice = self.dice
        given: dict[str, Any] = {"name": dice.choice(NAMES), "data": {"n": dice.randint(0, 9), "s": 'é"\\'}}
        given["jobPriority"] = dice.choice((0, 250, 500, 750, 850, 1000))
        kind = dice.randrange(9)
        if kind != 7 and (lock := dice.choice(LOCKS)):
            given["lock"] = lock
        if kind == 0:
            given |= {"repeat": dice.choice(REPEATS), "name": f"cron/{self.last}"}
        elif kind == 1:
            given |= {"retries": 2, "uniqueKey": f"u{self.last}"}
        elif kind == 2:
            given["argv"] = ["true"]
        elif kind == 3:
            given["firstRun"] = "2026-01-05 11:00:00"
        elif kind == 4 and self.running:
            given["parentJobID"] = dice.choice(self.running)[0]
        elif kind == 5:
            given["mockRequest"] = True
        elif kind == 6:
            given |= {"unique": True, "idempotencyKey": f"k{dice.randint(0, 99)}"}
        elif kind == 7:
            given |= {"repeat": "CRON 5m", "hosts": "all", "name": f"hosts/{self.last}"}
        made = self.do(c.CreateJob, **given)
        self.last = made["jobID"] if made else self.last

    def take(self) -> None:
        """Let a worker take a job and append output."""
        given = {"name": self.dice.choice(PATTERNS), "worker": self.dice.choice(("w1", "w2"))}
        taken = self.do(c.GetJob, **given, heartbeat=True, accepts=["argv", "cmd", "url"])
        if not taken or "runID" not in taken:
            return
        self.running.append((taken["jobID"], taken["runID"]))
        lines = [f"line {n}" for n in range(self.dice.randint(0, 4))]
        if lines:
            self.do(c.AppendOutput, runID=taken["runID"], seq=1, lines=lines)

    def end(self) -> None:
        """End a run in any way."""
        if not self.running:
            return
        job_id, run_id = self.running.pop(self.dice.randrange(len(self.running)))
        how = self.dice.randrange(4)
        given = {"jobID": job_id, "runID": run_id}
        if how == 0:
            self.do(c.FailJob, **given, error="no", exitCode=3)
        elif how == 1:
            self.do(c.RetryJob, **given, delay=60)
        else:
            self.do(c.FinishJob, **given, exitCode=0, data={"done": 1})

    def change(self) -> None:
        """Pause, drain, trigger or cancel something."""
        kind = self.dice.randrange(5)
        one = self.dice.randint(1, max(self.last, 1))
        if kind == 0:
            self.do(c.PauseJobs, name=self.dice.choice(PATTERNS[3:]), reason="why", by="me")
        elif kind == 1:
            self.do(c.PauseJobs, name=self.dice.choice(NAMES[4:]), until="2026-01-05 10:30:00")
        elif kind == 2:
            self.do(c.ResumeJobs, name=self.dice.choice(PATTERNS))
        elif kind == 3:
            self.do(c.TriggerJob, jobID=one, by="me")
        else:
            self.do(c.CancelJob, jobID=one)

    def work(self, name: str) -> None:
        """Create a workflow of which the first job has ended well and the second failed."""
        jobs = [
            {"ref": f"job {n}", "name": f"{name}/{n}", "after": [f"job {m}" for m in range(n)]}
            for n in range(4)
        ]
        jobs[1]["onFailure"] = "continue"
        made = self.do(c.CreateWorkflow, name=name, jobs=jobs)["jobIDs"]
        for ref, end in (("job 0", c.FinishJob), ("job 1", c.FailJob)):
            assert self.do(c.GetJob, name=f"{name}/{ref[-1]}")["jobID"] == made[ref]
            self.do(end, jobID=made[ref], data={"done": ref})

    def play(self) -> None:
        """Execute the whole history."""
        acts = [self.create] * 6 + [self.take] * 6 + [self.end] * 3 + [self.change]
        for _ in range(STEPS):
            self.dice.choice(acts)()
            self.queue.advance(self.dice.choice((0, 0.5, 7, 60)))
        for job_id in range(1, self.last, 11):
            self.do(c.TriggerJob, jobID=job_id, by="me")
        self.do(c.PauseJobs, name="a[[]1]", reason="for good")
        for name in ("mail/nightly", "zoo/nightly"):
            self.work(name)
        schedules = [{"name": "synced", "repeat": "CRON 5m"}]
        self.do(c.SyncSchedules, source="here", schedules=schedules, by="me")


BESIDE = (
    "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n LIMIT 9)"
    " INSERT INTO stats SELECT v.column1, v.column2, '2026-01-05 10:0' || n || ':00', n, 2, 3, 4, 5, 6, "
    + "n, 1, 0, " * 10
    + "7 FROM n CROSS JOIN (VALUES ('mail', 60), ('mail', 3600), ('é', 60)) AS v",
    "INSERT INTO drains VALUES ('w3', 'me', '2026-01-05 10:00:00'), ('w9', '', '2026-01-05 10:00:00')",
    "INSERT INTO pauses VALUES ('z*', 'me', '', '2026-01-05 10:00:00', '2026-01-05 13:00:00')",
    "UPDATE jobs SET lane = 'for w1' WHERE lane = '' AND state = 'QUEUED' AND jobID % 3 = 0",
    "UPDATE jobs SET state = 'RUNQUEUED' WHERE lane = '' AND state = 'QUEUED' AND jobID % 7 = 0",
    "INSERT INTO tokens (name, digest, role, created) VALUES ('a', 'x', 'admin', ''), ('b', 'y', 'read', '')",
    "INSERT INTO logins VALUES ('x', 'a', '2026', '2027'), ('y', 'a', '2026', '2027')",
    "INSERT INTO audit (at, by, address, command, name) VALUES ('2026-01-05 10:00:00', 'ada', '::1',"
    " 'PauseJobs', 'mail'), ('2026-01-05 11:00:00', 'bob', '', 'DeleteJob', 'é')",
    "INSERT INTO seen SELECT 'job', jobID, 'ada', '2026' FROM jobs WHERE state = 'FAILED' AND jobID % 2 = 0",
    "INSERT INTO seen SELECT 'run', runID, '', '2026' FROM runs WHERE status = 'fail' AND runID % 7 = 0",
    "UPDATE runs SET kept = ended WHERE status = 'success' AND runID % 5 = 0",
    "INSERT INTO rules (name, rule, created, cursor) VALUES ('a', '{}', '2026', 1), ('b', '{}', '2026', 2)",
)
"""What commands alone do not make: counts of minutes, drains of workers that are not there, bound jobs."""


def played(path: Path) -> sqlite3.Connection:
    """Return a database at ``path`` after the history."""
    history = History(path)
    history.play()
    history.store.close()
    db = sqlite3.connect(path, isolation_level=None)
    for statement in BESIDE:
        db.execute(statement)
    return db


def move(db: sqlite3.Connection) -> None:
    """Empty the cluster's database, and copy all rows there."""
    CLUSTER.empty(SCHEMA)
    with psycopg.connect(CLUSTER.url, options=f"-c search_path={SCHEMA}") as there:
        for table in TABLES:
            cursor = db.execute(f"SELECT * FROM {table}")
            columns = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
            if table == "pauses":
                columns.append("regex")
                rows = [(*row, anchored_regex([row[0]])) for row in rows]
            with there.cursor().copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
