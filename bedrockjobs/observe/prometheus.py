"""``GET /metrics`` for Prometheus, and ``GET /healthz`` for the server or one schedule.

Everything is computed when it is requested. Values in memory cost nothing, and the queue is read outside of
the event loop, by the bounded snapshot that Overview uses. Only ``stats.Measurements`` adds work when jobs
are created and taken.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, get_args

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily as Counts
from prometheus_client.metrics_core import GaugeMetricFamily as Gauge
from prometheus_client.metrics_core import HistogramMetricFamily, Metric

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock, moment_of
from bedrockjobs.base.errors import CommandError, NotFound
from bedrockjobs.base.principal import Scope
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands.overview import TROUBLES, OverviewReply
from bedrockjobs.engine.outage import Health
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.job.eligibility import Readiness
from bedrockjobs.job.rows import decode_memory
from bedrockjobs.observe.stats import Histogram, Measurements
from bedrockjobs.store.base import Reader, ServerState
from bedrockjobs.views import Views
from bedrockjobs.views.problems import free_bytes
from bedrockjobs.views.queues import QueuedGroup, Totals, prefix_of

# Helpers for Prometheus metrics.


def gauge(name: str, description: str, value: float, **labels: str) -> Metric:
    """Return a gauge with one value."""
    metric = Gauge(f"bedrockjobs_{name}", description, labels=tuple(labels))
    metric.add_metric(tuple(labels.values()), value)
    return metric


def counts(name: str, description: str, value: float) -> Metric:
    """Return a counter with one value."""
    return Counts(f"bedrockjobs_{name}", description, value=value)


def by_label(
    metric_class: type[Gauge] | type[Counts],
    name: str,
    description: str,
    label: str,
    values: Mapping[str, float],
) -> Metric:
    """Return a metric with one label; ``values`` maps each value of the label to its number."""
    metric = metric_class(f"bedrockjobs_{name}", description, labels=(label,))
    for key, value in sorted(values.items()):
        metric.add_metric((key,), value)
    return metric


def histogram(name: str, description: str, measured: Histogram) -> Metric:
    """Return a histogram."""
    buckets = [("+Inf" if bound == float("inf") else str(bound), count) for bound, count in measured.up_to()]
    metric = HistogramMetricFamily(f"bedrockjobs_{name}", description)
    metric.add_metric((), buckets, sum_value=measured.sum)
    return metric


def seconds_between(oldest: str, now: str) -> float:
    """Return the seconds between two timestamps; 0 if the first is empty or later."""
    if not oldest or oldest > now:
        return 0.0
    return (moment_of(now) - moment_of(oldest)).total_seconds()


def seconds(timestamp: str) -> float:
    """Return a timestamp in seconds since 1970."""
    return moment_of(timestamp).timestamp()


def size_of(path: Path) -> int:
    """Return the size of a file, or 0 if it does not exist."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


PREFIXES_MAX = 50
"""Maximum number of name prefixes that have series of their own, in alphabetical order, so that series stay
few; all other prefixes share ``other``."""

FRESH_S = 1.0
"""Seconds for which a snapshot of the queue is cached, so that many scrapers cost as much as one scraper."""

OTHER = "other"

WORKFLOW_STATES_COUNTED = ("RUNNING", "FAILED")
"""States whose workflows are counted; workflows that ended well are deleted after a while."""

STATUSES = ("active", "quiet", "draining", "drained")
"""States of workers; each state is exported even if its count is 0, so that alerts can tell 0 from no
data."""

UNHEALTHY_SKIPS = ("no worker", "server down", "too late", "lock held", "no ping")
"""Reasons for which a skipped tick makes a schedule unhealthy; a pause or a run in progress does not."""


class Work(Protocol):
    """The values of the dispatcher that are exported."""

    pending: int
    commands: int
    commits: int
    health: Health

    @property
    def waiting(self) -> int:
        """Return the number of waiting GetJobs."""


STANDINGS: tuple[Readiness, ...] = ("ready", "later", "paused", "blocked", "mocked")
"""Readiness of queued jobs; each value is exported for every prefix, even if its count is 0."""


class Queue(NamedTuple):
    """A snapshot of the queue for metrics."""

    overview: OverviewReply
    parts: Mapping[str, Totals]
    """Totals of queued jobs by name prefix: at most ``PREFIXES_MAX`` prefixes, and ``other`` for the rest."""
    now: str
    workflows: Mapping[str, int] = MappingProxyType({})
    """Counts of workflows by state."""


class Metrics:
    """Collects the metrics of one server."""

    def __init__(
        self,
        reader: Reader,
        views: Views,
        work: Work,
        presence: WorkerRegistry,
        measurements: Measurements,
        totals: Callable[[], Mapping[str, int]],
        settings: Settings,
    ) -> None:
        """Collect metrics from these sources; ``totals`` returns counts of jobs since the server's start."""
        self._reader = reader
        self._work = work
        self._presence = presence
        self._measurements = measurements
        self._totals = totals
        self._settings = settings
        self._monotonic = SystemClock().monotonic
        self._found: dict[tuple[str, ...], tuple[float, Queue | None]] = {}
        self._turn = asyncio.Lock()
        self.views = views
        self.connections: Callable[[], int] = lambda: 0
        """Returns the number of open connections."""

    async def scrape(self, scope: Scope | None = None) -> list[Metric]:
        """Return all metrics; if the queue could not be read in time, its metrics are left out.

        A restricted scope gets only the metrics of the queue, for the names within the scope.
        """
        queue = await self._queue(scope)
        metrics = [] if scope is not None else [*self._server(), *self._measured(), *self._files()]
        was_read = int(queue is not None)
        metrics.append(gauge("queue_read_ok", "Whether the queue could be read in time.", was_read))
        if queue is not None:
            metrics += self._of_queue(queue)
        return metrics

    # --- the queue ---------------------------------------------------------------------------------------

    async def _queue(self, scope: Scope | None) -> Queue | None:
        key = () if scope is None else scope.patterns
        async with self._turn:
            at, found = self._found.get(key, (float("-inf"), None))
            if self._monotonic() - at >= FRESH_S:
                try:
                    found = await self._snapshot(scope)
                except CommandError:
                    found = None
                # Cached snapshots: one for the full scope and one for each restricted scope.
                if len(self._found) >= 100:
                    self._found.clear()
                self._found[key] = self._monotonic(), found
            return found

    async def _snapshot(self, scope: Scope | None) -> Queue:
        views = self.views.scoped(scope)
        overview, snapshot = await views.standings.overview_and_snapshot(ahead=False)
        groups: dict[str, list[QueuedGroup]] = {}
        for group in snapshot.groups:
            groups.setdefault(prefix_of(group.name), []).append(group)
        parts: dict[str, Totals] = {}
        for number, prefix in enumerate(sorted(groups)):
            totals = parts.setdefault(prefix if number < PREFIXES_MAX else OTHER, Totals())
            await views.queues.add_up(snapshot, groups[prefix], totals)
        workflows = {state: (await views.workflows_counted(state))[0] for state in WORKFLOW_STATES_COUNTED}
        return Queue(overview, parts, snapshot.held.now, workflows)

    @staticmethod
    def _of_queue(queue: Queue) -> Iterable[Metric]:
        jobs = Gauge(
            "bedrockjobs_jobs",
            "Queued jobs by prefix of their name: ready, later, paused, blocked by a lock, or mocked. Counts"
            " may stop at a limit.",
            labels=("state", "prefix"),
        )
        age = Gauge(
            "bedrockjobs_oldest_ready_seconds",
            "How long the oldest ready job of a prefix has been due.",
            labels=("prefix",),
        )
        untaken = Gauge(
            "bedrockjobs_jobs_untaken", "Ready jobs that no live worker takes.", labels=("prefix",)
        )
        for prefix, part in queue.parts.items():
            for standing in STANDINGS:
                jobs.add_metric((standing, prefix), getattr(part, standing))
            age.add_metric((prefix,), seconds_between(part.oldest, queue.now))
            untaken.add_metric((prefix,), part.untaken)
        yield jobs
        yield age
        yield untaken
        overview = queue.overview
        age_of_all = seconds_between(overview.oldest_ready, queue.now)
        yield gauge("queue_latency_seconds", "How long the oldest ready job has been due.", age_of_all)
        yield gauge("pauses", "Patterns of names that are paused.", overview.pauses)
        kinds = Counter(dict.fromkeys(TROUBLES, 0))
        kinds.update(problem.kind for problem in overview.problems)
        yield by_label(
            Gauge, "problems", "Current problems, as the overview and doctor show them.", "kind", kinds
        )
        yield gauge("jobs_failed", "FAILED jobs.", overview.failed)
        yield by_label(
            Gauge, "workflows", "Workflows by state. Counts stop at 1,000.", "state", queue.workflows
        )
        yield gauge("repeating_jobs", "Jobs that repeat, schedules among them.", overview.repeating)

    # --- values in memory --------------------------------------------------------------------------------

    def _server(self) -> Iterable[Metric]:
        build = {"version": version("bedrockjobs"), "durability": self._settings.durability}
        yield gauge("build_info", "Version and durability of the server.", 1, **build)
        yield gauge("draining", "Whether the server is stopping.", int(self.views.ended))
        yield gauge("connections", "Open connections of both protocols.", self.connections())
        yield gauge("long_polls", "GetJobs that wait for a job.", self._work.waiting)
        yield gauge("commands_pending", "Commands that wait for the writer.", self._work.pending)
        yield counts("commands", "Commands done by the writer.", self._work.commands)
        yield counts("commits", "Transactions with commands.", self._work.commits)
        yield gauge("runs_open", "Runs of workers in progress.", len(self._presence.runs))
        workers = Counter(dict.fromkeys(STATUSES, 0))
        workers.update(self._presence.status_of(worker) for worker in self._presence.workers.values())
        yield by_label(Gauge, "workers", "Live workers.", "status", workers)
        yield from self._servers()
        jobs = self._totals()
        yield by_label(Counts, "jobs_done", "Operations on jobs since the start.", "what", jobs)

    def _servers(self) -> Iterable[Metric]:
        """Yield metrics of the servers that share the database, as each server reported them."""
        servers = self._presence.servers_alive()
        states = Counter(dict.fromkeys(get_args(ServerState), 0))
        states.update(server.state for server in servers)
        yield by_label(Gauge, "servers", "Servers of the database by state.", "state", states)
        description = "Version and address of each server of the database."
        infos = Gauge("bedrockjobs_server_info", description, labels=("server", "version", "address"))
        for server in servers:
            infos.add_metric((server.name, server.version, server.address), 1)
        yield infos
        for name, description, values in (
            ("server_workers", "Workers connected to a server.", [one.workers for one in servers]),
            ("server_start_time_seconds", "When a server joined.", [seconds(one.started) for one in servers]),
            (
                "server_pulse_time_seconds",
                "Last sign of life of a server.",
                [seconds(one.pulse) for one in servers],
            ),
        ):
            by_name = dict(zip((one.name for one in servers), values, strict=True))
            yield by_label(Gauge, name, description, "server", by_name)

    def _measured(self) -> Iterable[Metric]:
        measurements = self._measurements
        yield by_label(Counts, "runs_started", "Runs by cause.", "cause", measurements.runs_started)
        yield by_label(Counts, "runs_ended", "Runs by how they ended.", "status", measurements.runs_ended)
        yield by_label(Counts, "ticks", "Ticks of schedules by outcome.", "outcome", measurements.ticks)
        yield by_label(
            Counts, "ticks_skipped", "Skipped ticks of schedules by reason.", "reason", measurements.skipped
        )
        lost, retries = measurements.runs_ended["frozen"], measurements.runs_started["retry"]
        yield counts("runs_lost", "Runs whose lease ran out.", lost)
        yield counts("retries", "Runs that retried a failed job.", retries)
        yield histogram("commit_seconds", "How long a commit waited for the disk.", measurements.commit_s)
        yield histogram("commit_commands", "Commands that shared a commit.", measurements.batch)
        yield histogram(
            "run_wait_seconds", "How long a job had been due when its run began.", measurements.wait_s
        )
        yield histogram("run_seconds", "How long runs took.", measurements.run_s)
        yield histogram("tick_late_seconds", "How late the run of a tick began.", measurements.late_s)
        description = "Response time of the event loop, probed while it computes."
        yield histogram("loop_stall_seconds", description, measurements.loop_late_s)
        description = "The longest block of the event loop over 0.1 s, by what it computed."
        yield by_label(Gauge, "loop_stall_longest_seconds", description, "act", measurements.stalls_s)

    def _files(self) -> Iterable[Metric]:
        if self._settings.on_postgresql:
            return
        path = self._settings.database_path()
        yield gauge("database_bytes", "Size of the database.", size_of(path))
        wal = size_of(path.with_name(f"{path.name}-wal"))
        yield gauge("wal_bytes", "Size of the write-ahead log, which is grown at start.", wal)
        free = free_bytes(self._settings)
        if free is not None:
            yield gauge("disk_free_bytes", "Free space on the disk of the database.", free)

    # --- health ------------------------------------------------------------------------------------------

    @property
    def problem(self) -> str:
        """Return why the server is unhealthy, for people; empty if it is healthy."""
        return "stopping" if self.views.ended else self._work.health.problem

    async def health(self, name: str, scope: Scope | None = None) -> tuple[bool, str]:
        """Return whether all schedules of a name are healthy, and the reason, as text for people.

        Raises NotFound, also if the name is outside the scope.
        """
        page = await self._reader.view(
            "health_of_schedule", {"name": name}, 100
        )  # so many schedules of one name
        if not page.rows or (scope is not None and not scope.covers(name)):
            raise NotFound("No such schedule", f"schedule: there is none named {name}")
        runs = [_deciding_run(row) for row in page.rows]
        for (job_id, state, *_, tick, outcome, reason), run in zip(page.rows, runs, strict=True):
            if complaint := _complaint(job_id, state, run, tick, outcome, reason):
                return False, complaint
        last = runs[-1]
        return (
            True,
            f"run {last.run_id} ended {last.ended}: {last.status}" if last else "no run has ended yet",
        )


class _Run(NamedTuple):
    run_id: int
    status: str
    ended: str
    exit_code: int | None


def _deciding_run(row: Sequence[Any]) -> _Run | None:
    """Return the run that decides whether a schedule is healthy; None if no run has ended.

    While failures are retried, it is the last run before the retries.
    """
    _, _, memory, *found = row[:11]
    run = _Run(*found[4:]) if decode_memory(memory).cause == "retry" else _Run(*found[:4])
    return run if run.run_id else None


def _complaint(job_id: int, state: str, run: _Run | None, tick: str, outcome: str, reason: str) -> str:
    """Return why a schedule is unhealthy; empty if it is healthy."""
    if state in ("FAILED", "CANCELLED"):
        return f"job {job_id} is {state}: it has no further ticks"
    if outcome == "skipped" and reason in UNHEALTHY_SKIPS and (run is None or tick > run.ended[:19]):
        return f"the tick of {tick} was skipped: {reason}"
    if run is not None and run.status != "success":
        code = "" if run.exit_code is None else f", exit status {run.exit_code}"
        return f"run {run.run_id} ended {run.ended}: {run.status}{code}"
    return ""


class _Scraped:
    """A Prometheus collector that yields metrics which are already computed."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._found = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield from self._found


# --- the routes ------------------------------------------------------------------------------------------


def routes(
    metrics: Metrics, connections: Callable[[], int], scope_of: Callable[[web.Request], Scope | None]
) -> list[web.RouteDef]:
    """Return the routes; their handlers raise CommandError.

    ``connections`` returns the number of open connections, and ``scope_of`` the scope of the caller of a
    request.
    """
    metrics.connections = connections

    async def scrape(request: web.Request) -> web.Response:
        scope = scope_of(request)
        registry = CollectorRegistry(auto_describe=False)
        if scope is None:
            ProcessCollector(registry=registry)
        registry.register(_Scraped(await metrics.scrape(scope)))
        encode, media = choose_encoder(request.headers.get("Accept", ""))
        headers = {"Content-Type": media, "Cache-Control": "no-store", "Server": "bedrockjobs"}
        return web.Response(body=encode(registry), headers=headers)

    async def healthz(request: web.Request) -> web.Response:
        name = request.query.get("schedule")
        if name is None:
            trouble = metrics.problem
            well, reason = not trouble, trouble or "serving"
        else:
            well, reason = await metrics.health(name, scope_of(request))
        body = {"status": "ok" if well else "failing", "reason": reason}
        if name is not None:
            body["schedule"] = name
        headers = {"Cache-Control": "no-store", "Server": "bedrockjobs"}
        return web.json_response(body, status=200 if well else 503, headers=headers, dumps=jsontext.dump)

    return [web.get("/metrics", scrape, allow_head=False), web.get("/healthz", healthz, allow_head=False)]
