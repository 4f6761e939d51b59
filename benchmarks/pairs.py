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
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import machine
import psycopg
from peer_servers import PostgresServer
from results import table
from served import Served
from throughput import Bench, bench_parser

CELLS = tuple(f"{protocol}:{count}" for protocol in ("raw", "http") for count in (64, 16, 1))
"""Protocol and connections of each kind of load."""
HERE = Path(__file__).resolve().parent.parent

Pairs = list[tuple[float, float]]
"""A figure of ours and of the other, round by round."""


def pairs_parser(words: str, cells: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser of what is asked of pairs: a ``Bench``, what the load does, and which there are."""
    parser = bench_parser(words, rounds=20)
    parser.add_argument("--scenario", default="lifecycle", help="what the load does; see load.py")
    parser.add_argument("--cells", nargs="+", default=cells, help="protocol:connections, such as raw:64")
    return parser


def alternate(rounds: int, ours: Callable[[], float], theirs: Callable[[], float]) -> Pairs:
    """Measure two things in turn, the next round the other way round."""
    found = []
    for number in range(rounds):
        took = {one: one() for one in ((ours, theirs) if number % 2 else (theirs, ours))}
        found.append((took[ours], took[theirs]))
    return found


def medians(found: Pairs) -> tuple[str, str, str]:
    """Return the median of ours, of the other, and of the ratios of all pairs, as they stand in a table."""
    ours, theirs = (statistics.median(one) for one in zip(*found, strict=True))
    return f"{ours:.1f}", f"{theirs:.1f}", f"**{statistics.median(one / other for one, other in found):.3f}**"


def pair(bench: Bench, other: Path, directory: Path, cell: str, options: argparse.Namespace) -> Pairs:
    """Return a figure of this checkout and of the other one, round by round.

    It is the microseconds a request; on PostgreSQL what is done in a second.
    """
    protocol, _, count = cell.partition(":")

    def figure(server: Served) -> float:
        found = bench.load(server, options.scenario, protocol, int(count))
        return found.rate if options.postgresql else found.cpu_us

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
        return alternate(bench.rounds, partial(figure, ours), partial(figure, theirs))


def main() -> None:
    """Measure and print."""
    parser = pairs_parser(__doc__ or "", CELLS)
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--postgresql", action="store_true", help="both on PostgreSQL; rates")
    options = parser.parse_args()
    options.directory = machine.real_directory(options.directory)
    bench, rows = Bench(options), []
    for cell in options.cells:
        found = pair(bench, options.other.resolve(), options.directory, cell, options)
        ratios = sorted(ours / theirs for ours, theirs in found)
        rows.append((cell, *medians(found), f"{ratios[0]:.3f} to {ratios[-1]:.3f}"))
        print(f"  {' | '.join(rows[-1])}", flush=True)
    what = "a second" if options.postgresql else "µs a request"
    print(table(("load", what, "the other", "ratio, median of pairs", "from, to"), rows))


if __name__ == "__main__":
    main()
