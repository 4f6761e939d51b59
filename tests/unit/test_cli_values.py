"""Option values: durations, and text from files."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedrockjobs.base.clock import duration_text, seconds_of
from bedrockjobs.cli import parameters
from bedrockjobs.cli.parameters import CommandLine, Duration, Modifier, Moment, TextOrFile, current_user


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("1d2h3m4s", 93_784),
        ("42", 42),
        ("2.5", 2.5),
        ("1m0.25s", 60.25),
        ("0", 0),
        (" 5M ", 300),
        ("+5 MINUTES", 300),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "5x",
        "-5s",
        "5m1h",
        "1e3",
        "nan",
        "inf",
        "\N{ARABIC-INDIC DIGIT FIVE}s",
        "1h 30m",
        "5.5m",
        "+5 FORTNIGHTS",
        ".",
    ],
)
def test_what_is_no_duration(text: str) -> None:
    assert seconds_of(text) is None


@given(st.integers(0, 10**7).map(lambda ms: ms / 1000))
def test_a_duration_is_read_back_as_it_was_written(seconds: float) -> None:
    assert seconds_of(duration_text(seconds)) == pytest.approx(seconds, abs=1e-6)


def test_a_whole_duration_refuses_parts_of_a_second() -> None:
    assert Duration(whole=True).convert("90s", None, None) == 90
    with pytest.raises(click.BadParameter, match="whole seconds"):
        Duration(whole=True).convert("1.5s", None, None)


def test_a_bad_duration_says_what_was_expected() -> None:
    with pytest.raises(click.BadParameter, match="expected a duration like 90s, 5m, 1h30m"):
        Duration().convert("soon", None, None)


@pytest.mark.parametrize(
    ("text", "modifier"),
    [("5m", "+300 SECONDS"), ("90", "+90 SECONDS"), ("+5 MINUTES", "+5 MINUTES"), ("nonsense", "nonsense")],
)
def test_a_span_may_be_a_duration_or_sqlites_words(text: str, modifier: str) -> None:
    assert Modifier().convert(text, None, None) == modifier


def test_text_comes_from_a_file_without_its_last_line_end(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"a":\n1}\n', encoding="utf-8")
    assert TextOrFile().convert(f"@{tmp_path}/data.json", None, None) == '{"a":\n1}'


@pytest.mark.parametrize(
    ("content", "complaint"), [(b"\xff\xfe", "not UTF-8: byte 0"), (b"x" * 101, "larger than 100 bytes")]
)
def test_a_file_that_cannot_be_a_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, complaint: str
) -> None:
    monkeypatch.setattr(parameters, "FILE_BYTES_MAX", 100)
    (tmp_path / "data").write_bytes(content)
    with pytest.raises(click.BadParameter, match=complaint):
        TextOrFile().convert(f"@{tmp_path}/data", None, None)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(click.BadParameter, match=r"cannot read missing\.json: No such file"):
        TextOrFile().convert("@missing.json", None, None)


def test_a_moment_may_be_a_time_from_now() -> None:
    assert Moment().convert("1h30m", None, None) == timedelta(minutes=90)
    assert Moment().convert("-24h", None, None) == timedelta(days=-1)
    assert Moment().convert("+5 MINUTES", None, None) == timedelta(minutes=5)
    assert Moment().convert("2026-11-22 05:00", None, None) == "2026-11-22 05:00"
    with pytest.raises(click.BadParameter, match="from now"):
        Moment().convert("999999999d", None, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("restic backup '/my srv'", '["restic", "backup", "/my srv"]'),
        ('["a","b c"]', '["a","b c"]'),
        ("echo $HOME *", '["echo", "$HOME", "*"]'),
    ],
)
def test_words_are_split_as_a_shell_does_without_one(text: str, words: str) -> None:
    assert CommandLine().convert(text, None, None) == words


def test_words_with_an_open_quote_are_refused() -> None:
    with pytest.raises(click.BadParameter, match="quoted as for a shell, or a JSON array"):
        CommandLine().convert("echo 'half", None, None)


def test_a_user_without_a_name_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("no such uid")

    monkeypatch.setattr(parameters.getpass, "getuser", nobody)
    assert current_user() == ""
