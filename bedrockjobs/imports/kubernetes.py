"""Import CronJob manifests of Kubernetes from YAML with one or more documents, or from a ``List``.

The command of the only container becomes ``argv``. Images, volumes and secrets have no counterpart; each key
that is left out is reported with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from bedrockjobs.imports import yaml_items
from bedrockjobs.imports.gorhill import Reading, bits_of, written
from bedrockjobs.imports.imported import (
    MACROS,
    ImportedSchedule,
    Refused,
    Unreadable,
    check_count,
    check_size,
    once,
)
from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron.expression import (
    HOUR,
    MINUTE,
    MONTH,
    MONTH_DAY,
    WEEK_DAY,
    CronField,
    check_length,
)
from bedrockjobs.schedule.cron.plan import EVERY_YEAR, YEAR_MIN, DayField, DayRule, Schedule, find_zone

BACKOFF = {"backoff": "10s", "max_backoff": "6m"}
"""Options that delay retries as Kubernetes delays the attempts of a Job."""

KEPT = {"successfulJobsHistoryLimit": "keep_success", "failedJobsHistoryLimit": "keep_fail"}
"""Keys for the number of stored runs, each with the equivalent option of bedrockjobs."""

EXPANDED_CHARS_MAX = 100_000
"""Maximum characters of a text after its variables are replaced: each variable can double the text of the one
before it, so that a short manifest could fill the memory."""

_VARIABLE = re.compile(r"\$(\$|\(([-._A-Za-z0-9]+)\))")
_SILENT = frozenset({"apiVersion", "kind", "metadata", "status"})
"""Keys that are left out without a warning, because they do not say when or how a job runs."""


class _Part:
    """A mapping of a manifest, which remembers the keys that have not been read from it."""

    def __init__(self, item: yaml_items.Located, name: str = "") -> None:
        if not isinstance(item.value, dict):
            raise Refused(f"{name or 'the manifest'}: line {item.line}: expected keys and values")
        self.line, self._name, self._left = item.line, name, dict(item.value)

    def take(self, key: str, kind: type | tuple[type, ...]) -> Any:
        """Return the value of a key without lines, None if it is missing; raises Refused for another type."""
        item = self._left.pop(key, None)
        if item is None or item.value is None:
            return None
        value = yaml_items.plain(item)
        if not isinstance(value, kind) or (
            isinstance(value, int) and kind is int and (isinstance(value, bool) or value < 0)
        ):
            raise Refused(f"{self._at(key)}: line {item.line}: {_EXPECTED[kind]}")
        return value

    def part(self, key: str) -> _Part:
        """Return the mapping that is the value of a key; raises Refused if the key is missing."""
        if key not in self._left:
            raise Refused(f"{self._at(key)}: it is missing from line {self.line} on")
        return _Part(self._left.pop(key), self._at(key))

    def items(self, key: str) -> list[yaml_items.Located]:
        """Return the items of the list that is the value of a key; empty if the key is missing."""
        item = self._left.pop(key, None)
        if item is None or item.value is None:
            return []
        if not isinstance(item.value, list):
            raise Refused(f"{self._at(key)}: line {item.line}: expected a list")
        return item.value

    def unused(self, *silent: str) -> list[str]:
        """Return a warning for each key that was not read, except for keys in ``silent`` and ``_SILENT``."""
        return [
            f"line {item.line}: {self._at(key)} is left out"
            for key, item in self._left.items()
            if key not in silent and key not in _SILENT
        ]

    def _at(self, key: str) -> str:
        return f"{self._name}.{key}".lstrip(".")


_EXPECTED: dict[Any, str] = {
    str: "expected a text",
    int: "expected a whole number",
    bool: "expected true or false",
    list: "expected a list",
}


class _Manifest(NamedTuple):
    kind: str
    item: yaml_items.Located


def parse_kubernetes(text: str, *, zone: str = "UTC") -> list[ImportedSchedule]:
    """Parse manifests; ``zone`` is the time zone of the cluster, for manifests without ``timeZone``.

    Raises Unreadable if the text is not YAML. Manifests of other kinds are left out, with a warning.
    """
    check_size(text)
    try:
        documents = yaml_items.documents(text)
    except ValueError as error:
        hint = "; render templates first (helm template)" if "{{" in text else ""
        raise Unreadable(f"expected Kubernetes manifests in YAML: {error}{hint}") from None
    found: list[ImportedSchedule] = []
    others: list[str] = []
    for manifest in _manifests(documents):
        if manifest.kind == "CronJob":
            found.append(_schedule(manifest.item, zone))
            check_count(found, found[-1].place)
        else:
            others.append(f"line {manifest.item.line}: a {manifest.kind} is left out")
    if found and others:
        found[0] = found[0].with_warning(*others)
    return once(found)


def _manifests(documents: list[yaml_items.Located]) -> Iterator[_Manifest]:
    for item in documents:
        if item.value is None:
            continue
        if not isinstance(item.value, dict) or "kind" not in item.value:
            raise Unreadable(f"line {item.line}: expected a Kubernetes manifest with kind")
        kind = str(yaml_items.plain(item.value["kind"]))
        inner = item.value.get("items")
        if kind in ("List", "CronJobList") and inner is not None and isinstance(inner.value, list):
            yield from _manifests(inner.value)
        else:
            yield _Manifest(kind, item)


def _schedule(item: yaml_items.Located, zone: str) -> ImportedSchedule:
    schedule = ImportedSchedule(f"line-{item.line}", f"line {item.line}", "", zone=zone)
    try:
        manifest = _Part(item)
        metadata = manifest.part("metadata")
        name = metadata.take("name", str) or metadata.take("generateName", str)
        schedule = schedule._replace(name=name or schedule.name)
        if namespace := metadata.take("namespace", str):
            schedule = schedule._replace(name=f"{namespace}/{schedule.name}")
        spec = manifest.part("spec")
        schedule = schedule._replace(source_text=spec.take("schedule", str) or "")
        return _with_spec(schedule, spec).with_warning(*manifest.unused())
    except (Refused, cron.BadSchedule) as error:
        return schedule._replace(refused=str(error))


def _with_spec(schedule: ImportedSchedule, spec: _Part) -> ImportedSchedule:
    zone = spec.take("timeZone", str) or schedule.zone
    find_zone(zone)
    schedule = schedule._replace(zone=zone, paused=bool(spec.take("suspend", bool))).with_reading(
        *reading_of(schedule.source_text)
    )
    options: dict[str, Any] = {}
    warnings: list[str] = []
    policy = spec.take("concurrencyPolicy", str) or "Allow"
    if policy not in ("Allow", "Forbid", "Replace"):
        raise Refused("spec.concurrencyPolicy: expected Allow, Forbid or Replace")
    options["overlap"] = "skip"
    if policy == "Allow":
        warnings.append("concurrencyPolicy Allow: a tick during a run starts a second one there, none here")
    elif policy == "Replace":
        warnings.append("concurrencyPolicy Replace: a tick ends the running one there, and is skipped here")
    for key, option in KEPT.items():
        if (kept := spec.take(key, int)) is not None:
            options[option] = kept
    if (late := spec.take("startingDeadlineSeconds", int)) is not None:
        options["max_late"] = late
    job = spec.part("jobTemplate").part("spec")
    if (seconds := job.take("activeDeadlineSeconds", int)) is not None:
        options["run_timeout"] = seconds
    retries = job.take("backoffLimit", int)
    retries = 6 if retries is None else retries  # the default of Kubernetes
    options["retries"] = retries
    if retries:
        options |= BACKOFF
        if seconds is not None:
            warnings.append("activeDeadlineSeconds counts all attempts together there, and each one here")
    for key in ("parallelism", "completions"):
        if job.take(key, int) not in (None, 1):
            raise Refused(f"spec.jobTemplate.spec.{key}: expected 1, as a schedule here starts one run")
    pod = job.part("template").part("spec")
    command, more = _command(pod)
    return schedule._replace(options={**command, **options}).with_warning(
        *warnings, *more, *spec.unused(), *job.unused("ttlSecondsAfterFinished"), *pod.unused("restartPolicy")
    )


# The rule of robfig/cron, with which Kubernetes reads schedules.


class _Field(NamedTuple):
    """A field of an expression as robfig/cron reads it."""

    text: str
    """The field for an equivalent expression, unless its values have to be written differently."""
    values: set[int]
    open: bool
    """Whether a term is ``*`` without a step. If that is so in a day field, only the other day field
    counts."""
    notes: list[str]


def reading_of(text: str) -> Reading:
    """Return the schedule of a CronJob, and its equivalent in bedrockjobs; raises BadSchedule."""
    check_length(text)
    words = text.split()
    if len(words) == 1 and words[0] in MACROS:
        return Reading(cron.parse(words[0]), words[0])
    if len(words) != len(_FIELDS):
        raise cron.BadSchedule("schedule", text, f"five fields, or one of {', '.join(MACROS)}")
    highest = (59, 23, 31, 12, 6)  # a week ends with Saturday
    read = [_field(*each) for each in zip(_FIELDS, highest, words, strict=True)]
    minutes, hours, month_days, months, week_days = read
    schedule = Schedule(
        1,
        bits_of(minutes.values),
        bits_of(hours.values),
        DayRule(
            DayField(bits_of(month_days.values), every=month_days.open),
            DayField(weekdays=bits_of((day - 1) % 7 for day in week_days.values), every=week_days.open),
            either=not (month_days.open or week_days.open),
        ),
        bits_of(months.values),
        EVERY_YEAR,
        wild=bool(set("*?") & set(words[0] + words[1])),
    )
    if schedule.first_from(datetime(YEAR_MIN, 1, 1)) is None:
        raise cron.BadSchedule("schedule", text, "a tick; Kubernetes accepts it, and never runs it")
    ours = " ".join(field.text for field in read)
    return written(Reading(schedule, ours, tuple(note for field in read for note in field.notes)))


_FIELDS = (MINUTE, HOUR, MONTH_DAY, MONTH, WEEK_DAY)
_WHOLE = re.compile(r"\+?0*([0-9]{1,18})", re.ASCII)


def _field(field: CronField, high: int, text: str) -> _Field:
    terms = list(filter(None, text.split(",")))
    read = _Field(",".join(terms).replace("?", "*"), set(), open=False, notes=[])
    if len(terms) <= text.count(","):
        read.notes.append(f"{field.name} {text}: Kubernetes leaves out empty terms")
    for term in terms:
        body, slash, step_text = term.partition("/")
        first_text, *others = body.split("-")
        step = _whole(field, step_text, term) if slash else 1
        if first_text in ("*", "?"):  # whatever follows the * or ?
            first, last = field.low, high
            if others:
                read.notes.append(f"{field.name} {term}: Kubernetes reads {body} as *")
            read = read._replace(text="*", open=True) if step == 1 else read
        elif len(others) <= 1:
            first = _number(field, first_text, term)
            last = _number(field, others[0], term) if others else high if slash else first
        else:
            raise field.bad(term, "one hyphen at most")
        if not field.low <= first <= last <= high or not step:
            known = f"numbers in {field.low}-{high} that go up, and a step from 1 on"
            raise cron.BadSchedule(field.name, term, f"what Kubernetes reads: {known}")
        if first < last < first + step:
            read.notes.append(f"{field.name} {term}: Kubernetes reads the first value alone")
        read.values.update(range(first, last + 1, step))
    return read


def _number(field: CronField, text: str, term: str) -> int:
    named = field.names.get(text.lower()) if len(text) == 3 else None
    return _whole(field, text, term) if named is None else named


def _whole(field: CronField, text: str, term: str) -> int:
    if (whole := _WHOLE.fullmatch(text)) is None:
        raise cron.BadSchedule(field.name, term, "what Kubernetes reads: *, numbers, names, ranges and steps")
    return int(whole[1])


def _command(pod: _Part) -> tuple[dict[str, Any], list[str]]:
    """Return the options for the command of a pod's only container, and warnings; raises Refused."""
    if pod.items("initContainers"):
        raise Refused("initContainers: expected none, as a run here is one command")
    containers = pod.items("containers")
    if len(containers) != 1:
        raise Refused(f"containers: expected one, not {len(containers)}, as a run here is one command")
    container = _Part(containers[0], "container")
    image = container.take("image", str)
    words, arguments = container.take("command", list) or [], container.take("args", list) or []
    variables: dict[str, str] = {}
    elsewhere: set[str] = set()
    """Variables whose values are not in the manifest, but in a secret, for example."""
    warnings: list[str] = []
    for item in container.items("env"):
        variable = _Part(item, "env")
        name, value = variable.take("name", str), variable.take("value", str)
        if not name or "=" in name:
            raise Refused(f"env: line {item.line}: expected a name")
        if "valueFrom" in item.value:
            warnings.append(f"line {item.line}: env {name} comes from elsewhere (valueFrom): not set here")
        elif secret := _unset(value or "", elsewhere):
            warnings.append(f"line {item.line}: env {name} refers to {secret}: not set here")
        else:
            variables[name] = _expanded(value or "", variables)
            continue
        elsewhere.add(name)
    given = [*words, *arguments]
    if not all(isinstance(word, str) for word in given):
        raise Refused(f"container: line {container.line}: command and args: expected texts")
    if unset := next(filter(None, (_unset(word, elsewhere) for word in given)), ""):
        raise Refused(f"container: line {container.line}: $({unset}): its value is not in the manifest")
    warnings += container.unused("name", "imagePullPolicy")
    if not words:
        what = f"the image {image!r} has the command" if image else "there is no command"
        warnings.append(f"{what}: a worker has to take jobs of this name")
        if given or variables:
            warnings.append(f"line {container.line}: args and env are left out without a command")
        return {}, warnings
    warnings.append(f"the command has to exist where the worker runs, not in the image {image!r}")
    argv = [_expanded(word, variables) for word in given]
    if variables:
        argv = ["env", *(f"{name}={value}" for name, value in variables.items()), *argv]
    return {"argv": argv}, warnings


def _unset(text: str, names: set[str]) -> str:
    """Return the first of ``names`` that is a variable in a text, or an empty text."""
    return next((match[2] for match in _VARIABLE.finditer(text) if match[2] in names), "")


def _expanded(text: str, variables: dict[str, str]) -> str:
    """Replace ``$(NAME)`` of known variables, as Kubernetes does; ``$$`` stands for ``$``."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else variables.get(match[2], match[0])

    expanded = _VARIABLE.sub(value, text)
    if len(expanded) > EXPANDED_CHARS_MAX:
        raise Refused(f"expected at most {EXPANDED_CHARS_MAX} characters after $(NAME) is replaced")
    return expanded
