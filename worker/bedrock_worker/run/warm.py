"""Processes for Python functions below a guard: a template, which has imported the module, and its forks.

A reusable process is handed over to the worker, which gives it further runs directly; the guard waits for its
exit. The template runs the module ``template``. Imports only the standard library.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from bedrock_worker.run import kernel

if TYPE_CHECKING:
    from bedrock_worker.run.guard import Guard

END_KEYS = ("done", "exit", "files")
"""The keys with integer values in the line of JSON with which a process reports the end of a run."""


class Peer:
    """A process, its pidfd (``end``) and a socket to it (``way``)."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        """Open a pidfd of a process, which must not have been reaped yet."""
        self.pid, self.way = pid, channel
        self.end = os.pidfd_open(pid)

    @property
    def is_alive(self) -> bool:
        """Return whether the process is alive; while it is, no other process can have its id."""
        return not select.select([self.end], [], [], 0)[0]

    def send(self, word: bytes, text: bytes = b"", handles: Sequence[int] = ()) -> bool:
        """Send a message; return False if the process is gone."""
        try:
            kernel.send(self.way, word, text, handles)
        except OSError:
            return False
        return True

    def receive(self) -> dict[str, Any]:
        """Return the next message; an empty dict if the process is gone."""
        return read_available(self.way)

    def receive_end(self) -> dict[str, Any] | None:
        """Return the report of a run's end; empty if the process is gone, None for any other message."""
        word = _word(self.way)
        return read_end(word) or (None if word else {})

    def close(self) -> None:
        """Close the socket and the pidfd."""
        self.way.close()
        with suppress(OSError):
            os.close(self.end)


def read_available(channel: socket.socket) -> dict[str, Any]:
    """Return a message that has arrived; an empty dict if there is none or the peer is gone."""
    word = _word(channel)
    message: dict[str, Any] = json.loads(word) if word else {}
    return message


def _word(channel: socket.socket) -> bytes:
    try:
        return channel.recv(kernel.READ_BYTES, socket.MSG_DONTWAIT)
    except OSError:
        return b""


def read_end(word: bytes) -> dict[str, Any]:
    """Parse a report of the end of a run: ``done`` or ``exit`` (the status), ``files``, ``result``.

    Returns an empty dict for other bytes, for example if the function wrote to the socket.
    """
    head, _, result = word.partition(b"\n")
    with suppress(ValueError, RecursionError):
        message = json.loads(head.decode())  # str, since json would detect the encoding of bytes
        if isinstance(message, dict) and len(message.keys() & {"done", "exit"}) == 1:
            end = {key: message[key] for key in END_KEYS if isinstance(message.get(key), int)}
            return {**end, "result": result.decode()} if result else end
    return {}


class Functions:
    """The template of one guard, and the process forked by it."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._kind = b""
        self._template: Peer | None = None
        self.process: Peer | None = None
        """The process to which the worker gives runs, or None."""
        self._unreaped = 0
        """The id of the last process that ended, or 0; the template reaps it with its next fork."""
        self._stops = kernel.Stops()

    @property
    def template_pid(self) -> int:
        """Return the template's process id, or 0."""
        return 0 if self._template is None else self._template.pid

    def end_stop(self) -> None:
        """Resume the template if a function stopped it (SIGSTOP)."""
        if self._template is not None and kernel.was_stopped(self._template.pid):
            self._stops.end(self._template.pid, self._template.end)

    def living_template(self) -> int:
        """Return the template's process id, or 0 if it is dead, which ends its process too."""
        if self._template is not None and not self._template.is_alive:
            self.end()
        return self.template_pid

    def run_in_new_process(
        self, head: bytes, runs_max: int, kind: bytes, output: Sequence[int]
    ) -> dict[str, object]:
        """Perform one run in a new process; return how it ended, or why it did not start.

        ``kind`` is the JSON that describes how to start the template; ``runs_max`` limits the runs of the
        process.
        """
        self.living_template()
        word = b"again" if runs_max > 1 else b"last"
        return self._make_process(kind, word, head, output) or self._ended(word)

    def retire(self) -> int:
        """Kill the process that was handed to the worker, if it is alive; return its exit status."""
        return self._reaped({})

    def kill(self) -> None:
        """Kill template and process; their ends are noticed like any other."""
        for peer in (self.process, self._template):
            if peer is not None and peer.is_alive:
                self._guard.end_group(peer.pid)

    def end(self) -> None:
        """Kill template and process, and forget them."""
        self.kill()
        for peer in (self.process, self._template):
            if peer is not None:
                peer.close()
        self._template = self.process = None
        self._unreaped = 0

    def _ended(self, word: bytes) -> dict[str, object]:
        """Wait until the run has ended, and after a last run the process; return how the run ended."""
        assert self.process is not None
        process = self.process
        self._guard.watch(process.pid, process.end)
        self._guard.report_started(process.pid)
        if word == b"again":
            ready = self._guard.process_messages(process.way.fileno(), process.end)
            message = process.receive_end() if process.way.fileno() in ready else {}
            if message is None:  # the function itself wrote to the socket: its messages cannot be trusted
                self._guard.end_group(process.pid)
                message = {}
            elif "done" in message:
                return {**message, "ended": int(message["done"]), "process": process.pid}
            self._guard.process_messages(process.end)
        else:
            self._guard.process_messages(process.end)
            message = {}
        message = message or process.receive_end() or {}
        return {**message, "ended": self._reaped(message)}

    def _reaped(self, message: Mapping[str, Any]) -> int:
        """Kill the group of a process that has ended or must end, and release it; return its exit status.

        If the ``message`` of the process has the status, the template reaps the process later, otherwise now.
        """
        assert self.process is not None
        assert self._template is not None
        process, template = self.process, self._template
        self._guard.end_group(process.pid)
        process.close()
        self.process = None
        if "exit" in message:
            self._unreaped = process.pid
            return int(message["exit"])
        if template.send(b"reap", b"%d" % process.pid):
            ready = self._guard.process_messages(template.way.fileno(), template.end)
            message = template.receive() if template.way.fileno() in ready else {}
        if "status" not in message:
            self.end()
        return int(message.get("status", -signal.SIGKILL))

    def _make_process(
        self, kind: bytes, word: bytes, head: bytes, output: Sequence[int]
    ) -> dict[str, object]:
        """Let the template, the process that has imported the module, fork a process for a run.

        Start the template first if there is none. Return the error if no process was forked, otherwise an
        empty dict.
        """
        if self.living_template() and self._kind != kind:
            self.end()
        if self._template is None and (why := self._make_template(kind, output)):
            return why
        assert self._template is not None
        template, ended = self._template, b"%d" % self._unreaped
        self._guard.watch(0, -1)  # from now on, signals of the worker are for the process
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            wish = b"\n".join((ended, os.fsencode(self._guard.group_path), word, head))
            there = template.send(b"fork", wish, [theirs.fileno(), *output])
        found: dict[str, Any] = {}
        if there:
            self._unreaped = 0
            ready = self._guard.process_messages(ours.fileno(), template.way.fileno(), template.end)
            if template.way.fileno() in ready and ours.fileno() not in ready:
                found = template.receive()
            if not found:
                self._guard.process_messages(ours.fileno())  # if the template is dead, so is the process
                found = read_available(ours)
        if "pid" in found:
            try:
                self.process = Peer(found["pid"], ours)
            except ProcessLookupError:  # it died with its template, and the state of the run is unknown
                ours.close()
                self.end()
                return {"ended": -signal.SIGKILL}
            return {}
        ours.close()
        if "error" not in found:
            self.end()
        return {"error": found.get("error", errno.EAGAIN), "in": ""}

    def _make_template(self, kind: bytes, output: Sequence[int]) -> dict[str, object]:
        """Start a template and wait for its imports; return the failure, if there was one."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            started = self._guard.start(json.loads(kind), (theirs.fileno(), *output[:2]))
        pid = started.get("pid")
        if not isinstance(pid, int):
            ours.close()
            return started
        template = self._template = Peer(pid, ours)
        self._stops.discard(pid)
        self._kind = kind
        self._guard.watch(pid, template.end)
        self._guard.report_started(pid)
        ready = self._guard.process_messages(ours.fileno(), template.end)
        if ours.fileno() in ready and "ready" in template.receive():
            return {}
        self._guard.process_messages(template.end)
        self._guard.end_group(pid)
        _, status = os.waitpid(pid, 0)
        template.close()
        self._template = None
        return {"ended": os.waitstatus_to_exitcode(status)}
