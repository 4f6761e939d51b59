"""Refusals that several commands give, as they stand in ``refusals`` of their classes.

The words are the server's; a test compares them with the code, so that none of them can rot.
"""

from __future__ import annotations

from bedrockjobs.commands.base import Refusal

NO_JOB = Refusal(404, "No job with this jobID", "There is no such job.")
NO_RUN = Refusal(404, "No run with this runID", "There is no such run, or it is no longer kept.")
NO_JOB_FOUND = Refusal(404, "No job found", "No due job matches, or none came within the wait.")
NO_NAME = Refusal(402, "Missing name", "Neither `name` nor `names` is given.")
RUN_OVER = Refusal(405, "Run is over", "`runID` is given and is not the job's current run.")
BAD_REPEAT = Refusal(
    402, "Malformed repeat", "The expression cannot be read, or gives no date before the year 10000."
)
BOTH = (
    Refusal(
        402,
        "Cannot use retryAfter with repeat",
        "Both are asked for (`document`; with `CRON` in `current` too).",
    ),
    Refusal(402, "Child jobs cannot repeat", "`repeat` together with a parent."),
)
BAD_DATA = Refusal(402, "Data is not a valid JSON Object", "`data` is no JSON object, too large or too deep.")
BAD_PRIORITY = Refusal(402, "Invalid priority value", "`jobPriority` is none of the six.")
BAD_OPTION = Refusal(
    402, "Malformed {…}", "The option named is malformed; or it is the second of `cmd`, `argv` and `url`."
)
BAD_LIST = Refusal(401, "Invalid JSON", "`jobs` is no JSON array of objects, or an empty one.")
BUSY = Refusal(429, "Too many queries", "Very many reads wait.")
SLOW = Refusal(555, "Timeout", "Filters found too little within `query_s`.")
