"""Spans of runs as a collector receives them; servers whose collector is missing, silent or not set."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bedrockjobs.base.settings import Settings
from bedrockjobs.client import AsyncClient
from bedrockjobs.commands import AppendOutput, CreateJob, FailJob, FinishJob, GetJob
from bedrockjobs.observe import telemetry
from bedrockjobs.server import Server

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


class Collector:
    """An OTLP collector on a port of its own."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resource: dict[str, str] = {}
        self.port = 0

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resource = {each.key: each.value.string_value for each in part.resource.attributes}
            self.spans += [span for scope in part.scope_spans for span in scope.spans]
        return web.Response(body=b"", content_type="application/x-protobuf")


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    found = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", found.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.port = runner.addresses[0][1]
    yield found
    await runner.cleanup()


async def runs(path: Path) -> list[int]:
    """Run a job that succeeds within a trace and one that fails without one; return their runIDs."""
    server = Server(Settings(database=str(path / "jobs.db"), port=0, wal_bytes=0, ballast_bytes=0))
    await server.start()
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        found = []
        for name, trace in (("mail", f"00-{TRACE}-{PARENT}-01"), ("report", None)):
            await client.call(CreateJob(name=name, data='{"secret":"s3cr3t"}', traceparent=trace))
            job = await client.call(GetJob(name=name, worker="w1"))
            assert job.run_id is not None
            found.append(job.run_id)
            await client.call(AppendOutput(run_id=job.run_id, seq=1, lines=["s3cr3t"]))
            if trace:
                await client.call(FinishJob(job_id=job.job_id, run_id=job.run_id, exit_code=0))
            else:
                await client.call(FailJob(job_id=job.job_id, run_id=job.run_id, error="it broke\nhere"))
    await asyncio.wait_for(server.stop(), telemetry.CLOSE_S + 10)
    return found


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


async def test_each_run_is_a_span_within_the_trace_of_its_job(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.port}")
    began = datetime.now(UTC).timestamp()
    good_run, bad_run = await runs(tmp_path)
    assert collector.resource["service.name"] == "bedrockjobs"
    good, bad = sorted(collector.spans, key=lambda span: attributes(span)["bedrockjobs.run.id"])
    assert (good.name, good.trace_id.hex(), good.parent_span_id.hex()) == ("process mail", TRACE, PARENT)
    assert began - 1 < good.start_time_unix_nano / 1e9 <= good.end_time_unix_nano / 1e9 < began + 60
    assert attributes(good) == {
        "messaging.system": "bedrockjobs",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": "1",
        "messaging.client.id": "w1",
        "bedrockjobs.run.id": good_run,
        "bedrockjobs.run.attempt": 1,
        "bedrockjobs.run.cause": "queue",
        "bedrockjobs.run.status": "success",
        "bedrockjobs.run.exit_code": 0,
    }
    assert good.status.code == 0
    assert attributes(bad)["bedrockjobs.run.id"] == bad_run
    assert attributes(bad)["error.type"] == "fail"
    assert (bad.status.code, bad.status.message, bad.parent_span_id) == (2, "it broke", b"")
    assert "s3cr3t" not in str(collector.spans)


async def test_a_collector_that_is_not_there_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        monkeypatch.setattr(telemetry, "CLOSE_S", 0.2)
        assert len(await runs(tmp_path)) == 2


@pytest.mark.parametrize(
    "environment", [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"}]
)
def test_nothing_is_sent_where_nobody_asked(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert telemetry.connect("1") is None


def test_a_missing_sdk_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with caplog.at_level(logging.WARNING):
        assert telemetry.connect("1") is None
    assert "pip install 'bedrockjobs[otel]'" in caplog.text
