"""The load: many connections in one process of its own, each of which asks again as soon as it is answered.

``throughput.py`` starts it and reads the one line of JSON it prints. It is written for speed, so that the
server is what is measured: requests are bytes made beforehand where they can be, and answers are not parsed
beyond what the next request needs. It must not import anything of the server.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import time
from array import array
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import cast

import uvloop

Encode = Callable[..., bytes]
"""Makes a request of a verb and parameters, which are given as JSON text."""
Step = bytes | float | None
"""What a script does next: send a request, pause some seconds, or wait until it is resumed."""
Script = Generator[Step, bytes | None, None]
"""One connection's doing; it is sent the body of each answer, None for a refusal."""

NAMES = 8
"""Job names that the connections share."""
DATA = b'{"value":1}'
AHEAD_MAX = 200
"""Jobs that producers may be ahead of consumers, so that no backlog grows while a rate is measured."""
PACE_S = 0.01
"""Time between two jobs of the paced load: 100 a second."""
JOB_ID = re.compile(rb'"jobID":(\d+)')
SENT = re.compile(rb'"sent":([0-9.]+)')


def raw(verb: str, **parameters: bytes) -> bytes:
    """Return a request of the Bedrock protocol."""
    lines = [verb.encode()]
    lines += [name.encode() + b": " + value.strip(b'"') for name, value in parameters.items()]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def http(verb: str, **parameters: bytes) -> bytes:
    """Return a request of HTTP/1.1."""
    body = b"{" + b",".join(b'"%b":%b' % (name.encode(), value) for name, value in parameters.items()) + b"}"
    head = (
        "POST /%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    return (head % (verb, len(body))).encode() + body


ENCODERS: dict[str, Encode] = {"raw": raw, "http": http}


def with_token(encode: Encode, token: str) -> Encode:
    """Return requests that show a token, as a header behind the first line."""
    header = f"\r\nAuthorization: Bearer {token}".encode()

    def shown(verb: str, **parameters: bytes) -> bytes:
        first, _, rest = encode(verb, **parameters).partition(b"\r\n")
        return first + header + b"\r\n" + rest

    return shown


def once_shown(script: Script, token: str) -> Script:
    """Say once who asks, and go on as a script does."""
    yield raw("Authenticate", token=token.encode())
    yield from script


class Stats:
    """What all connections of a run have done."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.requests = self.done = self.failed = self.ahead = self.ended = 0
        self.refusal = ""
        self.took = array("d")
        """Seconds of each request, or of each job where the script says so."""
        self.parked: list[Client] = []


class Client(asyncio.Protocol):
    """One connection that follows a script."""

    def __init__(self, script: Script, stats: Stats, *, timed: bool = True) -> None:
        """Follow ``script``; ``timed`` notes how long each request took."""
        self._script = script
        self._stats = stats
        self._timed = timed
        self._buffer = b""
        self._sent = 0.0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; ``resume`` begins."""
        self._transport = cast(asyncio.Transport, transport)

    def resume(self, body: bytes | None = None) -> None:
        """Do the next step of the script."""
        try:
            step = self._script.send(body)
        except StopIteration:
            self._stats.ended += 1
            return
        if isinstance(step, bytes):
            self._sent = time.perf_counter()
            self._transport.write(step)
        elif step is None:
            self._stats.parked.append(self)
        else:
            asyncio.get_running_loop().call_later(step, self.resume)

    def data_received(self, data: bytes) -> None:
        """Take an answer."""
        if self._buffer:
            data = self._buffer + data
        end = data.find(b"\r\n\r\n")
        at = data.find(b"Content-Length: ", 0, end) + 16
        if end < 0 or len(data) < end + 4 + int(data[at : data.find(b"\r", at)]):
            self._buffer = data
            return
        self._buffer = b""
        stats = self._stats
        stats.requests += 1
        if self._timed:
            stats.took.append(time.perf_counter() - self._sent)
        if data.startswith((b"200", b"HTTP/1.1 200")):
            self.resume(data[end + 4 :])
            return
        stats.failed += 1
        stats.refusal = stats.refusal or data[: data.find(b"\r")].decode()
        self.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count a connection that the server ended."""
        if exc is not None:
            self._stats.failed += 1
            self._stats.refusal = self._stats.refusal or repr(exc)


def job_id(body: bytes) -> bytes:
    """Return the jobID in the answer to GetJob."""
    found = JOB_ID.search(body)
    assert found is not None, body
    return found[1]


def name_of(number: int) -> bytes:
    """Return the job name of a connection, as JSON."""
    return b'"queue/%d"' % (number % NAMES)


# --- scripts: (encode, stats, number of the connection, size) ------------------------------------------


def ping(encode: Encode, stats: Stats, _number: int, _size: int) -> Script:
    """Ask for nothing."""
    request = encode("Ping")
    while True:
        yield request
        stats.done += 1


def lifecycle(encode: Encode, stats: Stats, number: int, _size: int) -> Script:
    """Create a job, take one, finish it: three requests."""
    create = encode("CreateJob", name=name_of(number), data=DATA)
    get = encode("GetJob", name=name_of(number))
    while True:
        yield create
        body = yield get
        if body is not None:
            yield encode("FinishJob", jobID=job_id(body))
            stats.done += 1


def then_get(encode: Encode, stats: Stats, number: int, _size: int) -> Script:
    """Create a job; finish the one before and take the next in the same request."""
    name = name_of(number)
    create = encode("CreateJob", name=name, data=DATA)
    yield create
    body = yield encode("GetJob", name=name)
    while body is not None and b'"jobID"' in body:
        yield create
        body = yield encode("FinishJob", jobID=job_id(body), thenGet=name)
        stats.done += 1


def batch(encode: Encode, stats: Stats, number: int, size: int) -> Script:
    """Create, take and finish ``size`` jobs with one request each."""
    name = name_of(number)
    create = encode(
        "CreateJobs", jobs=b"[" + b",".join([b'{"name":%b,"data":%b}' % (name, DATA)] * size) + b"]"
    )
    get = encode("GetJobs", name=name, numResults=b"%d" % size)
    while True:
        yield create
        body = yield get
        if body is not None:
            found = JOB_ID.findall(body)
            yield encode(
                "FinishJobs", jobs=b"[" + b",".join([b'{"jobID":%b}' % each for each in found]) + b"]"
            )
            stats.done += len(found)


def enqueue(encode: Encode, stats: Stats, number: int, _size: int) -> Script:
    """Create jobs."""
    create = encode("CreateJob", name=name_of(number), data=DATA)
    while True:
        yield create
        stats.done += 1


_ASCENDING = itertools.count(time.time_ns())
"""Numbers that all connections share, higher than those of an earlier process."""
_RANDOM = iter(partial(random.getrandbits, 63), None)


def _customers(encode: Encode, stats: Stats, number: int, customers: Iterator[int], *, keyed: bool) -> Script:
    """Create jobs whose data differ, and with ``keyed`` their unique keys too."""
    for customer in customers:
        its = {"data": b'{"customer":%d}' % customer}
        if keyed:
            its["uniqueKey"] = b'"customer-%020d"' % customer
        yield encode("CreateJob", name=name_of(number), **its)
        stats.done += 1


def enqueue_differing(encode: Encode, stats: Stats, number: int, _size: int) -> Script:
    """Create jobs whose data differ."""
    return _customers(encode, stats, number, _ASCENDING, keyed=False)


def enqueue_keys(encode: Encode, stats: Stats, number: int, _size: int) -> Script:
    """Create jobs whose data and unique keys differ, with ascending keys."""
    return _customers(encode, stats, number, _ASCENDING, keyed=True)


def enqueue_random_keys(encode: Encode, stats: Stats, number: int, _size: int) -> Script:
    """Create jobs whose data and unique keys differ, with keys in no order."""
    return _customers(encode, stats, number, _RANDOM, keyed=True)


def drain(encode: Encode, stats: Stats, number: int, _size: int) -> Script:
    """Take and finish jobs until there are none."""
    get = encode("GetJob", name=name_of(number))
    while (body := (yield get)) is not None:
        yield encode("FinishJob", jobID=job_id(body))
        stats.done += 1


def drain_batch(encode: Encode, stats: Stats, number: int, size: int) -> Script:
    """Take ``size`` jobs, and finish them with the request that takes the next ones, until there are none."""
    count, name = b"%d" % size, name_of(number)
    body = yield encode("GetJobs", name=name, numResults=count)
    while body is not None:
        found = JOB_ID.findall(body, body.find(b'"jobs":'))
        ends = b"[" + b",".join([b'{"jobID":%b}' % each for each in found]) + b"]"
        if found:
            body = yield encode("FinishJobs", jobs=ends, thenGet=name, numResults=count)
            stats.done += len(found)
        else:
            body = yield encode("GetJobs", name=name, numResults=count)


def producer(encode: Encode, stats: Stats, number: int, _size: int) -> Script:
    """Create jobs for the consumers, not too far ahead of them."""
    create = encode("CreateJob", name=name_of(number), data=DATA)
    while True:
        while stats.ahead >= AHEAD_MAX:
            yield None
        stats.ahead += 1
        yield create


def consumer(encode: Encode, stats: Stats, number: int, _size: int) -> Script:
    """Wait for jobs of any of the names, and finish each."""
    get = encode("GetJob", name=b'"queue/*"', connection=b'"wait"', timeout=b"600000")
    while True:
        body = yield get
        if body is None:
            continue
        yield encode("FinishJob", jobID=job_id(body))
        stats.done += 1
        stats.ahead -= 1
        if stats.parked:
            stats.parked.pop().resume()


def paced_producer(encode: Encode, stats: Stats, number: int, _size: int) -> Script:
    """Create 100 jobs a second, each with the time it was sent."""
    due = time.perf_counter()
    while True:
        due += PACE_S
        yield max(due - time.perf_counter(), 0.0)
        yield encode("CreateJob", name=name_of(number), data=b'{"sent":%.7f}' % time.perf_counter())


def paced_consumer(encode: Encode, stats: Stats, number: int, _size: int) -> Script:
    """Wait for jobs, and note how long each took from its creator to here."""
    get = encode("GetJob", name=name_of(number), connection=b'"wait"', timeout=b"600000")
    while True:
        body = yield get
        sent = SENT.search(body or b"")
        if body is None or sent is None:
            continue
        stats.took.append(time.perf_counter() - float(sent[1]))
        yield encode("FinishJob", jobID=job_id(body))
        stats.done += 1


Maker = Callable[[Encode, Stats, int, int], Script]

SCENARIOS: dict[str, tuple[Maker, ...]] = {
    "ping": (ping,),
    "lifecycle": (lifecycle,),
    "then_get": (then_get,),
    "batch": (batch,),
    "enqueue": (enqueue,),
    "enqueue_differing": (enqueue_differing,),
    "enqueue_keys": (enqueue_keys,),
    "enqueue_random_keys": (enqueue_random_keys,),
    "drain": (drain,),
    "drain_batch": (drain_batch,),
    "produce_consume": (producer, consumer),
    "paced": (paced_producer, paced_consumer),
}
"""What the connections do; with two scripts there are that many connections of each."""

DRAINS = {"drain", "drain_batch"}
"""Scenarios in which each connection ends with a refusal: there is no job any more."""

UNTIMED = {"produce_consume", "paced"}
"""Scenarios in which a request may wait, so that its own time says nothing."""


def _same(client: Client) -> Client:
    return client


async def run(options: argparse.Namespace) -> dict[str, object]:
    """Load the server; return what was done within the measured time, which begins after ``warm`` seconds."""
    stats = Stats()
    encode, token = ENCODERS[options.protocol], os.environ.get("BENCHMARK_TOKEN", "")
    if token and not options.once:
        encode = with_token(encode, token)
    loop = asyncio.get_running_loop()
    clients: list[Client] = []
    timed = options.scenario not in UNTIMED
    for number in range(options.connections):
        for make in SCENARIOS[options.scenario]:
            script = make(encode, stats, number, options.size)
            script = once_shown(script, token) if token and options.once else script
            client = Client(script, stats, timed=timed)
            await loop.create_connection(partial(_same, client), "127.0.0.1", options.port)
            clients.append(client)
    for client in reversed(clients):  # consumers wait before producers begin
        client.resume()
    await asyncio.sleep(options.warm)
    requests, done, cpu, begun = stats.requests, stats.done, time.process_time(), time.perf_counter()
    del stats.took[:]
    until = begun + options.seconds
    while (now := time.perf_counter()) < until and stats.ended < len(clients):
        await asyncio.sleep(min(0.05, until - now))
    seconds = time.perf_counter() - begun
    took = sorted(stats.took)
    return {
        "done_per_s": (stats.done - done) / seconds,
        "requests_per_s": (stats.requests - requests) / seconds,
        "requests": stats.requests,
        "p50_ms": took[len(took) // 2] * 1000 if took else 0.0,
        "p99_ms": took[len(took) * 99 // 100] * 1000 if took else 0.0,
        "load_cpu": (time.process_time() - cpu) / seconds,
        "failed": stats.failed - (stats.ended if options.scenario in DRAINS else 0),
        "refusal": stats.refusal,
    }


def main() -> None:
    """Read the options, run the load, print the outcome as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--protocol", choices=ENCODERS, default="raw")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--warm", type=float, default=0.3)
    parser.add_argument("--size", type=int, default=1, help="jobs in one request of a scenario by batches")
    parser.add_argument("--once", action="store_true", help="show BENCHMARK_TOKEN once a raw connection")
    uvloop.install()
    print(json.dumps(asyncio.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
