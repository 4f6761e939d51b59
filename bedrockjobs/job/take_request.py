"""The names and conditions of a GetJob."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from os.path import commonprefix
from weakref import WeakValueDictionary

from bedrockjobs.base.config import GLOB_CHARS_MAX, NAMES_AT_ONCE, NAMES_KEPT_MAX
from bedrockjobs.base.glob import glob, is_plain, is_prefix, literal, literal_prefix
from bedrockjobs.base.jsontext import dump
from bedrockjobs.base.principal import NOBODYS_NAME, Scope
from bedrockjobs.job.rows import UNTAKEN, Job, parse_lane


class Names:
    """The names that a GetJob asks for: either ``exact`` names or GLOB ``patterns``.

    ``names_from`` returns the same instance for the same names while it is in use, so that instances can be
    keys of a dict.
    """

    def __init__(self, exact: frozenset[str], patterns: tuple[str, ...]) -> None:
        """Take exact names, or GLOB patterns."""
        self.exact = exact
        self.patterns = patterns
        self.everything = "*" in patterns
        self.single = next(iter(exact)) if len(exact) == 1 else None
        self.prefixes = tuple({pattern[:-1]: None for pattern in patterns if is_prefix(pattern)})
        """The fixed beginnings of patterns like ``text*``."""
        self.globs = tuple({pattern: None for pattern in patterns if not is_prefix(pattern)})
        """The patterns of any other form."""

    @cached_property
    def parts(self) -> tuple[Names, ...]:
        """Return one instance for each name or pattern if there are 2 to NAMES_AT_ONCE of them, else none.

        Return none either if all names are requested.
        """
        count = len(self.exact) or len(self.patterns)
        if not 1 < count <= NAMES_AT_ONCE or self.everything:
            return ()
        if self.exact:
            return tuple(_shared(frozenset((name,)), ()) for name in sorted(self.exact))
        found = (
            _shared(frozenset((one,)), ()) if is_plain(one) else _shared(frozenset(), (one,))
            for one in self.patterns
        )
        return tuple(dict.fromkeys(found))

    def match(self, name: str) -> bool:
        """Return whether a name is requested."""
        return name in self.exact if self.exact else any(glob(name, pattern) for pattern in self.patterns)

    def may_match(self, pattern: str) -> bool:
        """Return False only if certainly no name that matches ``pattern`` is requested."""
        if self.exact:
            return any(glob(name, pattern) for name in self.exact)
        begin = literal_prefix(pattern)
        begins = map(literal_prefix, self.patterns)
        return any(begin.startswith(other) or other.startswith(begin) for other in begins)

    def prefix(self) -> str:
        """Return the common beginning of all requested names, as far as it is known."""
        begins = [*self.exact, *map(literal_prefix, self.patterns)]
        return commonprefix(begins)  # noqa: RUF071 - names are no paths


@lru_cache(maxsize=NAMES_KEPT_MAX)
def names_from(name: str | None, names: tuple[str, ...] | None) -> Names | None:
    """Return the names requested by GetJob's ``name`` or ``names``; None if they request none.

    ``name`` is one GLOB pattern, or a comma list of exact names; ``names`` are GLOB patterns.
    """
    if names:
        patterns = names
    elif name and "," in name:
        listed = frozenset(part.strip() for part in name.split(",")) - {""}
        return _shared(listed, ()) if listed else None
    elif name:
        patterns = (name,)
    else:
        return None
    if all(map(is_plain, patterns)):
        return _shared(frozenset(patterns), ())
    return _shared(frozenset(), patterns)


def exact_names(names: Iterable[str]) -> Names:
    """Return the request for some names."""
    return _shared(frozenset(names), ())


def how_to_ask(name: str) -> tuple[str, str] | None:
    """Return what a GetJob with a job's name asks for instead of the job, and a ``name`` that finds the job.

    A comma in the name makes it a list, and ``*``, ``?`` or ``[`` a pattern. Returns None if the name finds
    the job nevertheless, as almost every name does.
    """
    names = names_from(name, None)
    if names is not None and names.match(name):
        return None
    if names is None:
        wrong = "nothing"
    elif names.exact:
        listed = sorted(names.exact)
        more = f" and {len(listed) - LISTED_MAX} more" if len(listed) > LISTED_MAX else ""
        wrong = f"{'the names' if len(listed) > 1 else 'the name'} {' and '.join(listed[:LISTED_MAX])}{more}"
    else:
        wrong = "names that match it as a pattern, and it does not match itself"
    pattern = literal(name)
    if len(pattern) > GLOB_CHARS_MAX:
        pattern = _SPECIAL.sub("?", name)
    if "," not in pattern:
        return wrong, pattern
    return wrong, f"{pattern.replace(',', '?')}, or in a list: names: {dump([pattern])}"


LISTED_MAX = 3
"""Maximum number of names of jobs or workers that a message quotes from a list; further ones are counted."""

_SPECIAL = re.compile(r"[*?\[]")

_in_use: WeakValueDictionary[tuple[frozenset[str], tuple[str, ...]], Names] = WeakValueDictionary()


def _shared(exact: frozenset[str], patterns: tuple[str, ...]) -> Names:
    """Return the instance already in use for these names, or a new one."""
    request = _in_use.get((exact, patterns))
    if request is None:
        request = _in_use[exact, patterns] = Names(exact, patterns)
    return request


def names_within(names: Names, scope: Scope) -> Names:
    """Return the requested names within a scope; raises TooManyPatterns."""
    seen = tuple(sorted(filter(scope.covers, names.exact))) if names.exact else scope.narrow(names.patterns)
    if len(seen) == len(names.exact) if names.exact else seen == names.patterns:
        return names  # the usual case: all are in the scope
    if names.exact and not all(map(is_plain, seen)):  # list syntax marks them as exact names
        narrowed = names_from(f"{','.join(seen)},", None)
    else:
        narrowed = names_from(None, seen or (NOBODYS_NAME,))
    assert narrowed is not None
    return narrowed


@dataclass(slots=True)
class TakeRequest:
    """What a take asks for, and the form of its reply."""

    names: Names
    mocked: bool = False
    """Whether mocked jobs are included."""
    priority: int | None = None
    """The only priority requested; None: any."""
    worker: str | None = None
    """The worker's name; jobs bound to it are included."""
    limit: int = 1
    shape: str = "job"
    """Form of the reply: ``job`` is the job itself, ``jobs`` a list of jobs. A take by ``thenGet`` has the
    form ``then`` (a member ``job`` with the job or null) or ``then jobs`` (``results``, then a list)."""
    accepts: tuple[str, ...] = ()
    """Kinds of jobs' own commands that it accepts."""
    leased: bool = False
    """Whether the worker sends heartbeats."""
    tokens: bool = False
    """Whether each run comes with a run token for its command."""
    host: str = ""
    pid: int = 0
    by: str = ""
    """The name of the client's token; empty without one."""
    scope: Scope | None = None
    """The names whose data the reply may show in addition to the job itself; None: all."""
    results: str = ""
    """For ``then jobs``: the member ``results`` (its key and value) about the ended runs, as JSON text."""

    @property
    def after_end(self) -> bool:
        """Return whether the take came with the end of a run (``thenGet``).

        The reply is then successful even if there is no job.
        """
        return self.shape.startswith("then")

    def of_caller(self, names: Names, scope: Scope | None, by: str) -> TakeRequest:
        """Return the same request narrowed to a principal's names.

        ``dataclasses.replace`` would take seven times as long.
        """
        return TakeRequest(
            names,
            self.mocked,
            self.priority,
            self.worker,
            self.limit,
            self.shape,
            self.accepts,
            self.leased,
            self.tokens,
            self.host,
            self.pid,
            by,
            scope,
            self.results,
        )

    def fits(self, job: Job) -> bool:
        """Return whether a queued job is one that the take asks for."""
        return (
            (self.priority is None or self.priority == job.priority)
            and (self.mocked or not job.mocked)
            and self.names.match(job.name)
            and (not job.lane or job.mocked or self._may_take(job.lane))
        )

    def _may_take(self, lane: str) -> bool:
        parts = parse_lane(lane)
        return lane not in UNTAKEN and parts.own in ("", *self.accepts) and parts.worker in ("", self.worker)


@lru_cache(maxsize=NAMES_KEPT_MAX)
def anonymous(names: Names, priority: int | None, limit: int, shape: str, *, mocked: bool) -> TakeRequest:
    """Return the request of a client without a worker name; cached, since most clients repeat theirs."""
    return TakeRequest(names, mocked, priority, None, limit, shape)
