"""Definitions files: three equivalent formats, and messages about invalid files."""

from __future__ import annotations

import json
import re
import tomllib
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from bedrock_worker.policy.program import BadRules, read_rules

from bedrockjobs import definitions
from bedrockjobs.base.config import (
    SCHEDULE_FILE_CHARS_MAX,
    TOML_KEY_PARTS_MAX,
    YAML_NODES_MAX,
    YAML_VALUES_PER_CHAR_MAX,
)
from bedrockjobs.base.settings_file import SettingsFileError, read_table
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands import SyncSchedules
from bedrockjobs.commands.options import JobOptions
from bedrockjobs.definitions import (
    FORMATS,
    KEYS,
    PROBLEMS_SHOWN,
    RULE_KEYS,
    BadDefinitions,
    Format,
    format_of,
    parsed,
    read,
    toml_comment,
    toml_entry,
)
from bedrockjobs.imports import yaml_items
from tests.effort import examples

TOML = """
source = "reports"

[[schedules]]
name = "report/daily"
schedule = "0 9 * * 1-5"
zone = "Europe/Berlin"
cmd = "make report"
run_timeout = "10m"
retries = 2
data = { to = "ops", sizes = [1, 2.5], on = true }

[[schedules]]
name = "report/never"
repeat = "CRON @never"
argv = ["/bin/true", ""]
paused = true
"""

YAML = """
source: reports
schedules:
  report/daily:
    schedule: 0 9 * * 1-5
    zone: Europe/Berlin
    cmd: make report
    runTimeout: 10m
    retries: 2
    data: {to: ops, sizes: [1, 2.5], on: true}
  report/never:
    schedule: "@never"
    argv: [/bin/true, ""]
    paused: true
"""

JSON = json.dumps(tomllib.loads(TOML))

DAILY = {
    "name": "report/daily",
    "repeat": "CRON TZ=Europe/Berlin 0 9 * * 1-5",
    "cmd": "make report",
    "runTimeout": "10m",
    "retries": 2,
    "data": {"to": "ops", "sizes": [1, 2.5], "on": True},
}


def one(**given: Any) -> dict[str, Any]:
    """Return the schedule of a file with one schedule."""
    (found,) = read(json.dumps([{"name": "a", "schedule": "5m", **given}]), "json", "f").schedules
    return found.given


def refused(text: str, form: Format = "json") -> str:
    """Return the error for an invalid file."""
    with pytest.raises(BadDefinitions) as caught:
        read(text, form, f"jobs.{form}")
    message = str(caught.value)
    assert message.startswith(f"jobs.{form}: ")
    return message.removeprefix(f"jobs.{form}: ")


@pytest.mark.parametrize(("text", "form"), [(TOML, "toml"), (YAML, "yaml"), (JSON, "json")])
def test_the_three_formats_say_the_same(text: str, form: Format) -> None:
    """Schedules as a list or as a table by name, and options in either spelling."""
    found = read(text, form, "jobs")
    daily, never = found.schedules
    assert found.source == "reports"
    assert (daily.name, daily.given, daily.paused) == ("report/daily", DAILY, False)
    assert never.given == {"name": "report/never", "repeat": "CRON @never", "argv": ["/bin/true", ""]}
    assert never.paused
    command = SyncSchedules.read({"source": "x", "schedules": [daily.given, never.given]})
    assert [spec.name for spec in command.schedules] == ["report/daily", "report/never"]


def test_a_bare_list_is_enough_and_an_empty_one_is_one() -> None:
    """An empty list removes the last schedule of a source."""
    assert read("- {name: a, schedule: 5m}", "yaml", "f").schedules[0].given["repeat"] == "CRON 5m"
    assert read("[]", "json", "f").schedules == []
    assert read("schedules = []", "toml", "f").schedules == []
    assert refused("", "toml").startswith("schedules is missing")
    assert refused("", "yaml").startswith("schedules is missing")


def test_every_option_can_be_given_in_both_spellings() -> None:
    """Every option has both spellings, and no spelling is ambiguous."""
    for field in JobOptions.model_fields:
        assert definitions.KEYS[field] == definitions.KEYS[wire_name(field)] == field
    assert not {"first_run", "retry_after", "unique", "parent_job_id"} & set(definitions.KEYS)


@pytest.mark.parametrize(
    ("given", "repeat"),
    [
        ({"schedule": "0 9 * * 1-5"}, "CRON 0 9 * * 1-5"),
        ({"schedule": "CRON TZ=Asia/Tokyo 5m"}, "CRON TZ=Asia/Tokyo 5m"),
        ({"schedule": "5m", "zone": "UTC"}, "CRON 5m"),
        ({"schedule": "5m", "zone": "Asia/Tokyo"}, "CRON TZ=Asia/Tokyo 5m"),
        ({"schedule": None, "repeat": "CRON Mon"}, "CRON Mon"),
        ({"schedule": None, "repeat": "CRON Mon", "zone": "Asia/Tokyo"}, "CRON TZ=Asia/Tokyo Mon"),
    ],
)
def test_times(given: dict[str, Any], repeat: str) -> None:
    """A schedule has an expression and a zone, or a repeat."""
    assert one(**given)["repeat"] == repeat


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"retrys": 2}, "schedule a: unknown key 'retrys', expected retries"),
        ({"xyzzy": 2}, "schedule a: unknown key 'xyzzy'"),
        ({"run_timeout": 5, "runTimeout": 5}, "runTimeout: it is given twice"),
        ({"run_timeout": "soon"}, "runTimeout: expected a duration of whole seconds"),
        ({"schedule": "61 * * * *"}, "schedule: minute '61'"),
        ({"schedule": "0 0 31 2 *"}, "would never fire"),
        ({"schedule": 5}, "schedule: expected a string"),
        ({"schedule": None}, "either schedule or repeat"),
        ({"repeat": "CRON 5m"}, "either schedule or repeat"),
        ({"schedule": None, "repeat": "DAILY"}, "repeat: expected CRON and an expression"),
        ({"zone": "Nowhere"}, "Nowhere"),
        ({"schedule": "TZ=UTC 5m", "zone": "UTC"}, "zone: schedule names one already"),
        ({"paused": "yes"}, "paused: expected true or false"),
        ({"cmd": "a", "url": "http://x"}, "url: expected one of cmd, argv and url"),
        ({"argv": "a b"}, "argv: expected a JSON array"),
        ({"data": [1]}, "data: expected a JSON object"),
        ({"priority": 7}, "priority: expected one of 0"),
        ({"name": 5}, "schedule 1: name: expected a valid string"),
        ({"name": None}, "schedule 1: name is required"),
        ({"overlap": "maybe"}, "overlap: expected 'skip' or 'queue'"),
    ],
)
def test_what_is_wrong_is_said_with_file_schedule_and_key(change: dict[str, Any], why: str) -> None:
    """And with what was expected."""
    assert why in refused(json.dumps([{"name": "a", "schedule": "5m", **change}]))


@pytest.mark.parametrize(
    ("text", "form", "why"),
    [
        ("{", "json", "Expecting"),
        ('[{"name": "a", "name": "b"}]', "json", "'name' is given twice"),
        ('"a"', "json", "expected a list of schedules"),
        ('{"schedules": 5}', "json", "expected a list, or a table by name"),
        ('{"schedules": [5]}', "json", "schedule 1: expected its keys and values"),
        ('{"schedules": {"a": {"name": "b", "schedule": "5m"}}}', "json", "expected only as the key"),
        ('{"schedules": [], "jobs": []}', "json", "unknown key 'jobs', expected one of source, prune"),
        ('{"schedules": [], "source": 5}', "json", "source: expected a string"),
        ('{"schedules": [], "prune": 0}', "json", "prune: expected true or false"),
        (
            '[{"name": "a", "schedule": "5m"}, {"name": "a", "schedule": "6m"}]',
            "json",
            "line 1: schedule a: two have this name, the first one at line 1",
        ),
        ('[{"name": "a", "data": {"x": NaN}}]', "json", "line 1: expected a number, not NaN"),
        ("\n\n" + "[" * 100_000, "json", "line 3: nested deeper than 64 levels"),
        ("a = 1\nb = " + "[" * 50_000, "toml", "line 2: nested deeper than 64 levels"),
        ("a = 1\nb = " + "{a=" * 50_000, "toml", "line 2: nested deeper than 64 levels"),
        (
            "[a]\n\na" + ".a" * 50_000 + " = 1",
            "toml",
            f"line 3: expected a key of at most {TOML_KEY_PARTS_MAX} parts",
        ),
        ('[a."b".' + " 'c' . d." * 32 + "e]", "toml", "line 1: expected a key of at most 64 parts"),
        ("a: 1\nb: " + "[" * 50_000, "yaml", "line 2: nested deeper than 64 levels"),
        ("a:\n" + "- " * 50_000, "yaml", "line 2: nested deeper than 64 levels"),
        ("\n".join(f"{' ' * n}a:" for n in range(500)), "yaml", "line 65: nested deeper than 64 levels"),
        (" " * (SCHEDULE_FILE_CHARS_MAX + 1), "json", f"at most {SCHEDULE_FILE_CHARS_MAX} characters"),
        ('[\n{"name": "a",\n "name": "b"}]', "json", "line 3: the key 'name' is given twice"),
        ('{"schedules": [],\n "schedules": []}', "json", "line 2: the key 'schedules' is given twice"),
        ('{"schedules": [{"name": "a"}', "json", "delimiter: line 1"),
        ("[" * 70 + "]" * 70, "json", "nested deeper than 64 levels"),
        ("a = ", "toml", "Invalid value"),
        ("schedules = []\nschedules = []", "toml", r"the key schedules is given twice \(at line 2"),
        ("schedules = []\nsource = 2026-01-01", "toml", "source: expected a string, a number, true or false"),
        ("- name: a\n  schedule: * * * * *", "yaml", "line 2: .*quotes"),
        ("- name: a\n  schedule: */5 * * * *", "yaml", "line 2: .*quotes"),
        ("- name: a\n  name: b", "yaml", "line 2: .*duplicate key"),
        ("a: [", "yaml", "line 1"),
        ("- {name: a, schedule: 5m, data: {1: x}}", "yaml", r"data: the key 1: expected a string"),
        ("- {name: a, schedule: 5m, data: {x: 2026-01-01}}", "yaml", r"data\.x: .*date in quotes"),
        ("&a [*a]", "yaml", "line 1: an alias is inside the value that it refers to"),
        ("\n&a {<<: *a}", "yaml", "line 2: an alias is inside the value that it refers to"),
        ("a: " + "[" * 66 + "]" * 66 + "\nb: [", "yaml", "line 1: nested deeper than 64 levels"),
        ("- a\n- !!omap [a: 1, a: 1]", "yaml", "line 2: expected a type that JSON has, not omap"),
        ("!!set {a, b}", "yaml", "line 1: expected a type that JSON has, not set"),
        ("!!python/object/apply:os.getcwd []", "yaml", "could not determine a constructor"),
    ],
    ids=lambda value: value[:30],
)
def test_files_that_cannot_be_read(text: str, form: Format, why: str) -> None:
    """The error names the place, and files never execute anything."""
    message = refused(text, form)
    assert re.search(why, message), message


def test_a_yaml_file_of_too_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By day with a tenth of the limit: reading so many takes seconds."""
    most = examples(YAML_NODES_MAX // 10, night=YAML_NODES_MAX)
    monkeypatch.setattr(f"{yaml_items.__name__}.YAML_NODES_MAX", most)
    assert refused("[" + "1," * most + "]", "yaml").startswith(f"line 1: expected at most {most} values")


@pytest.mark.parametrize("entry", ["[{}]", "{{<<: [{}]}}"])
def test_aliases_of_aliases_end(entry: str) -> None:
    """A small file that expands to a billion values is refused before the expansion."""
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{n}: &a{n} {entry.format(', '.join([f'*a{n - 1}'] * 10))}" for n in range(1, 9)]
    text = "\n".join(lines)
    assert refused(text, "yaml").startswith(
        f"line 4: expected aliases that expand to at most {YAML_VALUES_PER_CHAR_MAX} values"
    )


def test_a_file_in_which_all_is_shared_is_read() -> None:
    text = "- &d {name: a, schedule: 5m, tags: [a, b], retries: 3, data: {x: 1, y: [2, 3]}}\n"
    text += "".join(f"- {{<<: *d, name: a{n}}}\n" for n in range(500))
    assert len(read(text, "yaml", "f").schedules) == 501


@pytest.mark.parametrize("word", ["on", "off", "yes", "no", "y", "0o9", "1:30", "09:30"])
def test_yaml_takes_words_for_words(word: str) -> None:
    """YAML 1.1 would read them as booleans and numbers; here a country's `no` is a name."""
    (found,) = read(f"- name: {word}\n  schedule: 0 9 * * *\n  cmd: {word}\n", "yaml", "f").schedules
    assert (found.name, found.given["cmd"], found.given["repeat"]) == (word, word, "CRON 0 9 * * *")


def test_an_anchor_may_be_given_anew_without_a_word() -> None:
    found = read("- &a {name: a, schedule: 5m}\n- &a {name: b, schedule: 5m}", "yaml", "f")
    assert [one.name for one in found.schedules] == ["a", "b"]


def test_yaml_anchors_and_merges() -> None:
    """Schedules may share values."""
    text = "- &d {name: a, schedule: 5m, retries: 3}\n- {<<: *d, name: b}\n"
    assert [entry.given["retries"] for entry in read(text, "yaml", "f").schedules] == [3, 3]


def test_formats_are_known_by_suffixes() -> None:
    """In upper or lower case."""
    names = ["a.toml", "a.yaml", "dir/a.YML", "a.json", "a.txt", "-"]
    assert [format_of(name) for name in names] == ["toml", "yaml", "yaml", "json", None, None]


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "a", "schedule": "5m", "cmd": "echo \"a\\b\"\n\ttab \x7f\x1b ü 'q' # no"},
        {"name": "a", "schedule": "5m", "argv": ["a", "", "ü"], "retries": 2, "lock": True},
        {
            "name": "a",
            "schedule": "5m",
            "url": {"url": "https://x", "headers": {"X-A b": "1"}, "status": [200]},
        },
        {"name": "a", "schedule": "5m", "data": {}, "paused": False},
    ],
)
def test_what_is_written_reads_the_same(entry: dict[str, Any]) -> None:
    """With any characters; comments stay comments, even with line ends in them."""
    text = toml_entry(entry, ["a warning", "two\nlines"])
    assert text.startswith("# a warning\n# two\n# lines\n[[schedules]]\n")
    assert tomllib.loads(text) == {"schedules": [entry]}


@pytest.mark.parametrize(
    ("text", "form", "line"),
    [
        ('a = """\n[[schedules]]\n"""\n', "toml", 0),
        ('# one\n[[schedules]]\nname = "a"\nschedule = "5m"\n\n[[schedules]]\nname = "b"\n', "toml", 6),
        ('[[schedules]]\nname = "a"\nschedule = "5m"\n[schedules.data]\nx = 1\n[[schedules]]\n', "toml", 6),
        ('[schedules.a]\nschedule = "5m"\n[schedules.b]\nno = "5m"\n', "toml", 3),
        ('schedules = [{name = "a", schedule = "5m"},\n{name = "b"}]\n', "toml", 0),
        ("schedules:\n- name: a\n  schedule: 5m\n- name: b\n", "yaml", 4),
        ("- name: a\n  schedule: 5m\n\n- name: b\n", "yaml", 4),
        ("schedules:\n  a: {schedule: 5m}\n  b: {}\n", "yaml", 3),
        ('[{"name": "a", "schedule": "5m"},\n\n{"name": "b"}]', "json", 3),
        ('{"source": "x", "schedules": [{"name": "a", "schedule": "5m"},\n{"name": "b"}]}', "json", 2),
        ('{"schedules": {"a": {"schedule": "5m"},\n"b": {}}}', "json", 2),
    ],
)
def test_what_is_wrong_with_a_schedule_has_its_line(text: str, form: Format, line: int) -> None:
    """If the text shows it; comments and strings of a file never count as a schedule."""
    message = refused(text, form)
    expected = rf"line {line}: schedule (b|2): " if line else r"(schedule b|unknown key)"
    assert re.match(expected, message), message


@pytest.mark.parametrize(
    "text",
    [
        '[[schedules]]\nname = "a"\nschedule = "5m"\ncmd = """\n' + "a.b." * 100 + '"""\n',
        "[[schedules]]\nname = 'a'\nschedule = '5m'\ncmd = '" + "[" * 100 + "'\n# " + "[a.b." * 100 + "\n",
        "[[schedules]]\nname = 'a'\nschedule = '5m'\ncmd = '''" + "{'" * 100 + "'''\n",
        "[[schedules]]\nname = 'a'\nschedule = '5m'\ndata = {x = [" + "1.5, " * 100 + "]}\n",
    ],
    ids=range(4),
)
def test_what_stands_in_texts_and_comments_is_not_deep(text: str) -> None:
    """Brackets and dots in strings and comments do not count as nesting."""
    assert [found.name for found in read(text, "toml", "f").schedules] == ["a"]


def test_a_comment_is_one_line_whatever_it_says() -> None:
    """Characters that TOML forbids in a comment are dropped, so that no text escapes from it."""
    text = toml_entry({"name": "a", "schedule": "5m"}, ["one\x00\x1btwo\rname = 5\x7f"])
    assert text.startswith("# one two\n# name = 5 \n[[schedules]]\n")
    assert toml_comment("a\n[[schedules]]") == "# a [[schedules]]"
    assert [found.name for found in read(text, "toml", "f").schedules] == ["a"]


def test_very_many_problems_are_counted() -> None:
    text = '[[schedules]]\nname = "a"\nschedule = "5m"\nargvrce = "s"\n' * 60
    with pytest.raises(BadDefinitions) as told:
        read(text, "toml", "f")
    assert len(told.value.problems) == PROBLEMS_SHOWN + 1
    assert told.value.problems[-1] == "f: and 19 more"


ENTRIES: dict[str, dict[str, Any]] = {
    "schedules": {"name": "a", "schedule": "5m", "data": {"x": 1}},
    "notify": {"name": "a", "on": ["failed"], "to": "mailto:a@b.example"},
}
"""An entry of each kind of definition."""

SPELLINGS = {"schedules": KEYS, "notify": RULE_KEYS}


def file_of(form: Format, kind: str, *given: tuple[str, Any]) -> str:
    """Return a file with one entry; each of its keys is on a line of its own, the first one on line 2."""
    pairs = [(key, json.dumps(value) if form != "toml" else toml_value(value)) for key, value in given]
    if form == "toml":
        return "\n".join([f"[[{kind}]]", *(f"{key} = {value}" for key, value in pairs)])
    if form == "json":
        return f'{{"{kind}": [{{\n' + ",\n".join(f'"{key}": {value}' for key, value in pairs) + "\n}]}"
    first, *others = [f"{key}: {value}" for key, value in pairs]
    return "\n".join([f"{kind}:", f"- {first}", *(f"  {each}" for each in others)])


def toml_value(value: Any) -> str:
    """Return a value as TOML."""
    return toml_entry({"x": value}).partition("x = ")[2].strip()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ENTRIES)
def test_a_key_given_twice_is_refused_with_its_line(kind: str, form: Format) -> None:
    given = list(ENTRIES[kind].items())
    assert "twice" not in str(read(file_of(form, kind, *given), form, "f")), "each of them once is right"
    for key, value in given:
        for again in (value, "other"):
            message = refused(file_of(form, kind, *given, (key, again)), form)
            assert re.search(rf"line {len(given) + 2}\b", message), message
            assert re.search(f"the key '?{key}'? is given twice|duplicate key", message), message


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ENTRIES)
def test_a_key_given_in_two_spellings_is_refused_with_its_line(kind: str, form: Format) -> None:
    """In either order of the spellings."""
    spelled: dict[str, list[str]] = {}
    for key, field in SPELLINGS[kind].items():
        spelled.setdefault(field, []).append(key)
    several = {field: keys for field, keys in spelled.items() if len(keys) > 1}
    assert len(several) >= {"schedules": 11, "notify": 2}[kind]
    for keys in several.values():
        for one_way, other in permutations(keys, 2):
            given = [each for each in ENTRIES[kind].items() if each[0] not in keys]
            text = file_of(form, kind, *given, (one_way, "x"), (other, "x"))
            told = f"line {len(given) + 3}: {kind.removesuffix('s') if kind == 'schedules' else 'rule'} a:"
            assert f"{told} {other}: it is given twice, in two spellings" in refused(text, form)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ENTRIES)
def test_an_entry_given_twice_is_refused(kind: str, form: Format) -> None:
    entry = json.dumps(ENTRIES[kind])
    text = {
        "json": f'{{"{kind}": [{entry},\n{entry}]}}',
        "yaml": f"{kind}:\n- {entry}\n- {entry}\n",
        "toml": "\n".join([file_of("toml", kind, *ENTRIES[kind].items())] * 2),
    }[form]
    assert " a: two have this name, the first one at line " in refused(text, form)


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_key_given_twice_within_data_is_refused(form: Format) -> None:
    """TOML's grammar forbids it; otherwise the job's data would contain only the last value."""
    text = {"yaml": "- {name: a, schedule: 5m,\n   data: {x: 1, x: 2}}", "json": ""}[form]
    text = text or '[{"name": "a", "schedule": "5m",\n"data": {"x": 1, "x": 2}}]'
    assert re.search("line 2.*(twice|duplicate key)", refused(text, form), re.DOTALL)


def test_files_of_settings_and_of_the_worker_refuse_it_too(tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_text("[server]\nport = 1\nport = 2\n")
    with pytest.raises(SettingsFileError, match=r"f\.toml:3: expected TOML: the key port is given twice"):
        read_table(file, "server")
    file.write_text('[[rules]]\nname = "a"\nname = "b"\n')
    with pytest.raises(BadRules, match=r"the key name is given twice \(at line 3"):
        read_rules(file)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = 1\na = 2", "the key a is given twice (at line 2,"),
        ("a = 1\n\n'a' = 2 # and more\n\n", "the key 'a' is given twice (at line 3,"),
        ("a.b = 1\na.b = 2\n", "the key a.b is given twice (at line 2,"),
        ("a = 1\na = [\n1]\n", "a key is given twice (at line 3,"),
        ("[a]\n[b]\n[a]\nc = 1\n", "[a] is given twice (at line 3,"),
        ("a = 1\n[[a]]\n", "[[a]] is given twice (at line 2,"),
        ("a = 1\n[a]", "[a] is given twice (at line 2,"),
        ("a = {x = 1, x = 2}\n", "Duplicate inline table key 'x' (at line 1,"),
    ],
)
def test_toml_says_what_is_given_twice(text: str, told: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError) as refused:
        parsed(text, "toml")
    assert str(refused.value).startswith(told)
