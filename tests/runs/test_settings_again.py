"""Settings that are reloaded while a server runs: which apply at once, and which need a restart."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bedrockjobs.base.settings import RELOADABLE, Settings, apply_reloaded
from tests.conftest import Serve
from tests.protocol.talk import Talk
from tests.runs.bearer import Bearer
from tests.runs.conftest import Open
from tests.runs.test_heartbeat_url import Watch
from tests.runs.test_keep_finished import DAY, done, gone
from tests.runs.test_output_chunks import log_lines

KEPT_BYTES = 64 * 1024


def test_what_cannot_change_waits_and_values_are_not_told() -> None:
    settings = Settings(smtp="smtp://a:secret@b:25", port=1)
    difference = apply_reloaded(settings, Settings(smtp="smtp://a:other@b:25", port=2, query_s=9, host="::1"))
    assert (settings.smtp, settings.port, settings.host) == ("smtp://a:other@b:25", 1, "127.0.0.1")
    assert str(difference) == "changed: smtp; different, but only after a restart: host, port, query_s"
    assert str(apply_reloaded(settings, settings)) == "changed: nothing"
    assert set(Settings.model_fields) > RELOADABLE


async def test_what_is_kept_changes_at_once(open_site: Open) -> None:
    site = await open_site()
    assert await gone(site, await done(site))
    given = site.server.settings
    await site.server.take(given.model_copy(update={"keep_finished": DAY, "output_bytes": KEPT_BYTES}))
    kept = await done(site, "b")
    assert not await gone(site, kept)
    await site.create("c")
    run = await site.leased("c")
    lines = log_lines(4_000)
    for begin in range(0, len(lines), 100):
        await site.ok("AppendOutput", runID=run["runID"], seq=begin + 1, lines=lines[begin : begin + 100])
    limits = {one["kind"]: one for one in (await site.ok("ListRetention"))["kept"]}
    assert limits["output"]["bytes"] == KEPT_BYTES
    answer = await site.ok("ReadOutput", runID=run["runID"], limit=1_000)
    numbers = [line["seq"] for line in answer["lines"]]
    assert numbers != list(range(1, 1_001)), "the middle is left out"


async def test_limits_of_connections_and_times_change_at_once(serve: Serve) -> None:
    live = await serve()
    given = live.server.settings
    await live.server.take(given.model_copy(update={"connections_max": 1, "body_s": 0.05}))
    async with await Talk.open(live.port) as talk:
        talk.send("POST /Ping HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        async with await Talk.open(live.port) as refused:
            assert (await refused.reply()).status == "503 Too many connections"
        assert (await talk.reply()).code == 504


async def test_messages_go_another_way(serve: Serve, tmp_path: Path) -> None:
    live = await serve()
    root = Bearer(live)
    program = tmp_path / "page"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    await root.ok("PutRule", name="r", on="failed", to="command:page")
    assert (await root.http("TestRule", name="r", send=True)).code == 409
    await live.server.take(live.server.settings.model_copy(update={"notify_commands": str(tmp_path)}))
    sent = await root.http("TestRule", name="r", send=True)
    assert sent.code == 200, sent


async def test_a_folder_of_programs_that_is_not_there_is_told(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = f"notify_commands: there is no folder {tmp_path / 'none'}; messages to its programs fail"
    live = await serve(notify_commands=str(tmp_path / "none"))
    assert words in caplog.messages
    caplog.clear()
    await live.server.take(live.server.settings.model_copy(update={"notify_commands": str(tmp_path)}))
    assert not any("there is no folder" in each for each in caplog.messages)
    await live.server.take(live.server.settings.model_copy(update={"notify_commands": f"{tmp_path}/none"}))
    assert words in caplog.messages


async def test_the_heartbeat_goes_to_another_url(serve: Serve) -> None:
    async with Watch().open() as watch:
        live = await serve()
        given = live.server.settings
        await live.server.take(given.model_copy(update={"heartbeat_url": watch.url}))
        assert await watch.called() == "GET /secret"
        await live.server.take(given.model_copy(update={"heartbeat_url": f"{watch.url}/2"}))
        assert await watch.called() == "GET /secret/2"
        await live.server.take(given.model_copy(update={"heartbeat_url": ""}))


async def test_bad_settings_change_nothing(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    live = await serve()

    def bad() -> None:
        raise ValueError("a.toml:2: prot: there is no such setting")

    live.server.reloads.add("settings", bad)
    with caplog.at_level(logging.INFO):
        await live.server.reloads.run()
    assert "settings not reloaded, the previous ones stay in use: a.toml:2: prot: " in caplog.text
