"""The ledger of clients' requests and replies, and its verification.

A ``Ledger`` is kept outside the server: one record before a request is sent, one after its answer or its
loss. ``judge`` then says whether some server that never loses, invents or doubles a job could have given
these answers. It knows nothing of sockets, SQL or processes; the rules of a job's life are in
``history_rules``.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from tests.history_rules import ABSENT, Family, Op, Slot, Verdict, explain

OPEN, CUT, ANSWERED = "open", "cut", "answered"

NOT_DONE = frozenset({500, 503, 555})
"""Answers that promise that nothing was committed."""

UNSEEN_S = 1.0
"""Time in which a server notices that a client has left."""

FAULTS_SHOWN_MAX = 20
"""Faults that a report spells out; the counts hold all."""


@dataclass(slots=True)
class Call:
    """One request and its outcome."""

    number: int
    client: str
    verb: str
    asked: dict[str, Any]
    began: float
    ended: float = float("inf")
    fate: str = OPEN
    code: int = 0
    reply: Any = None


class Ledger:
    """Records in the order they happened; none is ever changed."""

    def __init__(self, file: IO[str] | None = None) -> None:
        """Keep the records in memory, and line by line in ``file`` if one is given."""
        self.records: list[tuple[Any, ...]] = []
        self._file = file
        self._calls = 0

    def sent(self, now: float, client: str, verb: str, asked: dict[str, Any]) -> int:
        """Record a request that is about to be sent; return its number."""
        self._calls += 1
        self._add("sent", self._calls, now, client, verb, asked)
        return self._calls

    def answered(self, number: int, now: float, code: int, reply: Any) -> None:
        """Record the answer to a request."""
        self._add(ANSWERED, number, now, code, reply)

    def cut(self, number: int, now: float) -> None:
        """Record that a request's connection ended without an answer."""
        self._add(CUT, number, now)

    def killed(self, now: float) -> None:
        """Record that the server was ended by force."""
        self._add("killed", 0, now)

    def _add(self, *record: Any) -> None:
        self.records.append(record)
        if self._file is not None:
            self._file.write(json.dumps(record) + "\n")

    def calls(self) -> list[Call]:
        """Return every request with its outcome."""
        found: dict[int, Call] = {}
        for kind, number, now, *rest in self.records:
            if kind == "sent":
                client, verb, asked = rest
                found[number] = Call(number, client, verb, asked, now)
            elif kind == ANSWERED:
                call = found[number]
                call.fate, call.ended, (call.code, call.reply) = ANSWERED, now, rest
            elif kind == CUT:
                call = found[number]
                call.fate, call.ended = CUT, now
        return list(found.values())

    def kills(self) -> list[float]:
        """Return when the server was killed."""
        return [record[2] for record in self.records if record[0] == "killed"]


@dataclass(slots=True)
class Report:
    """The counts and the faults by kind; a correct history has no faults."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def fault(self, kind: str, sentence: str) -> None:
        """Count a fault."""
        self.faults[kind] += 1
        if len(self.examples) < FAULTS_SHOWN_MAX:
            self.examples.append(f"{kind}: {sentence}")

    def __str__(self) -> str:
        """Return the counts and the faults as text."""
        lines = [", ".join(f"{name} {count}" for name, count in self.counts.items())]
        lines.append(f"faults: {dict(self.faults) or 'none'}")
        return "\n".join([*lines, *self.examples])


def judge(ledger: Ledger, late_s: float = 0.0) -> Report:
    """Judge a whole history. Each job's data must hold a ``token`` of its own, see ``family_of``.

    ``late_s`` is how long after a request was cut it may still be done: where the one that is killed is not
    the one that commits.
    """
    return _Judge(ledger, late_s).report


def family_of(token: str) -> str:
    """Return the family of a token: a child's is its parent's token, a dot and more."""
    return token.partition(".")[0]


class _Judge:
    """One pass over a ledger."""

    def __init__(self, ledger: Ledger, late_s: float) -> None:
        self.report = Report()
        self._late_s = late_s
        self._kills = ledger.kills()
        self._slots: dict[str, Slot] = {}
        self._ops: defaultdict[str, list[Op]] = defaultdict(list)
        self._tokens: dict[int, str] = {}
        self._attempts: dict[tuple[int, int], int] = {}  # (jobID, attempt) or (0, runID): the call
        self._blanks: defaultdict[int, list[tuple[Call, int]]] = defaultdict(list)
        self._seen: set[str] = set()
        calls = ledger.calls()
        for call in calls:
            self._learn(call)
        for call in calls:  # an answer may name a job before the answer to its creation came
            self._meet_all(call)
        for call in calls:
            self._read(call)
        self._look_for_torn(calls)
        self._explain_all()
        self.report.counts["kills"] = len(self._kills)

    # --- who is who --------------------------------------------------------------------------------------

    def _learn(self, call: Call) -> None:
        self.report.counts[f"calls {call.fate}"] += 1
        if call.fate == OPEN:
            self.report.fault("unanswered", f"call {call.number} {call.verb} of {call.client}")
        for spec in _specs(call):
            token = spec["data"]["token"]
            self._slots[token] = Slot(
                token,
                name=spec["name"],
                child=bool(spec.get("parentJobID")),
                repeats=bool(spec.get("repeat")),
                unique=bool(spec.get("unique")),
                lost_after_s=_seconds(spec.get("retryAfter", "")),
            )

    def _meet_all(self, call: Call) -> None:
        for token, job_id in _created(call):
            self._meet(token, job_id, call)
        for job in _jobs_of(call):
            self._meet(job["data"].get("token", ""), job["jobID"], call)

    def _meet(self, token: str, job_id: int, call: Call) -> None:
        """Record that a jobID belongs to a token."""
        self._seen.add(token)
        known = self._tokens.setdefault(job_id, token)
        if token not in self._slots:
            self.report.fault("invented", f"job {job_id} in call {call.number} was never created ({token!r})")
        elif known != token:
            self.report.fault(
                "jobID reused", f"job {job_id} was {known} and is {token} in call {call.number}"
            )
        slot = self._slots.get(token)
        if slot is not None and not slot.unique:
            if slot.job_id not in (0, job_id):
                self.report.fault("doubled", f"{token} is job {slot.job_id} and job {job_id}")
            slot.job_id = slot.job_id or job_id

    # --- what was done -----------------------------------------------------------------------------------

    def _read(self, call: Call) -> None:
        if call.fate == OPEN or (call.fate == ANSWERED and call.code in NOT_DONE):
            return
        if call.verb in ("CreateJob", "CreateJobs"):
            ids = dict(_created(call))
            if call.fate == CUT or ids:
                for spec in _specs(call):
                    token = spec["data"]["token"]
                    self._op(call, "create", token, ids.get(token, 0))
                    self.report.counts["created" if ids else "creations unknown"] += 1
                    self.report.counts["creations unknown but done"] += (
                        not ids and token in self._seen and not self._slots[token].unique
                    )
        elif call.verb == "Look":
            self._read_look(call)
        else:
            for job_id, kind in _ends(call):
                run = int(call.asked.get("runID") or 0)
                self._op(call, kind, self._tokens.get(job_id, ""), job_id, run=run)
                self.report.counts[kind] += call.fate == ANSWERED
        self._read_takes(call)

    def _read_takes(self, call: Call) -> None:
        takes = "thenGet" in call.asked or call.verb in ("GetJob", "GetJobs")
        if takes and call.fate == CUT:
            self._blanks[self._era(call.ended)].append((call, int(call.asked.get("numResults", 1))))
        if call.verb == "Look":
            return
        for job in _jobs_of(call):
            job_id = job["jobID"]
            self.report.counts["handed out"] += 1
            self._op(call, "take", self._tokens.get(job_id, ""), job_id, run=job.get("runID", 0))
            if "runID" in job:
                for key in ((job_id, job["attempt"]), (0, job["runID"])):
                    other = self._attempts.setdefault(key, call.number)
                    if other != call.number:
                        self.report.fault("run twice", f"{key} in calls {other} and {call.number}")

    def _read_look(self, call: Call) -> None:
        states = {job["data"].get("token", ""): job for job in call.reply["jobs"]}
        for token, job in states.items():
            self._op(call, "look", token, job["jobID"], job["state"])
        if call.asked["whole"]:
            for token in self._slots.keys() - states.keys():
                self._op(call, "look", token, 0, ABSENT)

    def _op(self, call: Call, kind: str, token: str, job_id: int, state: str = "", run: int = 0) -> None:
        if token in self._slots:
            must = call.fate == ANSWERED
            ended = call.ended if must else call.ended + self._late_s
            self._ops[family_of(token)].append(
                Op(call.began, ended, kind, token, job_id, state, must, call.number, run)
            )

    def _look_for_torn(self, calls: list[Call]) -> None:
        for call in calls:
            tokens = [spec["data"]["token"] for spec in _specs(call)]
            there = [token for token in tokens if token in self._seen]
            if call.fate == CUT and there and len(there) < len(tokens):
                self.report.fault("torn", f"call {call.number} created {len(there)} of {len(tokens)} jobs")

    # --- is there an explanation -------------------------------------------------------------------------

    def _era(self, moment: float) -> int:
        """Return the number of the server process that was running at a time."""
        return bisect_left(self._kills, moment)

    def _explain_all(self) -> None:
        families: defaultdict[str, list[Slot]] = defaultdict(list)
        for token, slot in self._slots.items():
            families[family_of(token)].append(slot)
        needy: list[list[int]] = []
        for name, slots in families.items():
            family = Family(sorted(slots, key=lambda slot: slot.token))
            verdict = explain(family, self._ops[name])
            if verdict.fault:
                verdict = self._explain_with_lost_answers(family, self._ops[name], needy)
            if verdict.fault:
                self.report.fault(verdict.fault, verdict.sentence)
        possible = {era: sum(count for _, count in calls) for era, calls in self._blanks.items()}
        missing = len(needy) - matched(needy, possible)
        if missing:
            self.report.fault(
                "taken by nobody", f"{missing} of {len(needy)} lost hand-outs have no lost answer"
            )
        self.report.counts["hand-outs lost with their answer"] = len(needy)
        self.report.counts["jobs asked for without an answer"] = sum(possible.values())

    def _explain_with_lost_answers(self, family: Family, ops: list[Op], needy: list[list[int]]) -> Verdict:
        """Explain a family by takes with lost replies: by one, else by two for each life of the server."""
        blanks = self._blank_takes(family.slots, ops)
        eras = [era for era, takes in blanks.items() if not explain(family, ops + takes).fault]
        if eras:
            needy.append(eras)
            return Verdict()
        twice = [op for takes in blanks.values() for op in takes] * 2
        verdict = explain(family, ops + twice)
        needy += [[self._era(op.ended)] for op in verdict.unanswered_takes]
        return verdict

    def _blank_takes(self, slots: list[Slot], ops: list[Op]) -> dict[int, list[Op]]:
        """Return one take of each job in each life of the server, by a client that never got the reply."""
        if not ops:
            return {}
        first, last = min(op.began for op in ops), max(op.ended for op in ops)
        found = {}
        for era, calls in self._blanks.items():
            began = min(call.began for call, _ in calls)
            # A server may hand out before it sees that a client has left, but not after its own end.
            over = era == len(self._kills)
            ended = max(c.ended for c, _ in calls) + UNSEEN_S if over else self._kills[era] + self._late_s
            if ended >= first and began <= last:
                found[era] = [
                    Op(began, ended, "take", slot.token, slot.job_id, "", must=False, call=0)
                    for slot in slots
                ]
        return found


def matched(wishes: list[list[int]], room: dict[int, int]) -> int:
    """Return the size of a maximum matching of wishes to places, each of which has a capacity."""
    holders: defaultdict[int, list[int]] = defaultdict(list)

    def place(wish: int, tried: set[int]) -> bool:
        for where in wishes[wish]:
            if where in tried:
                continue
            tried.add(where)
            if len(holders[where]) < room.get(where, 0):
                holders[where].append(wish)
                return True
            for index, other in enumerate(holders[where]):
                if place(other, tried):
                    holders[where][index] = wish
                    return True
        return False

    return sum(place(wish, set()) for wish in range(len(wishes)))


def _specs(call: Call) -> list[dict[str, Any]]:
    """Return the jobs that a call asks to create."""
    if call.verb == "CreateJob":
        return [call.asked]
    return list(call.asked["jobs"]) if call.verb == "CreateJobs" else []


def _created(call: Call) -> Iterator[tuple[str, int]]:
    """Yield token and jobID of each created job, as the reply reports them."""
    if call.fate != ANSWERED or call.code != 200:
        return
    if call.verb == "CreateJob":
        yield call.asked["data"]["token"], call.reply["jobID"]
    elif call.verb == "CreateJobs":
        for spec, job_id in zip(call.asked["jobs"], call.reply["jobIDs"], strict=True):
            yield spec["data"]["token"], job_id


def _jobs_of(call: Call) -> list[dict[str, Any]]:
    """Return the jobs that an answer holds."""
    if call.fate != ANSWERED or call.code != 200 or not call.reply:
        return []
    if call.verb == "GetJob":
        return [call.reply]
    if call.reply.get("job"):
        return [call.reply["job"]]
    return list(call.reply.get("jobs", []))


_ENDS = {"FinishJob": "finish", "RetryJob": "retry", "FailJob": "fail"}


def _ends(call: Call) -> Iterator[tuple[int, str]]:
    """Yield jobID and kind of each end of a run in a call; a refusal is a kind of its own."""
    if call.verb in _ENDS:
        kind = _ENDS[call.verb]
        if call.asked.get("data", {}).get("delete"):
            kind = "finish and end"
        yield call.asked["jobID"], kind if call.fate == CUT or call.code == 200 else "refused"
    elif call.verb == "RequeueJobs":
        for job_id in call.asked["jobIDs"]:
            yield job_id, "requeue"
    elif call.verb == "FinishJobs":
        codes = {}
        if call.fate == ANSWERED:
            codes = {result["jobID"]: result["code"] for result in call.reply["results"]}
        for spec in call.asked["jobs"]:
            yield spec["jobID"], "finish" if codes.get(spec["jobID"], 200) == 200 else "refused"


def _seconds(modifier: str) -> float:
    """Return the seconds of a retryAfter like ``+2 SECONDS``; 0 without one."""
    return float(modifier.split()[0]) if modifier else 0.0
