"""Output in chunks: packed while it grows, its middle left out beyond the limit, and read line by line."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bedrockjobs.base.config import LIST_MAX
from bedrockjobs.base.settings import Settings
from bedrockjobs.store.chunks import (
    OUTPUT_CHUNK_BYTES,
    OUTPUT_PACKED_BYTES_MIN,
    PrintedLine,
    chunk_of,
    joined,
    lines_of,
)
from tests.runs.conftest import Open
from tests.runs.rig import Site

LIMIT = 640 * 1024
WORDS = ["GET", "POST", "/index.html", "/api/orders", "cache", "miss", "hit", "took", "retry", "queue"]


def log_lines(count: int, seed: int = 1) -> list[str]:
    """Return lines as a server's log has them."""
    dice = random.Random(seed)
    return [
        f"2026-11-21 03:29:{n % 60:02} INFO {' '.join(dice.choices(WORDS, k=8))} {dice.randrange(10**6)}"
        for n in range(count)
    ]


async def printed(site: Site, lines: list[str], after: int = 0) -> None:
    """Let run 1 print lines, as a worker sends them."""
    for begin in range(0, len(lines), 1_000):
        await site.ok("AppendOutput", runID=1, seq=after + begin + 1, lines=lines[begin : begin + 1_000])


async def packed(site: Site) -> None:
    """Wait until nothing is left to be packed."""
    packer = site.server._packer
    await site.settle()
    while packer.busy:
        if packer._task is not None:
            await packer._task
    await site.settle()


async def everything(site: Site) -> list[tuple[int, str]]:
    """Read run 1 page by page; return numbers and lines."""
    found: list[tuple[int, str]] = []
    while True:
        after = found[-1][0] if found else 0
        answer = await site.ok("ReadOutput", runID=1, after=after, limit=LIST_MAX)
        if not answer["lines"]:
            return found
        found += [(line["seq"], line["line"]) for line in answer["lines"]]


@pytest.fixture
async def run(site: Site) -> dict[str, Any]:
    """Return a run in progress, the first."""
    await site.create("a")
    return await site.leased("a")


async def chunks(site: Site) -> list[dict[str, Any]]:
    """Return the chunks of run 1."""
    return await site.select(
        "SELECT firstSeq, lastSeq, codec, start, size, length(bytes) AS stored FROM output ORDER BY 1"
    )


async def test_a_log_is_packed_while_it_grows_and_reads_as_it_was(site: Site, run: dict[str, Any]) -> None:
    lines = log_lines(6_000)
    await printed(site, lines)
    await packed(site)
    found = await chunks(site)
    assert {chunk["codec"] for chunk in found[:-1]} == {"zlib"}
    assert all(chunk["size"] >= OUTPUT_CHUNK_BYTES for chunk in found[:-1])
    assert sum(chunk["stored"] for chunk in found[:-1]) * 3 < sum(chunk["size"] for chunk in found[:-1])
    assert await everything(site) == list(enumerate(lines, start=1))
    some = await site.ok("ReadOutput", runID=1, after=2_345, limit=3)
    assert [line["line"] for line in some["lines"]] == lines[2_345:2_348]
    await site.ok("AppendOutput", runID=1, seq=5_999, lines=["known", "known", "new"])
    assert (await everything(site))[-2:] == [(6_000, lines[-1]), (6_001, "new")]


async def test_what_is_left_is_packed_at_the_end(site: Site, run: dict[str, Any]) -> None:
    lines = log_lines(200)
    assert sum(map(len, lines)) > OUTPUT_PACKED_BYTES_MIN
    for number, line in enumerate(lines, start=1):
        await site.ok("AppendOutput", runID=1, seq=number, lines=[line])
    assert len(await chunks(site)) == 200
    await site.finish(run)
    await packed(site)
    (chunk,) = await chunks(site)
    assert list(chunk.values())[:3] == [1, 200, "zlib"]
    assert await everything(site) == list(enumerate(lines, start=1))
    assert (await site.run(1))["output"] == lines[-10:]


async def test_of_much_output_the_beginning_and_the_end_are_kept(open_site: Open) -> None:
    site = await open_site(output_bytes=LIMIT)
    await site.create("a")
    run = await site.leased("a")
    lines = log_lines(20_000)
    size = sum(len(line) + 1 for line in lines)
    assert size > 2 * LIMIT
    await printed(site, lines)
    await site.finish(run)
    await packed(site)
    found = dict(await everything(site))
    assert all(lines[number - 1] == line for number, line in found.items())
    missing = sorted(set(range(1, len(lines) + 1)) - found.keys())
    assert missing == list(range(missing[0], missing[-1] + 1)), "one stretch in the middle"
    largest = OUTPUT_CHUNK_BYTES + 1_000 * max(map(len, lines))
    head = sum(len(line) + 1 for line in lines[: missing[0] - 1])
    tail = sum(len(line) + 1 for line in lines[missing[-1] :])
    assert LIMIT // 2 - largest <= head <= LIMIT // 2
    assert LIMIT // 2 - largest <= tail <= LIMIT // 2
    last = (await chunks(site))[-1]
    assert last["start"] + last["size"] == size, "what was printed is counted"
    assert (await site.run(1))["output"] == lines[-10:]
    answer = await site.ok("ReadOutput", runID=1, after=missing[0], limit=1)
    assert answer["lines"][0]["seq"] == missing[-1] + 1


def test_the_limit_by_default() -> None:
    assert Settings().output_bytes == 10 * 1024 * 1024


async def test_the_character_0_is_replaced(site: Site, run: dict[str, Any]) -> None:
    await site.ok("AppendOutput", runID=1, seq=1, lines=["a\0b", {"line": "\0", "stream": "err"}])
    assert await everything(site) == [(1, "a\ufffdb"), (2, "\ufffd")]
    await site.fail(run, error="no\0disk")
    assert (await site.run(1))["error"] == "no\ufffddisk"


async def test_data_with_the_character_0_is_kept_as_it_was_spelled(site: Site) -> None:
    await site.create("a", data={"a": "x\0y"})
    assert (await site.take("a"))["data"] == {"a": "x\0y"}
    assert (await site.run(1))["data"] == {"a": "x\0y"}


async def test_what_was_not_packed_when_a_server_ended_is_read_and_packed_later(
    site: Site, run: dict[str, Any]
) -> None:
    lines = log_lines(4_000)
    await printed(site, lines[:1_000])
    await site.crash()
    assert await everything(site) == list(enumerate(lines[:1_000], start=1))
    await printed(site, lines[1_000:], after=1_000)
    await packed(site)
    assert (await chunks(site))[0]["codec"] == "zlib"
    assert await everything(site) == list(enumerate(lines, start=1))


def test_a_log_takes_a_quarter_of_its_size() -> None:
    """So that 100 MB take 25: lines whose numbers differ, as bad to pack as those of most programs."""
    dice = random.Random(1)
    lines = [
        PrintedLine(
            "2026-11-21 03:29:56.000",
            "out",
            f"2026-11-21 03:{dice.randrange(60):02}:{dice.randrange(60):02},{dice.randrange(1000):03} INFO"
            f" {dice.choice(WORDS)} /srv/{dice.randrange(10**6)}.jpg size={dice.randrange(10**7)}"
            f" took={dice.random() * 100:.1f}ms",
        )
        for _ in range(1_700)
    ]
    whole = chunk_of(1, 1, 0, lines)
    packed = joined([whole])
    assert whole.size >= 0.9 * OUTPUT_CHUNK_BYTES
    assert 4 * len(packed.content) <= whole.size
    assert lines_of(packed.codec, packed.content) == lines
