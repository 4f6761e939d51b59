"""How many instructions of the interpreter, and calls, a job costs the server, by function.

A count does not depend on what else the machine does, unlike a time: it shows what a change of the code is
worth where ``pairs.py`` needs a quiet hour. It says nothing of the kernel, SQLite and other C code, which are
about half of the processor time of a job.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from results import table

WARM, ROUNDS = 12, 20
"""Rounds before and while counting; in each, every producer creates a job and every consumer has one."""
SETTLE_S = 0.03
"""Pause after a round, in which the server parks the waiting consumers."""
SHOWN = 25
"""Functions in the table, those with most instructions first."""
OWN = "/bedrockjobs/"
"""Part of the paths of our own files: asyncio's loop is not counted, as servers use uvloop."""


class Counting:
    """Counts the instructions and calls of one thread."""

    def __init__(self) -> None:
        """Start without counting."""
        self.on = False
        self.instructions: Counter[CodeType] = Counter()
        self.calls: Counter[CodeType] = Counter()

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        """Trace a call, for ``threading.settrace``."""
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if self.on:
            self.calls[frame.f_code] += 1
        return self._instruction

    def _instruction(self, frame: FrameType, event: str, _: object) -> Any:
        if self.on and event == "opcode":
            self.instructions[frame.f_code] += 1
        return self._instruction


def exchange(connection: socket.socket, *lines: str) -> None:
    """Send a raw request."""
    connection.sendall("\r\n".join([*lines, "", ""]).encode())


def job_of(connection: socket.socket) -> int:
    """Read a reply; return its jobID."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65_536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65_536)
    found: dict[str, Any] = json.loads(body)
    return int(found.get("job", found)["jobID"])


def rounds(clients: int, address: tuple[str, int]) -> Callable[[], None]:
    """Connect as many producers and waiting consumers; return what has each of them do one job."""
    producers, consumers = ([socket.create_connection(address) for _ in range(clients)] for _ in range(2))
    wait = ("connection: wait", "timeout: 60000")
    for consumer in consumers:
        exchange(consumer, "GetJob", "name: a", *wait)
    created = 0

    def do() -> None:
        nonlocal created
        for producer in producers:
            created += 1
            exchange(producer, "CreateJob", "name: a", f'data: {{"n":{created}}}')
        for connection in producers:
            job_of(connection)
        for consumer, job_id in [(each, job_of(each)) for each in consumers]:
            exchange(consumer, "FinishJob", "thenGet: a", *wait, f"jobID: {job_id}")
        time.sleep(SETTLE_S)

    return do


def count(clients: int) -> dict[str, Any]:
    """Serve in a thread of this process, and return what a job cost it."""
    counting = Counting()
    threading.settrace(counting.trace)
    from bedrockjobs.testing import ServerUnderTest  # of the checkout that is measured

    with ServerUnderTest() as server:
        threading.settrace(None)  # type: ignore[arg-type]
        host, _, port = server.address.rpartition(":")
        do = rounds(clients, (host, int(port)))
        for _ in range(WARM):
            do()
        counting.on = True
        for _ in range(ROUNDS):
            do()
        counting.on = False
    jobs = ROUNDS * clients
    own = [code for code in counting.calls if OWN in code.co_filename]
    functions = sorted(own, key=lambda code: -counting.instructions[code])
    return {
        "instructions": sum(counting.instructions[code] for code in own) / jobs,
        "calls": sum(counting.calls[code] for code in own) / jobs,
        "functions": [
            (code.co_qualname, counting.instructions[code] / jobs, counting.calls[code] / jobs)
            for code in functions[:SHOWN]
        ],
    }


def measured(checkout: Path, clients: int) -> dict[str, Any]:
    """Count in a process of its own, with the code of a checkout."""
    environment = {**os.environ, "PYTHONPATH": f"{checkout}:{checkout / 'worker'}"}
    command = [sys.executable, __file__, "--clients", str(clients), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Count for this checkout, and for another if one is named; only prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, nargs="?", help="a checkout to compare with")
    parser.add_argument(
        "--clients", type=int, help="producers, and as many consumers; 1, 4 and 16 if left out"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the count of one number of clients as JSON"
    )
    options = parser.parse_args(arguments)
    if options.json:
        print(json.dumps(count(options.clients or 1)), flush=True)
        os._exit(0)  # the connections are not worth waiting for
    here = Path(__file__).parent.parent
    rows = []
    for clients in (options.clients,) if options.clients else (1, 4, 16):
        ours = measured(here, clients)
        cells = [f"{clients}x{clients}", f"{ours['instructions']:,.0f}", f"{ours['calls']:.0f}"]
        if options.other is not None:
            before = measured(options.other.resolve(), clients)
            cells += [
                f"{before['instructions']:,.0f}",
                f"{ours['instructions'] / before['instructions']:.2f}",
            ]
        rows.append(cells)
    head = (
        "producers and consumers",
        "instructions a job",
        "calls",
        *(("before", "ratio") if options.other else ()),
    )
    print(table(head, rows))
    functions = [(name, f"{many:.0f}", f"{calls:.1f}") for name, many, calls in ours["functions"]]
    print(f"\n{table(('function', 'instructions a job', 'calls'), functions)}")


if __name__ == "__main__":
    main()
