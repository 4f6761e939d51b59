"""Messages between the worker and the processes below it, of any size and with file descriptors."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from bedrock_worker.run import kernel


@pytest.fixture
def ends():
    """Yield the two ends of a way."""
    found = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with found[0], found[1]:
        yield found


@pytest.mark.parametrize("size", [0, 1, kernel.INLINE_BYTES_MAX, kernel.INLINE_BYTES_MAX + 1, 5_000_000])
def test_a_text_of_any_size_with_handles(ends, size):
    text = (b"large run \n\0" * (size // 12 + 1))[:size]
    reads, writes = os.pipe()
    kernel.send(ends[0], b"run", text, [writes])
    kernel.send(ends[0], b"signal", b"15")
    os.close(writes)
    word, found, (handle,) = kernel.receive(ends[1])
    assert (word, found) == (b"run", text)
    assert not os.get_inheritable(handle)
    os.write(handle, b"it")
    assert os.read(reads, 10) == b"it"
    os.close(reads)
    os.close(handle)
    assert kernel.receive(ends[1]) == (b"signal", b"15", [])


def test_nobody_is_there_any_more(ends):
    ends[0].close()
    assert kernel.receive(ends[1]) == (b"", b"", [])
    with pytest.raises(BrokenPipeError):
        kernel.send(ends[1], b"run")


def test_it_goes_through_a_socket_that_does_not_wait(ends):
    """As long as the other end reads; the worker gives a guard one text at a time."""
    ends[0].setblocking(False)
    for _ in range(10):
        kernel.send(ends[0], b"run", bytes(kernel.INLINE_BYTES_MAX))
        assert len(kernel.receive(ends[1])[1]) == kernel.INLINE_BYTES_MAX


CHILDREN = """
import os, signal, sys, time
from bedrock_worker.run import kernel
if sys.argv[1] == "scan":
    kernel.open = lambda path, mode: open("/none" if path.endswith("children") else path, mode)
def child():
    pid = os.fork()
    if not pid:
        signal.pause()
    return pid
first = child()
print(kernel.only_child(first))
second = child()
print(kernel.only_child(first))
os.kill(second, signal.SIGKILL)
os.waitid(os.P_PID, second, os.WEXITED | os.WNOWAIT)
print(kernel.end_children({first}), kernel.only_child(first))
os.kill(first, signal.SIGKILL)
os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
print(kernel.only_child(first))
"""


@pytest.mark.parametrize("how", ["list", "scan"])
def test_whether_a_child_is_the_only_one(how):
    """In a process of its own, which has no others; also where the kernel keeps no list."""
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN, how], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.split("\n")[:4] == ["True", "False", "0 True", "False"]
    assert kernel.END_S == 5.0
