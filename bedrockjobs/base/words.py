"""What a person reads for some words of the wire: the same on the pages and on the command line."""

from __future__ import annotations

CALLED = {"frozen": "lost", "PAUSED": "waiting for children", "fired": "ran"}
"""Words of the wire, with what they are called."""

_MEANT = {words: word for word, words in CALLED.items()}


def called(word: str) -> str:
    """Return what a state, a status or an outcome is called."""
    return CALLED.get(word, word)


def meant(words: str) -> str:
    """Return the word of the wire that is called so."""
    return _MEANT.get(words.lower(), words)
