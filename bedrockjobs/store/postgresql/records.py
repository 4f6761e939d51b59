"""The tables beside jobs on PostgreSQL: with what was read ahead, and what other servers have to be told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime

from bedrockjobs.base.config import OUTPUT_TAIL_DEFAULT
from bedrockjobs.base.glob import anchored_regex, literal_prefix
from bedrockjobs.job.limits import Limit
from bedrockjobs.job.rows import PauseRow, RunRow
from bedrockjobs.store.postgresql.pipeline import Row, Statement, columns
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.statements import RECORDS
from bedrockjobs.store.postgresql.transaction import Transaction
from bedrockjobs.store.records import LAST_CHARACTER, TableRecords

_WIDTH = len(RunRow._fields)


class PostgreSQLRecords(TableRecords):
    """Pauses, drains, tokens, the crash list are kept until their epoch changes, all else for one unit."""

    def __init__(self, transaction: Transaction) -> None:
        """Speak within ``transaction``."""
        self._crash_patterns: tuple[str, ...] | None = None
        super().__init__(transaction, RECORDS)
        self._transaction = transaction
        self._epoch = 0
        self._runs: dict[int, RunRow | None] = {}
        """Runs that were read ahead and are as they were then."""
        self._opened: list[RunRow] = []
        self._closed: list[RunRow] = []
        self._lines_new: list[Row] = []
        self._over: list[int] = []
        """Those of them that have ended."""
        self._output: dict[int, tuple[int, list[str]]] = {}
        """The number of the last line, and the last lines backwards, of runs that were read ahead."""
        self._keys: dict[str, tuple[int, str] | None] = {}
        """The job that a key was used for, and when."""

    # --- between units -----------------------------------------------------------------------------------

    def at_epoch(self, epoch: int) -> bool:
        """Forget pauses, drains and tokens if another server changed them; return whether one did."""
        changed = epoch != self._epoch
        self._epoch = epoch
        if changed:
            self.forget()
        self._forget_ahead()
        return changed

    def forget(self) -> None:
        """Read all anew."""
        super().forget()
        self._crash_patterns = None
        self._forget_ahead()

    def _forget_ahead(self) -> None:
        self._runs, self._over, self._output, self._keys = {}, [], {}, {}
        self._opened, self._closed, self._lines_new = [], [], []

    def read_ahead(
        self, run_ids: Iterable[int], runs: list[Row], keys: Iterable[str], used: list[Row]
    ) -> None:
        """Keep runs and keys; those of ``run_ids`` and ``keys`` that were not found do not exist."""
        self._runs = dict.fromkeys(run_ids)
        for row in runs:
            run = RunRow._make(row[:_WIDTH])
            self._runs[run.run_id] = run
            self._over += [run.run_id] if run.status != "running" else []
            self._output[run.run_id] = (row[_WIDTH], row[_WIDTH + 1])
        self._keys = dict.fromkeys(keys) | {key: (job_id, created) for key, job_id, created in used}

    # --- runs and their output ---------------------------------------------------------------------------

    def run(self, run_id: int) -> RunRow | None:
        """Return a run, or None."""
        return self._runs[run_id] if run_id in self._runs else super().run(run_id)

    def open_run(self, run: RunRow) -> None:
        """Add a run in progress."""
        self._opened.append(run)

    def _write_end(self, run: RunRow) -> None:
        self._forget_run(run.run_id)
        for over in self._over:  # which may be among those that are forgotten
            self._runs.pop(over, None)
        self._over = []
        self._closed.append(run)

    def _trim(self, name: str, keep: int, *, good: bool) -> None:
        self._transaction.collect()
        super()._trim(name, keep, good=good)

    def stop_run(self, run_id: int, stop: str) -> None:
        """Note what a run's worker is to be told."""
        self._forget_run(run_id)
        super().stop_run(run_id, stop)

    def set_progress(self, run_id: int, progress: str) -> None:
        """Note how far a run is, as JSON text."""
        self._forget_run(run_id)
        super().set_progress(run_id, progress)

    def delete_run(self, run_id: int) -> None:
        """Forget a run that never began."""
        self._forget_run(run_id)
        super().delete_run(run_id)

    def _forget_run(self, run_id: int) -> None:
        """Read a run anew, as it is written; runs that were opened in this unit are written before."""
        self._runs.pop(run_id, None)
        if self._opened:
            self._transaction.collect()

    @property
    def changed(self) -> bool:
        """Tell whether there are runs and lines that were not yet written."""
        return bool(self._opened or self._closed or self._lines_new)

    def differences(self) -> list[Statement]:
        """Return statements that write runs that were opened and closed, and lines; take that as written."""
        opened, closed, lines = self._opened, self._closed, self._lines_new
        self._opened, self._closed, self._lines_new = [], [], []
        sets = (
            (
                "insert_runs",
                columns(
                    [
                        (
                            run.run_id, run.job_id, run.name, run.attempt, run.cause, run.scheduled_for,
                            run.started, run.worker, run.host, run.pid, run.lease,
                        )
                        for run in opened
                    ]
                ),
            ),
            (
                "end_runs",
                columns(
                    [
                        (run.run_id, run.status, run.ended, run.exit_code, run.error, run.result, run.output)
                        for run in closed
                    ]
                ),
            ),
            ("append_lines", columns(lines)),
        )  # fmt: skip
        return [(SQL[name], parameters) for name, parameters in sets if parameters]

    def last_seq(self, run_id: int) -> int:
        """Return the number of a run's last line, 0 without any."""
        return self._output[run_id][0] if run_id in self._output else super().last_seq(run_id)

    def append(self, run_id: int, lines: Sequence[tuple[int, str, str, str]]) -> None:
        """Add lines: number, moment, stream, text."""
        self._output.pop(run_id, None)
        self._lines_new += [(run_id, *line) for line in lines]

    def _lines(self, run_id: int, count: int) -> list[str]:
        if run_id in self._output and count <= OUTPUT_TAIL_DEFAULT:
            return self._output[run_id][1][:count]
        return super()._lines(run_id, count)

    def drop_old(self, moment: datetime) -> bool:
        """Forget some of what is too old at a moment; return whether there is more of it."""
        self._transaction.collect()
        self._forget_ahead()
        return super().drop_old(moment)

    # --- keys --------------------------------------------------------------------------------------------

    def job_of_key(self, key: str, since: str) -> int | None:
        """Return the job that a key was used for after ``since``."""
        if key not in self._keys:
            return super().job_of_key(key, since)
        used = self._keys[key]
        return used[0] if used is not None and used[1] > since else None

    def put_key(self, key: str, job_id: int, now: str) -> None:
        """Remember a key."""
        self._keys[key] = (job_id, now)
        super().put_key(key, job_id, now)

    # --- what all servers are told -----------------------------------------------------------------------

    def raise_epoch(self) -> None:
        """Let all servers read pauses, drains, tokens and the crash list anew."""
        self._transaction.write(SQL["raise_epoch"])

    def access_changed(self) -> None:
        """Read tokens and logins anew, as all servers do then."""
        super().access_changed()
        self.raise_epoch()

    def put_pause(self, pause: PauseRow) -> None:
        """Pause a pattern."""
        super().put_pause(pause)
        self._transaction.write(SQL["pause_regex"], pause.pattern, anchored_regex([pause.pattern]))
        self.raise_epoch()

    def delete_pause(self, pattern: str) -> None:
        """Resume a pattern."""
        super().delete_pause(pattern)
        self.raise_epoch()

    def set_limits(self, limits: tuple[Limit, ...]) -> None:
        """Replace the limits."""
        super().set_limits(limits)
        self.raise_epoch()

    def count_queued(self, pattern: str, most: int) -> int:
        """Return how many jobs are queued whose names match, at the most ``most``."""
        first = literal_prefix(pattern)
        given = (first, first + LAST_CHARACTER, anchored_regex([pattern]), most)
        return int(self._transaction.execute(SQL["count_queued"], given)[0][0])

    def put_drain(self, worker: str, by: str, now: str) -> None:
        """Drain a worker."""
        super().put_drain(worker, by, now)
        self.raise_epoch()

    def delete_drain(self, worker: str) -> None:
        """Let a worker take jobs again."""
        super().delete_drain(worker)
        self.raise_epoch()

    def crash_patterns(self) -> tuple[str, ...]:
        """Return the GLOB patterns of CrashBedrockJob."""
        if self._crash_patterns is None:
            found = self._transaction.execute(SQL["get_meta"], ("crashPatterns",)).fetchone()
            self._crash_patterns = tuple(json.loads(found[0])) if found else ()
        return self._crash_patterns

    def set_crash_patterns(self, patterns: tuple[str, ...]) -> None:
        """Replace the GLOB patterns of CrashBedrockJob."""
        self._transaction.write(SQL["set_meta"], "crashPatterns", json.dumps(patterns))
        self.raise_epoch()
        self._crash_patterns = None
