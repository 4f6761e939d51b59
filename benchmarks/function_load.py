"""Loads one queue with one function and prints the figures as JSON: run by ``functions.py``.

It runs in the interpreter in which the queue is installed, with the variables of ``function_apps``. The
workers run already. Nothing but the standard library and the queue is imported.
"""

from __future__ import annotations

import json
import os
import select
import statistics
import sys
import time

READ_BYTES = 65_536
FIRST = 40
"""Jobs that warm everything up; their rate decides on the number of jobs that are measured."""
JOBS_MAX = 20_000
MANY, SINGLE = 500, 200
"""Jobs that are enqueued at once, and one by one to measure that."""
LATENCIES = 30
"""Jobs that are enqueued one after the other, each when the one before has run."""
STALL_S = 30.0
"""Time without any run after which the queue counts as stuck."""


def main() -> None:
    """Measure one function of one queue."""
    name, seconds = sys.argv[1], float(sys.argv[2])
    pipe = os.open(os.environ["FUNCTIONS_PIPE"], os.O_RDWR | os.O_NONBLOCK)  # never at its end
    import function_apps as app  # only now: a worker may write at once

    def await_runs(count: int) -> None:
        while count:
            if not select.select([pipe], [], [], STALL_S)[0]:
                raise RuntimeError(f"{count} runs are missing")
            count -= len(os.read(pipe, min(READ_BYTES, count)))

    def enqueue_rate(jobs: int) -> float:
        """Return jobs that are enqueued one by one in a second."""
        begun = time.perf_counter()
        for _ in range(jobs):
            app.enqueue(name)
        rate = jobs / (time.perf_counter() - begun)
        await_runs(jobs)
        return rate

    def run_rate(jobs: int) -> float:
        """Return runs a second from the first enqueue to the last run."""
        begun = time.perf_counter()
        for at in range(0, jobs, MANY):
            count = min(MANY, jobs - at)
            if app.enqueue_many is not None:
                app.enqueue_many(name, count)
            else:
                for _ in range(count):
                    app.enqueue(name)
        await_runs(jobs)
        return jobs / (time.perf_counter() - begun)

    enqueue_rate(FIRST)
    first = run_rate(FIRST)
    found = run_rate(min(JOBS_MAX, max(FIRST, int(first * seconds))))
    single = enqueue_rate(SINGLE)
    ran, returned = [], []
    for _ in range(LATENCIES):
        begun = time.perf_counter()
        sent = app.enqueue(name)
        await_runs(1)
        ran.append(time.perf_counter() - begun)
        if app.result is not None:
            app.result(sent)
    for _ in range(LATENCIES if app.result is not None else 0):
        begun = time.perf_counter()
        app.result(app.enqueue(name))  # type: ignore[misc]  it was asked for above
        returned.append(time.perf_counter() - begun)
        await_runs(1)
    figures = {
        "enqueue": single,
        "rate": found,
        "ran_ms": statistics.median(ran) * 1_000,
        "returned_ms": statistics.median(returned) * 1_000 if returned else None,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
