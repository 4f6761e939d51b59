"""Converts the arguments and the result of a function to JSON and back, and checks them.

Values of plain types (numbers, strings, lists, dicts, unions of these) are checked here, which is cheap. For
other annotations (dates, dataclasses, models, enums), pydantic is imported.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

from bedrock_worker.current import Job

RESULT = "result"
"""The member of a job's data that holds the result of a function (unless the function takes the job)."""

PASSED = "$results"
"""The member of a workflow job's data that says which results of earlier jobs belong where in the data."""

MOCK = "mockRequest"
"""The member of a job's data that marks the job as mocked; a stored result keeps this member."""

_OPEN = (inspect.Parameter.empty, inspect.Signature.empty, Any, object)
_JSON_TYPES: dict[Any, tuple[type, ...]] = {
    bool: (bool,),
    str: (str,),
    int: (int,),
    float: (int, float),
    list: (list,),
    dict: (dict,),
}
_SCALARS, _INT_MAX = (NoneType, bool, str), 2**63
"""Types whose values JSON can hold as they are, and the size up to which integers are accepted untried, as
Python refuses to print very long ones."""

_adapters: dict[int, tuple[Any, Any]] = {}
"""Types and pydantic's adapters of them, by the type's id: building an adapter is slower than most runs."""

ADAPTERS_MAX = 1_000
"""Maximum adapters that are cached: more than a module has types in its functions."""


class WrongArguments(ValueError):
    """Arguments do not match the function, or its result does not match the annotation."""


class OtherArguments(WrongArguments):
    """A required argument is missing, or the function has no parameter for an argument."""


class Arguments:
    """The parameters and the result type of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Inspect the function; an annotation that cannot be resolved counts as ``Any``."""
        self._function = function
        self._signature = inspect.signature(function)
        self._kinds: dict[str, Any] = {}
        """Resolved annotations, by their text."""

    @cached_property
    def takes_job(self) -> bool:
        """Return whether the function takes the job: its single parameter is a ``Job``, or named ``job``."""
        parameters = list(self._signature.parameters.values())
        if len(parameters) != 1 or parameters[0].kind not in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            return False
        kind = self._kind(parameters[0].annotation)
        return kind is Job or (kind in _OPEN and parameters[0].name == "job")

    def has(self, name: str) -> bool:
        """Return whether a parameter has this name."""
        return name in self._signature.parameters

    def check_kinds(self) -> None:
        """Raise WrongArguments if the function has a parameter that cannot be passed by name."""
        for name, parameter in self._signature.parameters.items():
            if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
                message = f"expected parameters that can be given by name, {name} cannot"
                raise WrongArguments(f"{message}; or one for the job, like job: Job")

    def to_data(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call, by name, as JSON values; raises WrongArguments."""
        return {name: json_of(value, kind, name) for name, kind, value in self.bound(args, kwargs)}

    def some_to_data(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments like ``to_data``, but required arguments may be missing; raises WrongArguments."""
        bound = self.bound(args, kwargs, partial=True)
        return {name: json_of(value, kind, name) for name, kind, value in bound}

    def defaults(self) -> dict[str, Any]:
        """Return the defaults of the parameters as JSON values, except those that JSON cannot hold."""
        found = {}
        for name, parameter in self._signature.parameters.items():
            if parameter.default is not inspect.Parameter.empty:
                with suppress(WrongArguments):  # the default does not match its own annotation
                    found[name] = json_of(parameter.default, self._kind(parameter.annotation), name)
        return found

    def unique_names(self, unique: Any) -> tuple[str, ...] | None:
        """Return the arguments that ``unique`` compares, or None for all arguments; raises WrongArguments."""
        if unique is True or unique == "args":
            return None
        return self.chosen_names("unique", 'True, "args"', unique)

    def chosen_names(self, option: str, others: str, given: Any) -> tuple[str, ...]:
        """Return the names of arguments given for an option, which also takes ``others``.

        Raises WrongArguments.
        """
        names = tuple(given) if isinstance(given, list | tuple) else ()
        if not names or not all(isinstance(name, str) for name in names):
            raise WrongArguments(f'{option}: expected {others} or names of parameters, like ("user_id",)')
        parameters = self._signature.parameters
        open_ended = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
        if not (self.takes_job or open_ended) and (
            unknown := [each for each in names if each not in parameters]
        ):
            raise WrongArguments(f"{option}: the function has no parameter {unknown[0]}")
        return names

    def canonical(self, data: Mapping[str, Any], names: tuple[str, ...] | None) -> str:
        """Return the arguments in ``data``, with defaults, as JSON: the same text for equal arguments.

        Names are sorted, and 1.0 is spelled as 1. With ``names``, returns only these arguments.
        """
        arguments = {**self.defaults(), **data}
        if names is not None:
            arguments = {name: arguments[name] for name in names if name in arguments}
        plain = json.loads(json.dumps(arguments), parse_float=_number)
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))

    def of_data(self, data: Mapping[str, Any], *, again: bool) -> dict[str, Any]:
        """Return the arguments in a job's data, converted to the annotated types; raises WrongArguments.

        Two members of the data are arguments only if the function has parameters of their names: the mark of
        a mocked job, and, if the job runs ``again``, its last result.
        """
        own = self._signature.parameters
        dropped = {MOCK, RESULT} if again else {MOCK}
        arguments = {name: value for name, value in data.items() if name in own or name not in dropped}
        return {name: _value_of(value, kind, name) for name, kind, value in self.bound((), arguments)}

    def result_to_json(self, value: Any) -> Any:
        """Return the function's result as a JSON value; raises WrongArguments."""
        return json_of(value, self._kind(self._signature.return_annotation), "its result", lossy=True)

    def result_of_json(self, value: Any) -> Any:
        """Return a JSON result converted to the annotated type; raises WrongArguments."""
        return _value_of(value, self._kind(self._signature.return_annotation), "its result")

    def bound(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, partial: bool = False
    ) -> list[tuple[str, Any, Any]]:
        """Return name, annotation and value of each argument; raises WrongArguments."""
        if self.takes_job:
            if args:
                raise WrongArguments("expected the job's data by name: enqueue(width=800)")
            return [(name, Any, value) for name, value in kwargs.items()]
        bind = self._signature.bind_partial if partial else self._signature.bind
        try:
            bound = bind(*args, **kwargs)
        except TypeError as error:
            words = f"{error}{self._unknown_too(str(error), kwargs)}"
            raise OtherArguments(f"{words}, of {self._function.__qualname__}{self._signature}") from None
        values = []
        for name, value in bound.arguments.items():
            parameter = self._signature.parameters[name]
            kind = self._kind(parameter.annotation)
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                values += [(each, kind, part) for each, part in value.items()]
            else:
                values.append((name, kind, value))
        return values

    def _unknown_too(self, error: str, given: Mapping[str, Any]) -> str:
        """Return words on arguments that the function lacks, since ``error`` may name only missing ones."""
        parameters = self._signature.parameters
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
            return ""
        unknown = [f"{name!r:.100}" for name in given if name not in parameters]
        return (
            "" if not unknown or unknown[0] in error else f"; there is no parameter {', '.join(unknown[:5])}"
        )

    def _kind(self, annotation: Any) -> Any:
        """Resolve an annotation that is a text; return Any if that is impossible."""
        if not isinstance(annotation, str):
            return annotation
        if annotation not in self._kinds:
            try:
                found = eval(annotation, getattr(self._function, "__globals__", {}))  # noqa: S307  as Python does
            except Exception:  # the name that it contains may be defined later
                return Any
            self._kinds[annotation] = found
        return self._kinds[annotation]


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number


def fits(value: Any, kind: Any) -> bool | None:
    """Return whether a value is of a type; None if only pydantic can tell."""
    if kind in _OPEN:
        return True
    if kind in (None, NoneType):
        return value is None
    if is_typeddict(kind):  # members are not checked: pydantic supports this only from Python 3.12 on
        return (
            isinstance(value, dict) and kind.__required_keys__ <= value.keys() <= kind.__annotations__.keys()
        )
    if isinstance(kind, type) and kind in _JSON_TYPES:
        return isinstance(value, _JSON_TYPES[kind]) and (kind is bool or not isinstance(value, bool))
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value in parts if all(isinstance(part, (str, int)) for part in parts) else None
    if origin in (Union, UnionType):
        known = [fits(value, part) for part in parts]
        return True if True in known else None if None in known else False
    if origin is list:
        return _all_fit(value, parts[0]) if isinstance(value, list) else False
    if origin is dict and parts[0] is str:
        return _all_fit(value.values(), parts[1]) if isinstance(value, dict) else False
    return None


def _all_fit(values: Any, kind: Any) -> bool | None:
    for value in values:
        if not (fitting := fits(value, kind)):
            return fitting
    return True


def json_of(value: Any, kind: Any, name: str, *, lossy: bool = False) -> Any:
    """Return a value of the type ``kind`` as JSON value; raises WrongArguments.

    Without ``lossy``, a value that JSON would alter, such as a tuple, raises WrongArguments too.
    """
    fitting = fits(value, kind)
    if fitting is None:
        adapter = _adapter(kind)
        try:
            return adapter.dump_python(adapter.validate_python(value, strict=True), mode="json")
        except ValueError as error:
            raise WrongArguments(f"{name}: {_words(error)}") from None
    if not fitting:
        raise WrongArguments(f"{name}: expected {_name_of(kind)}, got {value!r:.100}")
    if type(value) in _SCALARS or (type(value) is int and -_INT_MAX <= value <= _INT_MAX):
        return value
    try:
        json.dumps(value, allow_nan=False)
        if not lossy:  # the function has done its work, so its tuple is accepted
            _refuse_what_changes(value, name)
    except WrongArguments:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongArguments(f"{name}: expected a value that JSON can hold: {error}") from None
    return value


def _refuse_what_changes(value: Any, place: str) -> None:
    """Raise WrongArguments for values that JSON would alter: tuples, and keys that are not strings."""
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                message = f"{place}: JSON has only text as keys, and would turn {key!r:.100} into one"
                raise WrongArguments(f"{message}; annotate the parameter, like dict[int, str], or give text")
            _refuse_what_changes(part, f"{place}[{key!r:.100}]")
    elif isinstance(value, tuple):
        message = f"{place}: JSON has no tuples, and would turn {value!r:.100} into a list"
        raise WrongArguments(f"{message}; annotate the parameter, like tuple[int, str], or give a list")
    elif isinstance(value, list):
        for at, part in enumerate(value):
            _refuse_what_changes(part, f"{place}[{at}]")


def _value_of(value: Any, kind: Any, name: str) -> Any:
    """Return a JSON value converted to the type ``kind``; raises WrongArguments."""
    fitting = fits(value, kind)
    if fitting is None:
        try:
            return _adapter(kind).validate_python(value)
        except ValueError as error:
            raise WrongArguments(f"{name}: {_words(error)}") from None
    if not fitting:
        raise WrongArguments(f"{name}: expected {_name_of(kind)}, got {value!r:.100}")
    return value


def _adapter(kind: Any) -> Any:
    """Return pydantic's adapter of a type; raises WrongArguments for an unknown type."""
    from pydantic import TypeAdapter  # imported here, since it would take most of the time of a small run
    from pydantic.errors import PydanticUserError

    if id(kind) in _adapters:
        return _adapters[id(kind)][1]
    try:
        adapter = TypeAdapter(kind)
    except PydanticUserError:
        raise WrongArguments(f"{_name_of(kind)} has no form in JSON that pydantic knows") from None
    if len(_adapters) >= ADAPTERS_MAX:
        _adapters.clear()
    _adapters[id(kind)] = kind, adapter  # keeps the type, whose id could otherwise be reused
    return adapter


def _words(error: ValueError) -> str:
    """Return pydantic's first error as text."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    first = errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def _name_of(kind: Any) -> str:
    if kind in (None, NoneType):
        return "None"
    return (
        kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")
    )
