"""Lifespans and middleware of functions, in each way of getting a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from bedrock_worker import functions
from bedrock_worker.policy.python_module import BadModule, load

from tests.effort import crossed
from tests.worker.conftest import until
from tests.worker.warm.conftest import HEAD, WAYS, outcomes

LIFESPANS = (
    HEAD
    + """
from bedrock_worker import current_run, lifespan, middleware

def note(text):
    with open("notes", "a") as file:
        file.write(f"{text}\\n")

opened = []

@lifespan
def first():
    note(f"opens first {os.environ['BEDROCK_NAME']}")
    opened.append("first")
    yield
    note("closes first")

@lifespan
def second():
    thread = threading.Thread(target=stop.wait, args=(60,))
    thread.start()
    opened.append("second")
    yield
    stop.set()
    thread.join()
    note("closes second")

stop = threading.Event()
"""
)

MIDDLEWARE = (
    HEAD
    + """
from bedrock_worker import current_run, middleware

def note(text):
    with open("notes", "a") as file:
        file.write(f"{text}\\n")

@middleware
def outer(run):
    note(f"outer {run.job.name} {run.attempt} {current_run().run_id == run.run_id}")
    try:
        yield
    except Exception as error:
        note(f"outer saw {type(error).__name__}")
        raise
    else:
        note("outer ends")

@middleware
def inner(run):
    note("inner")
    yield
    note("inner ends")

async def later():
    note("runs")
    return {"value": 1}
"""
)


@pytest.fixture(autouse=True)
def _no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget at the end what the worker's own import of a module has declared."""
    monkeypatch.setattr(functions, "_lifespans", [])
    monkeypatch.setattr(functions, "_middleware", [])


def notes() -> list[str]:
    """Return what the functions have noted."""
    return Path("notes").read_text().splitlines()


@pytest.mark.parametrize("way", WAYS)
async def test_a_process_opens_once_and_closes_at_its_end(ran, write, way):
    """What a lifespan leaves in the process, such as a thread, is no reason to replace the process."""
    show = '({"runs": runs, "opened": opened})'
    found = await ran(WAYS[way], show, show, show, module=write(LIFESPANS))
    again = way == "reused"
    assert [given["data"]["runs"] for _, given in found] == ([1, 2, 3] if again else [1, 1, 1])
    assert all(given["data"]["opened"] == ["first", "second"] for _, given in found)
    once = ["opens first Foo", "closes second", "closes first"]
    await until(lambda: len(notes()) == (3 if again else 9))
    assert notes() == once * (1 if again else 3)


@pytest.mark.parametrize("way", WAYS)
async def test_a_process_that_fails_closes_too(ran, write, way):
    await ran(WAYS[way], "1 / 0", module=write(LIFESPANS))
    await until(lambda: len(notes()) == 3)
    assert notes()[1:] == ["closes second", "closes first"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_lifespan_that_cannot_be_opened_fails_the_run(ran, write, way):
    text = LIFESPANS.replace("    yield\n    stop.set()", "    raise OSError('no database')\n    yield")
    text = text.replace("    thread.start()\n", "")
    ((verb, given),) = await ran(WAYS[way], "note('never')", module=write(text))
    assert (verb, given["error"].splitlines()[0]) == ("FailJob", "OSError: no database")
    assert "contextlib" not in given["error"]
    await until(lambda: len(notes()) >= 2)
    assert set(notes()) == {"opens first Foo", "closes first"}


ENDS = {
    "(asyncio_run(later()))": ["inner ends", "outer ends"],
    "raise Retry": ["outer saw Retry"],
    "1 / 0": ["outer saw ZeroDivisionError"],
}
"""What middleware notes at the end of a function."""


@pytest.mark.parametrize(("way", "do"), crossed(WAYS, ENDS))
async def test_middleware_surrounds_each_run(ran, write, way, do):
    text = MIDDLEWARE + "\nimport asyncio\nasyncio_run = asyncio.run\n"
    await ran(WAYS[way], do, do, module=write(text))
    runs = ["runs"] if "later" in do else []
    assert notes() == ["outer Foo 1 True", "inner", *runs, *ENDS[do]] * 2


async def test_middleware_may_handle_an_exception(ran, write):
    text = MIDDLEWARE.replace("        raise\n", "")
    found = await ran(WAYS["reused"], "1 / 0", "(None)", module=write(text))
    assert outcomes(found) == [("FinishJob", 0, None)] * 2


@pytest.mark.parametrize("name", ["lifespan", "middleware"])
@pytest.mark.parametrize("text", ["def f(*run): pass", "async def f(*run): pass"])
def test_what_is_no_generator_is_refused(write, name, text):
    module = write(f"from bedrock_worker import {name}\n\n@{name}\n{text}\n")
    with pytest.raises(BadModule, match=f"@{name} needs a function with one yield; got f"):
        load(module)
