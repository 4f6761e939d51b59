"""JSON handled as text: validation, and unchanged parts keep their spelling."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import JSON_DEPTH_MAX, MERGE_BYTES_MAX
from tests.effort import examples

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)
objects = st.dictionaries(st.text(max_size=6), values, max_size=5)
spellings = st.sampled_from(
    [{"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}, {"indent": "\t"}]
)


@given(objects, spellings)
@settings(max_examples=examples(25, night=500), deadline=None)
def test_an_object_falls_into_its_members_and_is_joined_again(
    value: dict[str, Any], how: dict[str, Any]
) -> None:
    text = json.dumps(value, **how)
    parts = jsontext.members(text)
    assert {key: json.loads(part) for key, part in parts.items()} == value
    assert list(parts) == list(value)
    assert all(part in text for part in parts.values()), "the parts are cut out, not written anew"
    assert json.loads(jsontext.join(parts)) == value
    assert jsontext.parse(text) == value


@given(st.lists(values, max_size=5), spellings)
@settings(max_examples=examples(25, night=500), deadline=None)
def test_an_array_falls_into_its_elements(value: list[Any], how: dict[str, Any]) -> None:
    text = json.dumps(value, **how)
    assert [json.loads(part) for part in jsontext.elements(text)] == value


def _merge(target: Any, patch: Any) -> Any:
    """Apply a merge patch by the pseudocode of RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = _merge(target.get(key), value)
    return target


keys = st.sampled_from(["a", "b", "c", "é", ""])
patches = st.recursive(scalars, lambda inner: st.dictionaries(keys, inner, max_size=3), max_leaves=8)


@given(st.dictionaries(keys, patches, max_size=4), st.dictionaries(keys, patches, max_size=4))
@settings(max_examples=examples(25, night=500), deadline=None)
def test_merge_patch_is_rfc_7396(target: dict[str, Any], patch: dict[str, Any]) -> None:
    merged = jsontext.Merging().patched(json.dumps(target), json.dumps(patch))
    assert json.loads(merged) == _merge(target, patch)


def test_merge_patch_keeps_spellings() -> None:
    target = '{"a":2.50, "big":12345678901234567890,"o":{"x":1.0 ,"y":-0.0}}'
    assert (
        jsontext.Merging().patched(target, '{"o":{"x":null,"z":1E5},"n":[1.10]}')
        == '{"a":2.50,"big":12345678901234567890,"o":{"y":-0.0,"z":1E5},"n":[1.10]}'
    )


def test_what_a_command_merges_is_bounded_by_how_deep_it_is() -> None:
    """The content of an object is read again at each level, so depth times size must be bounded."""
    text = '{"a":' * 30 + f'"{"x" * (MERGE_BYTES_MAX // 80)}"' + "}" * 30
    merging = jsontext.Merging()
    assert merging.patched(text, text) == text
    with pytest.raises(ValueError, match=f"more than {MERGE_BYTES_MAX} bytes"):
        merging.patched(text, text)
    assert jsontext.Merging().patched("{}", text) == text


def test_members_can_be_set_and_removed() -> None:
    text = ' { "a" : 1.50 , "b" : [ 1 ] , "c":null}\n'
    assert jsontext.with_members(text, {"b": None, "d": "2.0", "none": None}) == '{"a":1.50,"c":null,"d":2.0}'
    assert jsontext.with_members("{}", {"a": '"é"'}) == '{"a":"é"}'


def test_the_last_of_equal_keys_wins() -> None:
    assert jsontext.members('{"a":1,"b":2,"a":3}') == {"b": "2", "a": "3"}


@given(st.text(max_size=20).filter(lambda text: text.isprintable() or text.isascii()))
def test_quoted_text_reads_back(text: str) -> None:
    assert jsontext.parse(jsontext.quoted(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        '{"a":1',
        "{'a':1}",
        '{"a":1,}',
        "[1,]",
        "nul",
        "NaN",
        "-Infinity",
        '{"a":NaN}',
        '"\x01"',
        "[1] 2",
        '"\\ud800"',
        '"\ud800"',
        "\ud800",
        "1e400",
        "-1e400",
        "[1e999999999]",
        "9" * 400,
        "01",
        "+1",
        ".5",
        "1.",
        '{"a":1} x',
        "{}{}",
        "[" * 100_000,
        '{"a":' * 100_000,
        "\ufeff{}",
        "\x00",
        "{a:1}",
        "0x10",
        "[" * (JSON_DEPTH_MAX + 1) + "]" * (JSON_DEPTH_MAX + 1),
    ],
)
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(ValueError):
        jsontext.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "1e308",
        "-0.0",
        "1e-999",
        "9" * 300,
        '"\\ud83d\\ude00"',
        '"\\u0000"',
        " [ ] ",
        '{"a":{}}',
        '"[[[[["',
        "[" * JSON_DEPTH_MAX + "]" * JSON_DEPTH_MAX,
        json.dumps(["[{" * 100]),
        "[" + ",".join(["[]"] * 1000) + "]",
    ],
)
def test_what_is_json(text: str) -> None:
    assert jsontext.parse(text) == json.loads(text)


@pytest.mark.parametrize("text", ["[]", "1", '"{}"', "null", "true"])
def test_what_is_no_object(text: str) -> None:
    with pytest.raises(ValueError, match="object"):
        jsontext.check_object(text)
