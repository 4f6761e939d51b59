"""Texts meant to take long: every parser is linear, because it reads a text once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from bedrockjobs.base.config import SCHEDULE_FILE_CHARS_MAX, SCHEDULES_PER_SYNC_MAX
from bedrockjobs.definitions import read
from bedrockjobs.imports import castle, cronken, crontab, ftl, kubernetes, luci, solid_queue, whenever
from tests.effort import examples
from tests.pace import slowness

SHORTER = examples(8, night=1)
"""By day texts are so many times shorter."""

LENGTH = SCHEDULE_FILE_CHARS_MAX // 8 // SHORTER
SECONDS_MAX = 5.0 / SHORTER**0.5
"""CPU time of the worst text, with a wide margin; quadratic work would take many times as long. By day it is
more than an eighth of that at night: some texts consist of a fixed number of schedules."""


def fill(piece: str) -> str:
    """Return a repeated piece."""
    return (piece * (LENGTH // len(piece) + 1))[:LENGTH]


def manifest(container: str) -> str:
    """Return a CronJob with a container."""
    template = f"{{spec: {{template: {{spec: {{containers: [{{{container}}}]}}}}}}}}"
    return f"kind: CronJob\nmetadata: {{name: a}}\nspec: {{schedule: '@daily', jobTemplate: {template}}}\n"


BOMB = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))])

CASES: dict[str, Callable[[], object]] = {
    "crontab, one name": lambda: crontab.parse_crontab("* * * * * x\n" * SCHEDULES_PER_SYNC_MAX),
    "crontab, blanks in a variable": lambda: crontab.parse_crontab(f"A=x{fill(' ')}x"),
    "crontab, variables": lambda: crontab.parse_crontab("".join(f"A{n}=x\n" for n in range(LENGTH // 8))),
    "crontab, ends of input": lambda: crontab.parse_crontab(
        "* * * * * a" + "".join(f"%END_OF_INPUT{'_' * n}" for n in range(900))
    ),
    "crontab, terms": lambda: crontab.parse_crontab(f"{fill('1,')}1 * * * * x\n"),
    "crontab, quotes": lambda: crontab.parse_crontab(f"{fill(chr(34) + ' ')}\n"),
    "supercronic, terms": lambda: crontab.parse_crontab(f"{fill('1,')}1 * * * * x\n", by="supercronic"),
    "supercronic, blanks": lambda: crontab.parse_crontab(f"a{fill(' ')}b{fill(' ')}c\n", by="supercronic"),
    "supercronic, words": lambda: crontab.parse_crontab(f"{fill('a ')}\n", by="supercronic"),
    "go, terms": lambda: ftl.parse_ftl(
        f"package a\n//ftl:cron {fill('1,')}1 * * * *\nfunc A() {{}}", file="a.go"
    ),
    "java, texts": lambda: ftl.parse_ftl(fill('"\\"'), file="a.java"),
    "java, raw texts": lambda: ftl.parse_ftl('"' * 3 + fill('"a'), file="a.java"),
    "castle, terms": lambda: castle.parse_castle(f"castle-cron add a '{fill('1,')}1 * * * *' x"),
    "castle, empty lines": lambda: castle.parse_castle(fill("\n")),
    "castle, one name": lambda: castle.parse_castle(
        "castle-cron add a '@daily' x\n" * SCHEDULES_PER_SYNC_MAX
    ),
    "castle, words": lambda: castle.parse_castle(f"castle-cron add a '@daily' {fill('a ')}"),
    "castle, quotes in a text": lambda: castle.parse_castle('["' + fill('\\"')),
    "castle, objects": lambda: castle.parse_castle(fill("{}")),
    "cronken, keys": lambda: cronken.parse_cronken(
        "{" + ",".join(f'"{n}": 1' for n in range(LENGTH // 12)) + "}"
    ),
    "cronken, one key": lambda: cronken.parse_cronken(
        "{" + ",".join(['"a": 1'] * SCHEDULES_PER_SYNC_MAX) + "}"
    ),
    "luci, fields": lambda: luci.parse_luci(fill("a:1\n")),
    "luci, comments": lambda: luci.parse_luci(fill("#\n")),
    "luci, quotes in a text": lambda: luci.parse_luci('a: "' + fill('\\"')),
    "luci, escapes": lambda: luci.parse_luci("a: " + fill('"\\x41"')),
    "luci, digits": lambda: luci.parse_luci("a: " + fill("9")),
    "go, raw texts": lambda: ftl.parse_ftl(fill("``"), file="a.go"),
    "go, directives": lambda: ftl.parse_ftl(fill("//ftl:cron 5m\n"), file="a.go"),
    "go, comments": lambda: ftl.parse_ftl(fill("/*/"), file="a.go"),
    "kotlin, texts in texts": lambda: ftl.parse_ftl(fill('"${'), file="a.kt"),
    "kotlin, comments in comments": lambda: ftl.parse_ftl(fill("/*"), file="a.kt"),
    "kotlin, brackets": lambda: ftl.parse_ftl(fill("@Cron("), file="a.kt"),
    "kotlin, annotations": lambda: ftl.parse_ftl(fill("@Cron "), file="a.kt"),
    "kubernetes, flow": lambda: kubernetes.parse_kubernetes("[" + fill("[")),
    "kubernetes, aliases": lambda: kubernetes.parse_kubernetes(BOMB),
    "kubernetes, merged keys": lambda: kubernetes.parse_kubernetes(
        "\n".join(
            [
                "a0: &a0 {x: 1}",
                *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], y{n}: 1}}" for n in range(1, 40)),
            ]
        )
    ),
    "kubernetes, documents": lambda: kubernetes.parse_kubernetes(fill("---\n")),
    "kubernetes, binary": lambda: kubernetes.parse_kubernetes(fill("\x00\x7f")),
    "kubernetes, variables": lambda: kubernetes.parse_kubernetes(
        manifest(
            "env: ["
            + ", ".join(f"{{name: a{n}, value: $(a{n - 1})$(a{n - 1})}}" for n in range(1, 60))
            + "], command: [x]"
        )
    ),
    "solid queue, blanks": lambda: solid_queue.parse_solid_queue(
        "a: {class: A, schedule: 'every" + fill(" ")
    ),
    "solid queue, words": lambda: solid_queue.parse_solid_queue(
        "a: {class: A, schedule: '" + fill("in A/B ") + "'}"
    ),
    "whenever, quotes": lambda: whenever.parse_whenever(fill("'")),
    "whenever, unended texts": lambda: whenever.parse_whenever(fill("\"#{'")),
    "whenever, a list": lambda: whenever.parse_whenever("every [" + fill(":a, ")),
    "whenever, words": lambda: whenever.parse_whenever(fill("do end ")),
    "toml, parts of a key": lambda: read("a" + fill(".a") + " = 1", "toml", "f"),
    "toml, quotes in a text": lambda: read('a = "' + fill('\\"'), "toml", "f"),
    "toml, quotes in a long text": lambda: read('a = """' + fill('""x'), "toml", "f"),
    "toml, headers": lambda: read(fill("[schedules.a"), "toml", "f"),
    "json, quotes in a text": lambda: read('["' + fill('\\"'), "json", "f"),
    "json, keys": lambda: read("{" + ",".join(f'"{n}": 1' for n in range(LENGTH // 12)) + "}", "json", "f"),
    "json, one key": lambda: read("[{" + fill('"a": 1,') + '"a": 1}]', "json", "f"),
    "yaml, flow": lambda: read("[" + fill("["), "yaml", "f"),
    "yaml, aliases": lambda: read(BOMB, "yaml", "f"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", CASES)
def test_reading_costs_what_the_text_is_long(case: str) -> None:
    """In linear time, whether read or refused."""
    before = time.process_time()
    with suppress(ValueError):
        CASES[case]()
    spent_s = time.process_time() - before
    assert spent_s < SECONDS_MAX or spent_s / slowness() < SECONDS_MAX
