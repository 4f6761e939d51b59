"""Fuzz one target for some time: keep inputs that reach new lines or cost more, and report faults.

The corpus is a folder of small files for each target. Additions are small enough to review.
"""

from __future__ import annotations

import gc
import hashlib
import time
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from tests.fuzz.gates import Finding, Meter
from tests.fuzz.mutate import Mutator
from tests.fuzz.targets import Target

CORPUS = Path(__file__).parent / "corpus"

KEPT_BYTES_MAX = 2_048
"""Size of an input that is kept in the corpus, and that is looked at line by line."""

MEMORY_EVERY = 25
"""Inputs between two memory measurements; the memory of kept inputs is always measured."""

MADE_UP_MIN = 20
"""Inputs that are made up at least, also where the time was over before."""

FINDINGS_MAX = 5
"""Faults after which a campaign ends: more of them would mostly be the same."""


class Report(NamedTuple):
    """The result of a campaign."""

    target: str
    inputs: int
    lines: int
    slowest: str
    findings: list[Finding]
    fresh: list[bytes]
    """Inputs that reached lines which the corpus does not, the smallest that did."""

    def __str__(self) -> str:
        """Return a one-line summary."""
        return (
            f"{self.target}: {self.inputs} inputs, {self.lines} lines reached, slowest {self.slowest}, "
            f"{len(self.fresh)} new, {len(self.findings)} findings"
        )


def seeds_of(target: Target, corpus: Path = CORPUS) -> list[bytes]:
    """Return the inputs of a target's corpus, the smallest first."""
    files = sorted((corpus / target.name).glob("*"))
    return sorted((file.read_bytes() for file in files), key=len)


class Campaign:
    """The fuzzing of one target for some time."""

    def __init__(self, target: Target, seeds: list[bytes], seed: int) -> None:
        """Start with ``seeds``; the number ``seed`` determines the mutations."""
        self._target = target
        self._meter = Meter(target)
        self._mutator = Mutator(seed, target.words, target.size_max)
        self._seeds = seeds
        self._pool = list(seeds) or [b""]
        self._reached: set[tuple[CodeType, int]] = set()
        self._dearest: dict[int, float] = {}
        self._findings: dict[str, Finding] = {}
        self._fresh: list[bytes] = []
        self._inputs = 0
        self._slowest = (0.0, "nothing")

    def run(self, seconds: float, *, findings_max: int = FINDINGS_MAX) -> Report:
        """Run for some seconds or until there are faults; at least a few inputs are read on any machine."""
        end = time.monotonic() + seconds
        for data in self._seeds:
            self._meter.warm_up(data)
        for data in self._seeds:
            self._try(data, known=True)
        least = self._inputs + MADE_UP_MIN
        while (time.monotonic() < end or self._inputs < least) and len(self._findings) < findings_max:
            self._try(self._mutator.one(self._pool), known=False)
            if not self._inputs % 200:
                gc.collect()
        return Report(
            self._target.name,
            self._inputs,
            len(self._reached),
            self._slowest[1],
            list(self._findings.values()),
            self._fresh,
        )

    def _try(self, data: bytes, *, known: bool) -> None:
        self._inputs += 1
        cost, finding = self._meter.check(data)
        share = cost.ms / cost.allowed_ms
        if share > self._slowest[0]:
            self._slowest = (share, f"{cost.ms:.1f} of {cost.allowed_ms:.0f} ms for {len(data)} bytes")
        keep = False
        if len(data) <= KEPT_BYTES_MAX and finding is None:
            new = self._meter.lines(data) - self._reached
            self._reached |= new
            keep = bool(new) and not known
            if keep:
                self._fresh.append(data)
        size = len(data).bit_length()
        if share > 1.2 * self._dearest.get(size, 0.0) and size > 6:
            self._dearest[size] = share
            keep = True
        if finding is None and (keep or not self._inputs % MEMORY_EVERY):
            _, finding = self._meter.memory(data)
        if finding is not None:
            self._findings.setdefault(finding.what[:40], finding)
        elif keep and not known:
            self._pool.append(data)


def grow(target: Target, fresh: list[bytes], findings: list[Finding], corpus: Path = CORPUS) -> list[Path]:
    """Add the inputs that reach new lines and the findings to a corpus; return the files."""
    folder = corpus / target.name
    folder.mkdir(parents=True, exist_ok=True)
    meter = Meter(target)
    reached: set[tuple[CodeType, int]] = set()
    for data in seeds_of(target, corpus):
        reached |= meter.lines(data)
    written = []
    for data in sorted(fresh, key=len):
        new = meter.lines(data) - reached
        if new:
            reached |= new
            written.append(_written(folder, "grown", data))
    written += [_written(folder, "found", finding.data) for finding in findings]
    return written


def _written(folder: Path, kind: str, data: bytes) -> Path:
    path = folder / f"{kind}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path
