"""Which refusals a command gives beside those that any command may give, and when.

The words are the server's; a test compares them with the code, so that none of them can rot.
"""

from __future__ import annotations

_NO_JOB = {"404 No job with this jobID": "There is no such job."}
_RUN_OVER = {"405 Run is over": "`runID` is given and is not the job's current run."}
_MARK = {"500 Mock Mismatch": "`data` has the mark `mockRequest` and the job has not, or the reverse."}
_REPEAT = {"402 Malformed repeat": "The expression cannot be read, or gives no date before the year 10000."}
_BOTH = {
    "402 Cannot use retryAfter with repeat": "Both are asked for (`document`; with `CRON` in `current` too).",
    "402 Child jobs cannot repeat": "`repeat` together with a parent.",
}
_DATA = {"402 Data is not a valid JSON Object": "`data` is no JSON object, too large or too deep."}
_PRIORITY = {"402 Invalid priority value": "`jobPriority` is none of the six."}
_OPTIONS = {
    "402 Malformed {…}": "The option named is malformed; or it is the second of `cmd`, `argv` and `url`.",
    "402 Malformed lock": "`lock` together with `retryAfter`.",
    "402 Malformed hosts": "`hosts` together with `lock`, or for a job that is no schedule.",
}
_CREATE = {
    **_DATA,
    **_PRIORITY,
    **_REPEAT,
    "402 Malformed retryAfter": "The expression cannot be read.",
    **_BOTH,
    "405 Cannot use retryAfter with unique": "Both are asked for (compatibility `document`).",
    "404 parentJobID does not exist": "There is no such parent.",
    "405 Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED": "The parent does not run.",
    "405 Cannot create grandchildren": "The parent is a child itself.",
    "404 Mismatched parentJobID": "`unique` found a job that has another parent, or none.",
    **_OPTIONS,
}
_TAKE = {"404 No job found": "No due job matches, or none came within the wait."}
_ENDING = {
    **_NO_JOB,
    **_RUN_OVER,
    "405 Can only retry/finish RUNNING and RUNQUEUED jobs": "The job is in another state.",
    "405 Can only retry/finish child job when parent is PAUSED": "A child ends while its parent still runs.",
    **_DATA,
    **_MARK,
    "402 Malformed thenGet": "`thenGet` names nothing.",
}
_NO_RUN = {"404 No run with this runID": "There is no such run, or it is no longer kept."}
_READ = {"429 Too many queries": "Very many reads wait."}
_SCAN = {"555 Timeout": "Filters found too little within `query_s`.", **_READ}
_STOP = {
    "402 Missing runID": "None of `runID`, `jobID` and `name` is given.",
    **_NO_RUN,
    **_NO_JOB,
    "404 No run in progress": "The job has no run that a worker opened, or no job has this `name`.",
    "405 Run is over": "The run given by `runID` has ended.",
}
_LIST = {"401 Invalid JSON": "`jobs` is no JSON array of objects, or an empty one."}

REFUSALS: dict[str, dict[str, str]] = {
    "CreateJob": _CREATE,
    "CreateJobs": {**_LIST, **_CREATE},
    "GetJob": {
        **_TAKE,
        "402 Missing name": "Neither `name` nor `names` is given.",
        "402 Cannot use numResults with GetJob; try GetJobs": "`numResults` is given.",
        **_PRIORITY,
    },
    "GetJobs": {**_TAKE, "402 Missing name": "Neither `name` nor `names` is given.", **_PRIORITY},
    "QueryJob": _NO_JOB,
    "UpdateJob": {
        **_NO_JOB,
        **_RUN_OVER,
        "402 Missing data": "Nothing to change is given.",
        **_DATA,
        **_PRIORITY,
        **_REPEAT,
        **_BOTH,
        **_OPTIONS,
        "405 No run in progress": "`progress`, and no worker opened a run of the job that still goes on.",
    },
    "FinishJob": _ENDING,
    "FinishJobs": _LIST,
    "RetryJob": {
        **_ENDING,
        "402 Must specify a non-negative delay when retrying": "`delay` is below 0.",
        **_PRIORITY,
    },
    "FailJob": {
        **_NO_JOB,
        **_RUN_OVER,
        "405 Can only fail RUNNING or RUNQUEUED jobs": "The job is in another state.",
        **_DATA,
        "402 Malformed thenGet": "`thenGet` names nothing.",
    },
    "CancelJob": {
        **_NO_JOB,
        "404 Invalid jobID - Cannot cancel a job without a parent": "It is no child; see DeleteJob.",
        "404 Invalid jobID - Cannot cancel a job with children": "It is a parent.",
    },
    "DeleteJob": {
        **_NO_JOB,
        "405 Can't delete a RUNNING job": "A worker has it.",
        "405 Can't delete a parent jobs with children running": "The job is PAUSED.",
    },
    "Query": {
        "402 Bad query": "SQLite cannot read the SQL.",
        "502 Query Missing Semicolon": "The statement does not end in `;`.",
        "502 Query aborted": "It is no SELECT, or asks for what is not allowed.",
        "502 Too many rows": "More rows than `query_rows_max`.",
        "502 Answer too large": "More bytes than `query_bytes_max`.",
        "555 Timeout": "It ran longer than `query_s`.",
        "429 Too many queries": "More than `query_waiting_max` run or wait.",
    },
    "ListJobs": {
        "555 Timeout": "Filters found too little within `query_s`.",
        "429 Too many queries": "More than `query_waiting_max` run or wait.",
    },
    "ExplainJob": {**_NO_JOB, **_READ},
    "Overview": _SCAN,
    "ListQueues": _SCAN,
    "ListPauses": _READ,
    "PauseJobs": {
        "402 Malformed until": "`until` has passed.",
        "429 Too many pauses": "1,000 patterns are paused already.",
    },
    "ResumeJobs": {"404 Not paused": "Nobody paused this pattern; `*` is never refused."},
    "TriggerJob": {
        "402 Missing jobID": "Neither `jobID` nor `name` is given.",
        **_NO_JOB,
        "404 No job with this name": "There is no job of this name.",
        "405 Several jobs have this name": "More than one job has it.",
        "405 Can only trigger QUEUED and running jobs": "The job is in another state.",
    },
    "ListSchedules": _SCAN,
    "ListTicks": {**_NO_JOB, **_READ},
    "SyncSchedules": {
        "402 Malformed schedules": "A name comes twice; or a schedule has an attribute that it cannot have.",
        **_REPEAT,
        **_PRIORITY,
        **_DATA,
        "402 Malformed {…}": _OPTIONS["402 Malformed {…}"],
        "402 Malformed hosts": "`hosts` together with `lock`.",
        "405 Name is taken": "A job of this name is there that is not of this source.",
    },
    "AppendOutput": {
        **_NO_RUN,
        "405 Run is over": "The run has ended.",
        "405 Gap in output": "Lines before `seq` are missing; the detail says which number is expected.",
    },
    "ReadOutput": {**_NO_RUN, **_READ},
    "ListRuns": _SCAN,
    "QueryRun": {**_NO_RUN, **_READ},
    "TerminateRun": _STOP,
    "KillRun": _STOP,
    "DrainWorker": {"404 No such worker": "No live worker has this name."},
    "Events": _SCAN,
    "AdvanceClock": {
        "402 Malformed to": "`to` together with `seconds`.",
        "405 Not a test clock": "The server was started without `--test-clock`.",
    },
    "CrashBedrockJob": {"429 Too many patterns": "The list would hold more than 1,000 patterns."},
}
