"""Numbers that Python does not convert, or that no double holds: each reader of files has its own words.

Python's own message advises to call ``sys.set_int_max_str_digits()``, which no user of a command can do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from bedrock_worker import cli as worker_settings
from bedrock_worker.cli import main as worker
from bedrock_worker.policy.program import BadRules, read_rules
from cli_fake import fake_server, run

from bedrockjobs.cli import settings_sources
from bedrockjobs.cli.import_ import import_
from bedrockjobs.definitions import FORMATS, Format, parsed
from tests.effort import crossed

TOO_LONG = "expected a number of at most 4,300 digits"

HUGE = {
    "digits": "7" * 4_301,
    "no double": "7" * 400,
    "hexadecimal": f"0x{'7' * 4_000}",
    "exponent": "1e999",
    "fraction": f"{'7' * 4_301}.5",
}

IN_PYTHONS_WORDS = re.compile(
    r"sys\.|Exceeds|invalid literal|(?:could|can) ?not convert|too large|Traceback|\bint\("
)

FILES: dict[tuple[str, ...], tuple[str, str]] = {
    ("apply", "--dry-run"): (
        ".toml",
        '[[schedules]]\nname = "a"\nschedule = "5 * * * *"\nretries = 1\nrun_timeout = 1.5\ndata = {x = 1}\n',
    ),
    ("apply", "--dry-run", "--source", "a", "--format", "yaml"): (
        "-",
        "schedules:\n- name: a\n  schedule: 5 * * * *\n  retries: 1\n  run_timeout: 1.5\n  data: {x: [1]}\n",
    ),
    ("apply", "--dry-run", "--source", "a", "--format", "json"): (
        "-",
        '{"schedules": [{"name": "a", "schedule": "5m",\n "retries": 1, "runTimeout": 1.5,'
        ' "data": {"x": [1.5, "12"]}}], "prune": 1}',
    ),
    ("apply", "--source", "b"): (
        ".json",
        '{"schedules": [{"name": "a", "schedule": "CRON {\\"minute\\": 5}"}, {"name": "b", "repeat": "5m"}]}',
    ),
    ("workflow", "create"): (
        ".toml",
        'name = "a"\njobs = [{ref = "a", name = "b", retries = 1, delay = 2}]\n',
    ),
    ("workflow", "create", "--format", "yaml"): (
        "-",
        "name: a\njobs:\n- {ref: a, name: b, retries: 1, data: {x: 2}}\n",
    ),
    ("workflow", "create", "--format", "json"): (
        "-",
        '{"name": "a", "jobs": [{"ref": "a", "name": "b", "retries": 1}]}',
    ),
    ("import", "crontab"): ("-", "RANDOM_DELAY=1\n*/5 1-2 1 * 1,2 x\n@every_1 x\n"),
    ("import", "crontab", "--cron", "supercronic"): ("-", "*/5 1-2 1 * 1#2 x\n* * * * * * 2030/1 x\n"),
    ("import", "cronken"): (
        "-",
        '{"a": {"cron_args": {"minute": 1, "second": "*/2", "jitter": 1},'
        ' "job_args": {"cmd": "x", "lock": true, "ttl": 1}}}',
    ),
    ("import", "castle"): ("-", '{"Name": "a", "Cmd": "x", "Schedule": "*/5 1 * * 1#2", "Args": [1]}'),
    ("import", "ftl"): (".go", "package m\n\n//ftl:cron 5 1 * * 1\nfunc A(ctx context.Context) error {}\n"),
    ("import", "ftl", "--force"): (".kt", 'package ftl.m\n\n@Cron("1h5m")\nfun a() {}\n'),
    ("import", "ftl", "--yes"): (".java", 'package m;\nclass A { @Cron("1h5m") void a() { int x = 1; } }\n'),
    ("import", "luci"): (
        "-",
        'job { id: "a" schedule: "with 10s interval" url_fetch { url: "https://x" timeout_sec: 5 } }\n'
        'job { id: "b" schedule: "*/5 1 * * 7" url_fetch { url: "https://x" timeout_sec: 0x5 } }\n',
    ),
    ("import", "kubernetes"): (
        "-",
        "kind: CronJob\nmetadata: {name: a}\nspec:\n  schedule: '*/5 1 * * 1'\n  startingDeadlineSeconds: 1\n"
        "  jobTemplate: {spec: {backoffLimit: 1, template: {spec: {containers: [{command: [x]}]}}}}\n",
    ),
    ("import", "solid-queue"): (
        "-",
        "a: {class: A, schedule: every 5 minutes, args: [1, {b: 2}]}\n"
        "b: {class: A, schedule: at 5:30am every day}\n"
        "c: {class: A, schedule: '*/5 1-2 * * 1', queue: 1}\n",
    ),
    ("import", "whenever"): (
        "-",
        "every 5.minutes do\n  command 'x'\nend\nevery 1.day, at: 5 do\n  command 'x'\nend\n"
        "every 1.month, at: '5:30 am' do\n  command 'x'\nend\nevery 2.hours, at: 30 do\n  command 'x'\nend\n",
    ),
}
"""A file for each command that reads one, with the ending of its name or ``-`` for stdin.

It has numbers in each place that its format knows.
"""


def with_huge_numbers(text: str) -> Iterator[str]:
    """Yield the text with each of its numbers replaced by each huge one; by day by one of them in turn."""
    for number, huge in crossed(re.finditer(r"(?<![\w#])\d+(?:\.\d+)?", text), HUGE.values()):
        yield text[: number.start()] + huge + text[number.end() :]


@pytest.mark.parametrize("words", FILES, ids=" ".join)
def test_a_file_with_a_huge_number_is_refused_in_our_words(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command that reads a file, with a huge number in each place; some may stand for an argument."""
    fake_server(monkeypatch)
    ending, text = FILES[words]
    refused = 0
    for given in with_huge_numbers(text):
        file = tmp_path / f"file{ending}"
        file.write_text(given)
        result = run(*words, "-" if ending == "-" else str(file), stdin=given if ending == "-" else None)
        assert not IN_PYTHONS_WORDS.search(result.output), given[:200]
        refused += result.exit_code != 0
    assert refused


def test_each_importer_is_walked() -> None:
    """None is left out above."""
    assert {words[1] for words in FILES if words[0] == "import"} == import_.commands.keys()


SETTINGS = (
    "[server]\nport = 1\nbody_s = 1.5\nkeep_finished = 1\nwal_bytes = 1\n"
    "[worker]\nconcurrency = 1\ngrace = 1.5\n"
)
RULES = (
    '[[rule]]\nname = "a"\nargv = ["/bin/true"]\nnice = 1\ntimeout = 1.5\n'
    "limits = {cpu = 1, as = 1, fsize = 1, nofile = 1, nproc = 1}\n"
)


def rules_problem(file: Path) -> str:
    """Return what is said about a file of rules, empty if it is valid."""
    try:
        read_rules(file)
    except BadRules as error:
        return str(error)
    return ""


def worker_problems(file: Path) -> str:
    """Return what the worker says about its settings."""
    return "\n".join(worker_settings.read_settings(click.Context(worker), file)[0])


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda file: "\n".join(settings_sources.read_settings(file).problems), SETTINGS),
        (worker_problems, SETTINGS),
        (rules_problem, RULES),
    ],
    ids=["serve", "worker", "rules"],
)
def test_settings_and_rules_with_huge_numbers_are_refused_in_our_words(
    read: Callable[[Path], str], text: str, tmp_path: Path
) -> None:
    """In each place of a file of settings, and of one of rules."""
    file = tmp_path / "file.toml"
    file.write_text(text)
    file.chmod(0o600)
    said = []
    for given in with_huge_numbers(text):
        file.write_text(given)
        said.append(read(file))
        assert not IN_PYTHONS_WORDS.search(said[-1]), given[:200]
    assert TOO_LONG in "\n".join(said)
    assert all(said) or read is not rules_problem, "each place of a rule is checked when it is read"


LONG: dict[Format, str] = {
    "toml": 'a = "{0}"\nb = [\n{0}]\n',
    "yaml": 'a: "{0}"\nb:\n- {0}\n',
    "json": '{{"a": "{0}",\n"schedules": [{{"b": "{0}",\n"c": {0}}}]}}',
}


@pytest.mark.parametrize("form", FORMATS)
def test_the_line_of_a_number_that_is_too_long(form: Format) -> None:
    """A text of digits is none."""
    text = LONG[form].format("7" * 4_301)
    with pytest.raises(ValueError, match=TOO_LONG) as caught:
        parsed(text, form)
    assert "line 3" in str(caught.value)
    assert parsed(LONG[form].format("7" * 4_300), form).value["a"] == "7" * 4_300
