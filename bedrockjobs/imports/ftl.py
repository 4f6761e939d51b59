"""Reading FTL's cron jobs: ``//ftl:cron`` directives in Go, ``@Cron("...")`` in Kotlin.

FTL's dialect is one of the parents of ours, in UTC: expressions are taken as they are. What a verb did has
to be done by a worker that asks for the job's name.
"""

from __future__ import annotations

import re
from dataclasses import replace

from bedrockjobs.imports.found import Found, distinct
from bedrockjobs.schedule import cron

OPTIONS = {"run_timeout": "5m", "grace": "1m"}
"""FTL ends a call after 5 minutes, and frees the job 1 minute later whatever became of it."""

_GO = re.compile(r"[ \t]*//ftl:cron[ \t]+(?P<said>.*?)[ \t]*")
_KOTLIN = re.compile(r"""[ \t]*@Cron\([ \t]*"(?P<said>[^"]*)"[ \t]*\)[ \t]*""")
_PACKAGE = re.compile(r"[ \t]*package[ \t]+([\w.]+)")
_VERB = re.compile(
    r"[ \t]*(?:suspend[ \t]+)?(?:func|fun)[ \t]+(?P<name>\w+)[ \t]*\((?P<parameters>[^)]*)\)(?P<rest>.*)"
)
_CONTEXT = re.compile(r"\s*\w+\s*(?::\s*Context|\s[\w.]*Context)\s*")
_NO_RESULT = re.compile(r"\s*(?:error|\(\s*(?:\w+\s+)?error\s*\))?\s*(?::\s*Unit\s*)?(?:[{=].*)?")


def read(text: str) -> list[Found]:
    """Read the directives of one source file; a verb's name is ``package.verb``, as in FTL's schema."""
    package = ""
    found: list[Found] = []
    said, place = "", ""
    for number, line in enumerate(text.splitlines(), 1):
        if declared := _PACKAGE.match(line):
            package = declared[1].rpartition(".")[2]
        elif directive := _GO.fullmatch(line) or _KOTLIN.fullmatch(line):
            if said:
                found.append(_homeless(said, place))
            said, place = directive["said"], f"line {number}"
        elif said and (verb := _VERB.match(line)):
            name = verb["name"][:1].lower() + verb["name"][1:]
            found.append(_verb(f"{package}.{name}".lstrip("."), said, place, verb))
            said = ""
    if said:
        found.append(_homeless(said, place))
    names = distinct(entry.name for entry in found)
    return [replace(entry, name=name) for entry, name in zip(found, names, strict=True)]


def _homeless(said: str, place: str) -> Found:
    return Found(place.replace(" ", "-"), place, said, refused="expected a verb below the directive")


def _verb(name: str, said: str, place: str, verb: re.Match[str]) -> Found:
    found = Found(name, place, said)
    parameters = verb["parameters"].strip()
    if (parameters and not _CONTEXT.fullmatch(parameters)) or not _NO_RESULT.fullmatch(verb["rest"]):
        return replace(found, refused="a cron verb has no request and no response (FTL refuses it too)")
    try:
        old = cron.parse(said)
    except cron.BadSchedule as error:
        return replace(found, refused=str(error))
    return replace(found, old=old, expression=" ".join(said.split()), options=dict(OPTIONS))
