"""Public exceptions can be copied and pickled, with their messages and attributes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from bedrockjobs.base.errors import BedrockjobsError, JobFailed, JobNotEnded, NotFound
from bedrockjobs.client import ConnectionLost, UnreadableAnswer
from bedrockjobs.client.address import addresses_of
from bedrockjobs.commands import Ping

(SERVER,) = addresses_of("localhost:8888")


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize(
    "error",
    [
        NotFound("No job with this jobID", "jobID: there is no job 2"),
        JobFailed(5, "fail", "exit status 1", 7),
        JobNotEnded("job 5"),
        ConnectionLost(Ping(), SERVER, "the connection was closed"),
        UnreadableAnswer(Ping(), SERVER, "no status line"),
    ],
    ids=lambda error: type(error).__name__ if isinstance(error, Exception) else "again",
)
def test_a_copy_says_the_same(error: BedrockjobsError, again: Callable[[Any], Any]) -> None:
    found = again(error)
    assert found is not error
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))
