"""What the server pays for a request of each client that people use, such as requests, curl or PHP.

Each client is a process of its own with one connection, and creates, takes and finishes one job after the
other. What counts is the server's CPU time for each request, beside that of the raw protocol in the same
run: a client that sends head and body in two segments must not cost more than one that sends both at once.
With ``--beside`` the same clients load the server of another checkout in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import importlib.util
import json
import shutil
import socket
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import machine
from results import table, verdict, write_section
from served import Served

CLIENTS = ("socket", "php", "http.client", "urllib3", "requests", "httpx", "aiohttp", "curl")
RAW_BAR, SPREAD_BAR = 1.6, 1.15
"""CPU a request: the dearest client to raw, and to the cheapest of the HTTP clients."""
REQUESTS = 3_000
"""Requests of one turn: about a second."""
CURL_AT_ONCE = 300
"""Requests in one call of curl, which takes them as arguments."""
TIMEOUT_S = 120.0
RAW = ("socket", "php")
"""The clients of the raw protocol."""
PHP = r"""
[, $port, $count] = $argv;
$server = stream_socket_client("tcp://127.0.0.1:$port");
$always = ["Connection" => "wait", "timeout" => 110000, "priority" => 500, "lastIP" => "127.0.0.1",
    "requestID" => "Xq7RtY", "logParam" => "worker@host", "writeConsistency" => "ASYNC", "idempotent" => 0];
function ask($command, $headers) {
    global $server, $always;
    $lines = [$command];
    foreach ($headers + $always as $name => $value) $lines[] = "$name: $value";
    fwrite($server, implode("\r\n", $lines) . "\r\nContent-Length: 0\r\n\r\n");
    for ($length = 0; ($line = fgets($server)) !== "\r\n"; )
        if (stripos($line, "content-length:") === 0) $length = (int) substr($line, 15);
    return $length ? json_decode(stream_get_contents($server, $length), true) : [];
}
for ($number = 0; $number < intdiv($count, 3); $number++) {
    ask("CreateJob", ["name" => "client", "data" => json_encode(["value" => $number])]);
    $job = ask("GetJob", ["name" => "client"]);
    ask("FinishJob", ["jobID" => $job["jobID"]]);
}
"""
"""What Bedrock's PHP client sends: headers of its own in each request, after those of the command."""

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Sends one command, and returns the JSON of its answer."""


def lifecycles(ask: Ask, count: int) -> None:
    """Create, take and finish jobs until ``count`` requests were sent."""
    for number in range(count // 3):
        ask("CreateJob", {"name": "client", "data": {"value": number}})
        job = ask("GetJob", {"name": "client"})
        ask("FinishJob", {"jobID": job["jobID"]})


def with_socket(port: int, count: int) -> None:
    """Speak the raw protocol."""
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answers:

        def ask(command: str, parameters: dict[str, Any]) -> dict[str, Any]:
            lines = [f"{name}: {json.dumps(value)}" for name, value in parameters.items()]
            text = "\r\n".join([command, *lines, "", ""]).replace('"client"', "client")
            connection.sendall(text.encode())
            length = 0
            while (line := answers.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            return dict(json.loads(answers.read(length) or b"{}"))

        lifecycles(ask, count)


def with_php(port: int, count: int) -> None:
    """Speak the raw protocol as Bedrock's PHP client does."""
    subprocess.run(["php", "-r", PHP, "--", str(port), str(count)], check=True)


def with_http_client(port: int, count: int) -> None:
    """Use the standard library."""
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask(command: str, parameters: dict[str, Any]) -> dict[str, Any]:
        connection.request(
            "POST", f"/{command}", json.dumps(parameters), {"Content-Type": "application/json"}
        )
        return dict(json.loads(connection.getresponse().read()))

    lifecycles(ask, count)


def with_urllib3(port: int, count: int) -> None:
    """Use urllib3's pool."""
    import urllib3

    pool = urllib3.HTTPConnectionPool("127.0.0.1", port)
    lifecycles(lambda command, given: dict(pool.request("POST", f"/{command}", json=given).json()), count)


def with_requests(port: int, count: int) -> None:
    """Use a session of requests."""
    import requests

    session, base = requests.Session(), f"http://127.0.0.1:{port}"
    lifecycles(lambda command, given: dict(session.post(f"{base}/{command}", json=given).json()), count)


def with_httpx(port: int, count: int) -> None:
    """Use a client of httpx."""
    import httpx

    client = httpx.Client(base_url=f"http://127.0.0.1:{port}")
    lifecycles(lambda command, given: dict(client.post(f"/{command}", json=given).json()), count)


def with_aiohttp(port: int, count: int) -> None:
    """Use a session of aiohttp."""
    import aiohttp

    async def run() -> None:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

            async def ask(command: str, given: dict[str, Any]) -> dict[str, Any]:
                async with session.post(f"/{command}", json=given) as answer:
                    return dict(await answer.json())

            for number in range(count // 3):
                await ask("CreateJob", {"name": "client", "data": {"value": number}})
                job = await ask("GetJob", {"name": "client"})
                await ask("FinishJob", {"jobID": job["jobID"]})

    asyncio.run(run())


def with_curl(port: int, count: int) -> None:
    """Use ``curl -d``, many requests on one connection; ends of its own jobs are named beforehand."""
    base = f"http://127.0.0.1:{port}"

    def call(requests: list[tuple[str, str]]) -> list[dict[str, Any]]:
        arguments: list[str] = []
        for command, body in requests:
            arguments += ["--next"] * bool(arguments)
            arguments += ["-s", "-w", "\\n", "-d", body, f"{base}/{command}"]
        done = subprocess.run(["curl", *arguments], check=True, capture_output=True, text=True)
        return [json.loads(line) for line in done.stdout.splitlines() if line]

    left = count
    while left > 0:
        size = min(left, CURL_AT_ONCE) // 3
        left -= max(size * 3, 3)
        jobs = call(
            [("CreateJob", '{"name":"client","data":{"value":1}}'), ("GetJob", '{"name":"client"}')] * size
        )
        call([("FinishJob", json.dumps({"jobID": job["jobID"]})) for job in jobs[1::2]])


WITH = {
    "socket": with_socket,
    "php": with_php,
    "http.client": with_http_client,
    "urllib3": with_urllib3,
    "requests": with_requests,
    "httpx": with_httpx,
    "aiohttp": with_aiohttp,
    "curl": with_curl,
}


def is_there(client: str) -> bool:
    """Tell whether a client is installed."""
    if client in ("curl", "php"):
        return shutil.which(client) is not None
    return client in ("socket", "http.client") or importlib.util.find_spec(client) is not None


def cost_us(server: Served, client: str, count: int) -> float:
    """Return the server's processor time for each request of a client, in microseconds."""
    before = server.cpu_s()
    command = [sys.executable, __file__, "--client", client, "--port", str(server.port)]
    subprocess.run([*command, "--requests", str(count)], check=True, timeout=TIMEOUT_S)
    return (server.cpu_s() - before) / (count // 3 * 3) * 1e6


def measure(
    servers: Sequence[Served], clients: Sequence[str], rounds: int, count: int
) -> dict[str, list[list[float]]]:
    """Return the cost of each client with each server, round by round and in turn."""
    found: dict[str, list[list[float]]] = {client: [[] for _ in servers] for client in clients}
    for turn in range(rounds):
        for client in clients:
            order = list(enumerate(servers))
            for place, server in order if turn % 2 else reversed(order):
                found[client][place].append(cost_us(server, client, count))
    return found


def main() -> None:
    """Measure and write, or be one client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=None, help="where the databases go: a real disk")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one short round, written nowhere")
    parser.add_argument("--beside", type=Path, help="another checkout to compare with; writes nothing")
    parser.add_argument("--client", choices=WITH, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--requests", type=int, default=REQUESTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        WITH[options.client](options.port, options.requests)
        return
    directory = machine.real_directory(options.directory)
    clients = [client for client in CLIENTS if is_there(client)]
    rounds, count = (1, REQUESTS // 5) if options.quick else (options.rounds, options.requests)
    with ExitStack() as stack:
        checkouts = [None, *([options.beside.resolve()] if options.beside else [])]
        servers = [stack.enter_context(Served(directory, checkout=one)) for one in checkouts]
        found = measure(servers, clients, rounds, count)
    cost = {client: statistics.median(each[0]) for client, each in found.items()}
    dearest = max(cost.values())
    rows = []
    for client, each in found.items():
        row = [client, f"{cost[client]:.0f}", f"{cost[client] / cost['socket']:.2f}"]
        if options.beside:
            ratios = [ours / other for ours, other in zip(*each, strict=True)]
            row += [f"{statistics.median(each[1]):.0f}", f"**{statistics.median(ratios):.3f}**"]
        rows.append(row)
    head = ["client", "CPU µs a request", "to the raw protocol"]
    text = table(head + (["the other", "ratio, median of pairs"] if options.beside else []), rows)
    over_http = [figure for client, figure in cost.items() if client not in RAW]
    lines = [
        verdict("the dearest client to raw", dearest / cost["socket"], RAW_BAR, at_most=True),
        verdict(
            "the dearest HTTP client to the cheapest", dearest / min(over_http), SPREAD_BAR, at_most=True
        ),
    ]
    missing = sorted(set(CLIENTS) - set(clients))
    if missing:
        lines.append(f"* not installed here: {', '.join(missing)}")
    print(text, *lines, sep="\n")
    if not (options.quick or options.beside):
        write_section("Clients", "\n\n".join([text, "\n".join(lines)]))


if __name__ == "__main__":
    main()
