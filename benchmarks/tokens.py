"""What it costs that somebody asks: the same load on a server without tokens and on one that wants them.

Rounds alternate, and the processor time of the server for each request counts, as the median of the ratios
of all pairs. A token is shown in each request, or once a raw connection by ``Authenticate``; it sees all
names, or some.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import machine
from results import table, write_section
from served import Served
from throughput import Bench

CELLS = ("raw:64", "raw:1", "http:64", "http:1")
"""Protocol and connections of each kind of load."""
TOKENS = {"all names": "", "some names": "queue/*,mail/*"}
"""What tokens see."""


def main() -> None:
    """Measure, print, and write the table into the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where the databases go; must be on a disk")
    parser.add_argument("--seconds", type=float, default=1.0, help="measured time of one run")
    parser.add_argument("--rounds", type=int, default=20, help="pairs of which the median counts")
    parser.add_argument("--scenario", default="lifecycle", help="what the load does; see load.py")
    parser.add_argument("--cells", nargs="+", default=CELLS, help="protocol:connections, such as raw:64")
    parser.add_argument("--print-only", action="store_true", help="do not write the results")
    options = parser.parse_args()
    options.directory = machine.real_directory(options.directory)
    bench, rows = Bench(options), []
    with Served(options.directory) as plain, Served(options.directory) as guarded:
        guarded.token = guarded.ask("CreateToken", name="root", roles="admin")["token"]
        tokens = {
            seen: guarded.ask("CreateToken", name=f"t{number}", roles="produce,work", names=names)["token"]
            for number, (seen, names) in enumerate(TOKENS.items())
        }
        for cell in options.cells:
            protocol, _, count = cell.partition(":")
            for seen, token in tokens.items():
                for once in (False, True) if protocol == "raw" else (False,):
                    pairs = []
                    for number in range(bench.rounds):
                        one, other = (plain, guarded) if number % 2 else (guarded, plain)
                        took = {
                            server: bench.load(
                                server,
                                options.scenario,
                                protocol,
                                int(count),
                                token=token if server is guarded else "",
                                once=once and server is guarded,
                            ).cpu_us
                            for server in (one, other)
                        }
                        pairs.append((took[guarded], took[plain]))
                    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
                    with_token, without = (statistics.median(one) for one in zip(*pairs, strict=True))
                    how = "once" if once else "each request"
                    cells = (seen, how, f"{with_token:.1f}", f"{without:.1f}", f"**{ratio:.3f}**")
                    rows.append((cell, *cells))
                    print(f"  {' | '.join(rows[-1])}", flush=True)
    head = ("load", "token sees", "shown", "server CPU µs a request", "without tokens", "ratio")
    text = table(head, rows)
    print(text)
    if not options.print_only:
        write_section("Tokens", text)


if __name__ == "__main__":
    main()
