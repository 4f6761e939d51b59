"""Planted faults are found: the negative control of the gates."""

from __future__ import annotations

from pathlib import Path

import pytest

from bedrockjobs.base.principal import Principal
from bedrockjobs.engine.access import Access
from tests.fuzz import live, strangers
from tests.fuzz.campaign import Campaign, grow, seeds_of
from tests.fuzz.hostile import HOSTILE
from tests.fuzz.targets import TARGETS, Target


def test_every_target_has_its_inputs() -> None:
    for target in TARGETS.values():
        assert seeds_of(target), target.name
        assert HOSTILE[target.name], target.name


def test_whoever_is_let_in_by_a_wrong_token_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    strangers.read_token(b"bj_wrong")
    monkeypatch.setattr(Access, "by_token", lambda self, _, address: Principal(self.everything, address))
    with pytest.raises(AssertionError, match="was let in"):
        strangers.read_token(b"bj_wrong")


def test_whoever_may_look_without_a_token_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = b"ListJobs\r\n\r\n"
    live.read_stranger(asked)
    monkeypatch.setattr(Access, "visitor", lambda self, address: Principal(self.everything, address))
    with pytest.raises(AssertionError, match="a stranger was let in"):
        live.read_stranger(asked)


def _quadratic(data: bytes) -> None:
    seen: list[int] = []
    for at in range(data.count(b"x")):
        if at not in seen:
            seen.append(at)


_kept: list[bytes] = []


def _hoarding(data: bytes) -> None:
    _kept[:] = [bytes(200) for _ in data]


def _brittle(data: bytes) -> None:
    if b"((" in data:
        raise KeyError("brackets")


@pytest.mark.parametrize(
    ("read", "what"),
    [(_quadratic, "ms of CPU"), (_hoarding, "KiB of memory"), (_brittle, "KeyError: 'brackets'")],
)
def test_a_planted_fault_is_found(read: object, what: str, tmp_path: Path) -> None:
    target = Target("planted", read, [b"x", b"("], size_max=4_096 if read is _quadratic else 65_536)  # type: ignore[arg-type]
    report = Campaign(target, [b"xyz", b"(x)"], 1).run(60, findings_max=1)
    assert any(what in finding.what for finding in report.findings), report
    (file, *_) = grow(target, [], report.findings, tmp_path)
    assert file.read_bytes() == report.findings[0].data
