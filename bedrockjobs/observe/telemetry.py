"""What the server reports to other systems: OpenTelemetry spans of runs to a collector, a heartbeat to a URL.

Spans need ``bedrockjobs[otel]`` and a collector, configured by ``OTEL_EXPORTER_OTLP_ENDPOINT`` or another
standard variable, which the SDK itself reads. A thread of the SDK exports the spans. If the collector does
not accept spans, they are dropped, and no run waits. Spans contain no job data.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp

from bedrockjobs.base.background import BackgroundTask
from bedrockjobs.base.errors import line_of
from bedrockjobs.engine.events import RunEnded

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Environment variables that configure a collector."""

CLOSE_S = 3.0
"""Maximum seconds for exporting the last spans when the server stops."""

WELL = frozenset({"success", "terminated", "killed", "returned", "snoozed"})
"""Statuses of runs whose spans are not marked as errors, including runs that people stopped."""


def connect(version: str) -> Telemetry | None:
    """Return the exporter of spans, or None if no collector is configured or the SDK is missing."""
    wanted = any(os.environ.get(name) for name in ENDPOINTS)
    if not wanted or os.environ.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return None
    try:
        return Telemetry(version)
    except ImportError:
        log.warning("a collector is named, but its SDK is not installed: pip install 'bedrockjobs[otel]'")
        return None


class Telemetry:
    """Exports the spans of one server; lives in the event loop."""

    def __init__(self, version: str) -> None:
        """Set up the SDK; raises ImportError if it is not installed."""
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        name = os.environ.get("OTEL_SERVICE_NAME", "bedrockjobs")
        resource = Resource.create({"service.name": name, "service.version": version})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("bedrockjobs", version)
        self._propagator = TraceContextTextMapPropagator()
        self._trace = trace

    def event_handlers(self) -> Mapping[type, Callable[[Any], object]]:
        """Return the handlers of events."""
        return {RunEnded: self.run_ended}

    def run_ended(self, run: RunEnded) -> None:
        """Export a run as a span, within the trace in which its job was created."""
        trace = self._trace
        attributes: dict[str, Any] = {
            "messaging.system": "bedrockjobs",
            "messaging.operation.type": "process",
            "messaging.destination.name": run.name,
            "messaging.message.id": str(run.job_id),
            "messaging.client.id": run.worker,
            "bedrockjobs.run.id": run.run_id,
            "bedrockjobs.run.attempt": run.attempt,
            "bedrockjobs.run.cause": run.cause,
            "bedrockjobs.run.status": run.status,
        }
        if run.exit_code is not None:
            attributes["bedrockjobs.run.exit_code"] = run.exit_code
        span = self._tracer.start_span(
            f"process {run.name}",
            context=self._propagator.extract({"traceparent": run.traceparent}),
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            start_time=_nanoseconds(run.started),
        )
        if run.status not in WELL:
            span.set_attribute("error.type", run.status)
            span.set_status(trace.StatusCode.ERROR, line_of(run.error))
        span.end(_nanoseconds(run.ended))

    async def close(self) -> None:
        """Export the remaining spans, for at most ``CLOSE_S``."""
        # In a separate daemon thread: the SDK may wait for its collector longer than a shutdown may take.
        thread = threading.Thread(target=self._provider.shutdown, name="telemetry", daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, CLOSE_S)


def _nanoseconds(timestamp: str) -> int:
    """Return a stored timestamp in nanoseconds since 1970."""
    since = datetime.fromisoformat(timestamp).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000


# The heartbeat: the server calls a URL every minute while it is healthy.
#
# The URL belongs to an external monitor, which raises an alarm if the calls stop: a server that is down
# cannot report that itself.


EVERY_S = 60.0
"""Seconds between two calls; monitoring services work in minutes."""

RECHECK_S = 1.0
"""Seconds between health checks while the server is not healthy, for instance during its start."""

CALL_S_MAX = 10.0
"""Maximum seconds of one call; if it takes longer, it counts as failed, and the next one follows soon."""


class HeartbeatURL(BackgroundTask):
    """Calls a URL regularly; logs the first failure, and the first success after failures."""

    def __init__(self, url: str, is_healthy: Callable[[], bool], *, every_s: float = EVERY_S) -> None:
        """Call ``url`` immediately and then every ``every_s`` seconds, while ``is_healthy`` returns True."""
        self._url, self._is_healthy, self._every_s = url, is_healthy, every_s
        self._failed = False

    async def _run(self) -> None:
        limit = aiohttp.ClientTimeout(total=CALL_S_MAX)
        async with aiohttp.ClientSession(timeout=limit) as session:
            while True:
                well = self._is_healthy()
                if well:
                    await self._call(session)
                await asyncio.sleep(self._every_s if well else min(RECHECK_S, self._every_s))

    async def _call(self, session: aiohttp.ClientSession) -> None:
        why = ""
        try:
            async with session.get(self._url) as answer:
                if answer.status >= 400:
                    why = f"it answered {answer.status}"
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:  # without the secret URL
            why = type(error).__name__
        if why and not self._failed:
            log.warning("the heartbeat URL was not reached: %s", why)
        elif self._failed and not why:
            log.info("the heartbeat URL is reached again")
        self._failed = bool(why)
