"""ListTokens and ListAudit."""

from __future__ import annotations

from typing import Any

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import JOB_ID_MAX
from bedrockjobs.commands import ListAudit, ListTokens
from bedrockjobs.engine.handlers.access import shown_token
from bedrockjobs.engine.handlers.context import Answer, handles
from bedrockjobs.job.rows import TokenRow
from bedrockjobs.views import Views


@handles(ListTokens)
async def list_tokens(views: Views, command: ListTokens) -> Answer:
    """List tokens by name."""
    page = await views.page("tokens", {"after": command.after}, command.limit)
    return Answer(jsontext.dump({"tokens": [shown_token(TokenRow._make(row)) for row in page.rows]}))


@handles(ListAudit)
async def list_audit(views: Views, command: ListAudit) -> Answer:
    """List audit entries, newest first."""
    given = {
        "before": JOB_ID_MAX if command.before is None else command.before,
        "who": command.who,
        "command": command.command,
        "pattern": command.name,
        "since": command.since,
    }
    page = await views.page("audit", given, command.limit, scans=True)
    return Answer(f'{{"entries":[{",".join(map(_entry, page.rows))}]}}')


def _entry(row: tuple[Any, ...]) -> str:
    seq, at, by, address, command, name, job_id, detail, before, after = row
    shown = {
        "seq": seq,
        "at": at,
        "by": by,
        "address": address,
        "command": command,
        "name": name,
        "jobID": job_id,
    }
    return jsontext.with_members(
        jsontext.dump(shown), {"detail": detail, "before": before or "null", "after": after or "null"}
    )
