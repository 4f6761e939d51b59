"""Runs as OpenTelemetry spans, for those who installed ``bedrockjobs[otel]`` and name a collector.

A collector is named as everywhere, by ``OTEL_EXPORTER_OTLP_ENDPOINT`` or another of the standard variables,
which the OpenTelemetry SDK reads itself. Spans are sent by a thread of the SDK; what a collector does not
take is dropped, and no run waits for it. No job's data is in a span.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from bedrockjobs.base.fingerprints import line_of
from bedrockjobs.engine.events import RunEnded

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Variables that name a collector."""

CLOSE_S = 3.0
"""Time in which the last spans must reach the collector when the server stops."""

WELL = frozenset({"success", "terminated", "killed", "returned", "snoozed"})
"""Endings of runs that are no errors: what a person asked for is none."""


def connect(version: str) -> Telemetry | None:
    """Return what sends spans to the collector that the environment names, None where it names none."""
    wanted = any(os.environ.get(name) for name in ENDPOINTS)
    if not wanted or os.environ.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return None
    try:
        return Telemetry(version)
    except ImportError:
        log.warning("a collector is named, but its SDK is not installed: pip install 'bedrockjobs[otel]'")
        return None


class Telemetry:
    """The spans of one server; belongs to the event loop."""

    def __init__(self, version: str) -> None:
        """Begin to send; raises ImportError where the SDK is not installed."""
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

    def hears(self) -> Mapping[type, Callable[[Any], object]]:
        """Return what is told of each event."""
        return {RunEnded: self.run_ended}

    def run_ended(self, run: RunEnded) -> None:
        """Tell of a run, as a span from its start to its end within the trace that created its job."""
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
        """Send what is left, for a bounded time."""
        # A thread of its own: the SDK may wait for its collector for longer than a server may take to stop.
        thread = threading.Thread(target=self._provider.shutdown, name="telemetry", daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, CLOSE_S)


def _nanoseconds(timestamp: str) -> int:
    """Return a stored timestamp in nanoseconds since 1970."""
    since = datetime.fromisoformat(timestamp).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000
