"""The one way in: admission, group commit, waiting GetJobs and who wakes them."""

from bedrockjobs.dispatcher.dispatcher import Dispatcher
from bedrockjobs.dispatcher.entry import Entry, Outcome

__all__ = ["Dispatcher", "Entry", "Outcome"]
