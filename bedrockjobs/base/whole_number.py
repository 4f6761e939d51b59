"""The whole number among the values of options, for both command lines. Knows neither of them."""

from __future__ import annotations

import click


class WholeNumber(click.IntRange):
    """A whole number within limits; what is none is called so."""

    name = "whole number"
