"""Texts that were made to take long: every reader ends soon, for it goes through a text once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from bedrockjobs.base.config import SCHEDULE_FILE_CHARS_MAX, SCHEDULES_PER_SYNC_MAX
from bedrockjobs.definitions import read
from bedrockjobs.imports import castle, cronken, crontab, ftl, luci
from tests.pace import slowness

LENGTH = SCHEDULE_FILE_CHARS_MAX // 8
SECONDS_MAX = 5.0
"""CPU time of the worst of them, many times what it takes; what costs the square of a length takes hours."""


def fill(piece: str) -> str:
    """Return a piece again and again."""
    return (piece * (LENGTH // len(piece) + 1))[:LENGTH]


CASES: dict[str, Callable[[], object]] = {
    "crontab, one name": lambda: crontab.read("* * * * * x\n" * SCHEDULES_PER_SYNC_MAX),
    "crontab, blanks in a variable": lambda: crontab.read(f"A=x{fill(' ')}x"),
    "crontab, variables": lambda: crontab.read("".join(f"A{n}=x\n" for n in range(LENGTH // 8))),
    "crontab, ends of input": lambda: crontab.read(
        "* * * * * a" + "".join(f"%END_OF_INPUT{'_' * n}" for n in range(900))
    ),
    "crontab, terms": lambda: crontab.read(f"{fill('1,')}1 * * * * x\n"),
    "crontab, quotes": lambda: crontab.read(f"{fill(chr(34) + ' ')}\n"),
    "supercronic, terms": lambda: crontab.read(f"{fill('1,')}1 * * * * x\n", by="supercronic"),
    "supercronic, blanks": lambda: crontab.read(f"a{fill(' ')}b{fill(' ')}c\n", by="supercronic"),
    "supercronic, words": lambda: crontab.read(f"{fill('a ')}\n", by="supercronic"),
    "go, terms": lambda: ftl.read(f"package a\n//ftl:cron {fill('1,')}1 * * * *\nfunc A() {{}}", file="a.go"),
    "java, texts": lambda: ftl.read(fill('"\\"'), file="a.java"),
    "java, raw texts": lambda: ftl.read('"' * 3 + fill('"a'), file="a.java"),
    "castle, terms": lambda: castle.read(f"castle-cron add a '{fill('1,')}1 * * * *' x"),
    "castle, empty lines": lambda: castle.read(fill("\n")),
    "castle, one name": lambda: castle.read("castle-cron add a '@daily' x\n" * SCHEDULES_PER_SYNC_MAX),
    "castle, words": lambda: castle.read(f"castle-cron add a '@daily' {fill('a ')}"),
    "castle, quotes in a text": lambda: castle.read('["' + fill('\\"')),
    "castle, objects": lambda: castle.read(fill("{}")),
    "cronken, keys": lambda: cronken.read("{" + ",".join(f'"{n}": 1' for n in range(LENGTH // 12)) + "}"),
    "cronken, one key": lambda: cronken.read("{" + ",".join(['"a": 1'] * SCHEDULES_PER_SYNC_MAX) + "}"),
    "luci, fields": lambda: luci.read(fill("a:1\n")),
    "luci, comments": lambda: luci.read(fill("#\n")),
    "luci, quotes in a text": lambda: luci.read('a: "' + fill('\\"')),
    "luci, escapes": lambda: luci.read("a: " + fill('"\\x41"')),
    "luci, digits": lambda: luci.read("a: " + fill("9")),
    "go, raw texts": lambda: ftl.read(fill("``"), file="a.go"),
    "go, directives": lambda: ftl.read(fill("//ftl:cron 5m\n"), file="a.go"),
    "go, comments": lambda: ftl.read(fill("/*/"), file="a.go"),
    "kotlin, texts in texts": lambda: ftl.read(fill('"${'), file="a.kt"),
    "kotlin, comments in comments": lambda: ftl.read(fill("/*"), file="a.kt"),
    "kotlin, brackets": lambda: ftl.read(fill("@Cron("), file="a.kt"),
    "kotlin, annotations": lambda: ftl.read(fill("@Cron "), file="a.kt"),
    "toml, parts of a key": lambda: read("a" + fill(".a") + " = 1", "toml", "f"),
    "toml, quotes in a text": lambda: read('a = "' + fill('\\"'), "toml", "f"),
    "toml, quotes in a long text": lambda: read('a = """' + fill('""x'), "toml", "f"),
    "toml, headers": lambda: read(fill("[schedules.a"), "toml", "f"),
    "json, quotes in a text": lambda: read('["' + fill('\\"'), "json", "f"),
    "json, keys": lambda: read("{" + ",".join(f'"{n}": 1' for n in range(LENGTH // 12)) + "}", "json", "f"),
    "json, one key": lambda: read("[{" + fill('"a": 1,') + '"a": 1}]', "json", "f"),
    "yaml, flow": lambda: read("[" + fill("["), "yaml", "f"),
    "yaml, aliases": lambda: read(
        "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))]),
        "yaml",
        "f",
    ),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", CASES)
def test_reading_costs_what_the_text_is_long(case: str) -> None:
    """Read or refused, but soon."""
    before = time.process_time()
    with suppress(ValueError):
        CASES[case]()
    assert (time.process_time() - before) / slowness() < SECONDS_MAX
