"""LUCI's scheduler: its four kinds of schedules, its tasks, and what its own validation refuses."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bedrockjobs.base.config import SCHEDULES_PER_SYNC_MAX
from bedrockjobs.imports import luci
from bedrockjobs.imports.imported import ImportedSchedule, Unreadable

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def job(fields: str, kind: str = "job") -> ImportedSchedule:
    """Read one block."""
    (found,) = luci.parse_luci(f'{kind} {{ id: "a" {fields} }}')
    return found


@pytest.mark.parametrize(
    ("said", "repeat"),
    [
        ("*/5 * * * * *", "CRON */5 * * * *"),
        ("0 1/3 * * *", "CRON 0 1/3 * * *"),
        ("with 10s interval", "FINISHED, +10 SECONDS"),
        ("with 1h30m interval", "FINISHED, +5400 SECONDS"),
        ("with 30m1h interval", "FINISHED, +5400 SECONDS"),
        ("with 1.5h interval", "FINISHED, +5400 SECONDS"),
        ("with 0 interval", "FINISHED, +0 SECONDS"),
        ("with 0.5s interval", "FINISHED, +1 SECONDS"),
        ("continuously", "FINISHED, +0 SECONDS"),
        ("triggered", "CRON @never"),
    ],
)
def test_schedules(said: str, repeat: str) -> None:
    """The four kinds."""
    found = job(f'schedule: "{said}" noop {{}}')
    assert found.repeat == repeat
    assert found.options == {"argv": ["true"]}
    assert bool(found.old_times(NOW, 3)) is bool(found.our_times(NOW, 3)) is ("*" in said)


def test_what_has_no_schedule() -> None:
    """Such a job must be triggered; a trigger runs 30 seconds after its last end."""
    assert job("noop {}").repeat == "CRON @never"
    found = job("noop {}", "trigger")
    assert (found.repeat, found.source_text) == ("FINISHED, +30 SECONDS", "with 30s interval")


def test_fetches() -> None:
    """A plain one becomes a URL, others an object; old files put the task into `task`."""
    assert job('url_fetch { url: "https://x/y" timeout_sec: 60 }').options == {"url": "https://x/y"}
    assert job('url_fetch { url: "https://x/y" method: "GET" timeout_sec: 0 }').options == {
        "url": "https://x/y"
    }
    assert job('task: < url_fetch: < url: "https://x" "/y"; timeout_sec: 9 > >').options == {
        "url": {"url": "https://x/y", "timeout": 9}
    }


BUILD = "buildbucket { server: 'x' bucket: 'b' builder: 'c' properties: ['a:b', 'c:d'] tags: 'e:f' }"


@pytest.mark.parametrize(
    ("kind", "fields", "warning"),
    [
        ("job", BUILD, "buildbucket task is not known"),
        ("job", "task { swarming { command: 'x' } }", "swarming task is not known"),
        ("trigger", "schedule: 'triggered' noop {} triggers: 'a'", "starts other jobs"),
        ("job", "noop {} triggering_policy { kind: GREEDY_BATCHING }", "triggering policy"),
        ("job", "noop { sleep_ms: 500 }", "noop.sleep_ms is left out"),
        ("job", "noop {} schedule: 'continuously'", "fails ends the loop"),
    ],
)
def test_what_is_lost_of_a_job_is_said(kind: str, fields: str, warning: str) -> None:
    """And the job is imported without it."""
    found = job(fields, kind)
    assert not found.refused
    assert warning in found.warnings[0]
    assert job("noop {} acl_sets: 'default' realm: 'x'").warnings == ()


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("trigger { id: 'a' gitiles { repo: 'https://x' } }", "gitiles"),
        ("job { id: 'a' disabled: true noop {} }", "disabled"),
        ("job { noop {} }", "id: expected a string"),
        ("job { id: '' noop {} }", "id: expected a string"),
        ("job { id: 'a/b' noop {} }", "id: expected at most 100 letters"),
        (f"job {{ id: '{'a' * 101}' noop {{}} }}", "id: expected at most 100 letters"),
        ("job { id: 'a' realm: 'A' noop {} }", "realm: expected lower-case letters"),
        ("job { id: 'a' schedule: 'hourly' noop {} }", "5 to 7 fields"),
        ("job { id: 'a' schedule: 'with ten interval' noop {} }", "a duration such as 10s"),
        ("job { id: 'a' schedule: 'with -1s interval' noop {} }", "a duration such as 10s"),
        ("job { id: 'a' schedule: 'with  10s interval' noop {} }", "5 to 7 fields"),
        ("job { id: 'a' schedule: 'WITH 10s interval' noop {} }", "5 to 7 fields"),
        ("job { id: 'a' }", "task: expected one of noop, url_fetch"),
        (
            "job { id: 'a' noop {} url_fetch { url: 'https://x' } }",
            "one task in a job; line 2 has one already",
        ),
        ("job { id: 'a' noop {} task { noop {} } }", "one task in a job"),
        ("job { id: 'a' gitiles { repo: 'https://x' } }", "expected one of id, realm"),
        ("job { id: 'a' url_fetch {} }", "expected a url"),
        ("job { id: 'a' url_fetch { url: '/x' } }", "an absolute url"),
        (r"job { id: 'a' url_fetch { url: 'https://x\n[[schedules]]' } }", "an absolute url"),
        ("job { id: 'a' url_fetch { url: 'https://x' method: 'POST' } }", "url_fetch.method: expected GET"),
        ("job { id: 'a' url_fetch { url: 'https://x' timeout_sec: 481 } }", "1 to 480 seconds"),
        ("job { id: 'a' url_fetch { url: 'https://x' timeout_sec: -1 } }", "1 to 480 seconds"),
        ("job { id: 'a' noop {} something: 5 }", "expected one of id, realm"),
        ("job { id: 'a' noop {} triggers: 'b' }", "expected one of id, realm"),
        ("job { id: 'a' id: 'b' noop {} }", "id: expected it once; line 2 has it already"),
        ("job { id: 'a' noop {} noop {} }", "noop: expected it once"),
        ("job { id: 5 noop {} }", "id: expected a string in quotes, not '5'"),
        ("job { id: a noop {} }", "id: expected a string in quotes, not 'a'"),
        ("job { id: 'a' noop: 5 }", "noop: expected a message"),
        ("job { id: 'a' noop {} schedule { } }", "schedule: expected a value, not a message"),
        ("job { id: 'a' noop {} disabled: 2 }", "disabled: expected true or false"),
        ("job { id: 'a' noop {} disabled: 'true' }", "disabled: expected true or false"),
        ("job { id: 'a' noop { sleep_ms: 1.5 } }", "sleep_ms: expected a whole number"),
        ("job { id: 'a' url_fetch { timeout_sec: 2147483648 } }", "timeout_sec: expected a whole number"),
        ("trigger { id: 'a' noop {} triggers: 'b' }", "triggers: expected jobs of this file"),
        ("job { id: 'a' noop {} triggering_policy { kind: FAST } }", "kind: expected one of UNDEFINED"),
        ("job { id: 'a' noop {} triggering_policy { kind: 9 } }", "kind: expected one of UNDEFINED"),
        (
            "job { id: 'a' noop {} triggering_policy { max_batch_size: -1 } }",
            "expected a number of at least 0",
        ),
        ("job { id: 'a' noop {} triggering_policy { kind: LOGARITHMIC_BATCHING log_base: 1 } }", "log_base"),
        ("job { id: 'a' noop {} triggering_policy { log_base: x } }", "log_base: expected a number"),
        (
            "job { id: 'a' noop {} triggering_policy { pending_timeout { seconds: -1 } } }",
            "a duration of at least 0",
        ),
        (
            "job { id: 'a' buildbucket { server: 'https://x' bucket: 'b' builder: 'c' } }",
            "the name of a host",
        ),
        ("job { id: 'a' buildbucket { server: 'x' builder: 'c' } }", "a bucket, or a realm"),
        ("job { id: 'a' buildbucket { server: 'x' bucket: 'b' } }", "a builder"),
        ("job { id: 'a' buildbucket { server: 'x' bucket: 'b' builder: 'c' properties: 'd' } }", "key:value"),
        (
            "job { id: 'a' buildbucket { server: 'x' bucket: 'b' builder: 'c' tags: 'user_agent:d' } }",
            "no tag that LUCI writes itself",
        ),
        ("trigger { id: 'a' gitiles { repo: 'x' } }", "an absolute URL"),
    ],
)
def test_what_luci_would_refuse(block: str, why: str) -> None:
    """Each with its line; also jobs that cannot run here."""
    (found,) = luci.parse_luci(f"acl_sets {{ name: 'x' }}\n{block}")
    assert why in found.refused
    assert found.refused.startswith("line 2: ")
    assert (found.place, found.repeat) == ("line 2", "")


def test_a_refusal_names_the_line_of_the_field() -> None:
    """It may be far below the block's first line."""
    (found,) = luci.parse_luci("job {\n id: 'a'\n noop {}\n url_fetch {\n  url: 'https://x'\n }\n}")
    assert found.refused == "line 4: url_fetch: expected one task in a job; line 3 has one already"


def test_an_id_twice_is_refused_with_both_lines() -> None:
    """Jobs and triggers share the names."""
    found = luci.parse_luci("job { id: 'a' noop {} }\njob { id: 'b' noop {} }\ntrigger { id: 'a' noop {} }")
    assert [entry.refused for entry in found] == [
        "line 1 and line 3 have one name: expected a name once",
        "",
        "line 1 and line 3 have one name: expected a name once",
    ]


def test_a_trigger_names_jobs_that_are_enabled() -> None:
    """A disabled job counts as missing."""
    text = "job { id: 'b' disabled: true noop {} }\ntrigger { id: 'a' noop {} triggers: 'b' }"
    assert "jobs of this file that are enabled" in luci.parse_luci(text)[1].refused


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\njobs { id: 'a' }", "line 2: expected one of job, trigger, acl_sets, not 'jobs'"),
        ("acl_sets { names: 'a' }", "line 1: expected one of name, acls"),
        ("acl_sets { acls { role: KING } }", "line 1: role: expected one of READER"),
        ("job: 5", "line 1: job: expected a message"),
        ("job { id: 'a' noop {} }\n" * (SCHEDULES_PER_SYNC_MAX + 1), "line 10001: expected at most 10000"),
    ],
)
def test_files_that_are_none(text: str, why: str) -> None:
    """The error names the line, and nothing is imported."""
    with pytest.raises(Unreadable, match=why):
        luci.parse_luci(text)
