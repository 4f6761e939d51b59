"""Random histories that move between the engines get the replies of the model."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from bedrockjobs import commands as c
from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.store.postgresql import transfer
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.sqlite import SQLiteEngine
from bedrockjobs.store.transfer import MoveOptions
from tests.conformance import test_machine
from tests.conformance.engine import START, PostgreSQLQueue, Queue, SQLiteQueue
from tests.effort import examples
from tests.postgresql.cluster import CLUSTER
from tests.postgresql.moving import moved

EXAMPLES = int(os.environ.get("BEDROCKJOBS_TEST_EXAMPLES", examples(3, night=300)))


class Histories(test_machine.Histories):
    """Two queues with the same commands, one of which is moved."""

    mode = "document"

    def opened(self) -> Queue:
        """Return an empty queue in a file."""
        self.folder = Path(tempfile.mkdtemp(prefix="moving-"))
        self.file: Path | None = self.folder / "1.db"
        self.moves = 0
        self.clock = ManualClock(START)
        return self.at_hand()

    def at_hand(self) -> Queue:
        """Return the queue in its present place."""
        if self.file is None:
            store = PostgreSQLEngine(CLUSTER.url, self.clock, name=moved.SCHEMA)
            return PostgreSQLQueue(store, self.mode, self.clock)
        settings = Settings(patterns_cached_max=4)
        return SQLiteQueue(SQLiteEngine(self.file, settings, self.clock), self.mode, self.clock)

    def record_shutdown(self) -> None:
        """Shut down like a server; on PostgreSQL, skipped IDs are used again, as in the model."""
        self.queue.begin()
        self.queue.store.unit.record_shutdown("2026-01-05 10:00:00")
        self.queue.store.commit()
        if self.file is None:
            unit = self.queue.store.unit
            for name, numbers in (("jobIDs", unit._job_ids), ("runIDs", unit._run_ids)):
                if numbers._free:
                    moved.execute(f"ALTER SEQUENCE {name} RESTART WITH {min(numbers._free)}")
        self.queue.store.close()

    @rule(times=st.sampled_from([1, 1, 2]))
    def move(self, times: int) -> None:
        """Move the queue, or move it there and back, which must leave it unchanged."""
        self.record_shutdown()
        before = self.content()
        for _ in range(times):
            self.moved()
        if times == 2:
            assert self.content() == before
        self.queue = self.at_hand()

    def content(self) -> moved.Content | None:
        """Return the content of the queue."""
        return moved.content_there() if self.file is None else moved.content_of(self.file)

    def moved(self) -> None:
        """Move the queue once."""
        self.moves += 1
        if self.file is None:
            self.file = self.folder / f"{self.moves}.db"
            transfer.to_sqlite(moved.database(), self.file, MoveOptions())
        else:
            moved.drop()
            transfer.to_postgresql(self.file, moved.database(), MoveOptions())
            self.file = None

    @rule(name=test_machine.NAMES, worker=st.sampled_from(["v", "w"]))
    def work(self, name: str, worker: str) -> None:
        """Take a job as a worker and append output, so that there are runs, output and events to move."""
        found = self.queue.call(c.GetJob.read({"name": name, "worker": worker}))
        assert self.model.call(c.GetJob.read({"name": name, "worker": worker})) == found
        if found.body and found.body.get("runID"):
            self.queue.call(c.AppendOutput.read({"runID": found.body["runID"], "seq": 1, "lines": ["é\n"]}))

    def teardown(self) -> None:
        """Close it."""
        self.queue.store.close()
        moved.drop()
        shutil.rmtree(self.folder)


TestMoving = Histories.TestCase
TestMoving.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=test_machine.STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
