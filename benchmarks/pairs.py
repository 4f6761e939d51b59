"""What a change costs: two checkouts side by side, the same load on each in turn.

For each kind of load a server of each checkout runs, and a round loads first one, then the other, the next
round the other way round. What counts is the processor time of the server for each request, as the ratio of
this checkout to the other one, pair by pair: rates and times change with the machine, the ratio of a pair
hardly does. With ``--postgresql`` the two have a database each in one PostgreSQL, and what counts is their
rate: there a server waits as well.
"""

from __future__ import annotations

import argparse
import statistics
from contextlib import ExitStack
from pathlib import Path

import machine
import psycopg
from peer_servers import PostgresServer
from results import table
from served import Served
from throughput import Bench

CELLS = tuple(f"{protocol}:{count}" for protocol in ("raw", "http") for count in (64, 16, 1))
"""Protocol and connections of each kind of load."""
HERE = Path(__file__).resolve().parent.parent


def pair(
    bench: Bench, other: Path, directory: Path, cell: str, options: argparse.Namespace
) -> list[tuple[float, float]]:
    """Return a figure of this checkout and of the other one, round by round.

    It is the microseconds a request; on PostgreSQL what is done in a second.
    """
    protocol, _, count = cell.partition(":")
    found = []
    with ExitStack() as stack:
        urls = ["", ""]
        if options.postgresql:
            database = stack.enter_context(PostgresServer(directory))
            with psycopg.connect(database.url, autocommit=True) as connection:
                connection.execute("CREATE DATABASE other")
            urls = [database.url, f"{database.url.rpartition('/')[0]}/other"]
        ours, theirs = (
            stack.enter_context(Served(directory, checkout=checkout, url=url))
            for checkout, url in zip((HERE, other), urls, strict=True)
        )
        for number in range(bench.rounds):
            order = (ours, theirs) if number % 2 else (theirs, ours)
            cells = {one: bench.load(one, options.scenario, protocol, int(count)) for one in order}
            took = {one: cell.rate if options.postgresql else cell.cpu_us for one, cell in cells.items()}
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
    parser.add_argument("--postgresql", action="store_true", help="both on PostgreSQL; rates")
    options = parser.parse_args()
    directory = machine.real_directory(options.directory)
    bench = Bench(options)
    rows = []
    for cell in options.cells:
        found = pair(bench, options.other.resolve(), directory, cell, options)
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
    what = "a second" if options.postgresql else "µs a request"
    print(table(("load", what, "the other", "ratio, median of pairs", "from, to"), rows))


if __name__ == "__main__":
    main()
