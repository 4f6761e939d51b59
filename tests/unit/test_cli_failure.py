"""`bedrockjobs failure`: failures, and marking them as seen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_fake import FakeServer, run, sent

from bedrockjobs.base.config import SEEN_AT_ONCE_MAX

AT = "2026-11-21 09:00:00"


def failure(number: int, seen: str = "", by: str = "") -> dict[str, Any]:
    """Return a failure as in the server's reply."""
    return {
        "id": number,
        "name": "a",
        "at": AT,
        "line": "x",
        "error": "x",
        "worker": "",
        "started": "",
        "seen": seen,
        "seenBy": by,
    }


def page(*groups: tuple[str, str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return a page of failures."""
    found: dict[str, Any] = {"jobs": [], "runs": [], "before": None, "runsBefore": None}
    for kind, name, failures in groups:
        state = "FAILED" if kind == "jobs" else "frozen"
        unseen = sum(not one["seen"] for one in failures)
        found[kind].append(
            {
                "state": state,
                "name": name,
                "names": 1,
                "fingerprint": f"f{name}",
                "line": "no disk",
                "unseen": unseen,
                "failures": failures,
                "count": len(failures),
                "last": AT,
                "first": AT,
            }
        )
    return found


SEEN = failure(3, "2026-11-21 10:00:00", "ann")
PAGE = page(("jobs", "a", [failure(9), SEEN]), ("jobs", "b", [SEEN]), ("runs", "c", [failure(5)]))


def cells(line: str) -> list[str]:
    """Return the cells of a line of a table."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_a_list_has_what_is_new_and_with_all_who_has_seen_the_rest(fake: FakeServer) -> None:
    fake.will("ListFailures", *[PAGE] * 6, page(), page())  # jobs, then runs
    head, *lines = run("failure", "list", "a*").stdout.splitlines()
    assert cells(head)[:5] == ["state", "name", "count", "new", "newest"]
    assert [cells(line)[:5] for line in lines] == [
        ["FAILED", "a", "2 jobs", "1", "job 9"],
        ["lost", "c", "1 run", "1", "run 5"],
    ]
    everything = run("failure", "list", "--all").stdout
    assert cells(everything.splitlines()[2])[-3:] == ["ann", "fb", "no disk"]
    assert [group["kind"] for group in json.loads(run("failure", "list", "-o", "json").stdout)] == [
        "job",
        "run",
    ]
    assert run("failure", "list").stderr == "No new failures; --all includes those that are marked as seen.\n"
    assert sent(fake, "ListFailures")[0]["name"] == "a*"


def test_names_are_marked_by_what_is_listed(fake: FakeServer) -> None:
    fake.will("ListFailures", PAGE, PAGE, PAGE, PAGE)
    fake.will("MarkSeen", {"jobs": 1, "runs": 0}, {"jobs": 0, "runs": 1}, {"jobs": 2, "runs": 0})
    assert run("failure", "seen", "--name", "*", "--by", "ann").stdout == "Seen: 1 job, 1 run.\n"
    assert (
        run("failure", "seen", "--name", "*", "--by", "ann", "--undo").stdout
        == "New again: 2 jobs, 0 runs.\n"
    )
    assert sent(fake, "MarkSeen") == [
        {"jobIDs": [9], "seen": True, "by": "ann"},
        {"runIDs": [5], "seen": True, "by": "ann"},
        {"jobIDs": [3, 3], "seen": False, "by": "ann"},
    ]


def test_all_of_a_name_are_marked_also_on_the_pages_behind(fake: FakeServer) -> None:
    first = {**page(("jobs", "a", [failure(9)]), ("runs", "a", [failure(5)])), "before": 9, "runsBefore": 5}
    more = page(("jobs", "a", [failure(4)]), ("runs", "a", [failure(2)]))
    fake.will("ListFailures", first, more, first, more)
    fake.will("MarkSeen", {"jobs": 2, "runs": 0}, {"jobs": 0, "runs": 2})
    assert run("failure", "seen", "--name", "a").stdout == "Seen: 2 jobs, 2 runs.\n"
    assert [each.get("jobIDs") or each["runIDs"] for each in sent(fake, "MarkSeen")] == [[9, 4], [5, 2]]
    asked = [(each.get("before"), each.get("runsBefore")) for each in sent(fake, "ListFailures")]
    assert asked == [(0, None), (9, None), (None, 0), (None, 5)]


def test_numbers_are_marked_in_parts(fake: FakeServer) -> None:
    ids = [str(number) for number in range(1, SEEN_AT_ONCE_MAX + 2)]
    given = [word for number in ids for word in ("--run", number)]
    fake.will("MarkSeen", {"jobs": 0, "runs": 200}, {"jobs": 0, "runs": 1})
    found = run("failure", "seen", *given, "-o", "json")
    assert json.loads(found.stdout) == {"jobs": "0", "runs": "201"}
    assert [len(each["runIDs"]) for each in sent(fake, "MarkSeen")] == [SEEN_AT_ONCE_MAX, 1]


def test_names_or_numbers_are_given(fake: FakeServer) -> None:
    for given in ((), ("--name", "a", "--job", "1")):
        found = run("failure", "seen", *given)
        assert found.exit_code == 2
        assert "give --name GLOB or --fingerprint TEXT, or --job ID|NAME and --run RUNID" in found.stderr
    assert fake.wired == []


@pytest.mark.parametrize(
    ("verb", "command", "given", "done"),
    [("retry", "RetryJob", {"revive": True}, "Queued"), ("delete", "DeleteJob", {}, "Deleted")],
)
def test_all_jobs_of_a_group_are_retried_or_deleted_after_a_question(
    fake: FakeServer, verb: str, command: str, given: dict[str, Any], done: str
) -> None:
    group = page(("jobs", "a", [failure(9), failure(7)]))
    fake.will("ListFailures", group, group, group)
    fake.will(command, {}, {})
    assert f"Would {verb} 2 jobs: 2 a." in run("failure", verb, "--fingerprint", "fa", "--dry-run").stdout
    assert sent(fake, command) == []
    asked = run("failure", verb, "--fingerprint", "fa")
    assert (asked.exit_code, "2 jobs: 2 a" in asked.stderr) == (2, True)
    assert run("failure", verb, "--fingerprint", "fa", "--yes").stdout == f"{done} 2 jobs.\n"
    assert sent(fake, command) == [{"jobID": 9, **given}, {"jobID": 7, **given}]
    assert sent(fake, "ListFailures")[0]["fingerprint"] == "fa"
    assert "--fingerprint TEXT or --name GLOB" in run("failure", verb).stderr


def test_a_list_says_how_a_group_develops(fake: FakeServer) -> None:
    growing = page(("jobs", "a", [failure(9)]))
    growing["jobs"][0]["trend"] = "growing"
    fake.will("ListFailures", growing, page())
    head, line = run("failure", "list").stdout.splitlines()
    assert "growing" in cells(line)
    assert "trend" in cells(head)


def test_a_group_is_muted_until_a_time_or_a_new_release(fake: FakeServer) -> None:
    fake.will("MuteFailures", {}, {}, {})
    muted = run("failure", "mute", "fa", "--reason", "the disk is ordered", "--by", "ann")
    assert muted.stdout == "Failures fa are muted until they occur in a new release.\n"
    until = run("failure", "mute", "fa", "--name", "a*", "--until", "2099-01-01")
    assert until.stdout.startswith("Failures fa are muted until 2099-01-01")
    assert run("failure", "mute", "fa", "--undo").stdout == "Failures fa are no longer muted.\n"
    first, second, third = sent(fake, "MuteFailures")
    assert (first["reason"], first["by"], first.get("until")) == ("the disk is ordered", "ann", None)
    assert (second["name"], second["until"][:10]) == ("a*", "2099-01-01")
    assert third["undo"] is True


def test_a_list_says_why_a_group_is_muted(fake: FakeServer) -> None:
    muted = page(("jobs", "a", [failure(9)]))
    reason = {"name": "*", "reason": "the disk is ordered", "by": "ann", "since": "", "until": ""}
    muted["jobs"][0] |= {"trend": "muted", "muted": reason}
    fake.will("ListFailures", muted, page())
    assert "muted: the disk is ordered" in run("failure", "list", "--all").stdout
