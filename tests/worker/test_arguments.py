"""Arguments and results as JSON: what fits, messages about what does not, and direct calls."""

from __future__ import annotations

import enum
import inspect
import json
import logging
import re
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import pytest
from bedrock_worker import CurrentRun, Job, current, current_run, job
from bedrock_worker import arguments as arguments_module
from bedrock_worker.arguments import ADAPTERS_MAX, Arguments, WrongArguments, json_of
from bedrock_worker.current import LOGGER, set_current_run
from bedrock_worker.enqueuing import EnqueueOptions, RunOptions
from bedrock_worker.policy.python_module import CRON_OPTIONS
from pydantic import BaseModel

from bedrockjobs import AsyncClient, BedrockjobsError, Client, InvalidArgument, InvalidCommand, JobSpec
from bedrockjobs.client import shared_client
from bedrockjobs.commands import CreateJob

ID = UUID(int=7)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int = 0


class Model(BaseModel):
    day: date


class Shape(TypedDict, total=False):
    sides: int


def many(
    number: int,
    share: float = 0.5,
    *,
    day: date | None = None,
    points: list[Point] | None = None,
    **more: str,
) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("args", "kwargs", "data"),
    [
        ((1,), {}, {"number": 1}),
        ((1, 2), {"note": "é"}, {"number": 1, "share": 2, "note": "é"}),
        ((), {"number": 1, "day": date(2026, 11, 21)}, {"number": 1, "day": "2026-11-21"}),
        ((1,), {"points": [Point(1)]}, {"number": 1, "points": [{"x": 1, "y": 0}]}),
        ((1,), {"points": None}, {"number": 1, "points": None}),
    ],
)
def test_arguments_become_data_and_come_back(args: tuple[Any, ...], kwargs: Any, data: Any) -> None:
    arguments = Arguments(many)
    assert arguments.to_data(args, kwargs) == data
    names = dict(zip(("number", "share"), args, strict=False))
    assert arguments.of_data(data, again=False) == {**names, **kwargs}


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, "missing a required argument: 'number', of many(number: 'int', share"),
        (("1",), {}, "number: expected int, got '1'"),
        ((True,), {}, "number: expected int, got True"),
        ((1, "x"), {}, "share: expected float, got 'x'"),
        ((1, float("nan")), {}, "share: expected a value that JSON can hold: Out of range float values"),
        ((1,), {"note": 5}, "note: expected str, got 5"),
        ((1,), {"day": "soon"}, "day: Input should be a valid date"),
        ((1,), {"points": [{"x": "no"}]}, "points: 0: Input should be an instance of Point"),
        ((1, 2, 3), {}, "too many positional arguments"),
    ],
)
def test_what_does_not_fit_is_told_where_it_is_given(args: Any, kwargs: Any, words: str) -> None:
    with pytest.raises(WrongArguments) as refused:
        Arguments(many).to_data(args, kwargs)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        (int, 5, 5),
        (float, 5, 5),
        (None, None, None),
        (list[int], [1, 2], [1, 2]),
        (str | None, None, None),
        (dict[str, list[int]], {"a": [1]}, {"a": [1]}),
        (Literal["a", "b"], "a", "a"),
        (Any, {"a": None}, {"a": None}),
        (Shape, {"sides": 3}, {"sides": 3}),
        (Point, Point(1, 2), {"x": 1, "y": 2}),
        (UUID, ID, str(ID)),
        (Model, Model(day=date(2026, 1, 2)), {"day": "2026-01-02"}),
        (Colour, Colour.RED, "red"),
        (tuple[int, str], (1, "a"), [1, "a"]),
        (dict[str, Point], {"a": Point(1)}, {"a": {"x": 1, "y": 0}}),
        (list[Point] | int, 5, 5),
    ],
)
def test_results_of_every_kind_come_back_as_they_were(kind: Any, value: Any, stored: Any) -> None:
    def function() -> Any: ...

    function.__annotations__["return"] = kind
    arguments = Arguments(function)
    assert arguments.result_to_json(value) == stored
    assert arguments.result_of_json(stored) == value


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (int, "5", "its result: expected int, got '5'"),
        (list[int], [1, "2"], "its result: expected list[int]"),
        (Shape, {"corners": 3}, "its result: expected Shape"),
        (Point, {"x": 1}, "its result: "),
        (Any, {1, 2}, "its result: expected a value that JSON can hold"),
        (sys.__class__, sys, "has no form in JSON that pydantic knows"),
    ],
)
def test_results_that_are_not_what_was_said(kind: Any, value: Any, words: str) -> None:
    def function() -> Any: ...

    function.__annotations__["return"] = kind
    with pytest.raises(WrongArguments) as refused:
        Arguments(function).result_to_json(value)
    assert words in str(refused.value)


def with_name(job): ...  # type: ignore[no-untyped-def]
def with_type(it: Job) -> None: ...
def with_both(job: Job, more: int) -> None: ...
def with_number(job: int) -> None: ...
def with_nothing() -> None: ...


@pytest.mark.parametrize(
    ("function", "takes"),
    [(with_name, True), (with_type, True), (with_both, False), (with_number, False), (with_nothing, False)],
)
def test_which_functions_are_called_with_the_job(function: Callable[..., Any], takes: bool) -> None:
    assert Arguments(function).takes_job is takes


def test_the_last_result_and_the_mark_of_mocked_jobs_are_no_arguments() -> None:
    arguments = Arguments(with_nothing)
    assert arguments.of_data({"mockRequest": True}, again=False) == {}
    assert arguments.of_data({"result": 5}, again=True) == {}
    with pytest.raises(WrongArguments, match="unexpected keyword argument 'result'"):
        arguments.of_data({"result": 5}, again=False)


def test_annotations_that_cannot_be_read_count_as_left_out() -> None:
    def function(a: Nowhere) -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821

    assert Arguments(function).to_data(({"b": 1},), {}) == {"a": {"b": 1}}


# --- what is refused before anything is sent --------------------------------------------------------------


@job("size/*")
def size(width: int) -> int:
    return width


@job("keep")
def keep(result: int) -> None: ...


CLIENT = Client("127.0.0.1:1", tries=1)
ONE = size.using(name="size/a", client=CLIENT)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: size.enqueue(5), "size: size/* is for jobs of several names: say which"),
        (lambda: size.using(name="other").enqueue(5), "size: name: expected one that size/* matches"),
        (lambda: ONE.enqueue("5"), "size: width: expected int, got '5'"),  # type: ignore[arg-type]
        (lambda: ONE.using(retries=-1).enqueue(5), "CreateJob: retries: expected at least 0"),
        (lambda: size.using(name="size/a").enqueue_many([{}]), "size: missing a required argument: 'width'"),
        (lambda: ONE.schedule("0 9 * * *"), "size: missing a required argument"),  # type: ignore[call-arg]
        (lambda: keep.schedule("0 9 * * *", 5), "keep: a schedule cannot pass the parameter result"),
    ],
)
def test_a_wrong_call_is_an_invalid_command(wrong: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidCommand) as refused:
        wrong()
    assert str(refused.value).startswith(words)


async def test_each_way_wants_its_kind_of_client() -> None:
    with pytest.raises(InvalidArgument, match="expected a Client"):
        size.using(name="size/a", client=AsyncClient()).enqueue(5)
    with pytest.raises(InvalidArgument, match="expected an AsyncClient"):
        await size.using(name="size/a", client=CLIENT).aenqueue(5)


def test_no_job_is_nothing_to_send() -> None:
    assert size.using(name="size/a", client=CLIENT).enqueue_many([]) == []


def test_without_a_client_it_is_the_one_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEDROCKJOBS_SERVER", "127.0.0.1:2")
    one = shared_client()
    assert str(one.server) == "127.0.0.1:2"
    assert shared_client() is one
    monkeypatch.setenv("BEDROCKJOBS_SERVER", "no address")
    with pytest.raises(BedrockjobsError, match="got 'no address'"):
        size.using(name="size/a").enqueue(5)
    monkeypatch.setenv("BEDROCKJOBS_SERVER", "127.0.0.1:3")
    assert str(shared_client().server) == "127.0.0.1:3"


def test_options_are_attributes_of_create_job() -> None:
    assert RunOptions.__annotations__.keys() <= CRON_OPTIONS
    explicit = {"backoff"}  # a parameter of its own
    missing = CRON_OPTIONS - RunOptions.__annotations__.keys() - {"expect", "ping_grace", "keep"} - explicit
    assert not missing, "add the option to RunOptions in bedrock_worker/enqueuing.py"
    fields = JobSpec.model_fields.keys()
    assert EnqueueOptions.__annotations__.keys() - {"delay"} <= fields
    others = {
        "backoff",
        "data",
        "repeat",
        "retry_after",
        "priority",
        "overwrite",
        "cmd",
        "argv",
        "url",
        "expect",
        "ping_grace",
        "keep",
    }
    assert fields - EnqueueOptions.__annotations__.keys() <= others


@pytest.mark.parametrize("delay", [300, 300.0, "5m", "300", timedelta(minutes=5)])
def test_a_delay_is_the_first_run_from_now(delay: Any) -> None:
    assert command_of(size.using(name="size/a", delay=delay)).first_run == "+300s"


def test_the_later_of_delay_and_first_run_replaces_the_other() -> None:
    soon = size.using(name="size/a", delay="5m")
    assert command_of(soon.using(first_run="2027-01-01")).first_run == "2027-01-01 00:00:00"
    assert command_of(soon.using(first_run=timedelta(hours=1)).using(delay=1.5)).first_run == "+1.5s"
    assert command_of(soon.using(delay=None)).first_run is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delay": -1}, "size: delay: expected seconds, a timedelta or text like"),
        ({"delay": "soon"}, "size: delay: expected seconds, a timedelta or text like"),
        ({"delay": 10**400}, "size: delay: expected seconds, a timedelta or text like"),
        ({"delay": float("inf")}, "size: delay: expected seconds, a timedelta or text like"),
        ({"delay": 1e300}, "size: delay: expected at most 999999999 days"),
        ({"delay": 1, "first_run": "5m"}, "size: delay: expected nothing together with first_run"),
    ],
)
def test_a_bad_delay_names_the_function(options: Any, words: str) -> None:
    with pytest.raises(InvalidCommand, match=re.escape(words)):
        command_of(size.using(name="size/a", **options))


def command_of(function: Any) -> CreateJob:
    """Return the command that ``enqueue`` would send."""
    return CreateJob(**function._enqueued_with({"width": 1}))


def test_using_leaves_the_function_as_it_was() -> None:
    one = size.using(name="size/a", retries=3)
    assert one(5) == 5
    with pytest.raises(InvalidCommand, match="several names"):
        size.using(retries=3).enqueue(5)


# --- the run in progress ---------------------------------------------------------------------------------


def given() -> Job:
    return Job(4, "size/a", {"width": 5}, 2, 9, datetime(2026, 11, 21, tzinfo=UTC), {})


@pytest.fixture
def no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the runs of other tests in this process."""
    monkeypatch.setattr(current, "_current", CurrentRun(current._no_job))


@pytest.fixture
def in_a_run(monkeypatch: pytest.MonkeyPatch, no_run: None) -> None:
    monkeypatch.setenv("BEDROCK_RUN_ID", "9")
    set_current_run(given)


@pytest.mark.usefixtures("in_a_run")
def test_progress_is_a_line_for_the_worker(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "__stdout__", sys.stdout)
    run = current_run()
    for done, message in ((0, ""), (0.4, "half\nway"), (1 / 3, ""), (1, "done")):
        run.progress(done, message)
    assert capsys.readouterr().out.splitlines() == [
        "::progress 0::",
        "::progress 40 half way::",
        "::progress 33.33::",
        "::progress 100 done::",
    ]
    assert (run.job_id, run.run_id, run.attempt, run.job.data) == (4, 9, 2, {"width": 5})
    with pytest.raises(InvalidArgument, match="expected a number from 0 to 1, got 40"):
        run.progress(40)


@pytest.mark.usefixtures("no_run")
def test_a_function_can_be_called_without_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    run = current_run()
    assert (run.job_id, run.run_id, run.attempt, run.job.name) == (0, 0, 1, "")
    run.progress(0.5, "nobody listens")
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("in_a_run")
def test_a_run_has_a_logger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, LOGGER):
        current_run().logger.info("%d of them", 3)
    assert [(each.name, each.getMessage()) for each in caplog.records] == [(LOGGER, "3 of them")]


@pytest.mark.parametrize("kind", [inspect.Parameter.empty, Any, object, dict, list, tuple, dict[str, Any]])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1: "a"}, "JSON has only text as keys, and would turn 1 into one"),
        ({"a": [{None: 1}]}, "JSON has only text as keys, and would turn None into one"),
        ([{True: 1}], "JSON has only text as keys"),
        ((1, 2), "JSON has no tuples, and would turn (1, 2) into a list"),
        ({"a": (1,)}, "JSON has no tuples"),
        ([[(1,)]], "JSON has no tuples"),
    ],
)
def test_nothing_is_given_that_would_arrive_as_something_else(kind: Any, value: Any, words: str) -> None:
    """However it is annotated: it comes back as it was, or is refused where it is given, with its place."""

    def function(x):  # type: ignore[no-untyped-def]
        pass

    function.__annotations__ = {} if kind is inspect.Parameter.empty else {"x": kind}
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind)]
    )
    said, data = "", None
    try:
        data = Arguments(function).to_data((value,), {})
    except WrongArguments as refused:
        said = str(refused)
    if said:
        assert said.startswith("x")
        assert words in said or "expected" in said or "valid" in said
    else:
        assert Arguments(function).of_data(json.loads(json.dumps(data)), again=False) == {"x": value}


class _Pair(NamedTuple):
    first: int
    second: int


OTHER_VALUES: list[Any] = [
    *({2.5: "a"}, {b"a": 1}, {(1,): 1}, {"a": {None: 1}}, [{"a": _Pair(1, 2)}], _Pair(1, 2), (), [()]),
    *(b"a", bytearray(b"a"), {1}, frozenset({1}), [{1}], float("inf"), [float("-inf")], {"a": float("nan")}),
    *(Decimal("1.5"), date(2026, 11, 21), Path("a"), 1j, ..., object(), [object()], int, range(3)),
    *(-0.0, 1e308, 2**70, "", "\0", "\U0001f600", OrderedDict(a=1), {"": [[], {}]}, [[], {}]),
]
"""Neighbours of what JSON changes: of other types, empty, deeper, and as large as it gets."""


@pytest.mark.parametrize("kind", [inspect.Parameter.empty, Any, object, dict, list, str, int, float])
def test_each_value_comes_back_as_it_was_or_is_refused(kind: Any) -> None:
    def function(x):  # type: ignore[no-untyped-def]
        pass

    function.__annotations__ = {} if kind is inspect.Parameter.empty else {"x": kind}
    came_back = 0
    for value in OTHER_VALUES:
        said, data = "x", None
        try:
            data = Arguments(function).to_data((value,), {})
        except WrongArguments as refused:
            said = str(refused)
        assert said.startswith("x"), (value, said)
        if data is None:
            continue
        found = Arguments(function).of_data(json.loads(json.dumps(data, allow_nan=False)), again=False)["x"]
        assert found == value, (kind, value, found)
        assert kind in (str, int, float) or isinstance(value, type(found)), (kind, value, found)
        came_back += 1
    assert came_back > 0, "a control"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (dict[int, str], {1: "a"}),
        (tuple[int, str], (1, "a")),
        (dict[str, tuple[int, ...]], {"a": (1, 2)}),
        (tuple[int, ...] | None, (1, 2)),
    ],
)
def test_annotations_bring_back_what_json_does_not_have(kind: Any, value: Any) -> None:
    def function(x):  # type: ignore[no-untyped-def]
        pass

    function.__annotations__ = {"x": kind}
    data = json.loads(json.dumps(Arguments(function).to_data((value,), {})))
    assert Arguments(function).of_data(data, again=False) == {"x": value}


def test_the_words_on_what_json_would_change() -> None:
    def function(x):  # type: ignore[no-untyped-def]
        pass

    for value, words in (
        ({"a": [{5: 1}]}, r"x\['a'\]\[0\]: JSON has only text as keys, and would turn 5 into one"),
        ([0, (1,)], r"x\[1\]: JSON has no tuples, and would turn \(1,\) into a list"),
    ):
        with pytest.raises(WrongArguments, match=words):
            Arguments(function).to_data((value,), {})


@pytest.mark.parametrize(
    ("given", "names", "text"),
    [
        ({"b": 1, "a": "\u00e4"}, None, r'{"a":"\u00e4","b":1,"c":{"x":1,"y":0}}'),
        ({"a": "x", "b": 2.5}, None, '{"a":"x","b":2.5,"c":{"x":1,"y":0}}'),
        ({"a": "x", "c": {"y": 0, "x": 1}}, None, '{"a":"x","b":1,"c":{"x":1,"y":0}}'),
        ({"a": "x", "b": 1.0}, ("b", "a"), '{"a":"x","b":1}'),
        ({"a": "x"}, ("b",), '{"b":1}'),
    ],
)
def test_one_spelling_of_the_same_arguments(given: dict[str, Any], names: Any, text: str) -> None:
    def function(a: str, b: float = 1, c: Point = Point(1)) -> None:  # noqa: B008
        """Take arguments."""

    assert Arguments(function).canonical(given, names) == text


def test_what_checks_a_type_is_made_once_and_only_so_many_are_kept(monkeypatch):
    monkeypatch.setattr("bedrock_worker.arguments._adapters", {})

    def f(day: date) -> date:
        return day

    arguments = Arguments(f)
    for _ in range(2):
        assert arguments.of_data({"day": "2026-11-21"}, again=False) == {"day": date(2026, 11, 21)}
    assert len(arguments_module._adapters) == 1
    for number in range(ADAPTERS_MAX + 5):
        json_of(Colour.RED, Annotated[Colour, number], "each")
        assert len(arguments_module._adapters) <= ADAPTERS_MAX


@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_that_python_refuses_to_print(sign):
    assert json_of(sign * 10**4_000, int, "n") == sign * 10**4_000
    with pytest.raises(WrongArguments, match="JSON can hold"):
        json_of(sign * 10**5_000, int, "n")
