"""Which errors of a function are retried, and after which delay: the options of ``@job`` and ``@cron``.

The process that runs the function applies these rules, since classes and functions cannot be sent to a
server. Runs import this module, so it imports little.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

from bedrock_worker.enqueuing import Delay, delay_s

Exceptions = type[Exception] | tuple[type[Exception], ...]
"""One or several classes of exceptions; each includes its subclasses."""

Backoff = Delay | Sequence[Delay] | Callable[[int, Exception], Delay]
"""A delay that doubles, a delay for each retry, or a function of the attempt and its error."""

RETRY_RULES = ("retry_on", "give_up_on")
"""Options that only the worker applies, and that are not sent to the server."""


class Decision(NamedTuple):
    """What the rules say about a run that ended with an error."""

    final: bool
    """True if the job fails permanently."""
    delay: int | None = None
    """Whole seconds until the retry; None: the job's ``backoff`` applies."""


class RetryRules:
    """The rules of one function."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Read the options of a declaration; raises ValueError if they contradict each other."""
        self._retried = _classes(options.get("retry_on") or (), "retry_on")
        self._final = _classes(options.get("give_up_on") or (), "give_up_on")
        backoff = options.get("backoff")
        self._own = backoff if callable(backoff) or _is_list(backoff) else None
        self.listed: tuple[int, ...] = ()
        """The delays in seconds, if ``backoff`` is a list; otherwise empty."""
        retries = options.get("retries")
        for kind in self._retried:
            if given_up := next((each for each in self._final if issubclass(kind, each)), None):
                words = f"give_up_on: {given_up.__name__} includes {kind.__name__} of retry_on"
                raise ValueError(f"{words}, which would never be retried")
        if self._retried and retries == 0:
            raise ValueError("retry_on: expected nothing together with retries=0")
        if self._own is None:
            return
        if options.get("max_backoff") is not None:
            raise ValueError("max_backoff: expected nothing together with a list or a function as backoff")
        if callable(self._own):
            _check_takes_two(self._own)
            return
        self.listed = tuple(ceil(delay_s(each, "backoff")) for each in self._own)
        if not self.listed:
            raise ValueError("backoff: expected at least one delay")
        if isinstance(retries, int) and len(self.listed) > retries:
            raise ValueError(
                f"backoff: {len(self.listed)} delays for {retries} retries: expected at most as many"
            )

    def __bool__(self) -> bool:
        """Return whether there is any rule."""
        return bool(self._retried or self._final or self._own is not None)

    def decide(self, error: Exception, attempt: int) -> Decision | None:
        """Return what follows from an error of an ``attempt``, counted from 1; None if no rule applies.

        An exception group fails the job permanently if the class of any member is in ``give_up_on``, or if
        ``retry_on`` is given and the class of any member is not in it. Raises what a ``backoff`` function
        raises.
        """
        errors = list(leaves(error))
        if self._final and any(isinstance(each, self._final) for each in errors):
            return Decision(final=True)
        if self._retried and not all(isinstance(each, self._retried) for each in errors):
            return Decision(final=True)
        if self.listed:
            return Decision(False, self.listed[min(attempt, len(self.listed)) - 1])
        if self._own is not None:
            return Decision(False, ceil(delay_s(self._own(attempt, error), "backoff")))
        return Decision(final=False) if self._retried else None


def sent_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are attributes of CreateJob; a ``backoff`` that is a list sets ``retries``.

    Raises ValueError if the options contradict each other.
    """
    rules = RetryRules(options)
    sent = {key: value for key, value in options.items() if key not in RETRY_RULES}
    if rules.listed:
        sent["retries"] = options.get("retries", len(rules.listed))
    if _is_list(sent.get("backoff")) or callable(sent.get("backoff")):
        del sent["backoff"]
    return sent


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, or the members of an exception group and of groups in it."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


def _is_list(backoff: object) -> bool:
    return isinstance(backoff, Sequence) and not isinstance(backoff, (str, bytes))


def _classes(given: object, name: str) -> tuple[type[Exception], ...]:
    kinds = given if isinstance(given, tuple) else (given,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            words = f"{name}: expected classes of exceptions, as in (OSError, ValueError), got {kind!r}"
            raise ValueError(words)  # noqa: TRY004  as all faults of a declaration
    return kinds


def _check_takes_two(function: Callable[..., object]) -> None:
    try:
        inspect.signature(function).bind(1, ValueError())
    except TypeError:
        words = f"backoff: expected a function of (attempt, error), {function!r} cannot be called with two"
        raise ValueError(words) from None
    except ValueError:  # a builtin without a signature
        return
