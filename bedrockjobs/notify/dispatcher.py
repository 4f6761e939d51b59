"""Sends the notifications of all rules: each at least once, in order per rule, independent of other rules.

The dispatcher is a client of the server: it reads events and rules, claims a message, sends it, and reports
the result, all through commands. Its own state can be read again from the server. If several servers share a
database, each message is sent by the server that claims it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import Clock, timestamp
from bedrockjobs.base.errors import CommandError, NotFound, WrongState
from bedrockjobs.base.vocabulary import OVER
from bedrockjobs.commands import (
    ClaimMessage,
    Command,
    Events,
    ListRules,
    MessageReply,
    QueryJob,
    QueryRun,
    ReportConditions,
    ReportDelivery,
    RuleReply,
    RulesReply,
)
from bedrockjobs.engine.events import EventLogged, HoldChanged, RulesChanged
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.notify.channels import Channels, NotSent
from bedrockjobs.notify.rule import (
    EVENTS_SHOWN,
    Message,
    NotifiedEvent,
    asks_for_conditions,
    condition_of,
    conditions,
    is_about,
    is_muted,
    message_of,
    wait_s,
    without_output,
)
from bedrockjobs.views.queues import QueueSnapshot

log = logging.getLogger(__name__)

POLL_S = 10.0
"""Seconds after which rules are examined again even if no event arrived, because another server may have
changed the rules or stopped."""

WATCH_S = 60.0
"""Seconds between two checks whether a condition (late, no worker, backlog, disk low) holds; a check takes
about 20 ms."""

EVENTS_READ = 1_000
"""Maximum number of events read with one command."""

EVENTS_PER_MESSAGE = 1_000
"""Maximum number of events in one message; further events go into the next message."""


class NotificationSource(Protocol):
    """The part of the server that the dispatcher uses."""

    async def call(self, command: Command[Any]) -> Answer:
        """Execute a command and return its answer; raises CommandError."""

    @property
    def hold(self) -> str:
        """Return why the queue is on hold, during which nothing is sent; empty if it is not."""

    async def snapshot(self) -> QueueSnapshot:
        """Return a snapshot of the queue; raises CommandError."""

    async def options_of_run(self, run_id: int) -> str:
        """Return the options of a run as JSON; raises CommandError."""

    async def seen(self, kind: str, numbers: Collection[int]) -> dict[int, str]:
        """Return when each failed ``job`` or ``run`` was acknowledged; raises CommandError."""

    @property
    def free_bytes(self) -> int | None:
        """Return the bytes free on the disk of the database; None if it is on another machine."""


class EventBatch(NamedTuple):
    """The events of one message, and the position up to which events were read to find them."""

    events: list[dict[str, Any]]
    seen: int
    """The ``seq`` of the last event that was read, whether it matches the rule or not."""
    silenced: int
    """How many events up to that of the last one in ``events``, or up to ``seen`` if there is none, are left
    out because their failures are muted."""


class NotificationDispatcher:
    """Sends notifications; lives in the event loop."""

    def __init__(
        self,
        server: NotificationSource,
        channels: Channels,
        clock: Clock,
        *,
        name: str,
        url: str,
        alone: bool,
    ) -> None:
        """Send as the server ``name`` with links to ``url``; ``alone`` means that no other server exists."""
        self._server = server
        self._channels = channels
        self._clock = clock
        self._name = name
        self._url = url
        self._single_rule = alone
        self._woken = asyncio.Event()
        self._kinds: frozenset[str] = frozenset()
        """Kinds of events that at least one rule matches."""
        self._positions: dict[str, int] = {}
        """The ``seq`` of the last event that was handled or read without a match, by rule; only in memory.

        The cursor of a rule that was read while its last message was being reported is lower.
        """
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._watched = -WATCH_S
        """Monotonic time of the last check of conditions."""
        self._asked_again: set[str] = set()
        """Rules to examine again, because events arrived while a message of the rule was being sent."""
        self._task: asyncio.Task[None] | None = None

    def event_handlers(self) -> Mapping[type, Callable[[Any], object]]:
        """Return the handlers of events."""
        return {
            EventLogged: self._on_event,
            RulesChanged: lambda _: self.check_rules(),
            HoldChanged: lambda _: self.check_rules(),
        }

    def _on_event(self, event: EventLogged) -> None:
        if event.kind in self._kinds:
            self.check_rules()

    def renew(self, channels: Channels, url: str) -> None:
        """Replace the channels and the URL of links."""
        self._channels, self._url = channels, url

    def check_rules(self) -> None:
        """Examine the rules again, because of new events, changed rules or a changed time."""
        self._woken.set()

    def start(self) -> None:
        """Start the dispatcher."""
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Stop; a message that is being sent is sent again later, by this or another server."""
        tasks = [*self._busy.values(), *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            pause = POLL_S
            try:
                pause = await self._start_due()
            except CommandError as error:
                log.debug("messages are delayed: %s", error)
            except Exception:
                log.exception("notification rules could not be checked")
            try:
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            except TimeoutError:
                continue
            self._woken.clear()

    async def _start_due(self) -> float:
        """Start sending for every rule that may send now; return the seconds until the next rule may send."""
        rules = await self.rules()
        if not self._server.hold and self._clock.monotonic() >= self._watched + WATCH_S:
            self._watched = self._clock.monotonic()
            await self.watch(rules)
        self._kinds = frozenset(
            each for rule in rules for kind in rule.on for each in (kind, f"{kind}{OVER}")
        )
        names = {rule.name for rule in rules}
        self._positions = {name: seen for name, seen in self._positions.items() if name in names}
        pause = POLL_S
        for rule in rules:
            task = self._busy.get(rule.name)
            if task is not None and not task.done():
                self._asked_again.add(rule.name)
                continue
            wait = wait_s(rule, self._clock.now()) if not is_muted(rule, self._clock.now()) else 0.0
            if self._server.hold:
                continue
            if wait > 0:
                pause = min(pause, wait)
            else:
                self._busy[rule.name] = asyncio.ensure_future(self._guarded(rule))
        return pause

    async def _guarded(self, rule: RuleReply) -> None:
        """Send the next message of a rule; an error is logged, and the message is retried later."""
        try:
            if await self.step(rule):
                self._asked_again.add(rule.name)  # there may be more messages
        except CommandError as error:
            if not isinstance(
                error, WrongState | NotFound
            ):  # another server claimed it, or the rule was deleted
                log.warning("messages of the rule %s are delayed: %s", rule.name, error)
        except Exception:
            log.exception("messages of the rule %s are delayed", rule.name)
        if rule.name in self._asked_again:
            self._asked_again.discard(rule.name)
            self._woken.set()

    async def watch(self, rules: Iterable[RuleReply]) -> None:
        """Report conditions that began or ended; raises CommandError.

        Every server checks, but a condition that another server has already reported is not reported again.
        """
        asking = [rule for rule in rules if asks_for_conditions(rule)]
        if not asking:
            return
        snapshot, free_bytes = await self._server.snapshot(), self._server.free_bytes
        for rule in asking:
            current = conditions(rule, snapshot, free_bytes)
            if {kind: set(names) for kind, names in current.items()} != {
                kind: set(names) for kind, names in rule.conditions.items()
            }:
                await self._server.call(ReportConditions(name=rule.name, conditions=current))

    async def rules(self) -> list[RuleReply]:
        """Return all rules."""
        answer = await self._server.call(ListRules(limit=1_000))
        return RulesReply.model_validate_json(answer.body).rules

    async def step(self, rule: RuleReply) -> bool:
        """Send the next message of a rule; return whether another one may follow. Raises CommandError."""
        repeated_to = rule.up_to if rule.up_to > rule.cursor else 0
        batch = await self._next_events(rule, repeated_to)
        if not batch.events and not batch.silenced and not repeated_to:
            self._positions[rule.name] = batch.seen
            return False
        up_to = repeated_to or (batch.events[-1]["seq"] if batch.events else batch.seen)
        parameters = {
            "name": rule.name,
            "sender": self._name,
            "up_to": up_to,
            "events": len(batch.events),
            "silenced": batch.silenced,
        }
        # without events, they have been deleted, or all are about muted failures
        if is_muted(rule, self._clock.now()) or not batch.events:
            await self._server.call(ReportDelivery(**parameters, muted=True))
            self._positions[rule.name] = up_to
            return True
        await self._server.call(
            ClaimMessage(name=rule.name, sender=self._name, up_to=up_to, alone=self._single_rule)
        )
        told_events = await self._with_runs(batch.events, data=not rule.no_data)
        message = message_of(rule.name, told_events, self._url, repeated=bool(repeated_to))
        try:
            missed = await self._channels.send(
                message, rule.to, rule.secret, int(self._clock.now().timestamp())
            )
        except NotSent as failure:
            log.warning("the rule %s could not send: %s", rule.name, failure)
            await self._server.call(ReportDelivery(**parameters, error=str(failure)))
            return False
        if missed:
            log.warning("a message of the rule %s did not reach all recipients: %s", rule.name, missed)
        await self._server.call(ReportDelivery(**parameters, error=missed or None, partly=bool(missed)))
        self._positions[rule.name] = up_to
        return True

    async def _next_events(self, rule: RuleReply, up_to: int) -> EventBatch:
        """Return the events of the next message.

        ``up_to`` is the ``seq`` of the last event in a message that was claimed before, or 0.
        """
        after = rule.cursor if up_to else max(rule.cursor, self._positions.get(rule.name, 0))
        rows: list[dict[str, Any]] = []
        silenced: list[int] = []
        while len(rows) < EVENTS_PER_MESSAGE and (up_to or len(silenced) < EVENTS_READ):
            read = await self._events(after)
            about = [
                event for event in read if is_about(rule, event) and event["seq"] <= (up_to or event["seq"])
            ]
            about = await self._tagged(rule, about) if rule.tags else about
            heard = await self._heard(about)
            rows += heard
            silenced += {event["seq"] for event in about} - {event["seq"] for event in heard}
            after = read[-1]["seq"] if read else after
            if len(read) < EVENTS_READ or (up_to and after >= up_to):
                break
        rows = rows[:EVENTS_PER_MESSAGE]
        last = rows[-1]["seq"] if rows else after
        return EventBatch(rows, after, sum(seq <= (up_to or last) for seq in silenced))

    async def _heard(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return events except those about failures that were muted when they happened.

        A muted failure is acknowledged at the moment of its events.
        """
        muted: set[tuple[str, int, str]] = set()
        for kind in ("job", "run"):
            if numbers := {event[f"{kind}ID"] for event in events} - {0}:
                muted |= {(kind, *one) for one in (await self._server.seen(kind, numbers)).items()}
        return [
            event
            for event in events
            if muted.isdisjoint((kind, event[f"{kind}ID"], event["at"]) for kind in ("job", "run"))
        ]

    async def _tagged(self, rule: RuleReply, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return events whose jobs have a tag of the rule, and events of conditions, which have no job."""
        tags: dict[int, set[str]] = {0: set()}
        for event in events:
            if event["jobID"] not in tags:
                tags[event["jobID"]] = await self._tags(event["jobID"], event["runID"])
        wanted = set(rule.tags)
        return [event for event in events if condition_of(event["kind"]) or wanted & tags[event["jobID"]]]

    async def _tags(self, job_id: int, run_id: int) -> set[str]:
        """Return the tags of a job; if the job was deleted, as after success, return the tags of its run."""
        try:
            found = (await self._server.call(QueryJob(job_id=job_id))).body
        except NotFound:
            found = await self._server.options_of_run(run_id) if run_id else "{}"
        return set(jsontext.parse(found).get("tags") or ())

    async def _events(self, after: int) -> list[dict[str, Any]]:
        answer = await self._server.call(Events(after=after, limit=EVENTS_READ))
        events: list[dict[str, Any]] = jsontext.parse(answer.body)["events"]
        return events

    async def _with_runs(self, events: list[dict[str, Any]], *, data: bool) -> list[NotifiedEvent]:
        """Return events, the first ``EVENTS_SHOWN`` with their runs; without ``data``, leave out output."""
        notified = []
        for place, event in enumerate(events):
            run = None
            if event["runID"] and place < EVENTS_SHOWN:
                try:
                    run = jsontext.parse((await self._server.call(QueryRun(run_id=event["runID"]))).body)
                except NotFound:  # the run has been deleted
                    run = None
            notified.append(NotifiedEvent(event, run) if data else without_output(event, run))
        return notified

    async def test(self, name: str, *, send: bool) -> MessageReply:
        """Return a test message of a rule about its newest event, or an example event if there is none.

        With ``send``, the message is also sent. Raises NotFound, and WrongState if a recipient did not get
        it.
        """
        rule = next((rule for rule in await self.rules() if rule.name == name), None)
        if rule is None:
            raise NotFound("No such rule", f"name: there is no rule {name}")
        now = timestamp(self._clock.now())
        name = (rule.names or ["example"])[0].replace("*", "example")
        made_up = {
            "seq": 0,
            "at": now,
            "kind": rule.on[0],
            "name": name,
            "jobID": 0,
            "runID": 0,
            "by": "",
            "detail": "This is what a message looks like.",
        }
        known = await self._events(max(rule.cursor - EVENTS_READ, 0))
        newest = [event for event in known if is_about(rule, event)]
        newest = await self._tagged(rule, newest[-EVENTS_SHOWN:]) if rule.tags else newest
        notified = await self._with_runs(newest[-1:] or [made_up], data=not rule.no_data)
        message: Message = message_of(rule.name, notified, self._url, test=True)
        if send:
            try:
                missed = await self._channels.send(
                    message, rule.to, rule.secret, int(self._clock.now().timestamp())
                )
            except NotSent as failure:
                raise WrongState("Message was not sent", str(failure)) from None
            if missed:
                raise WrongState("Message did not reach all recipients", missed)
        return MessageReply(to=rule.to, subject=message.subject, text=message.text, sent=send)
