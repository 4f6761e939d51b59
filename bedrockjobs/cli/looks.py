"""Looks at the tables that no command of the protocol answers, by the statements of ``looks.sql``."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from bedrockjobs.base import jsontext
from bedrockjobs.base.wire import RawJSON
from bedrockjobs.cli.output import Record
from bedrockjobs.cli.session import Session, built
from bedrockjobs.commands import Query

_STAMP = re.compile(r"[0-9 :.-]*")


@cache
def _statements() -> dict[str, str]:
    found = {}
    for part in Path(__file__).with_name("looks.sql").read_text(encoding="utf-8").split("-- name: ")[1:]:
        name, _, body = part.partition("\n")
        lines = [line.strip() for line in body.splitlines() if not line.startswith("--")]
        found[name.strip()] = " ".join(line for line in lines if line)
    return found


def look(session: Session, name: str, now: str = "") -> list[Record]:
    """Return the rows of a statement; ``now`` is the server's time."""
    assert _STAMP.fullmatch(now), "only a stamp may become a part of a statement"
    statement = _statements()[name].replace("{now}", now)
    reply = session.record(built(Query, {"query": statement, "format": "json"}))
    columns = jsontext.parse(reply["headers"])
    return [
        dict(zip(columns, map(RawJSON, jsontext.elements(row)), strict=True))
        for row in jsontext.elements(reply["rows"])
    ]
