"""Expressions as gorhill/cronexpr reads them, which castle-cron and LUCI use.

Its five fields begin with the minute, its sixth is a year, and only a seventh puts seconds in front.
"""

from __future__ import annotations

from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron.plan import Schedule

MACROS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@hourly")
_MONTH_DAY, _WEEK_DAY, _YEAR = -4, -2, -1
"""Where the fields stand that take ``?`` among seven, counted from the end."""


def read(text: str) -> tuple[Schedule, str]:
    """Return what an expression means there, and an expression of ours that means the same.

    Raises BadSchedule.
    """
    words = text.split()
    if len(words) == 1 and words[0].lower() in MACROS:
        return cron.parse(words[0]), words[0].lower()
    if not 5 <= len(words) <= 7:
        forms = f"5 to 7 fields, or one of {', '.join(MACROS)}"
        raise cron.BadSchedule("expression", text, forms)
    seven = {5: ["0", *words, "*"], 6: ["0", *words], 7: words}[len(words)]
    for field in (_MONTH_DAY, _WEEK_DAY, _YEAR):
        seven[field] = "*" if seven[field] == "?" else seven[field]
    ours = seven[1:-1] if len(words) < 7 and seven[_YEAR] == "*" else seven
    return cron.parse(" ".join(seven)), " ".join(ours)
