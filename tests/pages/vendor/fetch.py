"""Fetch axe-core, which the tests put into pages: ``python tests/pages/vendor/fetch.py``."""

from __future__ import annotations

from pathlib import Path

from bedrockjobs.pages.vendor import Package, fetched, taken

AXE = Package(
    "axe-core",
    "4.14.1",
    "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
    {
        "axe.min.js": "axe.min.js",
        "LICENSE": "axe.LICENSE.txt",
        "LICENSE-3RD-PARTY.txt": "axe.LICENSE-3RD-PARTY.txt",
    },
)

if __name__ == "__main__":
    for name, body in taken(AXE, fetched(AXE)).items():
        (Path(__file__).parent / name).write_bytes(body)
