"""New inputs from old ones: changed bytes, inserted words, and parts repeated until they are large.

Growing inputs reveal more than linear work, so three of eight mutations grow.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

NUMBERS = [b"0", b"-1", b"255", b"65536", b"4294967296", b"9" * 20, b"9" * 400, b"1e999", b"0x", b"1.5"]
BYTES = [b"\0", b"\xff", b"\xc2\xa0", b"\xe3\x80\x80", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"\r", b"\n"]
REPEATS = (2, 3, 10, 100, 1_000, 30_000)


class Mutator:
    """Makes random inputs; the same seed makes the same inputs."""

    def __init__(self, seed: int, words: Sequence[bytes], size_max: int) -> None:
        """Insert ``words`` of the target's language; no input is larger than ``size_max``."""
        self._dice = random.Random(seed)
        self._words = [*words, *NUMBERS, *BYTES]
        self._size_max = size_max

    def one(self, pool: Sequence[bytes]) -> bytes:
        """Return a new input made from those of a pool."""
        data = self._dice.choice(pool)
        for _ in range(self._dice.choice((1, 1, 2, 3, 5))):
            data = self._step(data, pool)
        return data[: self._size_max]

    def _step(self, data: bytes, pool: Sequence[bytes]) -> bytes:
        dice = self._dice
        start = dice.randint(0, len(data))
        end = min(len(data), start + dice.choice((0, 1, 1, 2, 4, 16, 64, len(data))))
        before, part, behind = data[:start], data[start:end], data[end:]
        match dice.randrange(8):
            case 0:  # another byte, or one more
                return before + dice.randbytes(1) + behind
            case 1:
                return before + behind
            case 2:
                return before + dice.choice(self._words) + behind
            case 3:
                return before + part + dice.choice(self._words) + behind
            case 4:  # half of this and half of another
                other = dice.choice(pool)
                return before + other[dice.randint(0, len(other)) :]
            case _:
                return before + self._grown(part or dice.choice(self._words)) + behind

    def _grown(self, part: bytes) -> bytes:
        room = max(1, self._size_max // len(part))
        return part * min(room, self._dice.choice(REPEATS))
