"""The queue of output lines: first in, first out, in memory and on disk, and bounded in both."""

from __future__ import annotations

import errno
import random
import tracemalloc

import pytest
from bedrock_worker.report import output
from bedrock_worker.report.output import Line, LineQueue

from tests.effort import examples


@pytest.fixture
def small(monkeypatch):
    """Make memory hold a few lines only."""
    monkeypatch.setattr(output, "MEMORY_BYTES_MAX", 500)


def test_keeps_the_order_whatever_comes_when(small):
    chance = random.Random(1)
    for _ in range(30):
        waiting, sent, got = LineQueue(), [], []
        while len(sent) < 2_000:
            for _ in range(chance.randrange(60)):
                sent.append(
                    Line(chance.choice(["out", "err"]), f"{len(sent)} é\t" + "x" * chance.randrange(90))
                )
                waiting.add(sent[-1])
            got += waiting.take(chance.randrange(1, 60), chance.randrange(1, 5_000))
            assert len(waiting) == len(sent) - len(got)
        while waiting:
            got += waiting.take(100, 10_000)
        assert got == sent
        waiting.discard_all()


def test_one_batch_is_bounded():
    waiting = LineQueue()
    for _ in range(100):
        waiting.add(Line("out", "x" * 1_000))
    assert len(waiting.take(7, 1_000_000)) == 7
    assert len(waiting.take(1_000, 10_000)) == 10
    assert len(waiting.take(1_000, 1)) == 1
    waiting.discard_all()


LINES = examples(20_000, night=90_000)
"""Of 300 bytes each: several times what may be in memory."""


def test_memory_is_bounded():
    waiting = LineQueue()
    tracemalloc.start()
    try:
        for number in range(LINES):
            waiting.add(Line("out", f"{number:0300}"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(waiting) == LINES
    assert peak < 10 * output.MEMORY_BYTES_MAX
    waiting.discard_all()


def test_disk_gives_its_space_back(small):
    """What is written and read all the time needs no more than what waits at once."""
    waiting, largest = LineQueue(), 0
    for number in range(3_000):
        waiting.add(Line("out", f"{number:0100}"))
        if len(waiting) > 50:
            waiting.take(30, 1_000_000)
        largest = max(largest, waiting._written.tell() if waiting._written else 0)
    assert 0 < largest < 20_000
    waiting.discard_all()


def test_line_in_place_says_how_many_are_missing(small, monkeypatch):
    monkeypatch.setattr(output, "QUEUE_BYTES_MAX", 2_000)
    waiting = LineQueue()
    for number in range(100):
        waiting.add(Line("out", f"{number}"))
    before = waiting.take(1_000, 1_000_000)
    for number in range(100, 110):
        waiting.add(Line("out", f"{number}"))
    waiting.add_notice()
    after = waiting.take(1_000, 1_000_000)
    kept = len(before)
    assert [line.text for line in before] == [str(number) for number in range(kept)]
    assert after[0].text == f"[{100 - kept} lines dropped: 0 MiB wait for the server]"
    assert [line.text for line in after[1:]] == [str(number) for number in range(100, 110)]
    waiting.discard_all()


def test_lines_that_no_disk_takes_are_counted(small, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    waiting = LineQueue()
    waiting.add(Line("out", "kept"))
    monkeypatch.setattr(output, "_write_all", full)
    for _ in range(1_000):
        waiting.add(Line("out", "x" * 50))
    waiting.add_notice()
    found = waiting.take(10_000, 1_000_000)
    missing = [int(line.text[1:].split()[0]) for line in found if line.stream == "err"]
    assert sum(missing) + len(found) - len(missing) == 1_001
    assert found[-1].text.endswith("lines dropped: they could not be saved: No space left on device]")
    waiting.discard_all()


def test_failed_write_leaves_no_half_line(tmp_path):
    class Full:
        """A file that takes five bytes and then none."""

        def __init__(self):
            self.content = bytearray(b"whole\n")

        def tell(self):
            return len(self.content)

        def seek(self, at):
            self.at = at

        def truncate(self):
            del self.content[self.at :]

        def write(self, data):
            if len(self.content) > 6:
                raise OSError(errno.ENOSPC, "full")
            self.content += bytes(data[:5])
            return 5

    file = Full()
    with pytest.raises(OSError, match="full"):
        output._write_all(file, b"more than five\n")
    assert bytes(file.content) == b"whole\n"
