"""``POST /ping/<secret>``: what a machine elsewhere says of the work of a schedule, as a command.

``/start`` says that it has begun, nothing or ``/0`` that it has ended well, ``/fail`` or another exit status
that it has not. The body, whatever its type, is the output.
"""

from __future__ import annotations

from bedrockjobs.base.errors import NotFound
from bedrockjobs.commands import PingSchedule
from bedrockjobs.commands.pings import PING_OUTPUT_CHARS_MAX

EXIT_STATUS_MAX = 255


def command_of(job_id: int, what: str, body: bytes, host: str) -> PingSchedule:
    """Return the command that a ping stands for; raises NotFound for another path."""
    given: dict[str, object] = {"job_id": job_id, "output": output_of(body), "host": host[:255]}
    if what in ("", "start", "fail"):
        given["event"] = what or "success"
    elif what.isascii() and what.isdecimal() and len(what) <= 3 and int(what) <= EXIT_STATUS_MAX:
        given["exit_code"] = int(what)
        given["event"] = "fail" if int(what) else "success"
    else:
        raise NotFound("No such ping", "expected nothing, /start, /fail or an exit status behind the secret")
    return PingSchedule.model_validate(given)


def output_of(body: bytes) -> str:
    """Return the end of a body as text; what is no UTF-8, and NUL, is replaced."""
    text = body[-4 * PING_OUTPUT_CHARS_MAX :].decode(errors="replace").replace("\0", "\ufffd")
    return text[-PING_OUTPUT_CHARS_MAX:]
