"""Fetch vendored JavaScript from npm: ``python tests/pages/vendor/fetch.py``.

The libraries of the pages go to the product, and axe-core, which the tests put into pages, beside this file.
Each package is verified against a pinned sha512 before it is unpacked. The files are committed, so that only
this script needs npm; ``--check`` compares them with the packages.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PAGES = HERE.parents[2] / "bedrockjobs/pages/static/vendor"


class Package(NamedTuple):
    """An npm package, and its files that are copied: each path in the package, with the file name here."""

    name: str
    version: str
    sha512: str
    files: dict[str, str]


PACKAGES = (
    Package(
        "htmx.org",
        "4.0.1",
        "oF7JgXhDW9UXCy/k1ZYFUQgzu/rm19ORWPSPNL91vPluB2PB9+MV55tyQdH/w7o2EAbTYUG5SDW1R60mdkdqGg==",
        {"dist/htmx.min.js": "htmx.min.js", "LICENSE": "htmx.LICENSE.txt"},
    ),
    Package(
        "uplot",
        "1.6.32",
        "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        {
            "dist/uPlot.iife.min.js": "uPlot.iife.min.js",
            "dist/uPlot.min.css": "uPlot.min.css",
            "LICENSE": "uPlot.LICENSE.txt",
        },
    ),
)
"""The libraries of the pages; their licenses are 0BSD and MIT."""

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


def fetched(package: Package) -> bytes:
    """Download a package's archive from npm; raises ValueError if its hash is not the pinned one."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npm", "pack", "--silent", f"{package.name}@{package.version}"],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (archive,) = Path(folder).glob("*.tgz")
        body = archive.read_bytes()
    digest = base64.b64encode(hashlib.sha512(body).digest()).decode()
    if digest != package.sha512:
        raise ValueError(f"{package.name} {package.version}: expected sha512-{package.sha512}, not {digest}")
    return body


def taken(package: Package, archive: bytes) -> dict[str, bytes]:
    """Return the files of an archive that are copied, by their names here."""
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        for source, name in package.files.items():
            member = tar.extractfile(f"package/{source}")
            assert member is not None
            files[name] = member.read()
    return files


def main(arguments: list[str] | None = None) -> int:
    """Fetch and verify the packages, then write or compare the files; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the existing files")
    options = parser.parse_args(arguments)
    wrong = 0
    for folder, package in (*((PAGES, package) for package in PACKAGES), (HERE, AXE)):
        for name, body in taken(package, fetched(package)).items():
            path = folder / name
            if not options.check:
                path.write_bytes(body)
            elif not path.exists() or path.read_bytes() != body:
                print(f"{name}: not the file of {package.name} {package.version}", file=sys.stderr)
                wrong += 1
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
