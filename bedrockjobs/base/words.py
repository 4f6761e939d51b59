"""What a person reads for some words of the wire and of pydantic: the same wherever they are read."""

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


def one_slip(given: str, known: str) -> bool:
    """Tell whether two names differ by one character: added, left out, replaced, or swapped with the next."""
    if abs(len(given) - len(known)) > 1 or len(set(given) ^ set(known)) > 2:
        return False
    start = _common(given, known)
    end = _common(given[start:][::-1], known[start:][::-1])
    left, right = given[start : len(given) - end], known[start : len(known) - end]
    return max(len(left), len(right)) <= 1 or (len(left) == 2 and left == right[::-1])


def _common(one: str, other: str) -> int:
    """Return the length of the longest common beginning."""
    both = zip(one, other, strict=False)
    return next((at for at, (left, right) in enumerate(both) if left != right), min(len(one), len(other)))


_BOUNDS = {
    "greater than or equal to": "at least", "less than or equal to": "at most",
    "greater than": "more than", "less than": "less than",
}  # fmt: skip


def bound_in_words(message: str) -> str:
    """Return what pydantic says of a value, as it stands behind ``expected``: ``at least 1``."""
    message = message.removeprefix("Input should be ")
    for said, words in _BOUNDS.items():
        if message.startswith(said):
            return message.replace(said, words, 1)
    return message
