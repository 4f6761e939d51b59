"""The rules for one family of jobs, and the search for an order that explains the observations.

The search is Wing and Gong's: every request took effect at one moment between its beginning and its end, so
an order of all of them must exist that the rules allow. It knows nothing of ledgers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

ABSENT = "(absent)"
GONE = "(deleted)"
PENDING = frozenset({"QUEUED", "RUNNING", "RUNQUEUED", "PAUSED"})
RUNS = frozenset({"RUNNING", "RUNQUEUED"})

EARLY_S = 0.002
"""How much earlier than its retryAfter a job may come back: timestamps are cut to milliseconds."""

STATES_MAX = 200_000
"""Positions the search looks at in one family before it gives up, which counts as a fault."""


@dataclass(slots=True)
class Slot:
    """The facts about one job that are known beforehand."""

    token: str
    name: str
    child: bool = False
    repeats: bool = False
    unique: bool = False
    lost_after_s: float = 0.0
    job_id: int = 0


class Op(NamedTuple):
    """One operation on one job, at some time between ``began`` and ``ended``.

    ``must`` is False if the reply was lost: the operation may or may not have happened.
    """

    began: float
    ended: float
    kind: str
    token: str
    job_id: int
    state: str
    must: bool
    call: int
    run: int = 0
    """The run it opened, or spoke for; 0 where there is none or it is not known."""


class Job(NamedTuple):
    """The state of one job; its run counts as lost at ``until`` at the earliest."""

    state: str = ABSENT
    job_id: int = 0
    until: float = 0.0
    run: int = 0


State = tuple[Job, ...]


class Forbidden(Exception):
    """Raised for an operation that the rules forbid; the message is the kind of fault."""


class Family:
    """A parent and its children, or a single job, and the effect of each operation on them."""

    def __init__(self, slots: list[Slot]) -> None:
        """Start before any job of the family exists; the parent is the job that is no child."""
        self.slots = slots
        self._index = {slot.token: index for index, slot in enumerate(slots)}
        self._parent = next((index for index, slot in enumerate(slots) if not slot.child), None)
        self.start: State = tuple(Job() for _ in slots)

    def after(self, state: State, op: Op) -> State:
        """Return the state after an operation; raises Forbidden."""
        index = self._index[op.token]
        job = state[index]
        if op.kind == "look":
            return self._look(state, index, op)
        if op.kind == "create":
            return self._create(state, index, op)
        if op.kind == "refused":
            fenced = op.run and op.run != job.run  # it spoke for a run before the current one
            if job.state in RUNS and not fenced and not self._waits_for_parent(state, index):
                raise Forbidden("owner refused")
            return state
        if op.job_id and job.job_id and op.job_id != job.job_id:
            raise Forbidden("wrong jobID")
        if op.kind == "take":
            return self._take(state, index, op)
        if op.kind == "requeue":
            if job.state in (ABSENT, GONE):
                return state
            return _with(state, index, job._replace(state="QUEUED"))
        return self._end(state, index, op)

    def _create(self, state: State, index: int, op: Op) -> State:
        job, slot = state[index], self.slots[index]
        if slot.unique and job.state not in (ABSENT, GONE):
            if op.job_id and job.job_id not in (0, op.job_id):
                raise Forbidden("unique job doubled")
            return _with(state, index, job._replace(job_id=op.job_id or job.job_id))
        if job.state != ABSENT and not slot.unique:
            raise Forbidden("created twice")
        if op.job_id and op.job_id <= job.job_id:
            raise Forbidden("jobID reused")
        where = "QUEUED"
        if slot.child and self._parent is not None:
            parent = state[self._parent].state
            if parent not in PENDING - {"QUEUED"}:
                raise Forbidden("child of a parent that does not run")
            where = "QUEUED" if parent == "PAUSED" else "PAUSED"
        return _with(state, index, Job(where, op.job_id))

    def _take(self, state: State, index: int, op: Op) -> State:
        job, slot = state[index], self.slots[index]
        if job.state == "RUNQUEUED" and op.ended < job.until:
            raise Forbidden("two owners")
        if job.state not in ("QUEUED", "RUNQUEUED"):
            raise Forbidden(_TAKE_FAULTS.get(job.state, "given out after its end"))
        taken = Job("RUNNING", op.job_id or job.job_id, run=op.run)
        if slot.lost_after_s:
            taken = taken._replace(state="RUNQUEUED", until=op.began + slot.lost_after_s - EARLY_S)
        return _with(state, index, taken)

    def _end(self, state: State, index: int, op: Op) -> State:
        job, slot = state[index], self.slots[index]
        if job.state not in RUNS:
            raise Forbidden("finished twice" if job.state in (GONE, "FINISHED") else "ended without an owner")
        if op.kind == "fail":
            state = _with(state, index, job._replace(state="FAILED"))
            state = self._children(state, index, {"QUEUED", "PAUSED"}, "CANCELLED")
            return self._resume(state)
        if self._waits_for_parent(state, index):
            raise Forbidden("child ended before its parent paused")
        if op.kind == "retry":
            state = self._children(state, index, {"FINISHED", "CANCELLED"}, GONE)
            return _with(state, index, job._replace(state="QUEUED"))
        if index == self._parent and self._pending(state):
            state = _with(state, index, job._replace(state="PAUSED"))
            return self._children(state, index, {"PAUSED"}, "QUEUED")
        state = self._children(state, index, {"FINISHED", "CANCELLED"}, GONE)
        if slot.repeats and op.kind == "finish":
            return _with(state, index, job._replace(state="QUEUED"))
        reports = slot.child and self._parent is not None and state[self._parent].state == "PAUSED"
        return self._resume(_with(state, index, job._replace(state="FINISHED" if reports else GONE)))

    def _look(self, state: State, index: int, op: Op) -> State:
        job = state[index]
        there = ABSENT if job.state == GONE else job.state
        if op.state != there:
            if op.state == ABSENT:
                raise Forbidden("lost")
            if there == ABSENT:
                raise Forbidden("came back")
            raise Forbidden("orphaned" if op.state == "PAUSED" else f"{op.state} without a reason")
        if op.job_id and job.job_id not in (0, op.job_id):
            raise Forbidden("wrong jobID")
        return state

    # --- relations ---------------------------------------------------------------------------------------

    def _waits_for_parent(self, state: State, index: int) -> bool:
        if not self.slots[index].child or self._parent is None:
            return False
        return state[self._parent].state in PENDING - {"PAUSED"}

    def _pending(self, state: State) -> bool:
        return any(job.state in PENDING for slot, job in zip(self.slots, state, strict=True) if slot.child)

    def _children(self, state: State, index: int, before: set[str], after: str) -> State:
        if index != self._parent:
            return state
        return tuple(
            job._replace(state=after) if slot.child and job.state in before else job
            for slot, job in zip(self.slots, state, strict=True)
        )

    def _resume(self, state: State) -> State:
        if self._parent is None or state[self._parent].state != "PAUSED" or self._pending(state):
            return state
        return _with(state, self._parent, state[self._parent]._replace(state="QUEUED"))


_TAKE_FAULTS = {
    "RUNNING": "two owners",
    "PAUSED": "given out while paused",
    ABSENT: "given out before it was created",
}


def _with(state: State, index: int, job: Job) -> State:
    return (*state[:index], job, *state[index + 1 :])


@dataclass(slots=True)
class Verdict:
    """The result for one family: its ``fault``, if any, and the lost replies that explain its history."""

    fault: str = ""
    sentence: str = ""
    unanswered_takes: list[Op] = field(default_factory=list)


def explain(family: Family, ops: list[Op]) -> Verdict:
    """Search for an order of the operations that the rules allow."""
    ops = sorted(ops)
    everything = sum(1 << index for index, op in enumerate(ops) if op.must)
    stack: list[tuple[int, State, float]] = [(0, family.start, float("-inf"))]
    seen: set[tuple[int, State]] = set()
    farthest, fault, sentence = -1, "", ""
    while stack:
        done, state, now = stack.pop()
        if done & everything == everything:
            blank = [op for index, op in enumerate(ops) if done >> index & 1 and not op.call]
            return Verdict(unanswered_takes=blank)
        if (done, state) in seen:
            continue
        if len(seen) > STATES_MAX:
            return Verdict("too long to explain", f"{family.slots[0].token} with {len(ops)} operations")
        seen.add((done, state))
        deadline = min(op.ended for index, op in enumerate(ops) if op.must and not done >> index & 1)
        options: list[tuple[bool, float, tuple[int, State, float]]] = []
        refused: list[tuple[float, str, Op]] = []
        for index, op in enumerate(ops):
            if op.began > deadline:
                break
            if done >> index & 1 or op.ended < now:
                continue
            try:
                after = family.after(state, op)
            except Forbidden as error:
                if op.must:
                    refused.append((op.ended, str(error), op))
                continue
            if op.must or after != state:
                options.append((op.must, -op.ended, (done | 1 << index, after, max(now, op.began))))
        stack += [position for _, _, position in sorted(options, key=lambda option: option[:2])]
        progress = (done & everything).bit_count()
        if refused and progress > farthest:
            farthest = progress
            _, fault, op = min(refused, key=lambda item: item[0])
            jobs = dict(zip((slot.token for slot in family.slots), state, strict=True))
            sentence = f"{op.kind} {op.token} {op.state} (job {op.job_id}, call {op.call}) where it is {jobs}"
    return Verdict(fault or "no explanation", sentence or family.slots[0].token)
