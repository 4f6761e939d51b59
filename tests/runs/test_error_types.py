"""``errorType``: the type of the exception with which a run failed is shown, searched and grouped by."""

from __future__ import annotations

import pytest

from bedrockjobs.base.config import TEXT_CHARS_MAX
from bedrockjobs.base.errors import type_of_error
from bedrockjobs.views import failures
from tests.runs.bearer import Bearer, admin_of
from tests.runs.rig import Site

TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g()\n'
CHAINED = (
    f"{TRACEBACK}KeyError: 'k'\n\nDuring handling of the above exception, another exception occurred:\n\n"
    f"{TRACEBACK}app.errors.NoSuchDay: 31 February"
)
GROUP = (
    f"ExceptionGroup: both (2 sub-exceptions)\n\n  + Exception Group {TRACEBACK}"
    "  | ExceptionGroup: both (2 sub-exceptions)\n  +-+---------------- 1 ----------------\n"
    "    | ValueError: one\n    +------------------------------------\n"
)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (f"ValueError: no such day\n\n{TRACEBACK}ValueError: no such day", "ValueError"),
        (f"{TRACEBACK}ValueError", "ValueError"),
        (f"exit status 1\nstarting\n{TRACEBACK}OSError: [Errno 28] no space", "OSError"),
        (CHAINED, "app.errors.NoSuchDay"),
        (GROUP, "ExceptionGroup"),
        (f"StopIteration\n\n{TRACEBACK}StopIteration", "StopIteration"),
        ("TypeError: undefined is not a function", "TypeError"),
        ("requests.exceptions.ConnectionError: refused", "requests.exceptions.ConnectionError"),
        ("Fail: no source", "Fail"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("no such mailbox", ""),
        ("note: something", ""),
        ("exit status 3\nError reading the file", ""),
        ("exit status 1\nmake: *** [all] Error: 2", ""),
        ("x" * 101 + "Error: long", ""),
        ("", ""),
    ],
)
def test_the_type_that_an_error_states(error: str, kind: str) -> None:
    assert type_of_error(error) == kind


async def _failed(site: Site, name: str, error: str) -> int:
    await site.create(name)
    job = await site.take(name)
    await site.fail(job, error=error)
    return int(job["runID"])


async def test_it_is_shown_and_searched(site: Site) -> None:
    value = await _failed(site, "a", f"ValueError: no\n\n{TRACEBACK}ValueError: no")
    chained = await _failed(site, "b", CHAINED)
    plain = await _failed(site, "b", "ValueErrors are not meant")
    await site.create("good")
    await site.finish(await site.take("good"))
    assert (await site.run(value))["errorType"] == "ValueError"
    assert "errorType" not in await site.run(plain)
    listed = {run["runID"]: run.get("errorType") for run in await site.runs()}
    assert [listed[each] for each in (value, chained, plain)] == ["ValueError", "app.errors.NoSuchDay", None]

    async def found(kind: str, **more: object) -> list[int]:
        return [run["runID"] for run in await site.runs(errorType=kind, **more)]

    assert await found("ValueError") == [value]
    assert await found("app.errors.NoSuchDay", name="b") == [chained]
    assert await found("KeyError", status="failed") == [chained], "it was caused by one"
    assert await found("KeyError", name="a") == await found("Value") == await found("NoSuchDay") == []
    reply = await site.ask("ListRuns", errorType="ValueError")
    assert [run["runID"] for run in reply.json["runs"]] == [value]


@pytest.mark.parametrize("command", ["ListRuns", "ListFailures"])
async def test_what_is_no_type_is_refused(site: Site, command: str) -> None:
    for kind in ("", "Value Error", "a:b", "1x", "a..b", "x" * 101):
        reply = await site.http(command, {"errorType": kind})
        assert reply.json["reason"] == "Malformed errorType", kind
        assert reply.json["detail"].startswith("errorType: expected the type of an exception"), kind


async def test_failures_are_grouped_by_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "GROUPS_SHOWN", 2)
    for at in range(5):
        await _failed(site, "a", f"{'word ' * (at + 1)}: it broke")
    await _failed(site, "a", f"ValueError: no\n\n{TRACEBACK}ValueError: no")
    for at in range(5):
        await _failed(site, "a", f"{'text ' * (at + 1)}: it broke")
    groups = (await site.ok("ListFailures", errorType="ValueError"))["jobs"]
    assert [(group["errorType"], group["count"]) for group in groups] == [("ValueError", 1)]
    assert (await site.ok("ListFailures", errorType="OSError"))["jobs"] == []
    assert (await site.ok("ListFailures"))["jobs"][0]["errorType"] == ""


async def test_failures_are_found_by_a_text_in_their_line(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "GROUPS_SHOWN", 2)
    await _failed(site, "a", f"ValueError: No Straße to it\n\n{TRACEBACK}ValueError: No Straße to it")
    for at in range(5):
        await _failed(site, "a", f"{'word ' * (at + 1)}: it broke")
    for text, found in (("no STRASSE", ["ValueError: No Straße to it"]), ("File", []), ("%", [])):
        listed = await site.ok("ListFailures", text=text)
        assert [group["line"] for group in listed["jobs"]] == found, text
    assert (await site.ok("ListFailures", text="straße", errorType="OSError"))["jobs"] == []
    refused = await site.http("ListFailures", {"text": "a" * (TEXT_CHARS_MAX + 1)})
    assert (refused.code, refused.json["reason"]) == (400, "Malformed text")
    root = await admin_of(site)
    blind = await root.token_for("blind", "read", noData=True)
    assert (await blind.ok("ListFailures", text="straße"))["jobs"] == []
    page = str((await root.get("/ui/failures?text=stra%C3%9Fe", Accept="text/html")).body)
    assert ("Straße" in page, "it broke" in page) == (True, False)


async def test_a_token_without_data_sees_only_the_kind_and_searches_nothing(site: Site) -> None:
    secret = await _failed(site, "a", f"MyPasswordIs: x\n\n{TRACEBACK}MyPasswordIs: x")
    plain = await _failed(site, "a", f"ValueError: x\n\n{TRACEBACK}ValueError: x")
    root = await admin_of(site)
    blind = await root.token_for("blind", "read", noData=True)
    assert "errorType" not in await blind.ok("QueryRun", runID=secret)
    assert (await blind.ok("QueryRun", runID=plain))["errorType"] == "ValueError"
    assert (await blind.http("ListRuns", errorType="ValueError")).code == 403


async def test_the_pages_show_and_link_it(site: Site) -> None:
    run = await _failed(site, "a", f"ValueError: no\n\n{TRACEBACK}ValueError: no")
    other = await _failed(site, "b", "OSError: full")

    async def page(path: str) -> str:
        return str((await Bearer(site).get(path, Accept="text/html")).body)

    assert 'ui/failures?errorType=ValueError"><code>ValueError</code>' in await page(f"/ui/runs/{run}")
    assert "All with ValueError" in await page("/ui/failures")
    only = await page("/ui/runs?errorType=OSError")
    assert (f'id="run-{other}"' in only, f'id="run-{run}"' in only) == (True, False)
    only = await page("/ui/failures?errorType=OSError")
    assert ("OSError: full" in only, "ValueError: no" in only) == (True, False)
