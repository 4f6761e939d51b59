"""Run tokens: valid for one run of one database only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedrockjobs.base.principal import (
    RUN_PREFIX,
    TOKEN_CHARS_MAX,
    RunOfToken,
    new_key,
    run_of_token,
    run_token_of,
)

KEY = "a" * 64
IDS = st.integers(1, 2**63 - 1)
NAMES = st.from_regex(r"[A-Za-z0-9._@/:-]{0,100}", fullmatch=True)
RUNS = st.builds(RunOfToken, IDS, IDS, NAMES)


@given(RUNS)
def test_it_tells_its_run_and_job_and_taker(run: RunOfToken) -> None:
    token = run_token_of(KEY, run)
    assert token.startswith(f"{RUN_PREFIX}{run.run_id}_{run.job_id}_")
    assert len(token) <= TOKEN_CHARS_MAX
    assert run_of_token(KEY, token) == run
    assert run_of_token(new_key(), token) is None
    assert run_of_token("", run_token_of("", run)) is None


@given(RUNS, st.data())
def test_no_other_character_will_do(run: RunOfToken, data: st.DataObject) -> None:
    token = run_token_of(KEY, run)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters())
    changed = token[:at] + other + token[at + 1 :]
    assert run_of_token(KEY, changed) == (run if changed == token else None)
    assert run_of_token(KEY, token + data.draw(st.from_regex(r"[A-Za-z0-9._@/:-]", fullmatch=True))) is None


@given(st.text(max_size=300))
def test_any_text_is_answered(text: str) -> None:
    assert run_of_token(KEY, text) is None
    assert run_of_token(KEY, RUN_PREFIX + text) is None


@pytest.mark.parametrize(
    "token", ["", "bjr_", "bjr_1_", "bj_1", "bjr_1_02_" + "a" * 43, "bjr_0_1_" + "a" * 43, "bjr_1" * 100]
)
def test_what_is_none(token: str) -> None:
    assert run_of_token(KEY, token) is None


def test_keys_differ() -> None:
    assert len({new_key() for _ in range(100)}) == 100
    assert len(new_key()) == 64
