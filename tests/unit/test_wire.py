"""Names and value types of the wire format, and the messages about invalid values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedrockjobs.base.clock import moment_of, timestamp, timestamp_ms
from bedrockjobs.base.config import JOB_ID_MAX, WHOLE_MAX
from bedrockjobs.base.errors import BadArguments, BadJSON, CommandError, InvalidCommand
from bedrockjobs.base.wire import Escaped, stamped, wire_name
from bedrockjobs.commands import ALL, CreateJob, CreateJobs, GetJob, GetJobs, RequeueJobs, RetryJob, UpdateJob


@pytest.mark.parametrize(
    ("field", "wire"),
    [
        ("job_id", "jobID"),
        ("parent_job_id", "parentJobID"),
        ("job_ids", "jobIDs"),
        ("run_id", "runID"),
        ("data", "data"),
        ("job_priority", "jobPriority"),
        ("get_mocked_jobs", "getMockedJobs"),
        ("then_get", "thenGet"),
        ("identity", "identity"),
    ],
)
def test_wire_names(field: str, wire: str) -> None:
    assert wire_name(field) == wire


def test_every_parameter_can_be_asked_for_in_any_case_on_raw() -> None:
    for kind in ALL:
        for lower, name in kind.wire_names.items():
            assert lower == name.lower()


# --- moments -------------------------------------------------------------------------------------------


@given(st.datetimes(timezones=st.just(UTC)))
def test_timestamps_sort_as_their_moments_and_read_back(moment: datetime) -> None:
    later = moment + timedelta(seconds=1) if moment.year < 9999 else moment
    assert timestamp(moment) <= timestamp(later)
    assert (len(timestamp(moment)), len(timestamp_ms(moment))) == (19, 23)
    assert moment_of(timestamp(moment)) == moment.replace(microsecond=0)
    assert abs(moment_of(timestamp_ms(moment)) - moment) < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("2026-11-21", "2026-11-21 00:00:00"),
        ("2026-11-21 03:29:56", "2026-11-21 03:29:56"),
        ("2026-11-21 03:29:56.332", "2026-11-21 03:29:56.332"),
        ("2026-11-21T03:29:56Z", "2026-11-21 03:29:56"),
        ("2026-11-21T03:29:56+01:00", "2026-11-21 02:29:56"),
        ("2026-11-21T03:29:56.5+01:00", "2026-11-21 02:29:56.500"),
        ("2026-11-21T00:30:00+01:00", "2026-11-20 23:30:00"),
        ("21 Nov 2026 03:29:56 GMT", "2026-11-21 03:29:56"),
        (" 2026-11-21 ", "2026-11-21 00:00:00"),
        ("0999-05-06T07:08:09Z", "0999-05-06 07:08:09"),
    ],
)
def test_dates(text: str, stored: str) -> None:
    assert CreateJob.read({"name": "d", "firstRun": text}).first_run == stored


@pytest.mark.parametrize(
    ("given", "offset", "stamp"),
    [
        ("5m", "+300s", "2026-11-21 03:34:56.250"),
        (" +5m ", "+300s", "2026-11-21 03:34:56.250"),
        ("+5  minutes", "+300s", "2026-11-21 03:34:56.250"),
        ("1h30m", "+5400s", "2026-11-21 04:59:56.250"),
        ("- 1 DAY", "-86400s", "2026-11-20 03:29:56.250"),
        ("-24h", "-86400s", "2026-11-20 03:29:56.250"),
        ("+90", "+90s", "2026-11-21 03:31:26.250"),
        ("0.75s", "+0.75s", "2026-11-21 03:29:57"),
        (timedelta(minutes=5), "+300s", "2026-11-21 03:34:56.250"),
        (timedelta(milliseconds=-1), "-0.001s", "2026-11-21 03:29:56.249"),
    ],
)
def test_times_from_now(given: str | timedelta, offset: str, stamp: str) -> None:
    """The command keeps the offset, also when it is forwarded; the transaction makes it a timestamp."""
    command = CreateJob.read({"name": "d", "firstRun": given})
    assert command.first_run == offset
    assert CreateJob.read_json(command.wire()) == CreateJob.read({"name": "d", "firstRun": offset})
    assert stamped(command.first_run, "2026-11-21 03:29:56.250") == stamp


@pytest.mark.parametrize("text", ["87600h1s", "-3651d", timedelta(days=3651)])
def test_times_too_far_from_now(text: str | timedelta) -> None:
    with pytest.raises(BadArguments) as refused:
        CreateJob.read({"name": "d", "firstRun": text})
    assert refused.value.detail == "firstRun: expected at most 315360000 seconds from now"


def test_times_from_now_end_with_the_calendar() -> None:
    assert stamped("+60s", "9999-12-31 23:59:59") == "9999-12-31 23:59:59"
    assert stamped("-60s", "0001-01-01 00:00:00") == "0001-01-01 00:00:00"


@pytest.mark.parametrize(
    "text",
    [
        "5",
        "1.5",
        "+",
        "-",
        "++5m",
        "5 parsecs",
        "+1 MONTH",
        "\u0665m",
        "m",
        "garbage",
        "1999 garbage",
        "2026-02-30",
        "2026-13-01",
        "25:00",
        "12:00",
        "Monday",
        "2026",
        "2026-11",
        "0000-01-01",
        "10000-01-01",
        "9999-12-31T23:59:59-14:00",
        "\u0662026-01-01",
        "1" * 200,
        "now",
        "-2026-01-01",
        "2026-01-01 00:00:00\0",
    ],
)
def test_what_is_no_date(text: str) -> None:
    with pytest.raises(BadArguments, match="Malformed firstRun") as refused:
        CreateJob.read({"name": "d", "firstRun": text})
    assert refused.value.detail.startswith("firstRun: expected a date like 2026-11-21 03:29:56")


def test_a_datetime_of_python_is_a_date() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, timezone(timedelta(hours=2)))
    assert CreateJob(name="d", first_run=moment).first_run == "2026-01-02 01:04:05.678"  # type: ignore[arg-type]


# --- scalars -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["0", "1", "9223372036854775807", 5])
def test_job_ids(value: Any) -> None:
    assert UpdateJob.read({"jobID": value}).job_id == int(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "12x",
        "1.5",
        "007",
        "+1",
        "-5",
        " 1",
        "1e3",
        "٣",
        "9223372036854775808",
        "9" * 5000,
        True,
        1.0,
        -1,
        JOB_ID_MAX + 1,
        None,
        [1],
        "0x1",
    ],
)
def test_what_is_no_job_id(value: Any) -> None:
    with pytest.raises(BadArguments, match="jobID"):
        UpdateJob.read({"jobID": value})


@pytest.mark.parametrize(
    ("value", "ids"),
    [("1,2, 3", [1, 2, 3]), ("[1,2]", [1, 2]), ([1, "2"], [1, 2]), (7, [7]), ("7", [7]), (' ["1"] ', [1])],
)
def test_lists_of_job_ids(value: Any, ids: list[int]) -> None:
    assert RequeueJobs.read({"jobIDs": value}).job_ids == ids


@pytest.mark.parametrize("value", ["", "1,,2", "[1", "[]", "[1.5]", "a", '{"a":1}', None, [], [None]])
def test_what_is_no_list_of_job_ids(value: Any) -> None:
    with pytest.raises(BadArguments, match="jobIDs"):
        RequeueJobs.read({"jobIDs": value})


@pytest.mark.parametrize("value", [WHOLE_MAX, -WHOLE_MAX, str(WHOLE_MAX), "-007", 0])
def test_whole_numbers(value: Any) -> None:
    assert GetJob.read({"name": "x", "pid": value}).pid == int(value)


@pytest.mark.parametrize(
    "value", [WHOLE_MAX + 1, -(10**18), 10**30, "9" * 19, "", "1.0", 1.0, True, None, "+1"]
)
def test_what_is_no_whole_number(value: Any) -> None:
    with pytest.raises(BadArguments, match="Malformed pid"):
        GetJob.read({"name": "x", "pid": value})


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("true", True),
        ("false", False),
        ("1", True),
        ("0", False),
        (True, True),
        (False, False),
        (1, True),
        (0, False),
        ("TRUE", True),
    ],
)
def test_booleans(value: Any, meant: bool) -> None:
    assert GetJob.read({"name": "x", "getMockedJobs": value}).get_mocked_jobs is meant


@pytest.mark.parametrize("value", ["yes", "", "2", 2, 1.5, [], "on", "t"])
def test_what_is_no_boolean(value: Any) -> None:
    with pytest.raises(BadArguments, match="Malformed getMockedJobs"):
        GetJob.read({"name": "x", "getMockedJobs": value})


@pytest.mark.parametrize(
    ("value", "meant"), [("true", True), (True, True), ("1", False), (1, False), ("false", False), (0, False)]
)
def test_only_true_counts_for_unique(value: Any, meant: bool) -> None:
    assert CreateJob.read({"name": "x", "unique": value}).unique is meant


@pytest.mark.parametrize("value", ["501", "abc", "", "-500", "500.0", 500.5, True, "0500", None, 1])
def test_what_is_no_priority(value: Any) -> None:
    if value is None:
        assert CreateJob.read({"name": "x", "jobPriority": value}).job_priority is None
        return
    with pytest.raises(BadArguments, match="Invalid priority value") as refused:
        CreateJob.read({"name": "x", "jobPriority": value})
    assert refused.value.detail == "jobPriority: expected one of 0, 250, 500, 750, 850, 1000"


@pytest.mark.parametrize("name", ["a\nb", "a\x00", "\x7f", "a\rb", "\x1b[0m", "\ud800"])
def test_control_characters_in_a_name(name: str) -> None:
    with pytest.raises(BadArguments, match="Malformed name"):
        CreateJob.read({"name": name})


@pytest.mark.parametrize("name", ["a\tb", "é", "😀", " ", "a b", "'", '"', "\\", "\u2028", "*", "a,b"])
def test_names_that_are_fine(name: str) -> None:
    assert CreateJob.read({"name": name}).name == name


# --- words ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "given", "error", "line"),
    [
        (CreateJob, {}, BadArguments, "402 Missing name"),
        (CreateJob, {"name": ""}, BadArguments, "402 Missing name"),
        (CreateJob, {"name": "x" * 256}, BadArguments, "402 Malformed name"),
        (CreateJob, {"name": "x", "data": "[]"}, BadArguments, "402 Data is not a valid JSON Object"),
        (CreateJobs, {}, BadJSON, "401 Invalid JSON"),
        (CreateJobs, {"jobs": "[]"}, BadJSON, "401 Invalid JSON"),
        (CreateJobs, {"jobs": "[1]"}, BadJSON, "401 Invalid JSON"),
        (CreateJobs, {"jobs": '[{"data":{}}]'}, BadArguments, "402 Missing name"),
        (
            GetJob,
            {"name": "x", "numResults": "2"},
            BadArguments,
            "402 Cannot use numResults with GetJob; try GetJobs",
        ),
        (GetJobs, {"name": "x"}, BadArguments, "402 Missing numResults"),
        (
            RetryJob,
            {"jobID": 1, "delay": "-1"},
            BadArguments,
            "402 Must specify a non-negative delay when retrying",
        ),
        (RetryJob, {"jobID": 1, "delay": "x"}, BadArguments, "402 Malformed delay"),
        (UpdateJob, {"jobID": 1, "repeat": "x" * 1001}, BadArguments, "402 Malformed repeat"),
    ],
)
def test_a_refusal_is_in_bedrocks_words(kind: Any, given: Any, error: type[CommandError], line: str) -> None:
    with pytest.raises(error) as refused:
        kind.read(given)
    assert refused.value.status_line == line
    assert refused.value.detail, "a sentence says what was expected"


def test_a_refusal_names_the_place_in_a_list() -> None:
    with pytest.raises(BadArguments) as refused:
        CreateJobs.read({"jobs": '[{"name":"a"},{"name":"b","jobPriority":3}]'})
    assert refused.value.detail.startswith("jobs.1.jobPriority: expected one of")


def test_unknown_attributes_are_refused_by_name_over_http() -> None:
    with pytest.raises(BadArguments, match="Unknown attribute jobpriority") as refused:
        CreateJob.read_json('{"name":"x","jobpriority":500}')
    assert refused.value.detail == "expected jobPriority"
    assert CreateJob.read_raw({"name": "x", "nonsense": "1", "jobpriority": "750"}, "").job_priority == 750


def test_text_as_sent_counts_where_only_that_is_json() -> None:
    assert Escaped('{"a":"x\ny"}', '{"a":"x\\ny"}').json_text() == '{"a":"x\\ny"}'
    assert Escaped('{"a":"b"}', '{"a":"\\b"}').json_text() == '{"a":"b"}'
    assert Escaped("neither", "n\\either").json_text() == "neither"


def test_what_a_command_writes_it_reads() -> None:
    command = CreateJob(name="é", data={"a": [1]}, job_priority=750, unique=True, first_run="2026-01-01")
    assert CreateJob.read_json(command.wire()) == command
    many = CreateJobs(jobs=[{"name": "a", "data": '{"x":2.50}'}, {"name": "b"}])  # type: ignore[list-item]
    again = CreateJobs.read_json(many.wire())
    assert [job.data for job in again.jobs] == ['{"x":2.50}', "{}"]


def test_an_argument_of_python_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidCommand, match=r"^CreateJob: retires: .*, expected retries$"):
        CreateJob(name="x", retires=3)  # type: ignore[call-arg]


def test_all_that_is_wrong_is_told_at_once_by_its_name_in_python() -> None:
    with pytest.raises(InvalidCommand) as refused:
        CreateJob(name="", job_priority=7, run_timeout="soon")  # type: ignore[arg-type]
    said = str(refused.value)
    assert said.startswith("CreateJob: ")
    assert [part.partition(":")[0].split()[0] for part in said.removeprefix("CreateJob: ").split("; ")] == [
        "run_timeout",
        "name",
        "job_priority",
    ]
    assert isinstance(refused.value, ValueError)
    assert (refused.value.code, refused.value.reason) == (402, "Malformed runTimeout")


def test_what_is_read_from_a_request_does_not_come_by_the_check_of_python() -> None:
    """Requests have a separate check with the protocol's messages, so this one does not slow them down."""
    assert not CreateJob.__pydantic_custom_init__  # type: ignore[attr-defined]
    with pytest.raises(BadArguments) as refused:
        CreateJob.read({"name": ""})
    assert type(refused.value) is BadArguments


def test_durations_and_moments_may_be_those_of_python() -> None:
    berlin = timezone(timedelta(hours=1))
    job = CreateJob(
        name="x",
        run_timeout=timedelta(minutes=5),  # type: ignore[arg-type]
        first_run=datetime(2026, 11, 21, 9, tzinfo=berlin),
    )
    assert (job.run_timeout, job.first_run) == (300, "2026-11-21 08:00:00")
    assert CreateJob(name="x", first_run=datetime(2026, 11, 21, 9)).first_run == "2026-11-21 09:00:00"
