"""The folder `deploy/`: parse its YAML, and check whether a program accepts its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

DEPLOY = Path(__file__).parents[2] / "deploy"


def yaml(name: str) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(YAML(typ="safe").load_all(DEPLOY / name))


def parse(command: Any, arguments: list[str]) -> None:
    """Let a program parse its arguments; raises if it refuses them."""
    command.make_context("test", list(arguments))
