"""Random texts from the pieces of each format: every parser accepts them or gives a reason.

Read schedules can be written, and written ones are read back unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedrockjobs.cli.import_ import definitions_text
from bedrockjobs.definitions import BadDefinitions, Format, read
from bedrockjobs.imports import castle, cronken, crontab, ftl, kubernetes, luci, solid_queue, whenever
from bedrockjobs.imports.imported import ImportedSchedule, Unreadable
from tests.effort import examples

Reader = Callable[[str], list[ImportedSchedule]]

COMMON = [
    "\n",
    " ",
    '"',
    "'",
    "\\",
    "\t",
    "a",
    "b",
    "é",
    "\u2028",
    "\x00",
    "5m",
    "0 9 * * *",
    "[",
    "]",
    "{",
    "}",
    ":",
    ",",
    "1",
    "-1",
    "0x1f",
    "1e999",
    "\r",
]
PIECES: dict[str, list[str]] = {
    "crontab": [
        "* * * * * x",
        "@daily y",
        "@reboot",
        "A=1",
        "CRON_TZ=Asia/Tokyo",
        "TZ=x",
        "SHELL=/bin/bash",
        "%",
        "MAILTO=",
        "RANDOM_DELAY=5",
        "#",
        "-",
        "=",
    ],
    "cronken": [
        '{"a": {"cron_args": {"minute": "*"}, "job_args": {"cmd": "x", "lock": true, "ttl": 1}}}',
        '"cron_args"',
        '"cronstring"',
        '"0 0 * * 0"',
        '"job_args"',
        '"cmd"',
        '"lock"',
        "true",
        "null",
        '"\\ud800"',
        "NaN",
        '"b": ',
        "{}",
    ],
    "castle": [
        "castle-cron add a '@daily' x\n",
        "castle-cron upd a '@daily' x",
        "del",
        '{"Name": "a", "Cmd": "x", ',
        '"Schedule": "@daily"}',
        '"Args": ["\\ud800"],',
        '"HasError": true',
        "[{",
        "}]",
    ],
    "go": [
        "package m\n",
        "//ftl:cron 5m\n",
        "//ftl:cron",
        "func A(ctx context.Context) error {",
        "`",
        "/*",
        "*/",
        "//",
        "(",
        ")",
        "var x = 1\n",
        "func (s *S) B() {}",
        "import (\n",
    ],
    "kotlin": [
        "package ftl.m\n",
        '@Cron("5m")',
        "@Cron",
        "fun a() {}",
        '"""',
        "/*",
        "*/",
        "//",
        "(",
        ")",
        "$",
        "${",
        "import xyz.block.ftl.Cron as E\n",
        "@[",
        "<",
        ">",
        "\\ud800",
        "`",
        "@get:",
        "value = ",
        "+",
        "fun ",
    ],
    "luci": [
        "job {",
        "trigger {",
        'id: "a"',
        "schedule: ",
        '"with 10s interval"',
        "noop {}",
        "noop",
        "url_fetch {",
        'url: "https://x"',
        "triggers: 'a'",
        "disabled: true",
        "<",
        ">",
        ";",
        "#",
        "\\xff",
        "\\ud800",
        "triggering_policy {",
        "kind: 1",
        "'\\101'",
        "acl_sets {",
    ],
    "kubernetes": [
        "kind: CronJob\n",
        "metadata: {name: a}\n",
        "spec: {schedule: '0 9 * * *', jobTemplate: {spec: {template: "
        "{spec: {containers: [{command: [x]}]}}}}}\n",
        "spec: {schedule: '0 9 * * *', jobTemplate: {spec: {backoffLimit: 1}}}\n",
        "---\n",
        "&a ",
        "*a",
        "<<: ",
        "- ",
        "  ",
        "items:\n",
        "kind: List\n",
    ],
    "solid_queue": [
        "production:\n",
        "  a: {class: A, schedule: every hour, args: [1, {b: c}]}\n",
        "  b: {command: x, schedule: at 5am every day}\n",
        "  ",
        "schedule: ",
        "every 5 minutes",
        "*/5 9-17 * * 1-5 UTC",
        "class: A::B\n",
        "&a ",
        "*a",
    ],
    "whenever": [
        "every 1.day, at: '4:30 am' do\n",
        "every :hour do\n",
        "every [:monday, '0 0 * * *'] do\n",
        "rake 'a'\n",
        'runner "A.b"\n',
        "command 'x', output: nil\n",
        "set :path, '/a'\n",
        "env :A, 'b'\n",
        "if x\n",
        "end\n",
        "# ",
        "'",
        '"#{',
    ],
}
READERS: dict[str, Reader] = {
    "crontab": crontab.parse_crontab,
    "cronken": cronken.parse_cronken,
    "castle": castle.parse_castle,
    "go": lambda text: ftl.parse_ftl(text, file="a.go"),
    "kotlin": lambda text: ftl.parse_ftl(text, file="a.kt"),
    "luci": luci.parse_luci,
    "kubernetes": kubernetes.parse_kubernetes,
    "solid_queue": solid_queue.parse_solid_queue,
    "whenever": lambda text: whenever.parse_whenever(text, path="/a"),
}


def texts(kind: str) -> st.SearchStrategy[str]:
    """Return texts of pieces of a format, one after another."""
    piece = st.one_of(st.sampled_from(PIECES[kind]), st.sampled_from(COMMON), st.text(max_size=3))
    return st.lists(piece, max_size=25).map("".join)


@pytest.mark.parametrize("kind", READERS)
def test_a_reader_reads_or_says_why_not(kind: str) -> None:
    """For any text."""

    @settings(max_examples=examples(25, night=5_000), deadline=None)
    @given(texts(kind))
    def check(text: str) -> None:
        try:
            found = READERS[kind](text)
        except Unreadable:
            return
        for entry in found:
            assert entry.name
            assert bool(entry.refused) or bool(entry.repeat), entry
            assert not (entry.refused and entry.repeat), entry
        names = [entry.name for entry in found if not entry.refused]
        assert len(names) == len(set(names))
        taken = [entry for entry in found if entry.expression and not entry.refused]
        _check_written(taken, [entry for entry in found if entry.refused])

    check()


def _check_written(taken: list[ImportedSchedule], refused: list[ImportedSchedule]) -> None:
    try:
        written = definitions_text("a", taken, "src", refused)
    except BadDefinitions:  # as the command says before it writes
        return
    try:
        again = read(written, "toml", "f")
    except BadDefinitions:  # a command that is too long, say
        return
    assert [entry.name for entry in again.schedules] == [entry.name for entry in taken]
    assert again.prune is not bool(refused)
    for entry, found in zip(again.schedules, taken, strict=True):
        assert entry.given["repeat"] == found.repeat


DEFINITIONS: dict[Format, list[str]] = {
    "toml": [
        "[[schedules]]\n",
        "name = 'a'\n",
        'schedule = "5m"\n',
        "[schedules.a]\n",
        '"""',
        "'''",
        "source = ",
        "#",
        "prune = true\n",
        "data = {",
        "=",
        ".",
        "1979-05-27",
    ],
    "yaml": [
        "schedules:\n",
        "- ",
        "name: a\n",
        "  schedule: 5m\n",
        "&a ",
        "*a",
        "? ",
        "!!str ",
        "|\n",
        "<<: ",
        "#",
        "---\n",
        "%",
        "  ",
    ],
    "json": [
        '{"schedules": [',
        '{"name": "a", "schedule": "5m"}',
        '"source": "x"',
        "]}",
        "NaN",
        '"prune": false',
    ],
}


@pytest.mark.parametrize("form", DEFINITIONS)
def test_definitions_are_read_or_say_why_not(form: Format) -> None:
    """In each of the three formats."""
    piece: Any = st.one_of(st.sampled_from(DEFINITIONS[form]), st.sampled_from(COMMON), st.text(max_size=3))

    @settings(max_examples=examples(25, night=5_000), deadline=None)
    @given(st.lists(piece, max_size=25).map("".join))
    def check(text: str) -> None:
        try:
            found = read(text, form, "f")
        except BadDefinitions:
            return
        assert len({entry.name for entry in found.schedules}) == len(found.schedules)

    check()
