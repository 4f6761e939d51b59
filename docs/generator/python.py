"""``reference/python.md``: the public names of the packages, with their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from types import FunctionType, MethodType
from typing import Any, ForwardRef

import bedrockjobs
from bedrockjobs.base.errors import ERRORS, BedrockjobsError
from bedrockjobs.commands import ALL, Reply
from bedrockjobs.commands.base import Parameters
from docs.generator import NOTE
from docs.generator.markdown import code, table

_INTRO = """\
# Python

The public names of the Python packages. [Run Python functions](../how-to/python-functions.md) and
[Use the client](../how-to/python-client.md) show them in use."""

_MODULES = {
    "bedrock_worker": "Functions as jobs. `@job` and `@cron` also take the options of"
    " [CreateJob](commands.md#createjob), in snake case.",
    "bedrockjobs": "The clients; [commands](#commands) and [errors](#errors) are below.",
    "bedrockjobs.testing": "[Tests of an application](../how-to/test-an-application.md). The pytest fixture"
    " `bedrockjobs_server` is a `ServerUnderTest`.",
    "bedrockjobs.outbox": "[Jobs in your own transaction](../how-to/enqueue-in-a-transaction.md), if your"
    " database is not the queue's.",
}

_COMMANDS = """\
## Commands

`client.call(CreateJob(name="mail"))` sends a command and returns its reply. The fields of both are in snake
case; [commands](commands.md) explains them. As the value of an option, `EMPTIED` removes it."""

_PARTS = """\
## Parts of commands

The items of lists in commands: `CreateJobs(jobs=[JobSpec(name="mail"), JobSpec(name="report")])`."""

_ERRORS = """\
## Errors

All are a `BedrockjobsError`; `NoWorkerTakes` is a warning. The classes of refusals are listed with the
[errors](errors.md), by their code."""

_PACKAGES = ("bedrockjobs", "bedrock_worker")

_AWAITED = re.compile(r"(?:like `\w+`, without blocking|, like `\w+\.\w+`)\.$|^Return the asyncio handle")
"""How the docstring of a method ends that does what another one does, without blocking."""


class _Bare:
    """An annotation that a signature shows without quotes."""

    def __init__(self, annotation: Any) -> None:
        if isinstance(annotation, ForwardRef):
            annotation = annotation.__forward_arg__
        self._text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)

    def __repr__(self) -> str:
        return self._text


def page() -> str:
    """Return the page."""
    shown: dict[tuple[type, str], str] = {}
    sections = [f"## {module}\n\n{about}\n\n{_names(module, shown)}" for module, about in _MODULES.items()]
    commands = ", ".join(
        f"[{code(kind.__name__)}](commands.md#{kind.__name__.lower()})"
        + (f" → {code(kind.reply.__name__)}" if kind.reply.model_fields else "")
        for kind in sorted(ALL, key=lambda kind: kind.__name__)
    )
    parts = table(
        ("class", "meaning"),
        (
            (code(kind.__name__), _first(kind))
            for kind in _public()
            if issubclass(kind, Parameters)
            and kind.__name__.endswith(("Spec", "Job", "Fetch"))
            and kind not in ALL
        ),
    )
    errors = table(
        ("class", "is a", "meaning"),
        (
            (code(kind.__name__), ", ".join(code(base.__name__) for base in kind.__bases__), _first(kind))
            for kind in _public()
            if issubclass(kind, (BedrockjobsError, Warning)) and kind not in (BedrockjobsError, *ERRORS)
        ),
    )
    return "\n\n".join([NOTE, _INTRO, *sections, _COMMANDS, commands, _PARTS, parts, _ERRORS, errors]) + "\n"


def _public() -> Iterator[type]:
    """Yield the public classes of ``bedrockjobs``."""
    for name in bedrockjobs.__all__:  # type: ignore[attr-defined]
        found = getattr(bedrockjobs, name)
        if isinstance(found, type):
            yield found


def _names(module: str, shown: dict[tuple[type, str], str]) -> str:
    """Return an entry for each public name of a module that is in no table."""
    found = import_module(module)
    names = sorted(found.__all__, key=lambda name: (name.startswith("Async"), name))
    values = {name: getattr(found, name) for name in names}
    return "\n\n".join(_entry(name, value, shown) for name, value in values.items() if _is_explained(value))


def _is_explained(value: Any) -> bool:
    if isinstance(value, type):
        own = any(value.__module__.startswith(package) for package in _PACKAGES)
        return own and not issubclass(value, (BedrockjobsError, Warning, Reply, Parameters))
    return inspect.isroutine(value)


def _entry(name: str, value: Any, shown: dict[tuple[type, str], str]) -> str:
    """Return the entry of a name; members that an earlier class has too are only named."""
    parts = [
        f"### `{name}`",
        f"```py\n{name}{_signature(value)}\n```" if _is_called(value) else "",
        _text(value),
    ]
    if isinstance(value, type):
        rows, others, awaited = [], [], []
        for owner, member, text in _members(value):
            if shown.setdefault((owner, member), name) != name:
                others.append((member, shown[owner, member]))
            elif _AWAITED.search(text):
                awaited.append(member)
            else:
                rows.append((code(f"{member}{_shape(value, member)}"), _without_return(text)))
        parts.append(table(("member", "meaning"), rows) if rows else "")
        if awaited:
            parts.append(f"To be awaited, otherwise alike: {', '.join(map(code, awaited))}.")
        if others:
            parts.append(f"As in `{others[0][1]}`: {', '.join(code(member) for member, _ in others)}.")
    return "\n\n".join(filter(None, parts))


def _is_called(value: Any) -> bool:
    """Return whether users call it: handles and the like are made by the package."""
    if not isinstance(value, type):
        return True
    return not value.__name__.endswith(("Handle", "JobFunction", "Signature", "Run", "Reply"))


def _signature(value: Callable[..., Any]) -> str:
    """Return the signature of a function or a class, one parameter a line if it is long."""
    try:
        found = inspect.signature(value)
    except ValueError:  # an exception with no arguments of its own
        return "(message)"
    returned = found.return_annotation
    if isinstance(value, type) or returned in (None, "None"):
        returned = found.empty
    bare = found.replace(
        parameters=[
            each.replace(
                annotation=each.annotation if each.annotation is each.empty else _Bare(each.annotation)
            )
            for each in found.parameters.values()
            if each.name != "self"
        ],
        return_annotation=returned if returned is found.empty else _Bare(returned),
    )
    return str(bare)


def _members(kind: type) -> Iterator[tuple[type, str, str]]:
    """Yield the public methods and properties of a class, each after its owner and before its docstring."""
    seen: set[str] = set()
    for owner in kind.__mro__:
        for name, value in vars(owner).items() if owner.__module__.startswith(_PACKAGES) else ():
            if name.startswith("_") or name in seen or not isinstance(value, _MEMBERS):
                continue
            seen.add(name)
            yield owner, name, _inline(inspect.getdoc(value) or "")


_MEMBERS = (FunctionType, classmethod, staticmethod, property, cached_property)


def _shape(kind: type, member: str) -> str:
    """Return the signature of a method; properties have none."""
    value = getattr(kind, member)
    return _signature(value) if isinstance(value, FunctionType | MethodType) else ""


def _first(kind: type) -> str:
    return _inline((inspect.getdoc(kind) or "").split("\n\n")[0])


def _inline(text: str) -> str:
    """Return a docstring as a cell of a table."""
    return " ".join(text.replace("``", "`").split())


def _without_return(text: str) -> str:
    """Return the meaning of a member, without the verb that most of them begin with."""
    return re.sub(r"^Return (\w)", lambda found: found[1].upper(), text)


def _text(value: Any) -> str:
    """Return a docstring as Markdown; its examples become code."""
    parts = re.split(r"\n\n+", inspect.getdoc(value) or "")
    return "\n\n".join(
        f"```py\n{inspect.cleandoc(part)}\n```" if part.startswith((">>>", "    ")) else _inline(part)
        for part in parts
        if part
    )
