"""What it costs that somebody asks: the same load on a server without tokens and on one that wants them.

Rounds alternate, and the processor time of the server for each request counts, as the median of the ratios
of all pairs. A token is shown in each request, or once a raw connection by ``Authenticate``; it sees all
names, or some.
"""

from __future__ import annotations

from functools import partial

import machine
from pairs import alternate, medians, pairs_parser
from results import table, write_section
from served import Served
from throughput import Bench

CELLS = ("raw:64", "raw:1", "http:64", "http:1")
"""Protocol and connections of each kind of load."""
TOKENS = {"all names": "", "some names": "queue/*,mail/*"}
"""What tokens see."""


def main() -> None:
    """Measure, print, and write the table into the results."""
    parser = pairs_parser(__doc__ or "", CELLS)
    parser.add_argument("--print-only", action="store_true", help="do not write the results")
    options = parser.parse_args()
    options.directory = machine.real_directory(options.directory)
    bench, rows = Bench(options), []

    def cpu_us(server: Served, cell: str, token: str = "", once: bool = False) -> float:
        protocol, _, count = cell.partition(":")
        return bench.load(server, options.scenario, protocol, int(count), token=token, once=once).cpu_us

    with Served(options.directory) as plain, Served(options.directory) as guarded:
        guarded.token = guarded.ask("CreateToken", name="root", roles="admin")["token"]
        tokens = {
            seen: guarded.ask("CreateToken", name=f"t{number}", roles="produce,work", names=names)["token"]
            for number, (seen, names) in enumerate(TOKENS.items())
        }
        for cell in options.cells:
            for seen, token in tokens.items():
                for once in (False, True) if cell.startswith("raw") else (False,):
                    found = alternate(
                        bench.rounds,
                        partial(cpu_us, guarded, cell, token, once),
                        partial(cpu_us, plain, cell),
                    )
                    rows.append((cell, seen, "once" if once else "each request", *medians(found)))
                    print(f"  {' | '.join(rows[-1])}", flush=True)
    head = ("load", "token sees", "shown", "server CPU µs a request", "without tokens", "ratio")
    text = table(head, rows)
    print(text)
    if not options.print_only:
        write_section("Tokens", text)


if __name__ == "__main__":
    main()
