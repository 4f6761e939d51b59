"""What is seen of a server: all of it, or what belongs to the names of a scope."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bedrockjobs.base.caller import Scope
from bedrockjobs.base.clock import Clock
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.store.base import Reader
from bedrockjobs.views.explain import Explainer
from bedrockjobs.views.find import Finder
from bedrockjobs.views.folding import Folder
from bedrockjobs.views.overview import Standings
from bedrockjobs.views.queues import Queues
from bedrockjobs.views.states import States


class Sight(NamedTuple):
    """What people look at."""

    find: Finder
    """How a person finds jobs."""
    queues: Queues
    """What is queued, and what holds it back."""
    folder: Folder
    """How names are doing, folded by their slashes."""
    standings: Standings
    """How things stand."""
    explainer: Explainer
    """What a job waits for."""
    states: States
    """How many jobs are in each state."""


def sight_of(
    reader: Reader,
    presence: WorkerRegistry,
    clock: Clock,
    free: Callable[[], int | None],
    scope: Scope | None,
    *,
    data: bool = True,
) -> Sight:
    """Return what is seen by somebody who sees the names of ``scope``, or all of them where there is none.

    ``free`` tells the room on the disk of the database.
    Without ``data`` neither what jobs were given is seen, nor what they gave back, printed and told.
    """
    find = Finder(reader, scope, data=data)
    queues = Queues(reader, presence, clock, scope)
    folder = Folder(reader, queues, clock, scope)
    standings = Standings(reader, queues, find, clock, scope, free)
    return Sight(find, queues, folder, standings, Explainer(reader, queues), States(reader, scope, data=data))
