"""Random histories of runs and schedules: the invariants are checked in the tables after each step.

The rules know nothing of how a job comes to its next state; only what no state may ever show.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.config import ID_BLOCK, LEASE_S_DEFAULT
from bedrockjobs.base.settings import Settings
from bedrockjobs.server import Server
from tests.conftest import START, begin
from tests.effort import PROFILE, examples
from tests.engines import Files
from tests.runs.rig import Site, moment

EXAMPLES, STEPS = examples(6, night=150), 60
"""About 20 s in all."""

NAMES = st.sampled_from(["a", "b", "s", "t", "*"])
PATTERNS = st.sampled_from(["a", "s", "[st]", "*"])
NUMBER = st.integers(0, 9)

STEP = st.one_of(
    st.tuples(
        st.just("create"),
        st.sampled_from("ab"),
        st.fixed_dictionaries(
            {},
            optional={
                "locking": st.sampled_from(
                    [{"lock": "x"}, {"lock": True}, {"concurrencyKey": "k", "concurrencyLimit": 2}]
                ),
                "retries": st.integers(0, 2),
                "onLost": st.sampled_from(["retry", "fail"]),
                "runTimeout": st.sampled_from([20, 90]),
                "expireAfter": st.just(200),
                "backoff": st.sampled_from([0, 30]),
            },
        ),
    ),
    st.tuples(
        st.just("schedule"),
        st.sampled_from("st"),
        st.sampled_from([1, 2, 5]),
        st.fixed_dictionaries(
            {
                "catchup": st.sampled_from(["once", "skip", "all"]),
                "overlap": st.sampled_from(["skip", "queue"]),
            },
            optional={
                "lock": st.just("x"),
                "retries": st.integers(0, 2),
                "backoff": st.sampled_from([0, 30, 100]),
                "maxLate": st.sampled_from([30, 150]),
                "runTimeout": st.sampled_from([20, 90]),
                "expireAfter": st.just(100),
                "jitter": st.sampled_from([20, 100]),
            },
        ),
    ),
    st.tuples(st.just("take"), NAMES, st.sampled_from(["v", "w", None]), st.booleans()),
    st.tuples(st.just("take"), NAMES, st.sampled_from(["v", "w"]), st.just(True)),
    st.tuples(
        st.just("end"), st.sampled_from(["FinishJob", "FailJob", "RetryJob", "returned", "final"]), NUMBER
    ),
    st.tuples(st.just("end"), st.sampled_from(["FinishJob", "FailJob"]), st.just(0)),
    st.tuples(st.just("beat"), st.sampled_from("vw")),
    st.tuples(st.just("stop"), st.sampled_from(["TerminateRun", "KillRun"]), NUMBER),
    st.tuples(st.just("silence"), st.sampled_from([5, 30, 46])),
    st.tuples(st.just("later"), st.sampled_from([1, 20, 60, 61, 200])),
    st.tuples(st.just("pause"), PATTERNS),
    st.tuples(st.just("resume"), PATTERNS),
    st.tuples(st.just("trigger"), NUMBER),
    st.tuples(st.just("delete"), NUMBER),
    st.tuples(st.sampled_from(["restart", "crash"]), st.sampled_from([0, 90, 400])),
)


class History:
    """One server, what was asked of it, and what must hold."""

    def __init__(self, site: Site) -> None:
        """Begin."""
        self.site = site
        self.jobs: list[int] = []
        self.left_out = 0
        """How many numbers a crash may leave out."""
        self.taken: list[dict[str, Any]] = []
        """Takes, the newest first; they stay when their runs are over, so that late answers are sent too."""
        self.every: dict[int, tuple[int, datetime]] = {}
        """Minutes between the ticks of each schedule, and when it was made."""
        self.paused: set[str] = set()
        self.last_run = 0
        self.lease: dict[int, float] = {}

    async def step(self, kind: str, *given: Any) -> None:
        """Do one step, and look at everything."""
        await getattr(self, f"_{kind}")(*given)
        await self.site.rest()
        await self._check()

    async def _create(self, name: str, options: dict[str, Any]) -> None:
        locking = options.get("locking", {})
        given = {option: value for option, value in options.items() if option != "locking"}
        job_id = await self.site.create(name, **given, **locking)
        following = (self.jobs[-1] if self.jobs else 0) + 1
        assert following <= job_id <= following + self.left_out, "jobIDs count up"
        self.jobs.append(job_id)
        self.left_out = 0

    async def _schedule(self, name: str, every: int, options: dict[str, Any]) -> None:
        if len(self.every) < 4:
            await self._create(name, {"repeat": f"CRON */{every} * * * *", **options})
            self.every[self.jobs[-1]] = (every, self.site.clock.now())

    async def _take(self, name: str, worker: str | None, heartbeat: bool) -> None:
        who = {"worker": worker, "heartbeat": heartbeat} if worker else {}
        reply = await self.site.http("GetJob", {"name": name, **who})
        assert reply.code in (200, 404), reply
        if reply.code == 404:
            return
        job = reply.json
        self.taken.insert(0, {**job, "worker": worker})
        if worker is None:
            return
        assert job["runID"] > self.last_run, "runIDs strictly increase"
        self.last_run = job["runID"]
        if heartbeat:
            self.lease[job["runID"]] = self.site.leases.monotonic() + LEASE_S_DEFAULT
        if any(fnmatchcase(job["name"], pattern) for pattern in self.paused):
            assert (await self.site.run(job["runID"]))["cause"] == "manual", f"{job['name']} is paused"

    async def _end(self, how: str, number: int) -> None:
        if not self.taken:
            return
        job = self.taken[number % len(self.taken)]
        body: dict[str, Any] = {"jobID": job["jobID"]}
        more = {"returned": {"returned": True}, "final": {"final": True}}.get(how, {})
        command = {"returned": "RetryJob", "final": "FailJob"}.get(how, how)
        now = await self.site.select(f"SELECT runID, state FROM jobs WHERE jobID = {job['jobID']}")
        if job["worker"]:
            body["runID"] = job["runID"]
        reply = await self.site.http(command, {**body, **more})
        if job["worker"] and (not now or now[0]["runID"] != job["runID"]):
            expected = (404, "No job with this jobID") if not now else (405, "Run is over")
            assert (reply.json["code"], reply.json["reason"]) == expected, (how, job, now)
        elif job["worker"]:
            assert reply.code == 200, (how, job, now, reply)
        else:
            assert reply.code in (200, 404, 409), reply

    async def _beat(self, worker: str) -> None:
        open_runs = await self.site.select(
            f"SELECT runID FROM runs WHERE status = 'running' AND worker = '{worker}'"
        )
        mine = [job["runID"] for job in self.taken if job["worker"] == worker][:20]
        answer = await self.site.beat(*mine, worker=worker)
        lost = {stop["runID"] for stop in answer["stop"] if stop["signal"] == "LOST"}
        is_open = {row["runID"] for row in open_runs}
        assert lost == set(mine) - is_open
        for run_id in set(mine) & is_open & self.lease.keys():
            self.lease[run_id] = self.site.leases.monotonic() + LEASE_S_DEFAULT

    async def _stop(self, command: str, number: int) -> None:
        runs = [job["runID"] for job in self.taken if job["worker"]]
        if runs:
            reply = await self.site.http(command, {"runID": runs[number % len(runs)]})
            assert reply.code in (200, 404, 409), reply

    async def _silence(self, seconds: float) -> None:
        await self.site.silence(seconds)

    async def _later(self, seconds: float) -> None:
        await self.site.later(seconds)

    async def _pause(self, pattern: str) -> None:
        await self.site.ok("PauseJobs", name=pattern)
        self.paused.add(pattern)

    async def _resume(self, pattern: str) -> None:
        reply = await self.site.http("ResumeJobs", {"name": pattern})
        resumed = set(reply.json["resumed"]) if reply.code == 200 else set()
        assert resumed == self.paused & {pattern}
        self.paused -= resumed

    async def _trigger(self, number: int) -> None:
        if self.jobs:
            reply = await self.site.http("TriggerJob", {"jobID": self.jobs[number % len(self.jobs)]})
            assert reply.code in (200, 404, 409), reply

    async def _delete(self, number: int) -> None:
        if self.jobs:
            reply = await self.site.http("DeleteJob", {"jobID": self.jobs[number % len(self.jobs)]})
            assert reply.code in (200, 404, 409), reply

    async def _restart(self, down: float) -> None:
        await self.site.restart(down=down)
        self._new_leases()

    async def _crash(self, down: float) -> None:
        await self.site.crash(down=down)
        self.left_out += ID_BLOCK
        self._new_leases()

    def _new_leases(self) -> None:
        self.lease = {run_id: self.site.leases.monotonic() + LEASE_S_DEFAULT for run_id in self.lease}

    # --- what must hold -----------------------------------------------------------------------------------

    async def _check(self) -> None:
        jobs = {row["jobID"]: row for row in await self.site.select("SELECT * FROM jobs")}
        runs = await self.site.select("SELECT * FROM runs")
        ticks = await self.site.select("SELECT * FROM ticks ORDER BY jobID, tick")
        self._runs_and_jobs_agree(jobs, runs)
        self._locks(jobs)
        self._leases(runs)
        for job_id in self.every.keys() & jobs.keys():
            self._ledger(jobs[job_id], [row for row in ticks if row["jobID"] == job_id])

    def _runs_and_jobs_agree(self, jobs: dict[int, dict[str, Any]], runs: list[dict[str, Any]]) -> None:
        is_open = [run for run in runs if run["status"] == "running"]
        assert len({run["jobID"] for run in is_open}) == len(is_open), "two runs of one job are in progress"
        by_job = {run["jobID"]: run for run in is_open}
        for job_id, run in by_job.items():
            assert job_id in jobs, f"run {run['runID']} is open, its job is gone"
            assert jobs[job_id]["state"] in ("RUNNING", "RUNQUEUED"), (jobs[job_id], run)
            assert jobs[job_id]["runID"] == run["runID"]
        for job in jobs.values():
            if job["runID"]:
                assert job["jobID"] in by_job, (job, [r for r in runs if r["jobID"] == job["jobID"]])
            if job["state"] != "RUNNING":
                assert (job["runID"], job["expires"] != "" and "expireAfter" not in job["options"]) == (
                    0,
                    False,
                )
        for run in runs:
            assert (run["ended"] == "") == (run["status"] == "running"), run

    def _locks(self, jobs: dict[int, dict[str, Any]]) -> None:
        held, keyed = [], 0
        for job in jobs.values():
            options = dict(job["options"])
            lock = options.get("lock")
            if lock and job["state"] == "RUNNING":
                held.append(job["name"] if lock is True else lock)
            if "concurrencyKey" in options and job["state"] == "RUNNING":
                keyed += 1
        assert len(set(held)) == len(held), f"a lock is held twice: {held}"
        assert keyed <= 2, "more jobs with a key run than may at once"

    def _leases(self, runs: list[dict[str, Any]]) -> None:
        for run in runs:
            until = self.lease.get(run["runID"])
            if until is not None and run["status"] == "running":
                assert until > self.site.leases.monotonic(), f"the lease is over: {run}"
            if run["status"] == "frozen":
                assert until is not None, f"it had no lease: {run}"
                assert until <= self.site.leases.monotonic(), f"its lease was not over: {run}"

    def _ledger(self, job: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        every, created = self.every[job["jobID"]]
        now = self.site.clock.now()
        due: list[datetime] = []
        at = created.replace(second=0, microsecond=0)
        while at <= now:
            if at > created and at.minute % every == 0:
                due.append(at)
            at += timedelta(minutes=1)
        covered: list[datetime] = []
        for row in rows:
            inside = [tick for tick in due if moment(row["tick"]) <= tick <= moment(row["until"])]
            assert len(inside) == row["count"], f"{row}: it does not count the ticks it names"
            assert (inside[0], inside[-1]) == (moment(row["tick"]), moment(row["until"]))
            covered += inside
            assert (row["reason"] != "") == (row["outcome"] == "skipped")
        assert len(set(covered)) == len(covered), f"a tick is in the ledger twice: {rows}"
        missing = [tick for tick in due if tick not in set(covered)]
        assert missing == due[len(due) - len(missing) :], f"a tick is lost: {missing[:1]} of {job}, {rows}"
        memory = dict(job["memory"])
        waiting = job["state"] == "QUEUED" and not memory.get("failures") and "trigger" not in memory
        if missing and waiting:
            tick = memory.get("tick") or job["nextRun"]
            assert moment(tick) == missing[0], (
                f"the next tick is {tick}, the first without outcome {missing[0]}"
            )


async def play(folder: str, steps: list[tuple[Any, ...]]) -> None:
    """Play a history on a new server."""
    async with AsyncExitStack() as stack:
        leases = ManualClock(START)
        database = str(Path(folder) / "jobs.db")
        quick = Settings(port=0, database=database, wal_bytes=0, ballast_bytes=0, durability="relaxed")
        files = Files(Path(quick.database).parent)
        site = Site(Server(quick, ManualClock(START), leases), stack, leases, files)
        await begin(site.server)
        try:
            history = History(site)
            for kind, *given_ in steps:
                await history.step(kind, *given_)
        finally:
            await site.server.stop()


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=PROFILE != "random",
    report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.generate],  # to shrink a history may take longer than to read it
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(st.lists(STEP, min_size=10, max_size=STEPS))
def test_what_must_hold_always(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(folder, steps))
