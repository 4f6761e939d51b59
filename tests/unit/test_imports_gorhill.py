"""castle-cron, LUCI and FTL: three readers of neighbouring dialects."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from croniter import croniter

from bedrockjobs.imports import castle, ftl, gorhill, luci, textproto
from bedrockjobs.imports.found import Found, Unreadable
from bedrockjobs.schedule import cron

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

# --- gorhill/cronexpr --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "ours"),
    [
        ("0 */3 * * *", "0 */3 * * *"),
        ("0 */3 * * * *", "0 */3 * * *"),
        ("0 9 * * 1-5 2030", "0 0 9 * * 1-5 2030"),
        ("30 0 9 * * 1-5 *", "30 0 9 * * 1-5 *"),
        ("0 0 ? * 5L", "0 0 * * 5L"),
        ("0 0 1 * ?", "0 0 1 * *"),
        ("0 0 1 * * ?", "0 0 1 * *"),
        ("5 0 0 1 * ? *", "5 0 0 1 * * *"),
        ("@Daily", "@daily"),
    ],
)
def test_the_minute_comes_first_unless_there_are_seven_fields(said: str, ours: str) -> None:
    """A sixth field is a year."""
    old, expression = gorhill.read(said)
    assert expression == ours
    assert cron.parse(expression) == old


@pytest.mark.parametrize("said", ["0 */3 * * *", "0 1/3 * * *", "0 2,10,18 * * *", "0 0 1 * 1", "0 0 * * 5L"])
def test_five_fields_are_as_croniter_has_them(said: str) -> None:
    """Either day field is enough."""
    old, expression = gorhill.read(said)
    found = Found("a", "line 1", said, expression, old=old)
    oracle = croniter(said.replace("5L", "L5"), NOW)  # as croniter spells it
    assert found.old_times(NOW, 5) == found.our_times(NOW, 5) == [oracle.get_next(datetime) for _ in range(5)]


@pytest.mark.parametrize("said", ["", "0 9 * *", "1 2 3 4 5 6 7 8", "@reboot", "@minutely", "Mon", "5m"])
def test_what_gorhill_does_not_know_is_refused(said: str) -> None:
    """Also what our own dialect has beyond it."""
    with pytest.raises(cron.BadSchedule, match="5 to 7 fields"):
        gorhill.read(said)


# --- castle-cron -------------------------------------------------------------------------------------------


def test_castle_structs() -> None:
    """One, a list, or one a line; names of keys in any case."""
    job = {"Name": "a", "Cmd": "/bin/date", "Args": ["-u"], "HasError": False,
           "NextRuntime": "2016-01-01T00:00:00Z", "Schedule": "0 */3 * * * *"}  # fmt: skip
    second = {"name": "b", "cmd": "x", "args": None, "schedule": "@daily"}
    for text in (json.dumps([job, second]), f"{json.dumps(job)}\n{json.dumps(second)}\n"):
        first, other = castle.read(text, zone="Europe/Berlin")
        assert (first.repeat, first.options) == (
            "CRON TZ=Europe/Berlin 0 */3 * * *",
            {"argv": ["/bin/date", "-u"]},
        )
        assert "6 fields" in first.warnings[0]
        assert (other.repeat, other.options, other.warnings) == (
            "CRON TZ=Europe/Berlin @daily", {"argv": ["x"]}, ()
        )  # fmt: skip
    assert [found.name for found in castle.read(json.dumps(job))] == ["a"]


def test_castle_lines() -> None:
    """The commands that made the jobs, with options of the program; the last one of a name counts."""
    found = castle.read(
        """# nightly things
export X=1; ./castle-cron -zk a,b add nightly '0 2 * * *' tar -cf '/srv/a b.tar' /srv
castle-cron upd nightly "0 3 * * *" true
"""
    )
    assert [(entry.name, entry.repeat, entry.options) for entry in found] == [
        ("nightly", "CRON 0 3 * * *", {"argv": ["true"]})
    ]
    (first,) = castle.read("castle-cron add n '0 2 * * *' tar -cf '/srv/a b.tar'")
    assert first.options == {"argv": ["tar", "-cf", "/srv/a b.tar"]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"Name": ""}, "expected Name"),
        ({"Cmd": None}, "expected Name, Cmd"),
        ({"Args": "x"}, "Args: expected a list"),
        ({"HasError": True}, "HasError is set"),
        ({"Schedule": "0 9 * *"}, "5 to 7 fields"),
        ({"Schedule": "0 0 31 2 *"}, "would never fire"),
    ],
)
def test_castle_jobs_that_cannot_run(change: dict[str, Any], why: str) -> None:
    """Are refused, with what is wrong."""
    job = {"Name": "a", "Cmd": "x", "Args": [], "Schedule": "0 9 * * *", **change}
    (found,) = castle.read(json.dumps(job))
    assert why in found.refused


@pytest.mark.parametrize(
    "text",
    ["[1]", '{"Name":', "castle-cron list", "crond add a b c", "castle-cron add a 'b", "castle-cron add a b"],
)
def test_castle_files_that_cannot_be_read(text: str) -> None:
    """Say what was expected, or where."""
    with pytest.raises(Unreadable, match=r"expected|line 1"):
        castle.read(text)


# --- FTL ---------------------------------------------------------------------------------------------------

GO = """
package time

//ftl:cron 0 0 * * *
func ExampleJob(ctx context.Context) error {
	return nil
}

// Hourly is another.
//
//ftl:cron 5s
//ftl:export
func Hourly(ctx context.Context) (err error) {
"""


def test_ftl_directives() -> None:
    """With the time-outs that FTL has, in UTC; five, six and seven fields and the short forms."""
    first, second = ftl.read(GO)
    assert (first.name, first.repeat, first.place) == ("time.exampleJob", "CRON 0 0 * * *", "line 4")
    assert first.options == {"run_timeout": "5m", "grace": "1m"}
    assert first.old_times(NOW, 1) == [datetime(2026, 11, 22, tzinfo=UTC)]
    assert (second.name, second.repeat) == ("time.hourly", "CRON 5s")


def test_ftl_in_kotlin() -> None:
    """An annotation, with others between it and the verb."""
    text = """package ftl.echo
@Export
@Cron("0 */3 * * * *")
@Verb
fun nightly() {
@Cron("Mon")
fun weekly(context: Context): Unit {
"""
    first, second = ftl.read(text)
    assert (first.name, first.repeat) == ("echo.nightly", "CRON 0 */3 * * * *")
    assert first.our_times(NOW, 1) == [datetime(2026, 11, 21, 12, 3, tzinfo=UTC)], "seconds come first"
    assert (second.name, second.repeat) == ("echo.weekly", "CRON Mon")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("//ftl:cron 0 0 * * *\nfunc A(ctx context.Context, r Req) error {", "no request"),
        ("//ftl:cron 0 0 * * *\nfunc A(ctx context.Context) (Resp, error) {", "no response"),
        ("//ftl:cron 0 0 * *\nfunc A(ctx context.Context) error {", "5 to 7 fields"),
        ("//ftl:cron 0 0 30 2 *\nfunc A(ctx context.Context) error {", "would never fire"),
        ("//ftl:cron 0 0 * * *\n", "a verb below"),
    ],
)
def test_ftl_directives_that_are_none(text: str, why: str) -> None:
    """FTL refuses them too."""
    (found,) = ftl.read(text)
    assert why in found.refused


def test_an_ftl_directive_without_a_verb_takes_none_from_the_next() -> None:
    """Each stands for itself."""
    lost, found = ftl.read(f"//ftl:cron 0 5 * * *\n{GO}")[:2]
    assert "a verb below" in lost.refused
    assert found.repeat == "CRON 0 0 * * *"


# --- LUCI --------------------------------------------------------------------------------------------------


def job(fields: str) -> Found:
    """Read one job."""
    (found,) = luci.read(f'job {{ id: "a" {fields} }}')
    return found


@pytest.mark.parametrize(
    ("said", "repeat"),
    [
        ("*/5 * * * * *", "CRON */5 * * * *"),
        ("0 1/3 * * *", "CRON 0 1/3 * * *"),
        ("with 10s interval", "FINISHED, +10 SECONDS"),
        ("with  1h30m  interval", "FINISHED, +5400 SECONDS"),
        ("with 0.5s interval", "FINISHED, +1 SECONDS"),
        ("continuously", "FINISHED, +0 SECONDS"),
        ("triggered", "CRON @never"),
    ],
)
def test_luci_schedules(said: str, repeat: str) -> None:
    """The four kinds."""
    found = job(f'schedule: "{said}" noop {{}}')
    assert found.repeat == repeat
    assert found.options == {"argv": ["true"]}
    assert bool(found.old_times(NOW, 3)) is bool(found.our_times(NOW, 3)) is ("*" in said)


def test_a_luci_job_without_a_schedule_is_triggered() -> None:
    """As its messages say."""
    assert job("noop {}").repeat == "CRON @never"


def test_luci_fetches() -> None:
    """A plain one is an address, others an object; old files put the task into `task`."""
    assert job('url_fetch { url: "https://x/y" timeout_sec: 60 }').options == {"url": "https://x/y"}
    assert job('task: < url_fetch: < url: "https://x" "/y", method: "POST"; timeout_sec: 9 > >').options == {
        "url": {"url": "https://x/y", "method": "POST", "timeout": 9}
    }


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ("buildbucket { builder: 'x' properties: ['a:b', 'c'] }", "buildbucket task is not known"),
        ("", "no task"),
        ("noop {} triggers: 'b'", "starts other jobs"),
        ("noop {} triggering_policy { kind: GREEDY_BATCHING }", "triggering policy"),
        ("noop {} something: 5", "something is left out"),
        ("noop {} schedule: 'continuously'", "fails ends the loop"),
    ],
)
def test_what_is_lost_of_a_luci_job_is_said(fields: str, warning: str) -> None:
    """And the job is taken over without it."""
    found = job(fields)
    assert warning in found.warnings[0]
    assert not found.refused
    assert job("noop {} acl_sets: 'default' realm: 'x'").warnings == ()


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("job { noop {} }", "expected an id"),
        ("job { id: 'a' disabled: true noop {} }", "disabled"),
        ("trigger { id: 'a' gitiles { repo: 'x' } }", "gitiles"),
        ("job { id: 'a' schedule: 'hourly' }", "5 to 7 fields"),
        ("job { id: 'a' schedule: 'with ten interval' }", "a duration such as 10s"),
        ("job { id: 'a' url_fetch {} }", "expected a url"),
    ],
)
def test_luci_jobs_that_cannot_run_here(block: str, why: str) -> None:
    """Are refused, each with its line."""
    (found,) = luci.read(f"acl_sets {{ name: 'x' }}\n{block}")
    assert why in found.refused
    assert found.place == "line 2"


# --- protocol buffers in text format -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("a: \"x\" 'y'", [("a", "xy")]),
        (r'a: "\"\n\x41\101\u00e9"', [("a", '"\nAAé')]),
        ("a: 5 b: -0x10 c: 1.5f d: 1e3", [("a", 5), ("b", -16), ("c", 1.5), ("d", 1000.0)]),
        ("a: true, b: false; c: NAME", [("a", True), ("b", False), ("c", "NAME")]),
        ("a: [1, 2] a: []", [("a", 1), ("a", 2)]),
        ("# none\na { } # b", [("a", [])]),
        ("[x.y/z.w]: 1", [("[x.y/z.w]", 1)]),
    ],
)
def test_text_format(text: str, fields: list[tuple[str, Any]]) -> None:
    """Fields in order, whatever their types."""
    assert [(name, value) for name, value, _ in textproto.parse(text)] == fields


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a", ": and a value"),
        ("a 5", ": and a value"),
        ("\na: ", "line 2: expected a value, not 'the end'"),
        ("a {", "expected }"),
        ("a < }", "expected the name of a field"),
        ("}", "expected the name of a field"),
        ("a: [1 2]", r"a comma or \]"),
        ("a: 1.2.3", "expected a number"),
        ('a: "x', "line 1: expected text-format"),
        ("5: 5", "the name of a field"),
        ("a {" * 40, "at most 32 messages"),
        ("a: [", "a value"),
    ],
)
def test_text_that_is_none(text: str, why: str) -> None:
    """Says the line and what was expected."""
    with pytest.raises(Unreadable, match=why):
        textproto.parse(text)
