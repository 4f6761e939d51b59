"""ListRules: notification rules with the status of their delivery."""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands import ListRules
from bedrockjobs.engine.handlers.context import Answer, handles
from bedrockjobs.job.delivery import delivery_of
from bedrockjobs.job.rows import RuleRow
from bedrockjobs.views import Views


@handles(ListRules)
async def list_rules(views: Views, command: ListRules) -> Answer:
    """List notification rules by name."""
    page = await views.page("rules", {"after": command.after}, command.limit)
    return Answer(f'{{"rules":[{",".join(_shown(RuleRow._make(row)) for row in page.rows)}]}}')


def _shown(row: RuleRow) -> str:
    delivery = {wire_name(field): value for field, value in delivery_of(row)._asdict().items()}
    more = {"name": row.name, "by": row.by, "created": row.created, "cursor": row.cursor, **delivery}
    return jsontext.join(
        {**jsontext.members(row.rule), **{key: jsontext.dump(value) for key, value in more.items()}}
    )
