"""Secrets of rules: reloaded from their files, and refused if they cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from bedrock_worker.policy.program import SECRET_BYTES_MAX, SECRET_CHARS_MIN, Rule, Secret


def test_a_secret_is_read_anew_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    rule = Rule("*", ("/p",), secrets={"TOKEN": Secret(file=file)})
    file.write_text("correct horse\n")
    assert rule.read_secrets() == {"TOKEN": "correct horse"}
    file.write_text("battery staple\r\n")
    assert rule.read_secrets() == {"TOKEN": "battery staple"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", f"at least {SECRET_CHARS_MIN} characters"),
        (b"x" * (SECRET_CHARS_MIN - 1) + b"\n", f"at least {SECRET_CHARS_MIN} characters"),
        (b"x" * (SECRET_BYTES_MAX + 1), f"at most {SECRET_BYTES_MAX} bytes"),
        (b"correct\0horse", "without NUL"),
        (b"\xff" * 20, "a file of UTF-8 text"),
    ],
)
def test_a_secret_that_cannot_be_used(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=words) as refused:
        Rule("*", ("/p",), secrets={"TOKEN": Secret(file=file)}).read_secrets()
    assert str(refused.value).startswith("secrets.TOKEN: ")
