"""The memory and the options of a job: read as written, whatever was edited by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedrockjobs.base.config import DECODED_ROWS_MAX
from bedrockjobs.job.rows import (
    MEMORY_KEYS,
    NO_MEMORY,
    NO_OPTIONS,
    OPTION_NAMES,
    BeforeTake,
    Job,
    Memory,
    decode_memory,
    decode_options,
    encode_memory,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
STAMP = st.just("2026-01-01 00:00:00.123")
BEFORE = st.builds(
    BeforeTake,
    STAMP,
    st.sampled_from(["", "2026-01-01 00:00:00"]),
    st.sampled_from([(), (("retryAfterCount", "2"), ("originalNextRun", '"2026-01-01 00:00:00"'))]),
)
MEMORIES = st.builds(
    Memory,
    error=st.none() | TEXT,
    exit_code=st.none() | st.integers(-5, 255),
    failures=st.integers(0, 9),
    losses=st.integers(0, 9),
    cause=st.sampled_from(["", "retry", "lost", "manual", "schedule"]),
    overtime=st.integers(0, 2),
    before=st.none() | BEFORE,
    tick=st.sampled_from(["", "2026-01-01 00:00:00"]),
    trigger=st.none() | st.sampled_from(["", "2026-01-01 00:00:00"]),
    pending=st.booleans(),
    bound_to=TEXT,
    removed=st.booleans(),
    defined=st.sampled_from(["", '{"a": 2.50}']),
    broken=st.booleans(),
)


@given(MEMORIES)
def test_notes_are_read_as_they_were_written(memory: Memory) -> None:
    text = encode_memory(memory)
    assert decode_memory(text) == memory
    assert set(json.loads(text)) <= MEMORY_KEYS
    assert (text == "{}") == (memory == NO_MEMORY)


def test_no_key_is_an_option_too() -> None:
    assert not MEMORY_KEYS & OPTION_NAMES


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{", '{"failures":"many"}', '{"before":{}}', '{"what":1}', '{"pending":"yes"}']
)
def test_what_a_hand_wrote_wrongly_counts_as_not_there(text: str) -> None:
    assert decode_memory(text) == NO_MEMORY
    assert decode_options(text) == NO_OPTIONS


@pytest.mark.parametrize(
    ("given_", "found"),
    [
        ({"retries": 2, "lock": "a"}, {"retries": 2, "lock": "a"}),
        ({"retries": "many", "lock": "a"}, {"retries": None, "lock": "a"}),
        ({"retries": 2, "unknown": 1}, {"retries": 2}),
        ({"source": "ops", "lock": True}, {"source": "ops", "lock": True}),
    ],
)
def test_good_options_count_beside_bad_ones(given_: dict[str, Any], found: dict[str, Any]) -> None:
    options = decode_options(json.dumps(given_))
    assert {name: getattr(options, name) for name in found} == found


def test_so_many_texts_are_kept_as_read() -> None:
    for number in range(DECODED_ROWS_MAX + 10):
        decode_memory(f'{{"failures":{number + 1}}}')
        decode_options(f'{{"retries":{number % 90},"priority":{number}}}')
    assert decode_memory.cache_info().currsize == DECODED_ROWS_MAX
    assert decode_options.cache_info().currsize <= DECODED_ROWS_MAX


def test_a_job_without_either_reads_nothing() -> None:
    job = Job("", 1, "", "a", "")
    assert job.memory is NO_MEMORY
    assert job.options is NO_OPTIONS
    assert job.noting(failures=2).memory_json == '{"failures":2}'
    assert job.noting(failures=2).noting(failures=0) == job
