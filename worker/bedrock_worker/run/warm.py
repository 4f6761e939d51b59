"""The processes for Python functions below a guard: a template that imported the module, and what it forked.

A process that may be used again is handed to the worker, which gives it its further runs itself; the guard
waits for its end. What a template does is in ``template``. Knows the standard library, and the guard by what
it does.
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
from typing import Any, Protocol

from bedrock_worker.run import kernel, packet

WORD_BYTES = 4_096
"""Size of one read of what they say: each word is much shorter."""

END_KEYS = ("done", "exit", "files")
"""What a process says of the end of a run in its line of JSON."""


class GuardOfFunctions(Protocol):
    """What is needed of a guard."""

    def start(self, given: Mapping[str, Any], stdio: Sequence[int]) -> dict[str, object]:
        """Start a program; return its ``pid``, or why it could not be started."""

    def begun(self, pid: int) -> None:
        """Tell the worker which process its run is in."""

    def watch(self, pid: int, end: int) -> None:
        """Let the worker's signals go to the group of a process, until its end can be read."""

    def obey(self, *handles: int) -> set[int]:
        """Do what the worker says until some handles can be read; return which."""

    def end_group(self, pid: int) -> None:
        """Kill a group whose leader has not been reaped."""

    @property
    def group_path(self) -> str:
        """Return the folder of the control group, empty where there is none."""


class Peer:
    """A process at the other end of a socket; its end can be waited for."""

    def __init__(self, pid: int, way: socket.socket) -> None:
        """Know a process of which nobody has reaped it by now."""
        self.pid, self.way = pid, way
        self.end = os.pidfd_open(pid)

    @property
    def alive(self) -> bool:
        """Tell whether it has not ended, so that its id is surely its own."""
        return not select.select([self.end], [], [], 0)[0]

    def tell(self, word: bytes, text: bytes = b"", handles: Sequence[int] = ()) -> bool:
        """Say something; tell whether there is somebody to hear it."""
        try:
            packet.send(self.way, word, text, handles)
        except OSError:
            return False
        return True

    def heard(self) -> dict[str, Any]:
        """Return what it said; nothing where it is gone."""
        return heard(self.way)

    def heard_end(self) -> dict[str, Any] | None:
        """Return what it said of the end of a run, nothing where it is gone; None for what says no end."""
        word = _word(self.way)
        return read_end(word) or (None if word else {})

    def close(self) -> None:
        """Let go of it."""
        self.way.close()
        with suppress(OSError):
            os.close(self.end)


def heard(way: socket.socket) -> dict[str, Any]:
    """Return what was said; nothing where nothing was, or nobody is there any more."""
    word = _word(way)
    found: dict[str, Any] = json.loads(word) if word else {}
    return found


def _word(way: socket.socket) -> bytes:
    try:
        return way.recv(WORD_BYTES, socket.MSG_DONTWAIT)
    except OSError:
        return b""


def read_end(word: bytes) -> dict[str, Any]:
    """Return what a process said of the end of a run: ``done`` or ``exit``, ``files``, ``result``.

    It is nothing where the function itself wrote there, and whatever else it says means nothing.
    """
    head, _, result = word.partition(b"\n")
    with suppress(ValueError, RecursionError):
        found = json.loads(head.decode())  # of bytes it would look first which encoding they are in
        if isinstance(found, dict) and len(found.keys() & {"done", "exit"}) == 1:
            end = {key: found[key] for key in END_KEYS if isinstance(found.get(key), int)}
            return {**end, "result": result.decode()} if result else end  # which stands behind the line
    return {}


class Functions:
    """The template of one slot and its process."""

    def __init__(self, guard: GuardOfFunctions) -> None:
        """Start nothing yet."""
        self._guard = guard
        self._kind = b""
        self._template: Peer | None = None
        self._process: Peer | None = None
        self._unreaped = 0
        """The process that ended last, which the template reaps with its next fork."""
        self._stops = kernel.Stops()

    @property
    def template_pid(self) -> int:
        """Return the template's process id, 0 where there is none."""
        return 0 if self._template is None else self._template.pid

    def end_stop(self) -> None:
        """Let a template go on that a function stopped."""
        if self._template is not None and kernel.was_stopped(self._template.pid):
            self._stops.end(self._template.pid, self._template.end)

    def living_template(self) -> int:
        """Return the template's process id; where it is dead, forget it and return 0."""
        if self._template is not None and not self._template.alive:
            self.end()
        return self.template_pid

    @property
    def process(self) -> Peer | None:
        """Return the process that the worker gives runs, or may have them from."""
        return self._process

    def run(self, head: bytes, runs_max: int, kind: bytes, output: Sequence[int]) -> dict[str, object]:
        """Do one run in a new process, as its head says; return how it ended, or why it did not begin.

        ``kind`` says in JSON how its template is started, ``runs_max`` how many runs a process may serve.
        """
        self.living_template()
        word = b"again" if runs_max > 1 else b"last"
        return self._make_process(kind, word, head, output) or self._ended(word)

    def retire(self) -> int:
        """Kill the process that the worker was given, if it has not ended; return its exit status."""
        return self._reaped({})

    def kill(self) -> None:
        """Kill template and process; whoever waits for them sees their end."""
        for peer in (self._process, self._template):
            if peer is not None and peer.alive:
                self._guard.end_group(peer.pid)

    def end(self) -> None:
        """Kill template and process, and forget them."""
        self.kill()
        for peer in (self._process, self._template):
            if peer is not None:
                peer.close()
        self._template = self._process = None
        self._unreaped = 0

    def _ended(self, word: bytes) -> dict[str, object]:
        """Wait until the process has done its run, and has ended where that was to be its last."""
        assert self._process is not None
        process = self._process
        self._guard.watch(process.pid, process.end)
        self._guard.begun(process.pid)
        if word == b"again":
            ready = self._guard.obey(process.way.fileno(), process.end)
            found = process.heard_end() if process.way.fileno() in ready else {}
            if found is None:  # the function itself wrote there: nothing it says can be believed
                self._guard.end_group(process.pid)
                found = {}
            elif "done" in found:
                return {**found, "ended": int(found["done"]), "process": process.pid}
            self._guard.obey(process.end)
        else:
            self._guard.obey(process.end)
            found = {}
        found = found or process.heard_end() or {}
        return {**found, "ended": self._reaped(found)}

    def _reaped(self, found: Mapping[str, Any]) -> int:
        """Let go of a process that has ended, once its group is dead; return its exit status.

        Where it said so itself, the template reaps it later; else the template is asked now.
        """
        assert self._process is not None
        assert self._template is not None
        process, template = self._process, self._template
        self._guard.end_group(process.pid)
        process.close()
        self._process = None
        if "exit" in found:
            self._unreaped = process.pid
            return int(found["exit"])
        if template.tell(b"reap", b"%d" % process.pid):
            ready = self._guard.obey(template.way.fileno(), template.end)
            found = template.heard() if template.way.fileno() in ready else {}
        if "status" not in found:
            self.end()
        return int(found.get("status", -signal.SIGKILL))

    def _make_process(
        self, kind: bytes, word: bytes, head: bytes, output: Sequence[int]
    ) -> dict[str, object]:
        """Have the template fork a process for a run; return how the run ended by that, if it did."""
        if self.living_template() and self._kind != kind:
            self.end()
        if self._template is None and (why := self._make_template(kind, output)):
            return why
        assert self._template is not None
        template, ended = self._template, b"%d" % self._unreaped
        self._guard.watch(0, -1)  # what the worker signals meanwhile is for the process
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            wish = b"\n".join((ended, os.fsencode(self._guard.group_path), word, head))
            there = template.tell(b"fork", wish, [theirs.fileno(), *output])
        found: dict[str, Any] = {}
        if there:
            self._unreaped = 0
            ready = self._guard.obey(ours.fileno(), template.way.fileno(), template.end)
            if template.way.fileno() in ready and ours.fileno() not in ready:
                found = template.heard()
            if not found:
                self._guard.obey(ours.fileno())  # where the template is dead, the process is too
                found = heard(ours)
        if "pid" in found:
            try:
                self._process = Peer(found["pid"], ours)
            except ProcessLookupError:  # it died with its template, and nobody knows how far the run was
                ours.close()
                self.end()
                return {"ended": -signal.SIGKILL}
            return {}
        ours.close()
        if "error" not in found:
            self.end()
        return {"error": found.get("error", errno.EAGAIN), "in": ""}

    def _make_template(self, kind: bytes, output: Sequence[int]) -> dict[str, object]:
        """Start a template and wait for what it imports; return how the run ended by that, if it did."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            started = self._guard.start(json.loads(kind), (theirs.fileno(), *output[:2]))
        pid = started.get("pid")
        if not isinstance(pid, int):
            ours.close()
            return started
        template = self._template = Peer(pid, ours)
        self._stops.forget(pid)
        self._kind = kind
        self._guard.watch(pid, template.end)
        self._guard.begun(pid)
        ready = self._guard.obey(ours.fileno(), template.end)
        if ours.fileno() in ready and "ready" in template.heard():
            return {}
        self._guard.obey(template.end)
        self._guard.end_group(pid)
        _, status = os.waitpid(pid, 0)
        template.close()
        self._template = None
        return {"ended": os.waitstatus_to_exitcode(status)}
