"""The functions of ``test_in_test.py``."""

from __future__ import annotations

from datetime import date

from bedrock_worker import Fail, Job, Retry, Snooze, current_run, job

SEEN: list[tuple[object, ...]] = []


@job("square")
def square(n: int, power: int = 2) -> int:
    """Return a power."""
    current_run().progress(0.5, "half")
    return int(n**power)


@job("day")
def day(when: date, pair: tuple[int, str] = (1, "a")) -> list[date]:
    """Return what arrived."""
    SEEN.append((when, pair))
    return [when]


@job("later")
async def later(n: int) -> int:
    """Return a number from a coroutine."""
    return n + current_run().attempt


@job("whole")
def whole(job: Job) -> dict[str, object]:
    """Take the job itself."""
    return {**job.data, "name": job.name}


@job("fails", retries=2, backoff=5)
def fails(until: int) -> int:
    """Fail until an attempt."""
    SEEN.append((current_run().attempt,))
    if current_run().attempt < until:
        raise OSError(f"not yet, {current_run().attempt}")
    return until


@job("raises/*")
def raises(kind: str) -> None:
    """Raise what it is told to."""
    SEEN.append((kind, current_run().attempt))
    raise {
        "retry": Retry("1m"),
        "fail": Fail("why"),
        "snooze": Snooze(1),
        "value": ValueError("bad"),
        "group": ExceptionGroup("both", [ValueError("one"), Retry(3)]),
    }[kind]


@job("order")
def order(n: int) -> None:
    """Enqueue other jobs."""
    square.enqueue(n)
    square.enqueue(n + 1, power=3)


class Flaky(ConnectionError):
    """A subclass that is retried."""


@job("rules", retry_on=(ConnectionError, TimeoutError), give_up_on=ConnectionRefusedError, backoff=[1, "1m"])
def rules(kind: str) -> None:
    """Raise what it is told to, under rules."""
    raise {
        "base": ConnectionError("base"),
        "sub": Flaky("sub"),
        "final": ConnectionRefusedError("final"),
        "other": ValueError("other"),
        "group": ExceptionGroup("g", [Flaky("a"), TimeoutError("b")]),
        "final in group": ExceptionGroup("g", [Flaky("a"), ConnectionRefusedError("b")]),
        "other in group": ExceptionGroup("g", [Flaky("a"), ValueError("b")]),
    }[kind]


@job("backoff", retries=3, backoff=lambda attempt, error: attempt * len(str(error)))
async def by_function(words: str) -> None:
    """Fail after a delay of its own."""
    raise OSError(words)


@job("broken", retries=1, backoff=lambda attempt, error: 1 / 0)
def broken() -> None:
    """Fail, and have a backoff that fails."""
    raise OSError("no")


@job("by user", concurrency_key=("user_id",), concurrency_limit=2)
def by_user(user_id: float, words: str = "") -> str:
    """Have a key for each user."""
    return words


@job("later by user", lock=["user_id"])
async def later_by_user(user_id: str = "ann", words: str = "") -> str:
    """Have a lock for each user."""
    return words
