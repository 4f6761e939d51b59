"""Undelivered reports as files, which outlive the worker; the next worker delivers them.

A file is created when the first attempt fails, and removed once the server has accepted or refused the
report.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bedrock_worker.log import event
from bedrock_worker.report.outcome import Report
from bedrockjobs.base import jsontext
from bedrockjobs.base.config import DATA_BYTES_MAX
from bedrockjobs.base.errors import CommandError
from bedrockjobs.commands import FailJob, FinishJob, RetryJob

FILES_MAX = 1_000
"""Max files in a folder: a server that accepts no report for that long will not accept these either."""

FILE_BYTES_MAX = 2 * DATA_BYTES_MAX
"""Max size of a file that is read; a report with the largest result fits."""

KINDS = {kind.__name__: kind for kind in (FinishJob, RetryJob, FailJob)}


@dataclass(frozen=True)
class Kept:
    """A report saved by an earlier worker."""

    path: Path
    worker: str
    """The name of the worker that performed the run."""
    servers: tuple[str, ...]
    """The servers that may receive it; any one of them will do."""
    report: Report


class Outbox:
    """Saved reports of this worker, and of earlier workers with at least one server in common."""

    def __init__(self, folder: Path | None, worker: str, servers: Sequence[object]) -> None:
        """Use a folder, created on demand; None disables saving."""
        self._folder, self._worker = folder, worker
        self._servers = tuple(sorted(map(str, servers)))
        self._there: set[Path] | None = None
        self._earlier: dict[int | None, tuple[Path, str]] = {}
        """Paths and worker names of reports by earlier workers, by runID."""
        self._prefix = hashlib.sha256(",".join(self._servers).encode()).hexdigest()[:12]

    def keep(self, report: Report) -> Path | None:
        """Save a report and return its path; if that fails, log why and return None."""
        path = self._path(report)
        if path is None:
            return None
        _, worker = self._earlier.get(report.run_id, (path, self._worker))
        text = (
            f'{{"worker":{json.dumps(worker)},"servers":{json.dumps(self._servers)},'
            f'"verb":"{type(report).__name__}","report":{report.wire()}}}'
        )
        new = path.with_suffix(".new")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if sum(1 for _ in path.parent.iterdir()) >= FILES_MAX:
                event(logging.WARNING, "report not kept", run=report.run_id, error=f"{FILES_MAX} files there")
                return None
            new.unlink(missing_ok=True)
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
            self._files.add(path)
        except OSError as error:
            event(logging.WARNING, "report not kept", run=report.run_id, error=error)
            return None
        return path

    def forget(self, report: Report) -> None:
        """Remove the file of a report, if there is one."""
        if self._files and (path := self._path(report)) in self._files:
            path.unlink(missing_ok=True)
            self._files.discard(path)
            self._earlier.pop(report.run_id, None)

    def earlier(self) -> list[Kept]:
        """Return the reports that earlier workers saved for any of our servers.

        Files that are not valid reports of ours are skipped.
        """
        if self._folder is None:
            return []
        found: list[Kept] = []
        self._there = None
        ours = self._files
        with suppress(OSError):
            for path in sorted(self._folder.glob("*.json"))[:FILES_MAX]:
                try:
                    kept = _read(path)
                except (OSError, ValueError, LookupError, CommandError) as error:
                    if path in ours:
                        event(logging.WARNING, "kept report not read", file=path, error=error)
                    continue
                if path in ours or not set(self._servers).isdisjoint(kept.servers):
                    ours.add(path)
                    self._earlier[kept.report.run_id] = path, kept.worker
                    found.append(kept)
        return found

    @property
    def _files(self) -> set[Path]:
        """Return the existing files; listed once, since hardly any report is ever saved."""
        if self._there is None:
            self._there = set()
            with suppress(OSError):  # there is no folder yet, or it is not ours to read
                if self._folder is not None:
                    self._there.update(self._folder.glob(f"{self._prefix}-*.json"))
        return self._there

    def _path(self, report: Report) -> Path | None:
        if self._folder is None or report.run_id is None:  # without a runID, nothing fences a late report
            return None
        own = self._folder / f"{self._prefix}-{report.run_id}.json"
        return self._earlier.get(report.run_id, (own, ""))[0]


def _read(path: Path) -> Kept:
    """Read one file; raises OSError, ValueError, LookupError or CommandError if it is no report of ours."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise ValueError("expected a file of our own")
        text = file.read(FILE_BYTES_MAX).decode()
    with suppress(StopIteration):
        parts = jsontext.members(text)
        kind = KINDS[json.loads(parts["verb"])]
        report = kind.read(kind.given(parts["report"]))
        servers = tuple(map(str, json.loads(parts.get("servers", "[]"))))
        return Kept(path, str(json.loads(parts["worker"])), servers, report)
    raise ValueError("expected a report as JSON")
