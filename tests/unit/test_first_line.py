"""The protocol of a connection is detected by its first line, however that is split."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedrockjobs.protocol.connection import HTTP_METHODS, FirstLine
from tests.effort import examples
from tests.unit.test_pipeline import cut


def spoken(pieces: list[bytes]) -> tuple[bool | None, bytes]:
    """Return the protocol, and the bytes received before it was known."""
    first_line = FirstLine()
    verdict = None
    for piece in pieces:
        verdict = first_line.feed(piece)
        if verdict is not None:
            break
    return verdict, first_line.data


words = st.sampled_from(
    [*HTTP_METHODS, b"Ping", b"GE", b"get", b"CONNECT", b"POSTS", b" ", b"\r\n", b"\n", b"/"]
)


@given(
    st.lists(st.one_of(words, st.binary(max_size=3)), max_size=6), st.lists(st.integers(0, 40), max_size=5)
)
@settings(max_examples=examples(200, night=600), deadline=None)
def test_the_protocol_however_the_first_line_is_cut(chosen: list[bytes], cuts: list[int]) -> None:
    data = b"".join(chosen)
    text = data.lstrip(b"\r\n")
    told, kept = spoken([data])
    assert kept == text
    assert spoken(cut(data, cuts) or [b""])[0] is told
    assert spoken([data[n : n + 1] for n in range(len(data))] or [b""])[0] is told
    if any(text.startswith(method + b" ") for method in HTTP_METHODS):
        assert told is True
    elif any(method.startswith(text) for method in HTTP_METHODS):
        assert told is None
    else:
        assert told is False


@pytest.mark.parametrize("method", sorted(HTTP_METHODS))
def test_every_method_of_http(method: bytes) -> None:
    assert spoken([method]) == (None, method)
    assert spoken([method + b" "]) == (True, method + b" ")
    assert spoken([method.lower() + b" "])[0] is False
