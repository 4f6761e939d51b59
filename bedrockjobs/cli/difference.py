"""What would change of a schedule: its definition beside the job as a server has it.

It knows no server and no files.
"""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.wire import RawJSON
from bedrockjobs.cli.options import option_text
from bedrockjobs.cli.output import Record, cell
from bedrockjobs.commands.create import JobSpec
from bedrockjobs.commands.options import OPTIONS
from bedrockjobs.definitions import Definition

VALUE_CHARS = 60
"""Characters of a value that a line shows."""


def attributes_changed(definition: Definition, job: Record) -> list[str]:
    """Return a line for each attribute that would change: ``retries: 2 -> 3``."""
    spec = JobSpec.model_validate(definition.given)
    wanted = {"repeat": jsontext.dump(spec.repeat), "priority": str(spec.wanted_priority), **spec.chosen()}
    wanted = {key: text for key, text in wanted.items() if text != "null"}
    if "data" in spec.model_fields_set:
        wanted["data"] = spec.data
    present = {key: job[key] for key in job if key in wanted or key in OPTIONS}
    return [
        f"{key}: {_shown(key, present.get(key))} -> {_shown(key, wanted.get(key))}"
        for key in dict.fromkeys((*wanted, *present))
        if present.get(key) != wanted.get(key)
    ]


def _shown(key: str, text: str | None) -> str:
    if text is None:
        return "left out"
    shown = cell(option_text(key, RawJSON(text)))
    return shown if len(shown) <= VALUE_CHARS else f"{shown[:VALUE_CHARS]}..."
