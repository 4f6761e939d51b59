"""Which jobs somebody asks for: by names, and by what else a GetJob says. No SQL here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakValueDictionary

from bedrockjobs.base.config import NAMES_KEPT_MAX
from bedrockjobs.base.glob import glob, is_plain, is_prefix, literal_prefix
from bedrockjobs.base.principal import NOBODYS_NAME, Scope
from bedrockjobs.job.rows import UNTAKEN, Job, parse_lane


class Names:
    """Which names a GetJob asks for: all, one, a list of exact ones, or GLOB patterns.

    ``exact`` holds the names of a list, ``patterns`` the patterns otherwise. ``names_from`` returns the same
    instance for the same names as long as anybody uses it, so that instances serve as keys.
    """

    def __init__(self, exact: frozenset[str], patterns: tuple[str, ...]) -> None:
        """Hold a list of exact names, or GLOB patterns."""
        self.exact = exact
        self.patterns = patterns
        self.everything = "*" in patterns
        self.single = next(iter(exact)) if len(exact) == 1 else None
        self.prefixes = tuple({pattern[:-1]: None for pattern in patterns if is_prefix(pattern)})
        """The fixed beginnings of patterns like ``text*``."""
        self.globs = tuple({pattern: None for pattern in patterns if not is_prefix(pattern)})
        """The other patterns."""

    def match(self, name: str) -> bool:
        """Tell whether a name is asked for."""
        return name in self.exact if self.exact else any(glob(name, pattern) for pattern in self.patterns)

    def may_match(self, pattern: str) -> bool:
        """Tell whether names that match a pattern may be asked for; True where that is hard to say."""
        if self.exact:
            return any(glob(name, pattern) for name in self.exact)
        begin = literal_prefix(pattern)
        begins = map(literal_prefix, self.patterns)
        return any(begin.startswith(other) or other.startswith(begin) for other in begins)

    def prefix(self) -> str:
        """Return what all names asked for begin with, as far as the patterns tell."""
        if self.exact or len(self.patterns) > 1:
            return ""
        return literal_prefix(self.patterns[0])


@lru_cache(maxsize=NAMES_KEPT_MAX)
def names_from(name: str | None, names: tuple[str, ...] | None) -> Names | None:
    """Return what GetJob's ``name`` or ``names`` ask for, None where they ask for nothing.

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


_in_use: WeakValueDictionary[tuple[frozenset[str], tuple[str, ...]], Names] = WeakValueDictionary()


def _shared(exact: frozenset[str], patterns: tuple[str, ...]) -> Names:
    """Return the instance that is in use for some names, or a new one."""
    found = _in_use.get((exact, patterns))
    if found is None:
        found = _in_use[exact, patterns] = Names(exact, patterns)
    return found


def names_within(names: Names, scope: Scope) -> Names:
    """Return which of the names that are asked for are seen; raises TooManyPatterns."""
    seen = tuple(sorted(filter(scope.sees, names.exact))) if names.exact else scope.within(names.patterns)
    if len(seen) == len(names.exact) if names.exact else seen == names.patterns:
        return names  # all of them, as nearly always
    if names.exact and not all(map(is_plain, seen)):  # a list says that they are no patterns
        found = names_from(f"{','.join(seen)},", None)
    else:
        found = names_from(None, seen or (NOBODYS_NAME,))
    assert found is not None
    return found


@dataclass(slots=True)
class TakeRequest:
    """Which jobs somebody asks for, and how the answer is to look."""

    names: Names
    mocked: bool = False
    """Whether mocked jobs are let in as well."""
    priority: int | None = None
    """The only class that is asked for; None: any."""
    worker: str | None = None
    """Who asks; jobs bound to it, which nobody else may take, are let in as well."""
    limit: int = 1
    shape: str = "job"
    """``job``: the job itself; ``jobs``: a list; behind an end ``then``: the job, or null, under ``job``, or
    ``then jobs``: a list, behind the ``results``."""
    accepts: tuple[str, ...] = ()
    """Kinds of commands that a job may bring along."""
    leased: bool = False
    """Whether the worker sends heartbeats."""
    tokens: bool = False
    """Whether each run is to come with a token for its command."""
    host: str = ""
    pid: int = 0
    by: str = ""
    """The name of the token that asks; empty without one."""
    scope: Scope | None = None
    """The names whose data the answer may show beside that of the job; None: all."""
    results: str = ""
    """What became of the runs that were ended together, as JSON with its key."""

    @property
    def after_end(self) -> bool:
        """Tell whether it came with the end of a run, which is answered in any case."""
        return self.shape.startswith("then")

    def of_caller(self, names: Names, scope: Scope | None, by: str) -> TakeRequest:
        """Return the same request of somebody who sees some names; ``replace`` takes seven times as long."""
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
        """Tell whether a queued job is one of those asked for."""
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
    """Return the request of a client that names no worker; kept, since most ask for the same again."""
    return TakeRequest(names, mocked, priority, None, limit, shape)
