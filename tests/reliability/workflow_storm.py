"""Random workflows whose servers and workers are killed, then compared with the story of each job."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.history import Report
from tests.reliability.servers import STARTED_S, Launcher
from tests.reliability.shared import RETRY_S, Shared
from tests.reliability.shared_storm import AT_WORK
from tests.reliability.wire import Answer, Cut, Wire

SERVERS = 3
"""Servers that share a database."""

BATCH = 50
"""Graphs of a night on one database."""

JOBS_MAX = 10
WORKERS = 4

WORK_S = 0.005
"""The longest that a worker needs for a job."""

ASKED_S = 0.01
"""The longest between a request and the kill of its server: some are answered before."""

WAITS_MS = 50
"""Time that a worker waits for a job before it looks whether all others wait too."""

ENDS = (4, 8)
"""So many ends of jobs are sent between two kills of a server, which come in turn soon after the next end is
sent, and before it is sent."""

MEANWHILE = 2
"""Ends that other workers send while a server is replaced, so that enough are left for the next kill."""

ROUNDS_MAX = 30
"""Rounds of workers in which all workflows must have ended: what was lost in one is taken in the next."""

KILLED = 0.1
"""Share of the runs whose worker is killed."""

FAILS = 0.2
ADDS = 0.15
CUT = 0.2
"""Shares of the jobs that fail, of those that add a job to their workflow, and of the requests to create or
to retry a workflow whose server is killed meanwhile."""


@dataclass
class Site:
    """The servers of a storm, by number."""

    servers: int
    connect: Callable[[int], Awaitable[Wire]]
    replace: Callable[[int, str, int], Awaitable[None]]
    """Kills a server and starts another in its place, with a fault and a seed."""
    rows: Callable[[str], list[tuple[Any, ...]]]


@asynccontextmanager
async def alone(folder: Path) -> AsyncIterator[Site]:
    """Yield one server on a file."""
    settings = {"database": str(folder / "jobs.db")}

    def rows(sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(settings["database"])) as database:
            return [(0,)] if sql == AT_WORK else database.execute(sql).fetchall()

    async with Launcher(folder / "server.log") as launcher:
        at = list(await launcher.start(settings))

        async def replace(_: int, fault: str, seed: int) -> None:
            await launcher.kill(at[0])
            launcher.forget()
            at[:] = await launcher.start(settings, fault=fault, seed=seed)

        yield Site(1, lambda _: Wire.connect(at[1]), replace, rows)


@asynccontextmanager
async def together(folder: Path, seed: int) -> AsyncIterator[Site]:
    """Yield some servers on one PostgreSQL."""
    async with Shared(folder, seed=seed) as shared:
        await shared.start(SERVERS)

        async def replace(place: int, fault: str, seed: int) -> None:
            await shared.kill(place)
            await shared.replace(place, fault=fault, seed=seed)

        yield Site(SERVERS, lambda place: Wire.connect(shared.port(place)), replace, shared.rows)


@dataclass
class Storm:
    """Random workflows, the story of each of their jobs, and what has become of them.

    What is decided for a job depends on the seed and the job alone, so that a seed gives the same graphs and
    stories each time, and kills after as many ends.
    """

    site: Site
    graphs: int
    seed: int
    fault: str = ""
    """A fault of the servers. They are not killed then, as it must be found without; each graph is a fan,
    of which most jobs may end at the same time."""
    report: Report = field(default_factory=Report)
    jobs: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What is known of each job that a worker may get."""
    sent: defaultdict[int, set[Any]] = field(default_factory=lambda: defaultdict(set))
    """Results of the ends that were sent and not refused, by jobID; None of a failure."""
    finished: dict[int, Any] = field(default_factory=dict)
    """Results of acknowledged ends."""
    retried: set[int] = field(default_factory=set)
    """Workflows whose jobs do not fail again."""

    async def run(self) -> Report:
        """Run it until all workflows have ended, and again after those that failed are retried."""
        self._name = f"{self.seed}-{self.fault.replace(' ', '-')}"
        self._specs: dict[int, list[dict[str, Any]]] = {}
        self._ids: dict[tuple[int, str], int] = {}
        self._runs: Counter[int] = Counter()
        self._eras: Counter[int] = Counter()
        """How often each server was killed."""
        self._waiting: set[str] = set()
        self._ends = 0
        self._kill_dice = self._dice("kill")
        self._next_kill = self._kill_dice.randint(*ENDS)
        self._killing = bool(self.fault)
        if self.fault:
            for place in range(self.site.servers):
                await self.site.replace(place, self.fault, self.seed * 1_000 + place)
        for number in range(self.graphs):
            await self._create(number)
        await self._until_ended()
        for workflow in self._specs:
            if self._expected(workflow)[1]:
                await self._retry(workflow)
        await self._until_ended()
        self._judge_rows()
        self.report.counts["seed"] = self.seed
        self.report.counts["workflows"] = len(self._specs)
        self.report.counts["jobs"] = len(self.jobs)
        return self.report

    def _dice(self, *what: object) -> random.Random:
        """Return dice for a decision, which fall the same in each run with the seed."""
        return random.Random(f"{self.seed} {what}")

    # --- kills -------------------------------------------------------------------------------------------

    async def _kill(self, place: int, what: str) -> None:
        """Kill a server that has work, and start another in its place."""
        self._eras[place] += 1
        self.report.counts[f"kills {what}"] += 1
        await self.site.replace(place, "", 0)

    def _is_due(self, place: int, era: int) -> bool:
        """Return whether a worker is to kill its server, which is the one that it has its job from."""
        due = self._ends >= self._next_kill and not self._killing and self._eras[place] == era
        self._killing |= due
        return due

    def _plan_next(self) -> None:
        self._next_kill = self._ends + self._kill_dice.randint(*ENDS)
        self._killing = False

    async def _ask(self, verb: str, *, killed: random.Random | None = None, **given: Any) -> Answer:
        """Send a request until it is answered; the server may be killed meanwhile."""
        async with asyncio.timeout(STARTED_S):
            while True:
                place = killed.randrange(self.site.servers) if killed else 0
                with suppress(Cut, OSError):
                    wire = await self.site.connect(place)
                    wire.send(verb, given)
                    if killed is not None and killed.random() < CUT and not self.fault:
                        await asyncio.sleep(killed.random() * ASKED_S)
                        await self._kill(place, f"at {verb}")
                    killed = None
                    answer = await wire.receive()
                    wire.close()
                    return answer
                await asyncio.sleep(RETRY_S)

    # --- graphs ------------------------------------------------------------------------------------------

    def _spec(self, dice: random.Random, number: int, ref: str, after: list[str]) -> dict[str, Any]:
        return {
            "ref": ref,
            "name": f"{self._name}/w{number}/{ref}",
            "after": after,
            "onFailure": dice.choice(["cancel", "continue", "ignore"]),
            "data": {"fails": dice.random() < FAILS},
        }

    def _graph(self, dice: random.Random, number: int) -> list[dict[str, Any]]:
        """Return the jobs of a random graph, each after those before it."""
        specs: list[dict[str, Any]] = []
        for place in range(dice.randint(3, JOBS_MAX)):
            before = dice.sample(range(place), min(place, dice.randint(0, 3)))
            specs.append(self._spec(dice, number, f"j{place}", [f"j{each}" for each in before]))
            if dice.random() < ADDS:
                specs[-1]["data"]["adds"] = self._spec(dice, number, f"j{place}+", [f"j{place}"])
        return specs

    def _fan(self, dice: random.Random, number: int) -> list[dict[str, Any]]:
        """Return jobs of which the last one is after all others, three are a chain, and none fails."""
        refs = [f"j{place}" for place in range(JOBS_MAX)]
        specs = [self._spec(dice, number, ref, []) | {"data": {"fails": False}} for ref in refs]
        specs[-3]["after"], specs[-2]["after"], specs[-1]["after"] = refs[-4:-3], refs[-3:-2], refs[:-1]
        return specs

    async def _create(self, number: int) -> None:
        dice = self._dice("graph", number)
        specs = self._fan(dice, number) if self.fault else self._graph(dice, number)
        answer = await self._ask(
            "CreateWorkflow",
            killed=dice,
            name=f"{self._name}/w{number}",
            jobs=dice.sample(specs, len(specs)),
            idempotencyKey=f"{self._name} {number}",
        )
        assert answer.code == 200, answer
        workflow = answer.reply["workflowID"]
        assert workflow not in self._specs
        self._specs[workflow] = []
        for spec in specs:
            self._know(workflow, spec, answer.reply["jobIDs"])

    def _know(self, workflow: int, spec: dict[str, Any], job_ids: dict[str, int]) -> None:
        self._specs[workflow].append(spec)
        self._ids[workflow, spec["ref"]] = job_ids[spec["ref"]]
        self.jobs[job_ids[spec["ref"]]] = spec | {"workflow": workflow}

    async def _retry(self, workflow: int) -> None:
        reply = await self._ask("RetryWorkflow", killed=self._dice("retry", workflow), workflowID=workflow)
        assert reply.code in (200, 405), reply  # 405: done by one that was cut
        for ref, state in self._expected(workflow)[0].items():
            if state != "FINISHED":
                self.sent.pop(self._ids[workflow, ref], None)
                self.finished.pop(self._ids[workflow, ref], None)
        self.retried.add(workflow)

    def _fails(self, job_id: int) -> bool:
        job = self.jobs[job_id]
        return bool(job["data"]["fails"]) and job["workflow"] not in self.retried

    def _expected(self, workflow: int) -> tuple[dict[str, str], int]:
        """Return the states of the jobs at the end of the graph, and how many fail it."""
        states: dict[str, str] = {}
        failed, barred = 0, set[str]()
        for spec in self._specs[workflow]:  # each comes after those before it
            ref, counts = spec["ref"], True
            if not barred.isdisjoint(spec["after"]):
                states[ref] = "CANCELLED"
                barred.add(ref)
            elif self._fails(self._ids[workflow, ref]):
                states[ref], counts = "FAILED", spec["onFailure"] != "ignore"
                barred |= {ref} if spec["onFailure"] == "cancel" else set()
            else:
                states[ref], counts = "FINISHED", False
            failed += counts
        return states, failed

    # --- workers -----------------------------------------------------------------------------------------

    async def _until_ended(self) -> None:
        """Let workers work until all workflows have ended, and compare these with the graphs."""
        running = set(self._specs)
        rounds = 0
        while running and rounds < ROUNDS_MAX:
            rounds += 1
            self._waiting.clear()
            async with asyncio.TaskGroup() as group:
                for number in range(WORKERS):
                    group.create_task(self._work(f"worker{number}"))
            async with asyncio.timeout(STARTED_S):  # until nothing of servers that are gone is left
                while self.site.rows(AT_WORK) != [(0,)]:
                    await asyncio.sleep(RETRY_S)
            for workflow in sorted(running):
                shown = (await self._ask("QueryWorkflow", workflowID=workflow)).reply
                states = {job["ref"]: job["state"] for job in shown["jobs"]}
                if lost := [ref for ref, state in states.items() if state == "RUNNING"]:
                    lost_ids = [self._ids[workflow, ref] for ref in lost]
                    assert (await self._ask("RequeueJobs", jobIDs=lost_ids)).code == 200
                    self.report.counts["requeued"] += len(lost)
                elif "QUEUED" not in states.values():
                    running.remove(workflow)
                    self._judge(workflow, shown, states)
        if running:
            self.report.fault("does not end", f"{running} after {rounds} rounds")

    async def _work(self, worker: str) -> None:
        """Work until no worker gets any job."""
        dice = self._dice(worker)
        while len(self._waiting) < WORKERS:
            place = dice.randrange(self.site.servers)
            era, wire = self._eras[place], None
            try:
                wire = await self.site.connect(place)
                while len(self._waiting) < WORKERS:
                    wait = {"connection": "wait", "timeout": WAITS_MS}
                    answer = await wire.ask("GetJob", name=f"{self._name}/*", worker=worker, **wait)
                    if answer.code == 404:
                        self._waiting.add(worker)
                        continue
                    assert answer.code == 200, answer
                    self._waiting.discard(worker)
                    if not await self._do(wire, place, era, answer.reply):
                        self.report.counts["workers killed"] += 1
                        break
            except (Cut, OSError):
                self._waiting.discard(worker)
                await asyncio.sleep(RETRY_S)
            finally:
                if wire is not None:
                    wire.close()

    async def _do(self, wire: Wire, place: int, era: int, taken: dict[str, Any]) -> bool:
        """Do a job as its story says; return False if the worker is killed meanwhile."""
        job_id, run = taken["jobID"], taken["runID"]
        job = self.jobs[job_id]
        self._runs[job_id] += 1
        dice = self._dice(job["name"], self._runs[job_id])
        if job_id in self.finished:
            self.report.fault("runs again", f"{taken} after {self.finished[job_id]}")
        self._judge_before(job, taken)
        if adds := job["data"].get("adds"):
            reply = await wire.ask("AddToWorkflow", jobID=job_id, runID=run, jobs=[adds], existing="keep")
            assert reply.code == 200, reply
            if (job["workflow"], adds["ref"]) not in self._ids:
                self._know(job["workflow"], adds, reply.reply["jobIDs"])
        await asyncio.sleep(dice.random() * WORK_S)
        if dice.random() < KILLED:
            return False
        while self._killing and not self.fault and self._ends > self._next_kill + MEANWHILE:
            await asyncio.sleep(RETRY_S)
        self._ends += 1
        kills = self._is_due(place, era)
        if kills and self.report.counts["kills at an end"] > self.report.counts["kills during a run"]:
            await self._kill(place, "during a run")
            self._plan_next()
            raise Cut
        fails = self._fails(job_id)
        result = None if fails else run
        self.sent[job_id].add(result)
        if fails:
            wire.send("FailJob", {"jobID": job_id, "runID": run, "error": "as told"})
        else:
            wire.send("FinishJob", {"jobID": job_id, "runID": run, "data": {"run": run}})
        if kills:
            await asyncio.sleep(dice.random() * ASKED_S)
            await self._kill(place, "at an end")
            self._plan_next()
        answer = await wire.receive()
        if answer.code == 200:
            self.finished[job_id] = result
            self.report.counts["ends"] += 1
        else:
            self.report.fault("refused", f"{answer}: the end of {taken}")
        return True

    # --- judgement ---------------------------------------------------------------------------------------

    def _judge_before(self, job: dict[str, Any], taken: dict[str, Any]) -> None:
        """Judge that all before a job that was taken have ended, and that it gets what they reported."""
        for ref in job["after"]:
            before = self._ids[job["workflow"], ref]
            got = taken["before"].get(ref)
            result = got and got["run"]
            known = {self.finished[before]} if before in self.finished else self.sent[before]
            if not known:
                self.report.fault("too early", f"{taken}: {ref} has not ended")
            elif result not in known:
                self.report.fault("other result", f"{taken}: expected {known} of {ref}")

    def _judge(self, workflow: int, shown: dict[str, Any], states: dict[str, str]) -> None:
        """Judge a workflow of which no job runs or is ready."""
        expected, failed = self._expected(workflow)
        ended = ("FAILED" if failed else "FINISHED", 0, failed)
        if "PAUSED" in states.values():
            self.report.fault("waits for ever", f"{workflow}: {states}")
        elif states != expected:
            self.report.fault("other ends", f"{workflow}: {states}, expected {expected}")
        elif (shown["state"], shown["open"], shown["failed"]) != ended:
            self.report.fault("miscounted", f"{shown}, expected {failed} failed")

    def _judge_rows(self) -> None:
        """Judge that nothing was created twice, no run is open, and what has finished has one good run."""
        names = f"WHERE name LIKE '{self._name}/%'"
        if (created := self.site.rows(f"SELECT count(*) FROM workflows {names}")) != [(self.graphs,)]:
            self.report.fault("created twice", f"{self.graphs} workflows are {created}")
        rows = self.site.rows(f"SELECT jobID, status FROM runs {names}")
        runs = Counter((int(job), status) for job, status in rows)
        for job_id, job in self.jobs.items():
            finished = self._expected(job["workflow"])[0][job["ref"]] == "FINISHED"
            if runs[job_id, "success"] != finished or runs[job_id, "running"]:
                shown = {status: count for (each, status), count in runs.items() if each == job_id}
                self.report.fault("other runs", f"{job_id}: {shown}")


async def one(folder: Path, graphs: int, seed: int, fault: str) -> Report:
    """Run a storm on one server."""
    async with alone(folder) as site:
        return await Storm(site, graphs, seed, fault).run()


async def several(folder: Path, graphs: int, seed: int, fault: str) -> Report:
    """Run a storm on servers that share a PostgreSQL."""
    async with together(folder, seed) as site:
        return await Storm(site, graphs, seed, fault).run()


def nightly(graphs: int, seed: int, fault: str) -> int:
    """Run storms on one server, print the counts and return the exit status: 1 if there was any fault."""
    faults = 0
    for first in range(0, graphs, BATCH):
        folder = Path(tempfile.mkdtemp(prefix="bedrockjobs-workflows-"))
        report = asyncio.run(one(folder, min(BATCH, graphs - first), seed, fault))
        print(report, flush=True)
        faults += report.faults.total()
        if report.faults:
            print(f"log and database: {folder}")
        else:
            shutil.rmtree(folder)
        seed += 1
    return 1 if faults else 0
