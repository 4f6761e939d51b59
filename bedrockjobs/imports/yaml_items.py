"""Reading a YAML text with the lines of its items.

The reader is another's, written in Python. It is kept from what takes it more than linear time or memory:
depth, many values, and aliases that stand for far more than the text holds, merged or not.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

from ruamel.yaml import YAML, composer, nodes, scanner
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError
from ruamel.yaml.events import AliasEvent

from bedrockjobs.base.config import JSON_DEPTH_MAX, YAML_NODES_MAX, YAML_VALUES_PER_CHAR_MAX
from bedrockjobs.imports.place import Place

KEY_CHARS_MAX = 1_024
"""Length of a key without a question mark, as YAML has it."""

NOT_IN_JSON = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("binary", "omap", "pairs", "set"))
"""Tags that somebody may write, and that the reader would make something of."""


def document(text: str, lists: Collection[str]) -> tuple[Any, dict[str, list[Place]]]:
    """Return the value of a YAML text, and the places of the entries in its lists; raises ValueError.

    They are those of what an object has as one of its members ``lists``, by its key; of a list itself they
    have the first of these keys.
    """
    places: dict[str, list[Place]] = {key: [] for key in lists}

    class Composer(_Composer):
        """Notes where the items begin."""

        values_max = YAML_VALUES_PER_CHAR_MAX * len(text)

        def get_single_node(self) -> Any:
            root = super().get_single_node()
            if isinstance(root, nodes.SequenceNode):
                places[next(iter(lists))] = _places(root)
            elif isinstance(root, nodes.MappingNode):
                places.update((key.value, _places(value)) for key, value in root.value if key.value in lists)
            return root

    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner, yaml.Composer = _Scanner, Composer
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReusedAnchorWarning)  # YAML allows it: the last one counts
            return yaml.load(text), places
    except MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        alias = "alias" in f"{error.context} {error.problem}"
        hint = "; a value that begins with * needs quotes" if alias else ""
        raise ValueError(f"{line}{error.problem}{hint}") from None
    except YAMLError as error:
        raise ValueError(str(error)) from None


def _places(node: Any) -> list[Place]:
    """Return the places of what a list or a table holds."""
    if isinstance(node, nodes.SequenceNode):
        return [Place(item.start_mark.line + 1, _lines(item)) for item in node.value]
    if isinstance(node, nodes.MappingNode):
        return [Place(key.start_mark.line + 1, _lines(value)) for key, value in node.value]
    return []


def _lines(node: Any) -> dict[str, int]:
    """Return the line of each key that an entry writes itself."""
    if not isinstance(node, nodes.MappingNode):
        return {}
    return {key.value: key.start_mark.line + 1 for key, _ in node.value if isinstance(key.value, str)}


class _Scanner(scanner.Scanner):
    """Scans no deeper than there may be, and does not look at each open level again for each word."""

    def fetch_flow_collection_start(self, *args: Any, **kwargs: Any) -> None:
        if self.flow_level > JSON_DEPTH_MAX:
            raise _too_deep(self.reader.line + 1)
        super().fetch_flow_collection_start(*args, **kwargs)

    def stale_possible_simple_keys(self) -> None:
        """Forget what can be no key any more: where the outermost one still can, all can."""
        for key in self.possible_simple_keys.values():
            if key.line != self.reader.line or self.reader.index - key.index > KEY_CHARS_MAX:
                super().stale_possible_simple_keys()
            return

    def next_possible_simple_key(self) -> Any:
        """Return the number of the first word that can be a key: the outermost one was there first."""
        return next((key.token_number for key in self.possible_simple_keys.values()), None)


class _Composer(composer.Composer):
    """Composes no more than there may be."""

    values_max = 0
    """Values that there may be, those that aliases stand for included."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._levels_open = self._nodes = self._values = 0
        self._sizes: dict[int, int] = {}
        """Of what has an anchor: how many values it holds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event, before = self.parser.peek_event(), self._values
        line = event.start_mark.line + 1
        self._levels_open += 1
        self._nodes += 1
        if self._levels_open > JSON_DEPTH_MAX + 1:  # the last one is a value
            raise _too_deep(line)
        if self._nodes > YAML_NODES_MAX:
            most = f"at most {YAML_NODES_MAX} values; TOML and JSON have no such limit"
            raise ValueError(f"line {line}: expected {most}")
        found = super().compose_node(parent, index)
        self._levels_open -= 1
        if found.tag in NOT_IN_JSON:
            raise ValueError(f"line {line}: expected what JSON has too, not {found.tag.rpartition(':')[2]}")
        if not isinstance(event, AliasEvent):
            self._values += 1
            if found.anchor is not None:
                self._sizes[id(found)] = self._values - before
        elif id(found) in self._sizes:
            self._values += self._sizes[id(found)]
        else:
            raise ValueError(f"line {line}: an alias stands inside of what it stands for")
        if self._values > self.values_max:
            most = f"at most {YAML_VALUES_PER_CHAR_MAX} values for each character of the file"
            raise ValueError(f"line {line}: expected aliases that stand for {most}")
        return found


def _too_deep(line: int) -> ValueError:
    return ValueError(f"line {line}: nested deeper than {JSON_DEPTH_MAX} levels")
