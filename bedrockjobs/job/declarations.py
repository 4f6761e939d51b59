"""Which versions of a source's schedules live workers declare, and since when a schedule is undeclared.

During a rolling restart, workers of several versions of one module run side by side. Each set of schedules
that a worker declares is a version. A newer version outranks an older one while a worker of the newer version
is alive, however often workers of the older version restart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bedrockjobs.base.config import DECLARERS_KEPT_MAX, VERSIONS_KEPT_MAX

UNKNOWN = ""
"""Digest of a version that stands for the schedules that no known version declares, such as those of an older
release."""


class Version(NamedTuple):
    """A set of schedules that workers declare or declared."""

    digest: str
    names: frozenset[str]
    workers: tuple[str, ...] = ()
    """Some of the live workers that declare it: one is enough to keep it alive."""
    gone: str = ""
    """When it was first seen without live workers; empty if it has some."""


class Declarations:
    """The versions of one source, in the order of their first declaration."""

    def __init__(self, text: str | None) -> None:
        """Parse stored declarations; ``text`` is None if none are stored yet."""
        self._versions = [
            Version(digest, frozenset(names), tuple(workers), gone)
            for digest, names, workers, gone in json.loads(text or "[]")
        ]
        self._before = {version.digest for version in self._versions if version.gone}

    @property
    def text(self) -> str:
        """Return the declarations as JSON, to be stored."""
        return json.dumps(
            [
                [version.digest, sorted(version.names), list(version.workers), version.gone]
                for version in self._versions
            ],
            ensure_ascii=False,
            separators=(",", ":"),
        )

    def update_live(self, is_live: Callable[[str], bool], now: str) -> None:
        """Drop workers that are gone, and record which versions lost their last worker."""
        for place, version in enumerate(self._versions):
            workers = tuple(filter(is_live, version.workers))
            gone = "" if workers else version.gone or now
            self._versions[place] = version._replace(workers=workers, gone=gone)

    def declare(self, worker: str, digest: str, names: Iterable[str]) -> None:
        """Record that a live worker declares exactly these schedules."""
        for place, version in enumerate(self._versions):
            others = tuple(name for name in version.workers if name != worker)
            self._versions[place] = version._replace(workers=others)
        known = [version.digest for version in self._versions]
        if digest not in known:
            self._versions.append(Version(digest, frozenset(names), (worker,)))
            return
        place = known.index(digest)
        version = self._versions[place]
        # The new worker goes first: if all others are gone, it keeps the version alive.
        workers = (worker, *version.workers)[:DECLARERS_KEPT_MAX]
        self._versions[place] = Version(digest, frozenset(names), workers)

    def add_undeclared(self, names: Iterable[str], now: str) -> frozenset[str]:
        """Record the ``names`` that are in no version as undeclared since ``now``; return them."""
        strangers = frozenset(names).difference(*(version.names for version in self._versions))
        if strangers:
            known = [version for version in self._versions if version.digest != UNKNOWN]
            self._versions = [Version(UNKNOWN, strangers | self._named(UNKNOWN), gone=now), *known]
        return strangers

    def declared(self, newer_than: str | None = None) -> frozenset[str]:
        """Return the names that live workers declare, optionally only in versions newer than a digest."""
        first = 0
        if newer_than is not None:
            first = 1 + next(at for at, version in enumerate(self._versions) if version.digest == newer_than)
        return frozenset[str]().union(
            *(version.names for version in self._versions[first:] if version.workers)
        )

    def undeclared_since(self, name: str) -> str:
        """Return when a schedule was first seen without a live worker that declares it."""
        return max((version.gone for version in self._versions if name in version.names), default="")

    def just_gone(self) -> frozenset[str]:
        """Return the names of the versions that lost their last worker after this object was loaded."""
        gone = (version for version in self._versions if version.gone and version.digest not in self._before)
        return frozenset[str]().union(*(version.names for version in gone))

    def forget(self, existing: Iterable[str]) -> None:
        """Drop schedules that no longer exist, and the oldest versions without workers.

        Other versions without workers keep their place for a while: if a worker of such a version comes back,
        the version does not count as new.
        """
        existing_names = frozenset(existing)
        versions = [
            version._replace(names=version.names & existing_names) if version.gone else version
            for version in self._versions
        ]
        versions = [version for version in versions if version.digest != UNKNOWN or version.names]
        gone = [version for version in versions if version.gone]
        dropped = {version.digest for version in gone[: max(len(gone) - VERSIONS_KEPT_MAX, 0)]}
        self._versions = [version for version in versions if version.digest not in dropped]

    def _named(self, digest: str) -> frozenset[str]:
        return next((version.names for version in self._versions if version.digest == digest), frozenset())
