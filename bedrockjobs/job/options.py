"""What a user gave with a job, in the column ``options``: a JSON object, typed as ``JobOptions`` has it.

The text is kept and sent as it came; the typed form is what the server itself looks at.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import DECODED_ROWS_MAX
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands.options import JobOptions
from bedrockjobs.job.lanes import OWN_COMMANDS


class Options(JobOptions):
    """The options of a stored job."""

    source: str = ""
    """Whose definition made it (SyncSchedules), empty where nobody's did."""

    @property
    def own_command(self) -> str:
        """Return which option is the job's own command: cmd, argv or url; empty without any."""
        return next((name for name in OWN_COMMANDS if getattr(self, name) is not None), "")


NO_OPTIONS = Options()


@lru_cache(maxsize=DECODED_ROWS_MAX)
def decode_options(text: str) -> Options:
    """Read the column; members that no option can be, as a person may write by hand, count as left out."""
    try:
        given = {name: jsontext.parse(part) for name, part in jsontext.members(text).items()}
    except (ValueError, IndexError, AttributeError):
        return NO_OPTIONS
    try:
        return Options.model_validate(given)
    except ValidationError:
        return Options.model_validate({name: value for name, value in given.items() if _is_good(name, value)})


def _is_good(name: str, value: Any) -> bool:
    try:
        Options.model_validate({name: value})
    except ValidationError:
        return False
    return True


OPTION_NAMES = frozenset(wire_name(field) for field in Options.model_fields)
"""The names that the column may hold, as they are spelled there."""
