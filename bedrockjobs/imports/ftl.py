"""Reading FTL's cron jobs: ``//ftl:cron`` directives in Go, ``@Cron("...")`` in Kotlin.

FTL's dialect is one of the parents of ours, in UTC: expressions are taken as they are. What a verb did has
to be done by a worker that asks for the job's name.
"""

from __future__ import annotations

from bedrockjobs.imports import ftl_go, ftl_kotlin, source
from bedrockjobs.imports.found import Found, check_count, once
from bedrockjobs.imports.ftl_verb import Verb
from bedrockjobs.schedule import cron

OPTIONS = {"run_timeout": "5m", "grace": "1m"}
"""FTL ends a call after 5 minutes, and frees the job 1 minute later whatever became of it."""


def read(text: str, *, file: str = "") -> list[Found]:
    """Read the directives of one source file; a verb's name is ``module.verb``, as in FTL's schema.

    Raises Unreadable where a comment or a text has no end.
    """
    language = source.language_of(text, file)
    tokens = source.tokens(text, language)
    module, verbs = ftl_go.read(tokens) if language == "go" else ftl_kotlin.read(tokens)
    check_count(verbs, f"line {tokens[-1].line}")
    return once([_found(module, verb) for verb in sorted(verbs, key=lambda verb: verb.line)])


def _found(module: str, verb: Verb) -> Found:
    name = f"{module}.{verb.name}".lstrip(".") if verb.name else f"line-{verb.line}"
    found = Found(name, f"line {verb.line}", verb.said)
    if verb.refused:
        return found._replace(refused=verb.refused)
    try:
        old = cron.parse(verb.said)
    except cron.BadSchedule as error:
        return found._replace(refused=str(error))
    return found._replace(old=old, expression=" ".join(verb.said.split()), options=dict(OPTIONS))
