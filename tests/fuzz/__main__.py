"""The nightly run: ``python -m tests.fuzz --seconds 3600``, for all targets or for the named ones.

Adds inputs that reach new lines and findings to the corpus, prints a line for each target, and exits 1 if
anything was found. ``--input FILE`` reads one input with one target and says what it costs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.fuzz import live
from tests.fuzz.campaign import CORPUS, Campaign, grow, seeds_of
from tests.fuzz.gates import Meter
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Run and return the exit status."""
    parser = argparse.ArgumentParser("python -m tests.fuzz", description="Inputs made up for hours.")
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], help="all, if none is named")
    parser.add_argument("--seconds", type=float, default=3600, help="time for each target")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="which inputs are made up")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="where inputs are kept")
    parser.add_argument("--input", type=Path, help="one input to be read, instead")
    options = parser.parse_args()
    try:
        return 1 if _findings(options) else 0
    finally:
        live.close()


def _findings(options: argparse.Namespace) -> int:
    found = 0
    for name in options.targets or TARGETS:
        target = TARGETS[name]
        if options.input is not None:
            found += _one(Meter(target), options.input.read_bytes())
            continue
        report = Campaign(target, seeds_of(target, options.corpus), options.seed).run(options.seconds)
        print(f"seed {options.seed}: {report}", flush=True)
        for finding in report.findings:
            print(f"  {finding}", flush=True)
        for file in grow(target, report.fresh, report.findings, options.corpus):
            print(f"  wrote {file}", flush=True)
        found += len(report.findings)
    return found


def _one(meter: Meter, data: bytes) -> int:
    meter.check(data)  # modules that are loaded at first use
    cost, finding = meter.check(data)
    peak, heavy = meter.memory(data)
    print(f"{cost.ms:.1f} of {cost.allowed_ms:.0f} ms, {peak >> 10} KiB; {finding or heavy or 'all is well'}")
    return 1 if finding or heavy else 0


if __name__ == "__main__":
    sys.exit(main())
