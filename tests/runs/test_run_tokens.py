"""Workers that ask for it get a run token with a job, and the server identifies the run by it."""

from __future__ import annotations

from tests.conftest import Live, Serve


async def test_it_comes_with_a_run_where_it_is_asked_for(live: Live) -> None:
    await live.ask("CreateJobs", jobs=[{"name": f"a/{n}"} for n in range(5)])
    first = (await live.ask("GetJob", name="a/*", worker="w", runToken="true")).json
    assert live.server.service.presence.run_of_token(first["runToken"])[:2] == (
        first["runID"],
        first["jobID"],
    )
    many = await live.ask("GetJobs", name="a/*", numResults=2, worker="w", runToken="true")
    tokens = {(job["runID"], job["jobID"]): job["runToken"] for job in many.json["jobs"]}
    for run, token in tokens.items():
        assert live.server.service.presence.run_of_token(token)[:2] == run
    assert len({first["runToken"], *tokens.values()}) == 3
    then = await live.ask(
        "FinishJob", jobID=first["jobID"], runID=first["runID"], thenGet="a/*", worker="w", runToken="true"
    )
    job = then.json["job"]
    assert live.server.service.presence.run_of_token(job["runToken"])[:2] == (job["runID"], job["jobID"])


async def test_without_asking_or_without_a_run_there_is_none(live: Live) -> None:
    await live.ask("CreateJobs", jobs=[{"name": "a"}, {"name": "a"}])
    assert "runToken" not in (await live.ask("GetJob", name="a", worker="w")).json
    assert "runToken" not in (await live.ask("GetJob", name="a", runToken="true")).json


async def test_the_key_stays_and_is_that_of_all_servers_of_a_database(serve: Serve) -> None:
    before = await serve()
    await before.ask("CreateJob", name="a")
    job = (await before.ask("GetJob", name="a", worker="w", runToken="true")).json
    await before.server.stop()
    after = await serve(database=before.server.settings.database)
    assert after.server.service.presence.run_of_token(job["runToken"])[:2] == (job["runID"], job["jobID"])
    other = await serve()
    assert other.server.service.presence.run_of_token(job["runToken"]) is None
