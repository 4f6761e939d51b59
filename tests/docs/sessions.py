"""Reads the sessions of a page and runs them against a live server. It knows Markdown fences, no commands.

A ``console`` block holds commands that begin with ``$``, each followed by its output; ``>`` continues the
line above. ``$ nc localhost 8888`` begins a conversation: requests and answers in turn. A ``python`` block is
a program; the ``text`` block right after it is what it prints. A block below ``<!-- file: NAME -->`` is a
file, there from the beginning. Times, their distances from now, process ids, lengths and durations of less
than 10 s count as equal.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cli import warm
from tests.cli.live_server import DEADLINE_S, Running, clean_environment

_FENCE = re.compile(
    r"(?P<minute><!-- a minute passes -->\n)?^```(?P<kind>console|python|text)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"^<!-- file: (?P<name>\S+) -->\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_ALIKE = (
    (re.compile(r"(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d \((?:in \d+[smhd]|\d+[smhd] ago|now)\)"), "WHEN"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)? UTC\b"), "MOMENT"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{3})?Z?"), "TIME"),
    (re.compile(r"\b(pid=|Content-Length: )[1-9]\d*"), r"\1N"),
    (re.compile(r"\bworker=\S+"), "worker=W"),
    (re.compile(r"\b(?:127\.0\.0\.1|localhost):\d+"), "SERVER"),
    (re.compile(r"\b\d+\.\d+ ms\b"), "N ms"),
    (re.compile(r"\b\d(?:\.\d)?s\b"), "Ns"),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    kind: str
    text: str
    line: int
    after_a_minute: bool


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page that are executed, or that show output."""
    text = page.read_text()
    return [
        Block(found["kind"], found["text"], text.count("\n", 0, found.start()) + 1, bool(found["minute"]))
        for found in _FENCE.finditer(text)
    ]


def alike(text: str) -> str:
    """Return a text without the parts that vary from run to run."""
    for pattern, replacement in _ALIKE:
        text = pattern.sub(replacement, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


class Player:
    """Plays the blocks of one page, in order, against one server."""

    def __init__(self, server: Running, folder: Path) -> None:
        """Play against ``server``, in ``folder``."""
        self._server = server
        self._folder = folder
        self._host, _, self._port = server.address.rpartition(":")
        path = os.pathsep.join([str(warm.programs()), str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment = clean_environment(
            BEDROCKJOBS_SERVER=server.address,
            BEDROCKJOBS_WORKER_AS_ROOT="1",
            PATH=path,
            NO_COLOR="1",
            COLUMNS="200",
            TZ="UTC",
        )

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of executed programs."""
        return self._environment

    def write_files(self, page: Path) -> list[str]:
        """Write each block below a comment `file: NAME` into the folder; return their names."""
        names = []
        for found in _FILE.finditer(page.read_text()):
            path = self._folder / found["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(found["text"])
            names.append(found["name"])
        return names

    def play(self, page: Path) -> int:
        """Play every block; return the number of compared outputs."""
        self.write_files(page)
        compared = 0
        program: Block | None = None
        for block in blocks(page):
            if block.after_a_minute:
                self._let_a_minute_pass()
            if block.kind == "python":
                program = block
            elif block.kind == "text":
                if program is not None:
                    self._compare(block, "the program above", block.text, self._run_python(program.text))
                    compared += 1
                program = None
            else:
                compared += self._play_console(block)
        return compared

    def _play_console(self, block: Block) -> int:
        compared = 0
        for command, expected in steps(block.text):
            if command.startswith("nc "):
                compared += self._converse(block, expected)
            else:
                self._compare(block, command, expected, self._run(self._placed(command)))
                compared += 1
        return compared

    def _compare(self, block: Block, what: str, expected: str, found: str) -> None:
        assert alike(found) == alike(expected), f"line {block.line}: {what}\n{found}"

    def _placed(self, text: str) -> str:
        for shown in ("localhost:8888", "127.0.0.1:8888"):
            text = text.replace(shown, self._server.address)
        return text.replace("localhost 8888", f"{self._host} {self._port}")

    def _run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            timeout=DEADLINE_S,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout

    def _run_python(self, program: str) -> str:
        path = self._folder / "program.py"
        path.write_text(self._placed(program))
        return self._run(f"{warm.program('python')} {path.name}")

    def _let_a_minute_pass(self) -> None:
        """Make every planned job due now, as if a minute had passed."""
        self._run(
            "for id in $(bedrockjobs job list --state QUEUED -o name);"
            " do bedrockjobs job update $id --next-run '2026-01-01 00:00:00'; done"
        )

    def _converse(self, block: Block, text: str) -> int:
        compared = 0
        nc = subprocess.Popen(["nc", self._host, self._port], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        guard = threading.Timer(DEADLINE_S, nc.kill)
        guard.start()
        try:
            for request, expected in turns(text):
                assert nc.stdin is not None
                nc.stdin.write(request.encode())
                nc.stdin.flush()
                self._compare(block, request, expected, _answer(nc))
                compared += 1
        finally:
            guard.cancel()
            nc.kill()
            nc.communicate()
        return compared


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with its expected output."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        more = 1
        while more < len(lines) and lines[more].startswith(">"):
            more += 1
        command = "\n".join([lines[0], *(line[2:] for line in lines[1:more])])
        yield command, "\n".join(lines[more:])


def turns(text: str) -> Iterator[tuple[str, str]]:
    """Yield each request of a conversation, with its empty line, and the answer."""
    lines = text.strip("\n").splitlines()
    while lines:
        end = lines.index("")
        request, lines = "\n".join(lines[:end]) + "\n\n", lines[end + 1 :]
        end = lines.index("") if "" in lines else len(lines)
        answer, lines = lines[:end], lines[end + 1 :]
        if "Content-Length: 0" not in answer:
            answer += ["", lines[0]]
            lines = lines[2:]
        yield request, "\n".join(answer)


def _answer(nc: subprocess.Popen[bytes]) -> str:
    """Read one answer."""
    assert nc.stdout is not None
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = nc.stdout.read(1)
        assert byte, f"the connection ended after {head!r}"
        head += byte
    length = re.search(rb"Content-Length: (\d+)", head)
    assert length is not None, head
    return (head + nc.stdout.read(int(length[1]))).decode().replace("\r\n", "\n")
