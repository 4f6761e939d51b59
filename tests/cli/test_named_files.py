"""`config check` reads the files that a settings file names, with the errors of the programs at startup."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.cli import warm

OURS = "{folder}/ours"
CERTIFIED = f'tls_cert = "{OURS}/server.pem"\ntls_key = "{OURS}/server.key"'

OF_SERVER: dict[str, tuple[str, int, str]] = {
    "no certificate": ('tls_cert = "{folder}/none.pem"', 2, "tls_cert: {folder}/none.pem: cannot be read:"),
    "a key of another": (
        f'tls_cert = "{OURS}/server.pem"\ntls_key = "{OURS}/client.key"',
        3,
        f"tls_key: {OURS}/client.key: expected the key of the certificate",
    ),
    "a key alone": (f'tls_key = "{OURS}/server.key"', 2, "tls_cert: expected the server's certificate"),
    "no signers": (
        f'{CERTIFIED}\ntls_client_ca = "{{folder}}/text"',
        4,
        "tls_client_ca: {folder}/text: expected a certificate in PEM",
    ),
    "no folder": ('database = "{folder}/none/jobs.db"', 2, "database: there is no folder {folder}/none"),
    "a folder": ('database = "{folder}"', 2, "database: {folder} is a folder: expected a file in it"),
    "no folder of a socket": (
        'database = "{folder}/jobs.db"\nunix = "{folder}/none/socket"',
        3,
        "cannot listen: unix: {folder}/none/socket: there is no folder {folder}/none",
    ),
}
"""Content of ``[server]``, the line that names a bad file, and the error."""

OF_WORKER: dict[str, tuple[str, int, str]] = {
    "no token": ('token_file = "{folder}/none"', 2, "token file {folder}/none: cannot be read: No such"),
    "two tokens": ('token_file = "{folder}/text"', 2, "token file {folder}/text: expected one token"),
    "no signers": ('ca = "{folder}/text"', 2, "ca: {folder}/text: expected a certificate in PEM"),
    "no key": (
        f'cert = "{OURS}/client.pem"\nkey = "{{folder}}/none.key"',
        3,
        "key: {folder}/none.key: cannot be read: No such file or directory",
    ),
    "no rules": ('rules = "{folder}/none.toml"', 2, "{folder}/none.toml: cannot be read: No such file"),
    "bad rules": ('rules = "{folder}/text"', 2, "{folder}/text: expected TOML"),
}
"""The same for ``[worker]``."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with server and client certificates, and a text file."""
    ours = Authority(tmp_path / "ours")
    ours.serving()
    ours.sign("client")
    (tmp_path / "text").write_text("no certificate,\nno token")
    return tmp_path


def said(program: str, *arguments: str) -> tuple[int, str]:
    """Return the exit status and the error of a program."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("BEDROCKJOBS")}
    done = subprocess.run(
        [warm.program(program), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**environment, "HOME": "/", "XDG_CONFIG_HOME": "/none"},
    )
    return done.returncode, done.stderr


def written(folder: Path, table: str, lines: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(f"[{table}]\n{lines}\n")
    return path


def check_says(folder: Path, case: tuple[str, int, str], table: str, program: str, *arguments: str) -> None:
    """Check that `config check` reports a line with the error of a program that starts with the file."""
    lines, number, words = case
    path = written(folder, table, lines.format(folder=folder))
    status, told = said(program, *arguments, "--config", str(path))
    told = told.strip().splitlines()[-1].removeprefix("bedrockjobs: ").removeprefix("Error: ")
    assert told.startswith(words.format(folder=folder))
    assert status
    checked, text = said("bedrockjobs", "config", "check", str(path))
    assert (checked, text.splitlines()[-1]) == (status, f"Error: {path}:{number}: {told}")


@pytest.mark.parametrize("case", OF_SERVER)
def test_errors_of_the_server_are_found_before_it_starts(folder: Path, case: str) -> None:
    check_says(folder, OF_SERVER[case], "server", "bedrockjobs", "serve", "--port", "0")


@pytest.mark.parametrize("case", OF_WORKER)
def test_errors_of_a_worker_are_found_before_it_starts(folder: Path, case: str) -> None:
    arguments = ("--as-root", "--server", "https://localhost:1", "--name", "Foo", "--allow-cmd", "Foo")
    check_says(folder, OF_WORKER[case], "worker", "bedrock-worker", *arguments)


GOOD = f"""
[server]
{CERTIFIED}
tls_client_ca = "{{folder}}/ours/ca.pem"
database = "{{folder}}/jobs.db"
unix = "{{folder}}/socket"
notify_commands = "{{folder}}"
[worker]
token_file = "{{folder}}/token"
ca = "{{folder}}/ours/ca.pem"
cert = "{{folder}}/ours/client.pem"
key = "{{folder}}/ours/client.key"
rules = "{{folder}}/rules.toml"
"""


def test_good_files_pass_and_nothing_is_created(folder: Path) -> None:
    (folder / "token").write_text("bj_abc\n")
    (folder / "rules.toml").write_text('[[rule]]\nname = "Foo"\nargv = ["/bin/true"]\n')
    path = folder / "settings.toml"
    path.write_text(GOOD.format(folder=folder))
    before = sorted(folder.rglob("*"))
    assert said("bedrockjobs", "config", "check", str(path)) == (0, "")
    assert sorted(folder.rglob("*")) == before


BAD = """[server]
notify_commands = "/none"
tls_cert = "/none"
[worker]
token_file = "/none"
rules = "/none"
"""


def test_all_bad_files_of_both_tables_are_reported_and_a_folder_that_serve_ignores(folder: Path) -> None:
    path = folder / "settings.toml"
    path.write_text(BAD)
    status, text = said("bedrockjobs", "config", "check", str(path))
    lines = [line.removeprefix("Error: ").removeprefix(f"{path}:") for line in text.splitlines()[-4:]]
    assert status == 2
    assert [line.partition(":")[0] for line in lines] == ["3", "2", "5", "6"]
    assert lines[1] == "2: notify_commands: there is no folder /none"
    path.write_text('[server]\nnotify_commands = "/none"\n')
    assert said("bedrockjobs", "config", "check", str(path))[0] == 78


def test_errors_in_the_text_are_reported_first(folder: Path) -> None:
    path = written(folder, "server", 'prot = 1\ntls_cert = "/none"')
    status, text = said("bedrockjobs", "config", "check", str(path))
    assert (status, "/none" in text) == (78, False)
