"""Parses YAML and records the line of each item.

The underlying library is pure Python and slow, so everything that would take more than linear time or memory
is limited: depth, the number of values, and aliases that expand to far more than the text.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, NoReturn, TypeVar

from ruamel.yaml import YAML, composer, constructor, nodes, scanner
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError
from ruamel.yaml.events import AliasEvent

from bedrockjobs.base.config import JSON_DEPTH_MAX, YAML_NODES_MAX, YAML_VALUES_PER_CHAR_MAX
from bedrockjobs.base.jsontext import NumberTooLong, check_digits
from bedrockjobs.imports.imported import Position, shortened

T = TypeVar("T")

NOT_IN_JSON = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("binary", "omap", "pairs", "set"))
"""Tags that the library would convert to types that JSON does not have."""


class Located(NamedTuple):
    """A value with its line; if it is a mapping or a list, the values in it are Located too."""

    value: Any
    line: int


def documents(text: str) -> list[Located]:
    """Parse all documents of a YAML text with the line of each value; raises ValueError."""

    class Composer(_Composer):
        """Limits the values of all documents together."""

        values_max = YAML_VALUES_PER_CHAR_MAX * len(text)

    yaml = _parser(Composer)

    def parse() -> list[Located]:
        roots = list(yaml.compose_all(text))  # all are kept, as the composer knows nodes by their identity
        return [_located(yaml.constructor, root, {}) for root in roots if root is not None]

    return _problems(parse)


def plain(item: Located) -> Any:
    """Return a value without the lines."""
    if isinstance(item.value, dict):
        return {key: plain(value) for key, value in item.value.items()}
    if isinstance(item.value, list):
        return [plain(value) for value in item.value]
    return item.value


def _located(constructor: Any, node: Any, known: dict[int, Located]) -> Located:
    """Return a node's value; raises ValueError if a key is given twice.

    ``known`` has the values of the nodes that were read before, to which aliases refer.
    """
    if id(node) not in known:
        line = node.start_mark.line + 1
        if isinstance(node, nodes.SequenceNode):
            value: Any = [_located(constructor, item, known) for item in node.value]
        elif isinstance(node, nodes.MappingNode):
            value = _mapping(constructor, node, known)
        else:
            value = constructor.construct_object(node)
        known[id(node)] = Located(value, line)
    return known[id(node)]


def _mapping(constructor: Any, node: Any, known: dict[int, Located]) -> dict[str, Located]:
    values: dict[str, Located] = {}
    merged: dict[str, Located] = {}
    for key, value in node.value:
        at = key.start_mark.line + 1
        if not isinstance(key.value, str):
            _wrong(at, "expected a key that is a text")
        if key.value == "<<":
            for one in value.value if isinstance(value, nodes.SequenceNode) else [value]:
                if not isinstance(one, nodes.MappingNode):
                    _wrong(at, "<<: expected keys and values")
                merged = {**_located(constructor, one, known).value, **merged}
        elif key.value in values:
            _wrong(at, f"{key.value[:40]!r} is given twice")
        else:
            values[key.value] = _located(constructor, value, known)._replace(line=at)
    return {**merged, **values}


def _wrong(line: int, what: str) -> NoReturn:
    raise ValueError(f"line {line}: {what}")


def document(text: str, lists: Collection[str]) -> tuple[Any, dict[str, list[Position]]]:
    """Parse a YAML text and locate the entries of its lists, as ``json_items.document`` does."""
    places: dict[str, list[Position]] = {key: [] for key in lists}

    class Composer(_Composer):
        """Records the positions of entries."""

        values_max = YAML_VALUES_PER_CHAR_MAX * len(text)

        def get_single_node(self) -> Any:
            root = super().get_single_node()
            if isinstance(root, nodes.SequenceNode):
                places[next(iter(lists))] = _places(root)
            elif isinstance(root, nodes.MappingNode):
                places.update((key.value, _places(value)) for key, value in root.value if key.value in lists)
            return root

    yaml = _parser(Composer)
    return _problems(lambda: yaml.load(text)), places


def _parser(composer_class: type[_Composer]) -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner, yaml.Composer, yaml.Constructor = _DepthLimitedScanner, composer_class, _Constructor
    return yaml


def _problems(parse: Callable[[], T]) -> T:
    """Return the result of ``parse``; an error of the library becomes a ValueError with its line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReusedAnchorWarning)  # valid in YAML: the last one applies
            return parse()
    except MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        alias = "alias" in f"{error.context} {error.problem}"
        hint = "; a value that begins with * needs quotes" if alias else ""
        raise ValueError(f"{line}{error.problem}{hint}") from None
    except YAMLError as error:
        raise ValueError(str(error)) from None


def _places(node: Any) -> list[Position]:
    """Return the position of each entry of a list or a mapping; empty for any other value."""
    if isinstance(node, nodes.SequenceNode):
        return [Position(item.start_mark.line + 1, _lines(item)) for item in node.value]
    if isinstance(node, nodes.MappingNode):
        return [Position(key.start_mark.line + 1, _lines(value)) for key, value in node.value]
    return []


def _lines(node: Any) -> dict[str, int]:
    """Return the line of each key of an entry, without the keys that ``<<`` merges in."""
    if not isinstance(node, nodes.MappingNode):
        return {}
    return {key.value: key.start_mark.line + 1 for key, _ in node.value if isinstance(key.value, str)}


class _DepthLimitedScanner(scanner.Scanner):
    """A scanner that limits the depth, and does not examine every open level at each token."""

    def fetch_flow_collection_start(self, *args: Any, **kwargs: Any) -> None:
        if self.flow_level > JSON_DEPTH_MAX:
            raise _too_deep(self.reader.line + 1)
        super().fetch_flow_collection_start(*args, **kwargs)

    def stale_possible_simple_keys(self) -> None:
        """Drop candidates for keys that have expired; if the outermost has not expired, no candidate has."""
        for key in self.possible_simple_keys.values():
            # YAML limits a key without ``?`` to one line and 1,024 characters.
            if key.line != self.reader.line or self.reader.index - key.index > 1_024:
                super().stale_possible_simple_keys()
            return

    def next_possible_simple_key(self) -> Any:
        """Return the token number of the first candidate for a key, which is the outermost candidate."""
        return next((key.token_number for key in self.possible_simple_keys.values()), None)


class _Composer(composer.Composer):
    """A composer with limits on depth, nodes and expanded aliases."""

    values_max = 0
    """Maximum number of values, including those of expanded aliases."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._levels_open = self._nodes = self._values = 0
        self._sizes: dict[int, int] = {}
        """The number of values in each anchored node, by the ``id`` of the node."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event, before = self.parser.peek_event(), self._values
        line = event.start_mark.line + 1
        self._levels_open += 1
        self._nodes += 1
        if self._levels_open > JSON_DEPTH_MAX + 1:  # the innermost level is a scalar
            raise _too_deep(line)
        if self._nodes > YAML_NODES_MAX:
            most = f"at most {YAML_NODES_MAX} values; TOML and JSON have no such limit"
            raise ValueError(f"line {line}: expected {most}")
        node = super().compose_node(parent, index)
        self._levels_open -= 1
        if node.tag in NOT_IN_JSON:
            raise ValueError(f"line {line}: expected a type that JSON has, not {node.tag.rpartition(':')[2]}")
        if not isinstance(event, AliasEvent):
            self._values += 1
            if node.anchor is not None:
                self._sizes[id(node)] = self._values - before
        elif id(node) in self._sizes:
            self._values += self._sizes[id(node)]
        else:
            raise ValueError(f"line {line}: an alias is inside the value that it refers to")
        if self._values > self.values_max:
            most = f"at most {YAML_VALUES_PER_CHAR_MAX} values for each character of the file"
            raise ValueError(f"line {line}: expected aliases that expand to {most}")
        return node


class _Constructor(constructor.SafeConstructor):
    """A constructor whose errors name the line and are worded like the errors of bedrockjobs."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Return the value of a node; raises ValueError."""
        if not isinstance(node, nodes.ScalarNode):
            return super().construct_object(node, deep)
        line, kind = node.start_mark.line + 1, (node.tag or "").rpartition(":")[2]
        if kind == "int" and len(node.value) > sys.get_int_max_str_digits():  # in base 60 it takes long
            _wrong(line, str(NumberTooLong()))
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int):
                check_digits(value)
        except NumberTooLong as error:
            _wrong(line, str(error))
        except (ValueError, KeyError):  # such as the date 2026-99-99, or !!bool with another word
            _wrong(line, f"expected a value of the type {kind}, not {shortened(node.value)}")
        return value


def _too_deep(line: int) -> ValueError:
    return ValueError(f"line {line}: nested deeper than {JSON_DEPTH_MAX} levels")
