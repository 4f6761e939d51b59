"""Simulated histories: ``python -m tests.simulation --seeds 1-200000 --processes 2``.

Prints each history that has a fault, with its number, and a line of counts; exits 1 if there was a fault.
``--fault NAME`` plants one, to see that it is found; ``--show SEED`` lives through one history alone.
``--forks`` reads such arguments, a JSON list a line, and runs each in a fork, since imports take longer than
three histories.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import traceback
from collections import Counter

from tests.reliability.faults import FAULTS
from tests.reliability.shim import built

ENDED = "ended with "
"""What begins the line that follows the output of a fork; its exit status is the rest."""


def main(arguments: list[str] | None = None) -> int:
    """Run and return the exit status."""
    parser = argparse.ArgumentParser("python -m tests.simulation")
    parser.add_argument("--seeds", default="1-500", metavar="FROM-TO", help="which histories")
    parser.add_argument("--processes", type=int, default=1, help="how many share them")
    parser.add_argument("--fault", default="", choices=["", *FAULTS], help="a fault to plant")
    parser.add_argument("--durability", default="full", help="as of the server")
    parser.add_argument("--until-found", action="store_true", help="end at the first fault")
    parser.add_argument("--show", type=int, metavar="SEED", help="one history, with its digest and counts")
    parser.add_argument(
        "--digests", action="store_true", help="print what each history can be known again by"
    )
    parser.add_argument("--forks", action="store_true", help="read arguments, and run each in a fork")
    options = parser.parse_args(arguments)
    if options.show is not None:
        options.seeds, options.digests = f"{options.show}-{options.show}", True
    first, _, last = options.seeds.partition("-")
    if "SIMULATION_DISK" not in os.environ:
        return _shared(int(first), int(last or first), options.processes)
    if options.forks:
        return _forked()
    return _simulated(range(int(first), int(last or first) + 1), options)


def environment() -> dict[str, str]:
    """Return the environment of a process that simulates itself: it has a disk that can fail.

    Without a compiler it skips a test.
    """
    return {**os.environ, "LD_PRELOAD": str(built()), "SIMULATION_DISK": "1", "PYTHONHASHSEED": "0"}


def _shared(first: int, last: int, processes: int) -> int:
    """Distribute the seeds among processes."""
    share = -(-(last - first + 1) // processes)
    command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
    running = [
        subprocess.Popen([*command, "--seeds", f"{begin}-{min(begin + share - 1, last)}"], env=environment())
        for begin in range(first, last + 1, share)
    ]
    return max(process.wait() for process in running)


def _forked() -> int:
    """Run the arguments of each line of stdin in a fork of this process, which imports everything first."""
    from tests.simulation.world import simulate

    assert callable(simulate)
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            status = 70
            try:
                status = main(json.loads(line))
            except BaseException:
                traceback.print_exc(file=sys.stdout)
            finally:
                sys.stdout.flush()
                os._exit(status)
        _, ended = os.waitpid(pid, 0)
        print(f"{ENDED}{os.waitstatus_to_exitcode(ended)}", flush=True)
    return 0


def _simulated(seeds: range, options: argparse.Namespace) -> int:
    from tests.simulation.world import simulate

    if options.fault:
        FAULTS[options.fault](seeds[0])
    counts: Counter[str] = Counter()
    faulty = 0
    for seed in seeds:
        outcome = simulate(seed, durability=options.durability)
        counts.update(outcome.report.counts)
        if options.digests:
            print(f"seed {seed}: digest {outcome.digest}", flush=True)
        if outcome.report.faults:
            faulty += 1
            print(f"seed {seed}: {outcome.report}", flush=True)
            if options.until_found:
                break
    print(
        f"seeds {seeds[0]} to {seeds[-1]}: {faulty} with a fault; {dict(sorted(counts.items()))}", flush=True
    )
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
