"""The languages of the peers: requests as bytes, and how an answer is read.

Nothing here knows a socket, a clock or what is measured.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from load import ENCODERS, JOB_ID, Encode


class Answer(NamedTuple):
    """What a server says to one request."""

    ok: bool
    job: bytes | None
    """What the finish of a job needs, where the answer holds a job."""
    body: bytes
    """The data of the job; of a refusal its words."""
    taken: int = 1
    """How many jobs it holds, where it holds any."""


class Wire(Protocol):
    """One way to speak to one kind of server."""

    answers: int
    """Answers to one ``finish_and_take``."""

    def create(self, data: bytes) -> bytes:
        """Return the request that creates a job."""

    def take(self, number: int) -> bytes:
        """Return the request by which a consumer waits for a job."""

    def finish(self, number: int, job: bytes) -> bytes:
        """Return the request that ends a job for good."""

    def finish_and_take(self, number: int, job: bytes) -> bytes:
        """Return both, to be sent in one write."""

    def parse(self, data: bytes, at: int) -> tuple[int, Answer] | None:
        """Return where the answer that begins at ``at`` ends, and what it says; None if it is not whole."""


class Redis:
    """A reliable queue by hand: one list of what is queued, and one for each consumer of what it took."""

    answers = 2

    @staticmethod
    def _command(*words: bytes) -> bytes:
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)

    def create(self, data: bytes) -> bytes:
        """Return the request that creates a job."""
        return self._command(b"LPUSH", b"queue", data)

    def take(self, number: int) -> bytes:
        """Return the request by which a consumer waits for a job."""
        return self._command(b"BLMOVE", b"queue", b"taken:%d" % number, b"RIGHT", b"LEFT", b"0")

    def finish(self, number: int, job: bytes) -> bytes:
        """Return the request that ends a job for good."""
        return self._command(b"LREM", b"taken:%d" % number, b"1", job)

    def finish_and_take(self, number: int, job: bytes) -> bytes:
        """Return both, to be sent in one write."""
        return self.finish(number, job) + self.take(number)

    def parse(self, data: bytes, at: int) -> tuple[int, Answer] | None:
        """Return where an answer ends and what it says; 0 elements removed is a refusal."""
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        kind, text = data[at : at + 1], data[at + 1 : end]
        if kind != b"$" or text == b"-1":
            good = kind == b"+" or (kind == b":" and text != b"0")
            return end + 2, Answer(good, None, data[at:end])
        stop = end + 2 + int(text)
        if len(data) < stop + 2:
            return None
        body = data[end + 2 : stop]
        return stop + 2, Answer(True, body, body)


class Beanstalkd:
    """Beanstalkd's protocol, on its default tube."""

    answers = 2

    def create(self, data: bytes) -> bytes:
        """Return the request that creates a job; a taken one comes back after 60 s."""
        return b"put 0 0 60 %d\r\n%b\r\n" % (len(data), data)

    def take(self, _number: int) -> bytes:
        """Return the request by which a consumer waits for a job."""
        return b"reserve\r\n"

    def finish(self, _number: int, job: bytes) -> bytes:
        """Return the request that ends a job for good."""
        return b"delete %b\r\n" % job

    def finish_and_take(self, number: int, job: bytes) -> bytes:
        """Return both, to be sent in one write."""
        return self.finish(number, job) + self.take(number)

    def parse(self, data: bytes, at: int) -> tuple[int, Answer] | None:
        """Return where an answer ends and what it says."""
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        line = data[at:end]
        if not line.startswith(b"RESERVED "):
            return end + 2, Answer(line.startswith((b"INSERTED", b"DELETED")), None, line)
        _, job, size = line.split()
        stop = end + 2 + int(size)
        if len(data) < stop + 2:
            return None
        return stop + 2, Answer(True, job, data[end + 2 : stop])


class Ours:
    """Our raw protocol or HTTP."""

    answers = 1

    def __init__(self, protocol: str) -> None:
        """Speak ``protocol``."""
        self._encode: Encode = ENCODERS[protocol]
        self._take = self._encode("GetJob", name=b'"queue"', connection=b'"wait"', timeout=b"600000")

    def create(self, data: bytes) -> bytes:
        """Return the request that creates a job."""
        return self._encode("CreateJob", name=b'"queue"', data=data)

    def take(self, _number: int) -> bytes:
        """Return the request by which a consumer waits for a job."""
        return self._take

    def finish(self, _number: int, job: bytes) -> bytes:
        """Return the request that ends a job for good."""
        return self._encode("FinishJob", jobID=job)

    def finish_and_take(self, _number: int, job: bytes) -> bytes:
        """Return the one request that does both."""
        wait = {"connection": b'"wait"', "timeout": b"600000"}
        return self._encode("FinishJob", thenGet=b'"queue"', **wait, jobID=job)

    def parse(self, data: bytes, at: int) -> tuple[int, Answer] | None:
        """Return where an answer ends and what it says."""
        end = data.find(b"\r\n\r\n", at)
        place = data.find(b"Content-Length: ", at, end) + 16
        if end < 0:
            return None
        stop = end + 4 + int(data[place : data.find(b"\r", place)])
        if len(data) < stop:
            return None
        if not data.startswith((b"200", b"HTTP/1.1 200"), at):
            return stop, Answer(False, None, data[at : data.find(b"\r", at)])
        body = data[end + 4 : stop]
        found = JOB_ID.search(body)
        return stop, Answer(True, found[1] if found else None, body)


class ByTens(Ours):
    """Our raw protocol, with up to ten jobs in each request of a consumer."""

    def __init__(self) -> None:
        """Take and finish by tens."""
        super().__init__("raw")
        self._wait = {"connection": b"wait", "timeout": b"600000", "numResults": b"10"}
        self._take = self._encode("GetJobs", name=b"queue", **self._wait)

    def finish_and_take(self, _number: int, job: bytes) -> bytes:
        """Return the one request that finishes jobs and takes the next ones."""
        return self._encode("FinishJobs", thenGet=b"queue", **self._wait, jobs=job)

    def parse(self, data: bytes, at: int) -> tuple[int, Answer] | None:
        """Return where an answer ends and what it says; the job of it is the list of all."""
        found = super().parse(data, at)
        if found is None or not found[1].ok:
            return found
        end, answer = found
        jobs = JOB_ID.findall(answer.body.partition(b'"jobs":[')[2])
        listed = b"[" + b",".join(b'{"jobID":%b}' % job for job in jobs) + b"]"
        return end, answer._replace(job=listed if jobs else None, taken=len(jobs))


WIRES: dict[str, Wire] = {
    "redis": Redis(),
    "beanstalkd": Beanstalkd(),
    "bare": Ours("raw"),
    "raw": Ours("raw"),
    "http": Ours("http"),
    "raw-tens": ByTens(),
}
