"""The nightly run: ``python -m tests.reliability --kills 5000``.

Kills a server under load repeatedly, by default with a new seed each night, prints the counts and
exits 1 if there was any fault. ``--fault "answer before commit"`` (any of ``faults``) gives the server
a fault first: the run must then fail. ``--power 20000`` rebuilds the disk after so many power cuts instead,
``--schedules 1000`` kills the server and the workers of schedules of every second, ``--workflows 200`` those
of random graphs, ``--soak 8h`` kills nothing and watches the memory and the descriptors of one server under
load. ``--install`` installs the package as the README and the container's image do, and serves.
``--postgresql kills`` (any of ``shared_night.ROUNDS``) has several servers on one PostgreSQL instead.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bedrockjobs.base.clock import WORDS, seconds_of
from tests.reliability.faults import FAULTS, OTHERS
from tests.reliability.shared_night import ROUNDS
from tests.reliability.shared_night import nightly as shared_night
from tests.reliability.storm import LIFE_S, Storm


def main() -> int:
    """Run and return the exit status."""
    parser = argparse.ArgumentParser("python -m tests.reliability", description="Long reliability runs.")
    parser.add_argument("--kills", type=int, default=5_000, help="how often the server is killed")
    parser.add_argument("--batch", type=int, default=500, help="kills on one database before it is judged")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="what happens when")
    parser.add_argument(
        "--fault", choices=sorted(FAULTS | OTHERS), default="", help="a fault to give the server"
    )
    parser.add_argument("--life", type=float, default=LIFE_S, help="mean life of a server in seconds")
    parser.add_argument("--power", type=int, default=0, help="power cuts, instead of kills")
    parser.add_argument(
        "--schedules", type=int, default=0, help="kills of schedules' server and workers, instead"
    )
    parser.add_argument("--workflows", type=int, default=0, help="random graphs under kills, instead")
    parser.add_argument("--soak", metavar="TIME", help="a server under load for so long: 10m, 8h; instead")
    parser.add_argument("--install", action="store_true", help="install with each tool and serve, instead")
    parser.add_argument("--postgresql", choices=sorted(ROUNDS), help="what several servers do, instead")
    parser.add_argument("--count", type=int, default=0, help="how much of it; 0: as much as a night allows")
    options = parser.parse_args()
    if options.postgresql:
        return shared_night(options.postgresql, options.count, options.seed, options.fault)
    if options.install:
        return _install()
    if options.soak:
        return _soak(options.soak)
    if options.power:
        return _power(options.power, options.seed)
    if options.workflows:
        return _workflows(options.workflows, options.seed, options.fault)
    if options.schedules:
        return _schedules(options.schedules, options.seed)
    faults = 0
    for number, first in enumerate(range(0, options.kills, options.batch)):
        seed = options.seed + number
        folder = Path(tempfile.mkdtemp(prefix="bedrockjobs-kills-"))
        kills = min(options.batch, options.kills - first)
        report = asyncio.run(Storm(folder, kills, seed, options.fault, options.life).run())
        print(f"seed {seed}: {report}", flush=True)
        faults += report.faults.total()
        if report.faults:
            print(f"ledger, log and database: {folder}")
        else:
            shutil.rmtree(folder)
    return 1 if faults else 0


def _schedules(kills: int, seed: int) -> int:
    from tests.reliability.schedule_storm import nightly

    return nightly(kills, seed)


def _workflows(graphs: int, seed: int, fault: str) -> int:
    from tests.reliability.workflow_storm import nightly

    return nightly(graphs, seed, fault)


def _install() -> int:
    from tests.deploy.installed import nightly

    return nightly()


def _soak(time_text: str) -> int:
    from tests.reliability.soak import nightly

    seconds = seconds_of(time_text)
    if not seconds:
        sys.exit(f"--soak {time_text!r}: expected {WORDS}")
    return nightly(seconds)


def _power(states: int, seed: int) -> int:
    from tests.reliability.power import nightly

    return nightly(states, seed)


if __name__ == "__main__":
    sys.exit(main())
