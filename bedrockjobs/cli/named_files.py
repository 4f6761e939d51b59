"""The files that a settings file names, opened and read as the server does it at its start.

It knows no queue and starts nothing; what is wrong is told in the server's own words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from bedrockjobs.base.settings import Settings
from bedrockjobs.base.settings_file import Entry
from bedrockjobs.cli.settings_sources import CONFIG, alone
from bedrockjobs.databases import EXIT_FAILURE, EXIT_USAGE, StartError
from bedrockjobs.databases.file import usable_path
from bedrockjobs.tls.contexts import BadCertificate, chosen_context


class Fault(NamedTuple):
    """What is wrong with a file, behind the line that names it, and the status that ``serve`` ends with."""

    words: str
    status: int


def faults_of_server(entries: Mapping[str, Entry]) -> Iterator[Fault]:
    """Yield what is wrong with the files that the table ``[server]`` names."""
    settings = alone({key: entry.value for key, entry in entries.items()})
    for keys, check in _CHECKS.items():
        named = [key for key in keys if key in entries]
        if not named:
            continue
        try:
            check(settings)
        except BadCertificate as error:
            words, status = str(error), EXIT_USAGE
        except StartError as error:
            words, status = str(error), error.status
        else:
            continue
        key = words.partition(":")[0]
        yield Fault(f"{entries[key if key in entries else named[0]].place}: {words}", status)


def _check_certificates(settings: Settings) -> None:
    chosen_context(settings.tls_cert, settings.tls_key, settings.tls_client_ca)


def _check_database(settings: Settings) -> None:
    if not settings.on_postgresql:
        usable_path(settings)


def _check_socket(settings: Settings) -> None:
    """Look for its folder alone: the server makes the socket."""
    path = Path(settings.unix)
    if settings.unix and not path.parent.is_dir():
        raise StartError(f"cannot listen: unix: {path}: there is no folder {path.parent}", EXIT_FAILURE)


def _check_programs(settings: Settings) -> None:
    """Look for the folder, which the server does only with the first message: then it is too late."""
    if settings.notify_commands and not Path(settings.notify_commands).is_dir():
        raise StartError(f"notify_commands: there is no folder {settings.notify_commands}", CONFIG)


_CHECKS: dict[tuple[str, ...], Callable[[Settings], None]] = {
    ("tls_cert", "tls_key", "tls_client_ca"): _check_certificates,
    ("database",): _check_database,
    ("unix",): _check_socket,
    ("notify_commands",): _check_programs,
}
"""What looks at the files that some settings name together."""
