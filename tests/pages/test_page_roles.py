"""Pages by role and scope: buttons and forms by role, and no names or data outside the scope."""

from __future__ import annotations

import json
import re

import pytest

from bedrockjobs.views import states
from tests.conftest import Live
from tests.protocol.talk import Talk
from tests.runs.bearer import Bearer, admin_of

BROWSER = {"Accept": "text/html"}
FORMS = ("/ui/jobs/new", "/ui/schedules/new", "/ui/jobs/1/edit", "/ui/schedules/2/edit")
PAGES = (
    "/ui/queues",
    "/ui/runs",
    "/ui/queues?name=secret/*",
    "/ui/queue?name=mail/plan",
    "/ui/runs?name=secret/*",
    "/ui/jobs",
    "/ui/workflows",
    "/ui/schedules",
    *FORMS,
)


async def filled(live: Live) -> Bearer:
    """Make a job, a schedule, a failed and a running job; return an admin."""
    root = await admin_of(live)
    await root.ok("CreateJob", name="secret/plan")
    await root.ok("CreateJob", name="secret/night", repeat="CRON 0 0 1 1 *")
    for _ in range(2):
        await root.ok("CreateJob", name="secret/work")
        taken = await root.ok("GetJob", name="secret/work", worker="w1")
    await root.ok("FailJob", jobID=taken["jobID"], runID=taken["runID"], error="secret words")
    jobs = [{"ref": "plan", "name": "secret/step"}, {"ref": "do", "name": "secret/other", "after": ["plan"]}]
    await root.ok("CreateWorkflow", name="secret/flow", jobs=jobs)
    return root


async def shown(who: Bearer, path: str) -> str:
    reply = await who.get(path, **BROWSER)
    assert reply.code == 200, (path, reply.body)
    return reply.body


def actions(page: str) -> set[str]:
    """Return the commands that a page has buttons or forms for, and the forms that it leads to."""
    led = re.findall(r'href="[./]*/ui/\w+/(?:\d+/)?(new|edit)\b', page)
    return {*re.findall(r'data-(?:command|form)="(\w+)"', page), *led}


async def test_buttons_and_forms_by_role(live: Live) -> None:
    root = await filled(live)
    wanted: dict[str, dict[str, set[str]]] = {
        "read": {
            "/ui/queues": set(),
            "/ui/runs": set(),
            "/ui/jobs": set(),
            "/ui/workflows": set(),
            "/ui/workflows/5": set(),
            "/ui/schedules": set(),
            "/ui/jobs/1": set(),
            "/ui/schedules/2": set(),
        },
        "read,produce": {
            "/ui/queues": set(),
            "/ui/jobs": {"new", "CancelJob"},
            "/ui/jobs/1": {"new", "CancelJob"},
            "/ui/jobs/new": {"CreateJob"},
            "/ui/workflows/5": {"CancelWorkflow"},
            "/ui/schedules": set(),
            "/ui/schedules/2": set(),
        },
        "operate": {
            "/ui/queues": {"PauseJobs"},
            "/ui/queue?name=secret/plan": {"PauseJobs"},
            "/ui/runs": {"RunAgain", "DeleteRuns"},
            "/ui/jobs/1/edit": {"UpdateJob"},
            "/ui/schedules/new": {"CreateJob"},
            "/ui/schedules/2/edit": {"UpdateJob"},
            "/ui/schedules/2": {"TriggerJob", "PauseJobs", "DeleteJob", "new", "edit"},
        },
    }
    for role, pages in wanted.items():
        who = await root.token_for(role.replace(",", "-"), role)
        found = {path: actions(await shown(who, path)) for path in pages}
        assert found == pages, role


@pytest.mark.parametrize("path", FORMS)
async def test_a_form_that_one_may_not_send_is_refused_with_the_reason(live: Live, path: str) -> None:
    root = await filled(live)
    reader = await root.token_for("r", "read")
    reply = await reader.get(path, **BROWSER)
    assert reply.code == 403
    assert re.search(
        r"(CreateJob needs the role produce|UpdateJob needs the role work"
        r"|a schedule needs the role operate); r has read",
        reply.body,
    )
    assert "secret" not in reply.body


async def test_who_sees_no_data_is_told_so_and_may_fill_forms(live: Live) -> None:
    root = await filled(live)
    blind = await root.token_for("n", "read,produce", noData=True)
    for path in PAGES:
        if path in FORMS[1:]:
            continue
        assert "which sees no data" in await shown(blind, path), path
    for path, field in (("/ui/jobs", 'name="text"'), ("/ui/runs", 'name="text"')):
        assert field in await shown(root, path), path
        assert field not in await shown(blind, path), path
    assert "are not copied: they are not shown to this token" in await shown(blind, "/ui/jobs/new?like=1")
    assert "not shown" not in await shown(blind, "/ui/jobs/new")
    form: dict[str, object] = {"command": "CreateJob", "schedule": False, "fields": {}, "changed": []}
    assert await posted(live, blind, form) == 200


async def test_who_sees_some_names_sees_pages_without_the_others(live: Live) -> None:
    root = await filled(live)
    narrow = await root.token_for("n", "read,produce", "mail/*")
    for path in PAGES:
        if path in FORMS[1:]:
            continue
        page = await shown(narrow, path)
        assert "secret/work" not in page, path
        assert "secret/plan" not in page, path
        assert not re.search(r'href="[^"]*ui/(workers|limits|kept|notifications|access)', page), (
            f"{path}: where they may not go"
        )
        assert "which sees mail/*" in page
    hidden, unknown = [await shown(narrow, f"/ui/queue?name=secret/{name}") for name in ("plan", "none")]
    for found in (r'class="figure[^>]*>[^<]*', r"<p>(?:In the last|Taken by)[^<]*"):
        assert re.findall(found, hidden) == re.findall(found, unknown) != []
    for path, words in (
        ("/ui/workers", "ListWorkers"),
        ("/ui/limits", "ListLimits"),
        ("/ui/kept", "ListRetention"),
        ("/ui/chart", "statistics"),
    ):
        reply = await narrow.get(path, **BROWSER)
        assert (reply.code, words in reply.body) == (403, True), path
    overview = await shown(narrow, "/ui/")
    assert "You see mail/*." in overview
    assert "data-chart" not in overview


TABS = ("", "QUEUED", "RUNNING", "PAUSED", "FAILED", "FINISHED", "CANCELLED")


async def test_who_sees_some_names_sees_tabs_with_their_own_alone(live: Live) -> None:
    root = await filled(live)
    await root.ok("PauseJobs", name="secret/plan", reason="secret reason")
    night = (await root.ok("CreateJob", name="mail/night", repeat="CRON 0 0 1 1 *"))["jobID"]
    await root.ok("TriggerJob", jobID=night)
    taken = await root.ok("GetJob", name="mail/night", worker="w1")
    await root.ok("FinishJob", jobID=night, runID=taken["runID"])
    for state in ("QUEUED", "RUNNING", "FAILED"):
        await root.ok("CreateJob", name=f"mail/{state}")
    for state in ("RUNNING", "FAILED"):
        taken = await root.ok("GetJob", name=f"mail/{state}", worker="w1")
    await root.ok("FailJob", jobID=taken["jobID"], runID=taken["runID"], error="no mailbox")
    narrow = await root.token_for("n", "read", "mail/*")
    for state in TABS:
        page = await shown(narrow, f"/ui/jobs?state={state}")
        assert "secret" not in page, state
        assert re.findall(r'tab-count[^"]*">([^<]*)<', page) == ["4", "2", "1", "0", "1", "0", "0"], state
        if state in ("QUEUED", "RUNNING", "FAILED"):
            assert f"mail/<wbr>{state}" in page
    for seen in (False, True):
        page = await shown(narrow, "/ui/failures")
        assert "secret" not in page
        assert ("Mark as seen" in page, "no mailbox" in page) == (False, True)
        assert ("1 group of jobs that were marked as seen" in page) is seen
        failed = await root.ok("ListFailures")
        both = [failure["id"] for group in failed["jobs"] for failure in group["failures"]]
        assert len(both) == 2
        await root.ok("MarkSeen", jobIDs=both, by="secret")
    page = await shown(narrow, f"/ui/schedules/{night}")
    assert 'id="days"' in page
    assert "secret" not in page
    reply = await narrow.get("/ui/schedules/2", **BROWSER)
    assert (reply.code, "secret" in reply.body) == (404, False)


async def test_who_sees_some_names_sees_their_jobs_of_a_workflow(live: Live) -> None:
    root = await admin_of(live)
    jobs = [
        {"ref": "first-secret", "name": "secret/a"},
        {"ref": "mine", "name": "mine/a", "after": ["first-secret"]},
    ]
    workflow = (await root.ok("CreateWorkflow", name="mine/flow", jobs=jobs))["workflowID"]
    theirs = (await root.ok("CreateWorkflow", name="secret/flow", jobs=jobs))["workflowID"]
    narrow = await root.token_for("n", "read", "mine/*")
    page = await shown(narrow, f"/ui/workflows/{workflow}")
    assert f'id="box-{workflow + 2}"' in page
    assert "secret" not in page
    listed = await shown(narrow, "/ui/workflows")
    assert (f'id="workflow-{workflow}"' in listed, "secret" in listed) == (True, False)
    assert 'tab-count">1<' in listed
    job = await shown(narrow, f"/ui/jobs/{theirs + 2}")
    assert (f"workflow {theirs}" in job, "secret" in job) == (False, False)
    refused = await narrow.get(f"/ui/workflows/{theirs}", **BROWSER)
    assert (refused.code, "secret" in refused.body) == (404, False)


async def test_buttons_are_for_what_one_sees(live: Live) -> None:
    """A pause of other names too is not theirs to end, nor is what holds the whole server."""
    root = await admin_of(live)
    await root.ok("CreateJob", name="mail/night", repeat="CRON 0 0 1 1 *")
    await root.ok("PauseJobs", name="m*", reason="SECRET reason", by="SECRET")
    narrow = await root.token_for("n", "operate", "mail/*")
    page = await shown(narrow, "/ui/schedules")
    assert "paused with other names" in page
    assert "ResumeJobs" not in page
    assert "SECRET" not in page
    queues = await shown(narrow, "/ui/queues?name=mail/*")
    assert "paused with other names" in queues
    assert "SECRET" not in queues
    await root.ok("ResumeJobs", name="m*")
    await root.ok("PauseJobs", name="mail/*", reason="their own")
    for path in ("/ui/schedules", "/ui/queues?name=mail/*"):
        page = await shown(narrow, path)
        assert {"ResumeJobs"} <= actions(page), path
        assert "their own" in page, path


async def posted(live: Live, who: Bearer, form: dict[str, object]) -> int:
    body = json.dumps(form)
    head = ["POST /ui/check HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in who.headers.items()]
    async with await Talk.open(live.port) as talk:
        talk.send(("\r\n".join([*head, "", ""]) + body).encode())
        return (await talk.reply()).code


async def test_a_form_is_looked_at_for_those_who_may_read(live: Live) -> None:
    root = await filled(live)
    form = {"command": "CreateJob", "schedule": False, "fields": {"name": "a"}, "changed": ["name"]}
    assert await posted(live, root, form) == 200
    assert await posted(live, Bearer(live), form) == 401


async def test_children_behind_many_of_others_are_found(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that looked at those of others only says how far, and leads on."""
    root = await admin_of(live)
    await root.ok("CreateJob", name="mine/parent")
    await root.ok("GetJob", name="mine/parent")
    for number in range(8):
        await root.ok("CreateJob", name=f"{'other' if number < 7 else 'mine'}/{number}", parentJobID=1)
    ann = await root.token_for("ann", "read", "mine/*")
    monkeypatch.setattr(states, "CHILDREN_COUNTED", 5)
    monkeypatch.setattr(states, "FAMILY_S", 0)
    page = await shown(ann, "/ui/jobs/1")
    assert "This token sees none up to job 6" in page
    assert 'href="?children=6"' in page or "children=6" in page
    following = await shown(ann, "/ui/jobs/1?children=6")
    assert 'id="child-9"' in following
    assert "End of the list" in following
    for text in (page, following):
        assert "other/" not in text
