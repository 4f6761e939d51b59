"""What a change costs: two checkouts side by side, the same load on each in turn.

For each kind of load a server of each checkout runs, and a round loads first one, then the other, the next
round the other way round. What counts is the processor time of the server for each request, as the ratio of
this checkout to the other one, pair by pair: rates and times change with the machine, the ratio of a pair
hardly does.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import machine
from results import table
from served import Served
from throughput import Bench

CELLS = tuple(f"{protocol}:{count}" for protocol in ("raw", "http") for count in (64, 16, 1))
"""Protocol and connections of each kind of load."""
HERE = Path(__file__).resolve().parent.parent


def pair(bench: Bench, other: Path, directory: Path, cell: str, scenario: str) -> list[tuple[float, float]]:
    """Return the microseconds a request of this checkout and of the other one, round by round."""
    protocol, _, count = cell.partition(":")
    found = []
    with Served(directory, checkout=HERE) as ours, Served(directory, checkout=other) as theirs:
        for number in range(bench.rounds):
            order = (ours, theirs) if number % 2 else (theirs, ours)
            took = {one: bench.load(one, scenario, protocol, int(count)).cpu_us for one in order}
            found.append((took[ours], took[theirs]))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--directory", type=Path, help="where the databases go; must be on a disk")
    parser.add_argument("--seconds", type=float, default=1.0, help="measured time of one run")
    parser.add_argument("--rounds", type=int, default=20, help="pairs of which the median counts")
    parser.add_argument("--scenario", default="lifecycle", help="what the load does; see load.py")
    parser.add_argument("--cells", nargs="+", default=CELLS, help="protocol:connections, such as raw:64")
    options = parser.parse_args()
    directory = machine.real_directory(options.directory)
    bench = Bench(options)
    rows = []
    for cell in options.cells:
        found = pair(bench, options.other.resolve(), directory, cell, options.scenario)
        ratios = sorted(ours / theirs for ours, theirs in found)
        ours, theirs = (statistics.median(one) for one in zip(*found, strict=True))
        rows.append(
            (
                cell,
                f"{ours:.1f}",
                f"{theirs:.1f}",
                f"**{statistics.median(ratios):.3f}**",
                f"{ratios[0]:.3f} to {ratios[-1]:.3f}",
            )
        )
        print(f"  {' | '.join(rows[-1])}", flush=True)
    print(table(("load", "µs a request", "the other", "ratio, median of pairs", "from, to"), rows))


if __name__ == "__main__":
    main()
