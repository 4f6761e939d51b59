"""Functions as jobs: what a module may declare, and how a function's outcome becomes an exit status."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bedrock_worker import functions
from bedrock_worker.cli import main as worker
from bedrock_worker.functions import Retry, Snooze, cron, declared_in, job
from bedrock_worker.policy.python_module import GRACE_S, RUN_TIMEOUT_S, BadModule, PythonModule, load
from bedrock_worker.report import reporter
from bedrock_worker.run.run_function import main
from click.testing import CliRunner

from bedrockjobs.base.config import ERROR_CHARS_MAX, PATTERN_CHARS_MAX
from bedrockjobs.base.errors import JobFailed
from bedrockjobs.schedule.cron import next_tick, split_zone

HEAD = (
    "import asyncio; from datetime import timedelta;"
    " from bedrock_worker.functions import Fail, Job, Retry, Snooze, cron, job\n"
)
JOB = {
    "jobID": 4,
    "runID": 9,
    "attempt": 2,
    "name": "report/x",
    "data": {"a": 1},
    "nextRun": "2026-11-21 10:00:00",
    "parentData": {"p": 1},
}

_made = 0


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Return what writes a module of a new name into the current folder."""
    known = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def module(text: str) -> str:
        global _made
        _made += 1
        name = f"declared_{_made}"
        (tmp_path / f"{name}.py").write_text(HEAD + text)
        return name

    yield module
    for name in set(sys.modules) - known:
        if name.startswith("declared_"):
            del sys.modules[name]


NIGHTLY = '@cron("0 0 * * *")\ndef nightly():\n    pass\n'
REPORT = '@job("report/*")\ndef report(job):\n    pass\n'


def test_what_a_module_declares(write: Callable[[str], str]) -> None:
    name = write(NIGHTLY + REPORT + '@job("*", timeout="5m")\ndef rest(job):\n    pass\n')
    module = load(name)
    assert module.names == (f"{name}.nightly", "report/*", "*")
    assert [(it.name, it.timeout_s) for it in module.functions] == [
        ("nightly", None),
        ("report", None),
        ("rest", 300),
    ]
    assert module.schedules == (
        {
            "name": f"{name}.nightly",
            "repeat": "CRON 0 0 * * *",
            "runTimeout": RUN_TIMEOUT_S,
            "grace": GRACE_S,
        },
    )
    assert (RUN_TIMEOUT_S, GRACE_S) == (300, 60)


def test_which_function_a_job_gets(write: Callable[[str], str]) -> None:
    """A schedule's own goes before patterns, and patterns go in order."""
    name = write('@job("*")\ndef rest(job):\n    pass\n' + REPORT + NIGHTLY)
    module = load(name)

    def found(job_name: str) -> str | None:
        function = module.function_for(job_name)
        return function and function.name

    assert found(f"{name}.nightly") == "nightly"
    assert found("report/x") == "rest"
    assert PythonModule("m", module.functions[1:], ()).function_for("other") is None


def test_options_of_a_schedule(write: Callable[[str], str]) -> None:
    name = write(
        '@cron("*/5  9-17 * * 1-5", name="sales/sync", zone="Europe/Berlin", run_timeout="10m", grace=5,\n'
        '      catchup="skip", job_priority=750, keep_success=3, tags=["a"], jitter=None)\n'
        "def sync(*args, verbose=False, **more):\n    pass\n"
    )
    (schedule,) = load(name).schedules
    assert schedule == {
        "name": "sales/sync",
        "repeat": "CRON TZ=Europe/Berlin */5 9-17 * * 1-5",
        "runTimeout": "10m",
        "grace": 5,
        "catchup": "skip",
        "jobPriority": 750,
        "keepSuccess": 3,
        "tags": ["a"],
    }
    zone, expression = split_zone(str(schedule["repeat"]))
    saturday = datetime(2026, 11, 21, tzinfo=UTC)
    assert next_tick(expression, saturday, zone) == saturday + timedelta(days=2, hours=8)


def test_the_command_that_makes_the_schedules(write: Callable[[str], str]) -> None:
    name = write(NIGHTLY)
    sync = load(name).sync("worker-1")
    assert json.loads(sync.wire()) == {
        "source": f"module {name}",
        "by": "worker-1",
        "worker": "worker-1",
        "schedules": [dict(load(name).schedules[0])],
    }


def test_modules_inside_a_package_count(write: Callable[[str], str], tmp_path: Path) -> None:
    package = write("")
    (tmp_path / f"{package}.py").unlink()
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(f"from {package} import mail\n")
    (tmp_path / package / "mail.py").write_text(HEAD + REPORT)
    (function,) = load(package).functions
    runner = ("-P", "-m", "bedrock_worker.run.run_function")
    assert function.argv == (sys.executable, *runner, f"{package}.mail", "report", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected functions with @job or @cron"),
        ('@cron("0 0 * *")\ndef f(): pass\n', ".f: expression '0 0 * *': expected 5 to 7 fields"),
        ('@cron("61 0 * * *")\ndef f(): pass\n', ".f: minute '61'"),
        ('@cron("0 0 31 2 *")\ndef f(): pass\n', ".f: "),
        ('@cron("TZ=UTC 0 0 * * *")\ndef f(): pass\n', ".f: "),
        ('@cron("@daily", zone="Nowhere/X")\ndef f(): pass\n', ".f: zone 'Nowhere/X': expected the name of"),
        ('@cron("@daily", zone="UTC 5")\ndef f(): pass\n', ".f: zone: expected the name of a time zone"),
        ('@cron("@daily", name="a*")\ndef f(): pass\n', ".f: name: expected one without * ? ["),
        ('@cron("@daily", name="a" * 256)\ndef f(): pass\n', ".f: name: expected"),
        ('@cron("@daily", timeout=5)\ndef f(): pass\n', "unknown option timeout, @cron takes backoff"),
        ('@cron("@daily", argv=["x"])\ndef f(): pass\n', ".f: unknown option argv"),
        ('@cron("@daily", run_timeout="soon")\ndef f(): pass\n', ".f: runTimeout: expected"),
        ('@cron("@daily", catchup="maybe")\ndef f(): pass\n', ".f: catchup: expected"),
        (
            '@cron("@daily")\ndef f(a, b=1, *, c): pass\n',
            ".f: a cron function must need no arguments, this one needs a, c",
        ),
        ('@cron("@daily")\nclass F: pass\n', ".F: expected a function of the module"),
        ('class A:\n    @cron("@daily")\n    def f(self): pass\n', ".A.f: expected a function of the module"),
        ('def g():\n    @job("x")\n    def f(job): pass\ng()\n', ".g.<locals>.f: expected a function of"),
        ('@job("x")\ndef f(*a): pass\n', ".f: expected parameters that can be given by name, a cannot"),
        ('@job("x")\ndef f(a, /, b): pass\n', ".f: expected parameters that can be given by name, a cannot"),
        ('@job("")\ndef f(a): pass\n', f".f: expected a name pattern of 1 to {PATTERN_CHARS_MAX} characters"),
        (
            '@job("x", retires=3)\ndef f(a): pass\n',
            ".f: unknown option retires, @job takes isolation, timeout, backoff",
        ),
        ('@job("x", retries=-1)\ndef f(a): pass\n', ".f: retries: expected at least 0"),
        ('@job("x", unique=("b",))\ndef f(a): pass\n', ".f: unique: the function has no parameter b"),
        ('@job("x", unique="a")\ndef f(a): pass\n', ".f: unique: expected True, "),
        ('@job("x", timeout="0s")\ndef f(a): pass\n', ".f: timeout: expected a duration"),
        ('@job("x", timeout=True)\ndef f(a): pass\n', ".f: timeout: expected a duration"),
        (
            NIGHTLY + '@cron("@daily", name=__name__ + ".nightly")\ndef f(): pass\n',
            "one schedule for each name",
        ),
    ],
)
def test_what_is_refused(write: Callable[[str], str], text: str, words: str) -> None:
    name = write(text)
    with pytest.raises(BadModule) as refused:
        load(name)
    assert str(refused.value).startswith(name)
    assert words in str(refused.value)


@pytest.mark.parametrize("name", ["", "a-b", ".a", "a..b", "no_such_module", "json.no_such_module"])
def test_no_module(write: Callable[[str], str], name: str) -> None:
    with pytest.raises(BadModule, match="module"):
        load(name)


@pytest.mark.parametrize(
    ("name", "module"),
    [("json.py", "json"), ("./json/decoder.py", "json.decoder"), ("json/decoder.py", "json.decoder")],
)
def test_a_file_in_place_of_a_module(write: Callable[[str], str], name: str, module: str) -> None:
    with pytest.raises(BadModule, match=rf"expected the name of a module.*[: ]{re.escape(module)}$"):
        load(name)


@pytest.mark.parametrize(
    ("text", "words", "where"),
    [
        (
            "import no_such_thing\n",
            "ModuleNotFoundError: No module named 'no_such_thing'",
            "line 2, in <module>",
        ),
        (
            "from json import nope\n",
            "ImportError: cannot import name 'nope' from 'json'",
            "    from json import nope",
        ),
        ("def f(:\n", "SyntaxError: invalid syntax (", "line 2\n    def f(:\n"),
        ("def f():\n    1 / 0\nf()\n", "ZeroDivisionError: division by zero", "line 3, in f\n    1 / 0"),
        ("raise SystemExit(0)\n", "SystemExit: 0", "line 2, in <module>"),
        ("assert not 1\n", "AssertionError", "line 2, in <module>"),
        (
            'try:\n    import no_such_thing\nexcept ImportError as it:\n    raise ValueError("x") from it\n',
            "ValueError: x",
            "ModuleNotFoundError: No module named 'no_such_thing'\n\nThe above exception was",
        ),
        (
            "@cron\ndef f(): pass\n",
            'TypeError: @cron needs its schedule, as in @cron("0 9 * * *"); got the function f',
            "line 2, in <module>",
        ),
        ("@cron(5)\ndef f(): pass\n", "TypeError: @cron needs its schedule, as in", "line 2, in <module>"),
        (
            "@job(5)\ndef f(job): pass\n",
            'TypeError: @job needs a function or a name pattern, as in @job("report/*"); got 5',
            "line 2, in <module>",
        ),
    ],
)
def test_a_fault_of_the_module_is_told_with_its_own_frames(
    write: Callable[[str], str], tmp_path: Path, text: str, words: str, where: str
) -> None:
    name = write(text)
    with pytest.raises(BadModule) as refused:
        load(name)
    said = str(refused.value)
    assert said.startswith(f"{name}: {words}")
    assert where in said
    files = [line.split('"')[1] for line in said.splitlines() if line.startswith('  File "')]
    assert set(files) == {str(tmp_path / f"{name}.py")}


def test_a_module_that_cannot_be_imported_is_wrong_usage(write: Callable[[str], str]) -> None:
    name = write("import no_such_thing\n")
    result = CliRunner().invoke(worker, ["--module", name])
    assert result.exit_code == 2
    assert f"Error: --module {name}: ModuleNotFoundError: No module named 'no_such_thing'\n" in result.output


def test_decorators_leave_the_function_as_it_is() -> None:
    def one() -> int:
        return 1

    assert cron("@daily")(one) is one
    declared = job("x")(one)
    assert declared() == 1
    assert (declared.function, declared.__name__, declared.__module__) == (one, "one", __name__)
    assert [it.pattern for it in declared_in(__name__)] == [f"{__name__}.{one.__qualname__}", "x"]


@pytest.mark.parametrize("decorator", ["@job", "@job()", "@job(retries=2)", '@cron("@daily")'])
@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        (["orders.py"], "orders"),
        (["-m", "shop.orders"], "shop.orders"),
        (["-c", "import shop.orders"], "shop.orders"),
    ],
)
def test_without_a_name_jobs_are_named_as_a_worker_imports_the_function(
    decorator: str, arguments: list[str], module: str, tmp_path: Path
) -> None:
    text = (
        "from bedrock_worker import cron, job\n"
        f"{decorator}\ndef send(): return 1\n"
        "from bedrock_worker.functions import declared_in\n"
        "(one,) = declared_in(__name__)\n"
        "print(one.pattern, send())\n"
    )
    (tmp_path / "shop").mkdir()
    for file in ("orders.py", "shop/orders.py"):
        (tmp_path / file).write_text(text)
    printed = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert printed.stdout == f"{module}.send 1\n"


def test_the_processes_find_what_we_find(
    write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = write(NIGHTLY)
    monkeypatch.setenv("PYTHONPATH", "/one:/two")
    assert load(name).environment == {"PYTHONPATH": "/one:/two"}
    monkeypatch.delenv("PYTHONPATH")
    assert load(name).environment == {}
    assert load(name).functions[0].argv[-1] == str(tmp_path)


def test_a_module_of_the_library_is_not_taken_from_the_folder(
    write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    name = write('import json, own\n@job("*")\ndef f(job):\n    print(json.__name__, own.HERE)\n')
    (tmp_path / "own.py").write_text("HERE = 'found'\n")
    module = load(name)
    for planted in ("json", "re", "typing"):
        (tmp_path / f"{planted}.py").write_text("raise SystemExit('planted')\n")
    done = subprocess.run(
        module.functions[0].argv,
        env=module.environment,
        input=json.dumps(JOB),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "json found\n", "")


# --- a run ---------------------------------------------------------------------------------------------


@pytest.fixture
def called(
    write: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, Any]]:
    """Return what calls a function ``f`` in this process and returns exit status and result."""

    def call(text: str, name: str = "f") -> tuple[int, Any]:
        data, result = tmp_path / "job.json", tmp_path / "result.json"
        data.write_text(json.dumps(JOB))
        result.unlink(missing_ok=True)
        monkeypatch.setenv("BEDROCK_DATA_FILE", str(data))
        monkeypatch.setenv("BEDROCK_RESULT", str(result))
        monkeypatch.syspath_prepend(tmp_path)
        status = main([write(text), name])
        return status, json.loads(result.read_text()) if result.exists() else None

    return call


@pytest.mark.parametrize(
    ("text", "status", "result"),
    [
        ('@job("*")\ndef f(job): return {"b": job.data["a"]}\n', 0, {"b": 1}),
        ('@job("*")\ndef f(job): return None\n', 0, None),
        ('@job("*")\nasync def f(job): return {"id": job.id}\n', 0, {"id": 4}),
        ('@cron("@daily")\ndef f(): return {"c": "é"}\n', 0, {"c": "é"}),
        ('@cron("@daily")\nasync def f(): return {}\n', 0, {}),
        ('@cron("@daily")\ndef f() -> float: return 1.5\n', 0, {"a": 1, "result": 1.5}),
        ('@cron("@daily")\nasync def f(): return "done"\n', 0, {"a": 1, "result": "done"}),
        ('@cron("@daily")\ndef f() -> timedelta: return timedelta(1)\n', 0, {"a": 1, "result": "P1D"}),
        ('@job("*")\ndef f(job): raise Retry\n', 102, None),
        ('@job("*")\ndef f(job): raise Retry(30)\n', 102, {"delay": 30}),
        ('@job("*")\ndef f(job): raise Retry(0.2)\n', 102, {"delay": 1}),
        ('@job("*")\ndef f(job): raise Snooze(30)\n', 101, {"delay": 30}),
        ('@job("*")\ndef f(job): raise Snooze("5m")\n', 101, {"delay": 300}),
        ('@job("*")\ndef f(job): raise Snooze(timedelta(minutes=1.5))\n', 101, {"delay": 90}),
        *(
            ('@job("*")\ndef f(job): raise ExceptionGroup("", [' + text + "])\n", *end)
            for text, *end in (
                ("Retry(3)", 102, {"delay": 3}),
                ("Snooze(3), Snooze(5)", 101, {"delay": 5}),
                ('ExceptionGroup("", [Snooze(3), Retry(2)]), Retry(4)', 102, {"delay": 4}),
                ("Retry(3), ValueError()", 1, None),
                ('Retry(3), ValueError(), Fail("x")', 100, None),
            )
        ),
        (
            '@job("*")\nasync def f(job):\n'
            "    async with asyncio.TaskGroup() as group:\n"
            "        async def late(): raise Snooze(7)\n"
            "        group.create_task(late())\n",
            101,
            {"delay": 7},
        ),
        ('@job("*")\ndef f(b): pass\n', 103, None),
        ('@job("*")\ndef f(a, b): pass\n', 103, None),
        ('@job("*")\ndef f(a: str): pass\n', 100, None),
        ('@job("*")\ndef f(job): raise Fail("in vain")\n', 100, None),
        ('@job("*")\ndef f(job): 1 / 0\n', 1, None),
        ('@job("*")\ndef f(job): return 5\n', 1, None),
        ('@job("*")\ndef f(job): return {"a": {1, 2}}\n', 1, None),
        ('@job("*")\ndef f(job): return {"a": float("nan")}\n', 1, None),
        ("import no_such_thing\n", 1, None),
        ("def f(): pass\n", 1, None),
    ],
)
def test_how_a_function_ends(
    called: Callable[..., tuple[int, Any]], text: str, status: int, result: Any
) -> None:
    assert called(text) == (status, result)


def test_exit_statuses_are_those_of_the_documentation() -> None:
    names = ("DONE", "RAISED", "TRY_AGAIN", "FAIL_PERMANENTLY", "SNOOZE", "RETRY", "UNFIT")
    assert [getattr(functions, name) for name in names] == [0, 1, 75, 100, 101, 102, 103]


@pytest.mark.parametrize("kind", [Retry, Snooze])
@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), True, "soon", timedelta(-1), [], "-5m"])
def test_a_delay_that_is_none_is_told_where_it_is_given(kind: Any, delay: Any) -> None:
    with pytest.raises(ValueError, match='delay: expected seconds, a timedelta or text like "5m"'):
        kind(delay)


DEEP = """
def deep(n):
    if n:
        deep(n - 1)
    raise LookupError("no\\nway")

@job("*")
async def f(job):
    deep(3)
"""


def test_why_a_function_failed_begins_with_its_error_and_in_its_own_code(
    called: Callable[..., tuple[int, Any]], tmp_path: Path
) -> None:
    """As JobFailed takes it apart; what led to the function is left out."""
    assert called(DEEP)[0] == 1
    kept = reporter.failure_of(tmp_path / "error.json")
    assert kept is not None
    failed = JobFailed(4, "fail", kept, 9)
    assert (failed.error, failed.error_type) == ("LookupError: no\nway", "LookupError")
    assert str(failed) == "job 4: fail: LookupError: no\nway"
    first, second, *_ = failed.traceback.splitlines()
    assert first == "Traceback (most recent call last):"
    assert second.startswith(f'  File "{tmp_path}/declared_')
    assert failed.traceback.count("in deep") == 4
    assert "bedrock_worker" not in failed.traceback
    assert "asyncio" not in failed.traceback


@pytest.mark.parametrize(
    ("kept", "error", "kind", "traced"),
    [
        ("Fail: no source", "Fail: no source", "Fail", False),
        ("exit status 3\nno disk", "exit status 3\nno disk", "", False),
        ("status 1\nTraceback (most recent call last):\n  x\nKeyError: 1", "KeyError: 1", "KeyError", True),
        ("Traceback (most recent call last):\n  x\nmy.own.Error", "my.own.Error", "my.own.Error", True),
        ("exit status 1\nnot a Traceback (most recent call last):", None, "", False),
        ("", "", "", False),
        (
            "ExceptionGroup: two (2 sub-exceptions)\n  + Exception Group Traceback (most recent call last):\n"
            "  | ExceptionGroup: two (2 sub-exceptions)",
            "ExceptionGroup: two (2 sub-exceptions)",
            "ExceptionGroup",
            True,
        ),
    ],
)
def test_an_error_taken_apart(kept: str, error: str | None, kind: str, traced: bool) -> None:
    failed = JobFailed(1, "fail", kept)
    assert (failed.error, failed.error_type) == (kept if error is None else error, kind)
    assert bool(failed.traceback) == traced
    assert pickle.loads(pickle.dumps(failed)).traceback == failed.traceback


def test_a_long_error_keeps_its_beginning_and_its_end() -> None:
    short = reporter.shortened("E: first\n" + "x" * ERROR_CHARS_MAX + "\nE: last")
    assert ERROR_CHARS_MAX - 1 <= len(short) <= ERROR_CHARS_MAX
    assert short.startswith("E: first\n")
    assert short.endswith("\nE: last")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('@job("*")\ndef f(job): raise Retry(30, "busy")\n', "busy"),
        ('@job("*")\ndef f(job): raise Retry(30)\n', "try again in 30 s"),
        ('@job("*")\ndef f(job): raise Fail("in vain")\n', "in vain"),
        ('@job("*")\ndef f(job): 1 / 0\n', "ZeroDivisionError: division by zero"),
        (
            '@job("*")\ndef f(job): return 5\n',
            "TypeError: the function returned int, expected a dict or None",
        ),
        ("def f(): pass\n", "has no function f with @job or @cron"),
    ],
)
def test_what_it_says(
    called: Callable[..., tuple[int, Any]], capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    called(text)
    out, err = capsys.readouterr()
    assert not out
    assert err.rstrip().endswith(words)


SHOW = """
@job("*")
def f(job):
    return {"all": [job.id, job.name, job.data, job.attempt, job.run_id, job.scheduled_for.isoformat(),
                    job.fields["parentData"]]}
"""


def test_what_a_function_gets(
    called: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    due = "2026-11-21T10:00:00+00:00"
    assert called(SHOW)[1] == {"all": [4, "report/x", {"a": 1}, 2, 9, due, {"p": 1}]}
    monkeypatch.setenv("BEDROCK_SCHEDULED_FOR", "2026-11-21 09:00:00.250")
    assert called(SHOW)[1]["all"][5] == "2026-11-21T09:00:00.250000+00:00"


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["one"]) == 2
    assert capsys.readouterr().err.startswith("usage: ")


def test_as_a_process(write: Callable[[str], str], tmp_path: Path) -> None:
    """With nothing but what the worker gives it; an exit status of its own stays."""
    name = write('@job("*")\ndef f(job):\n    print("hello", job.name)\n    raise SystemExit(7)\n')
    module = load(name)
    env = {**module.environment, "BEDROCK_RESULT": str(tmp_path / "result")}
    done = subprocess.run(
        module.functions[0].argv,
        env=env,
        input=json.dumps(JOB),
        cwd=os.sep,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "hello report/x\n", "")


def test_what_it_prints_leaves_it_line_by_line(write: Callable[[str], str]) -> None:
    module = load(write('import os\n@job("*")\ndef f(job):\n    print("hello")\n    os._exit(0)\n'))
    done = subprocess.run(
        module.functions[0].argv,
        env=module.environment,
        input=json.dumps(JOB),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "hello\n"


def test_a_process_imports_nothing_of_the_server_and_little_of_the_worker() -> None:
    code = "import sys, bedrock_worker.run.run_function; print(*sorted(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    ours = [name for name in found if name.startswith("bedrock")]
    light = ("arguments", "current", "enqueuing", "functions")
    parts = ("", *(f".{name}" for name in light))
    parts += (".run", ".run.run_function")
    assert ours == [f"bedrock_worker{part}" for part in parts]
    assert not {"asyncio", "pydantic"} & set(found)
