"""Live output of a run: its lines, each once and in order, and its progress."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from bedrock_worker.report.output import BATCH_BYTES_MAX, CUT, LINE_BYTES_MAX, LineSplitter, progress_of

from bedrockjobs.base.config import OUTPUT_LINE_CHARS_MAX, OUTPUT_LINES_PER_APPEND_MAX
from tests.pace import in_time
from tests.worker.conftest import until

SOON_S = 5.0
"""Lines are sent within a second; the rest is for a busy machine."""

WAIT = 'until [ -e "$0/go" ]; do sleep 0.01; done'


def appended(server):
    """Return number and size of each batch that was sent."""
    return [(batch.given["seq"], len(batch.given["lines"])) for batch in server.of("AppendOutput")]


async def test_lines_come_while_the_command_runs(server, working, tmp_path):
    loop = asyncio.get_running_loop()
    script = f'echo one; echo two >&2; touch "$0/said"; {WAIT}; echo three'
    async with working("sh", "-c", script, str(tmp_path), jobs_max=1) as worker:
        await server.add()
        await until((tmp_path / "said").exists)
        said_at = loop.time()
        await server.until(lambda: server.of("AppendOutput"))
        assert in_time(loop.time() - said_at, SOON_S)
        (tmp_path / "go").touch()
        assert await worker.ended() == 0
    assert sorted(server.output[101][:2]) == [("err", "two"), ("out", "one")]
    assert server.output[101][2:] == [("out", "three")]


async def test_all_output_comes_before_the_report_in_bounded_batches(once, server):
    report = await once("seq 2500; exit 3")
    assert server.output[101] == [("out", str(number)) for number in range(1, 2501)]
    assert max(size for _, size in appended(server)) <= OUTPUT_LINES_PER_APPEND_MAX
    assert server.requests.index(report) > server.requests.index(server.of("AppendOutput")[-1])


async def test_batches_of_long_lines_are_bounded_in_bytes_too(once, server):
    await once("yes | tr -d '\\n' | fold -w 4000 | head -n 400")
    sizes = [sum(map(len, batch.given["lines"])) for batch in server.of("AppendOutput")]
    assert sum(sizes) == 400 * 4_000
    assert max(sizes) <= BATCH_BYTES_MAX + 4_000


async def test_run_that_prints_nothing_sends_nothing(once, server):
    await once("true")
    assert server.of("AppendOutput") == []


async def test_lines_wait_for_a_server_that_is_away(server, working, tmp_path, monkeypatch):
    """They fill the memory many times over, and none is lost or sent twice."""
    monkeypatch.setattr("bedrock_worker.report.output.MEMORY_BYTES_MAX", 1_000)
    script = f'touch "$0/began"; {WAIT}; seq 5000; touch "$0/said"; sleep 0.2'
    async with working("sh", "-c", script, str(tmp_path), jobs_max=1) as worker:
        await server.add()
        await until((tmp_path / "began").exists)
        await server.stop()
        (tmp_path / "go").touch()
        await until((tmp_path / "said").exists)
        await server.start()
        assert await worker.ended() == 0
    assert [line for _, line in server.output[101]] == [str(number) for number in range(1, 5001)]
    assert [report.verb for report in server.reports] == ["FinishJob"]


async def test_what_does_not_fit_is_counted(server, working, tmp_path, monkeypatch):
    monkeypatch.setattr("bedrock_worker.report.output.QUEUE_BYTES_MAX", 10_000)
    server.refusals["AppendOutput"] = deque(["503 Service Unavailable"] * 20)
    async with working("sh", "-c", "seq 1000", jobs_max=1) as worker:
        await server.add()
        assert await worker.ended() == 0
    lines = [line for _, line in server.output[101]]
    kept = [line for line in lines if line.isdigit()]
    assert kept == [str(number) for number in range(1, len(kept) + 1)]
    assert len(lines) == len(kept) + 1
    assert lines[-1] == f"[{1000 - len(kept)} lines dropped: 0 MiB wait for the server]"


async def test_lost_answer_doubles_no_line(once, server):
    server.lost["AppendOutput"] = 1
    await once("seq 10")
    assert appended(server) == [(1, 10), (1, 10)]
    assert len(server.output[101]) == 10


async def test_run_that_is_over_gets_no_more_lines(server, working, tmp_path):
    server.refusals["AppendOutput"] = deque(["405 Run is over"] * 9)
    async with working("sh", "-c", f"echo one; {WAIT}; echo two", str(tmp_path), jobs_max=1) as worker:
        await server.add()
        await server.until(lambda: server.of("AppendOutput"))
        (tmp_path / "go").touch()
        assert await worker.ended() == 0
    assert appended(server) == [(1, 1)]
    assert [report.verb for report in server.reports] == ["FinishJob"]


@pytest.mark.parametrize("refusal", ["430 Unrecognized command", "402 Malformed lines", "404 No such run"])
async def test_server_that_wants_no_output(once, server, refusal):
    server.refusals["AppendOutput"] = deque([refusal])
    assert (await once("echo one; exit 4")).given["exitCode"] == 4
    assert appended(server) == [(1, 1)]


async def test_server_that_lost_lines_gets_the_others(server, working, tmp_path, caplog):
    async with working("sh", "-c", f"echo one; {WAIT}; echo two", str(tmp_path), jobs_max=1) as worker:
        await server.add()
        await server.until(lambda: server.output)
        server.output.clear()
        (tmp_path / "go").touch()
        assert await worker.ended() == 0
    assert appended(server) == [(1, 1), (2, 1), (1, 1)]
    assert server.output[101] == [("out", "two")]
    assert "output lost by the server" in caplog.text


async def test_server_that_keeps_no_more_gets_no_more(server, working, tmp_path, caplog):
    server.answers["AppendOutput"] = b'200 OK\r\nContent-Length: 9\r\n\r\n{"seq":0}'
    async with working("sh", "-c", f"echo one; {WAIT}; echo two", str(tmp_path), jobs_max=1) as worker:
        await server.add()
        await server.until(lambda: server.of("AppendOutput"))
        (tmp_path / "go").touch()
        assert await worker.ended() == 0
    assert appended(server) == [(1, 1)]
    assert "output not sent" in caplog.text


async def test_long_line_is_marked_where_it_was_cut(once, server):
    await once("head -c 9000 /dev/zero | tr '\\0' y")
    ((_, line),) = server.output[101]
    assert (len(line), line.endswith(f"y{CUT}")) == (OUTPUT_LINE_CHARS_MAX, True)


async def test_run_that_is_handed_back_says_nothing(server, working):
    server.refusals["AppendOutput"] = deque(["503 Service Unavailable"] * 1_000)
    async with working("sh", "-c", "echo one; sleep 1000", grace_s=0.0) as worker:
        await server.add()
        await server.until(lambda: server.of("AppendOutput"))
        worker.agent.stop()
        assert await worker.ended() == 0
    assert [report.given.get("returned") for report in server.reports] == [True]


# --- progress --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        ("::progress 40 half done::", '{"percent":40,"message":"half done"}'),
        ("::progress 0::", '{"percent":0,"message":""}'),
        ('::progress\t99.5  a "b" :: c :: ', '{"percent":99.5,"message":"a \\"b\\" :: c"}'),
        ("::progress 7 \x1b[31mred::", '{"percent":7,"message":"\\\\x1b[31mred"}'),
        ("::progress 100 ::", '{"percent":100,"message":""}'),
        ("::progress 101::", None),
        ("::progress -1::", None),
        ("::progress ten::", None),
        ("::progress 40 half done", None),
        (" ::progress 40::", None),
        ("::progress 40half::", None),
        ("::warning 40::", None),
    ],
)
def test_progress_in_a_line(line, progress):
    assert progress_of(line) == progress


async def test_progress_is_no_output(once, server):
    report = await once("echo ::progress 10 a::; echo line; echo ::progress 20:: >&2; exit 2")
    assert [update.given for update in server.of("UpdateJob")] == [
        {"jobID": 1, "runID": 101, "progress": {"percent": 10, "message": "a"}}
    ]
    assert sorted(server.output[101]) == [("err", "::progress 20::"), ("out", "line")]
    assert "progress 10" not in report.given["error"]


async def test_latest_progress_is_sent_once_a_second_and_before_the_report(once, server):
    report = await once("for n in $(seq 100); do echo ::progress $n::; done")
    told = [update.given["progress"]["percent"] for update in server.of("UpdateJob")]
    assert told[-1] == 100
    assert len(told) <= 3
    assert server.requests.index(report) > server.requests.index(server.of("UpdateJob")[-1])


async def test_progress_pauses(server, working, tmp_path, monkeypatch):
    monkeypatch.setattr("bedrock_worker.report.output.PROGRESS_PAUSE_S", 1_000.0)
    last = WAIT.replace("/go", "/end")
    script = f"echo ::progress 1::; {WAIT}; echo ::progress 2::; echo said; {last}; echo ::progress 3::"
    async with working("sh", "-c", script, str(tmp_path), jobs_max=1) as worker:
        await server.add()
        await server.until(lambda: server.of("UpdateJob"))
        (tmp_path / "go").touch()
        await server.until(lambda: server.of("AppendOutput"))
        (tmp_path / "end").touch()
        assert await worker.ended() == 0
    assert [update.given["progress"]["percent"] for update in server.of("UpdateJob")] == [1, 3]


async def test_refused_progress_costs_nothing_else(once, server):
    server.refusals["UpdateJob"] = deque(["405 Run is over"])
    assert (await once("echo ::progress 1::; exit 6")).given["exitCode"] == 6
    assert len(server.of("UpdateJob")) == 1


@pytest.mark.parametrize("size", [1, 7, 4_096, 8_192])
def test_of_a_long_line_that_is_written_over_the_last_state_is_kept(size):
    """However it comes in pieces; what is short stays as it was printed."""
    bar = b"".join(b"\r%3d%%|%s|" % (done, b"#" * done) for done in range(101))
    long = b"x" * (LINE_BYTES_MAX + 1)
    printed = b"\n".join(
        [bar, bar + b"\r", b"50%\rdone", long, long + b"\rshort", b"a\r" + long, b"a\r", b"b"]
    )
    lines = LineSplitter()
    found = [line for at in range(0, len(printed), size) for line in lines.feed(printed[at : at + size])]
    last, cut = f"100%|{'#' * 100}|", "x" * LINE_BYTES_MAX + CUT
    assert found + lines.end() == [last, last, "50%\rdone", cut, "short", cut, "a", "b"]
