"""The command line presents credentials, and gives advice if it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_fake import FakeServer, fake_server, run

from bedrockjobs.base.errors import Forbidden


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """Replace the server by a fake."""
    for name in ("TOKEN", "TOKEN_FILE", "CA", "CERT", "KEY"):
        monkeypatch.delenv(f"BEDROCKJOBS_{name}", raising=False)
    return fake_server(monkeypatch)


def test_who_is_not_let_in_gets_5_and_is_told_what_is_missing(fake: FakeServer) -> None:
    fake.will("Ping", Forbidden(), Forbidden("Forbidden", "deploy may not do this"))
    said = run("ping")
    assert said.exit_code == 5
    assert said.stderr == (
        "Error: 403 Forbidden; no token was sent: give --token-file, or set BEDROCKJOBS_TOKEN\n"
    )
    fake.has_token = True
    said = run("ping")
    assert (said.exit_code, said.stderr) == (5, "Error: 403 Forbidden: deploy may not do this\n")


def test_files_are_given_to_the_program_or_to_a_command_which_wins(fake: FakeServer) -> None:
    run("--ca", "a.pem", "--cert", "c.pem", "--key", "k.pem", "ping", "--token-file", "t", "--ca", "b.pem")
    assert fake.files == [
        {"ca": Path("b.pem"), "cert": Path("c.pem"), "key": Path("k.pem"), "token_file": Path("t")}
    ]


def test_variables_are_left_to_the_client_which_knows_their_order(fake: FakeServer) -> None:
    run("ping", env={"BEDROCKJOBS_TOKEN_FILE": "t", "BEDROCKJOBS_CA": "a.pem"})
    assert fake.files == [{}]


def test_no_option_takes_the_secret_itself(fake: FakeServer) -> None:
    assert run("--token", "bj_a", "ping").exit_code == 2


def test_a_file_that_is_none_is_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for server in ("127.0.0.1:1", "https://127.0.0.1:1"):
        said = run("ping", "-s", server, "--token-file", str(tmp_path / "none"))
        assert said.exit_code == 2
        assert f"token file {tmp_path}/none: cannot be read: No such file" in said.stderr
    said = run("ping", "-s", "https://127.0.0.1:1", "--ca", __file__)
    assert (said.exit_code, "ca: " in said.stderr) == (2, True)
