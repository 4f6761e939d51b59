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


MADE = '{"name":"root","token":"bj_a"}'


@pytest.mark.parametrize(("typed", "until"), [("", "24h"), ("3h", "3h"), ("0", None)])
def test_who_makes_the_first_token_is_asked_how_long_clients_may_continue_without_one(
    typed: str, until: str | None, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedrockjobs.cli.access.interactive", lambda: True)
    fake.will("ListTokens", '{"tokens":[]}')
    fake.will("Status", '{"connections":3,"now":"2026-11-21 03:00:00"}', '{"now":"2026-11-21 03:00:00"}')
    fake.will("ListWorkers", '{"workers":[{"name":"w"}]}')
    fake.will("CreateToken", MADE)
    said = run("token", "create", "root", "--role", "admin", stdin=f"{typed}\n")
    assert (said.exit_code, said.stdout) == (0, "bj_a\n")
    assert "(other connections: 2, live workers: 1; 0: not at all)? [24h]:" in said.stderr
    (sent,) = (command for command in fake.asked if command.__class__.__name__ == "CreateToken")
    hours = {"24h": "2026-11-22 03:00:00", "3h": "2026-11-21 06:00:00", None: None}
    assert sent.anonymous_until == hours[until]


def test_without_a_terminal_the_first_token_says_what_becomes_of_other_clients(fake: FakeServer) -> None:
    fake.will("ListTokens", '{"tokens":[]}', '{"tokens":[]}', '{"tokens":[{"name":"a"}]}')
    fake.will("Status", '{"connections":1}', '{"connections":2}')
    fake.will("ListWorkers", '{"workers":[]}', '{"workers":[]}')
    fake.will("CreateToken", MADE, MADE, MADE)
    said = [run("token", "create", "root", "--role", "admin").stderr for _ in range(3)]
    assert ["bedrockjobs token anonymous" in each for each in said] == [False, True, False]
    asked = len(fake.asked)
    fake.will("CreateToken", MADE)
    assert run("token", "create", "root", "--role", "admin", "--anonymous-role", "read").exit_code == 0
    assert len(fake.asked) == asked + 1


def test_clients_without_a_token_are_allowed_and_refused(fake: FakeServer) -> None:
    fake.will("AllowAnonymous", '{"name":"(anonymous)","roles":["read","work"],"expires":""}')
    said = run("token", "anonymous", "--role", "read,work")
    assert said.stdout == "Clients without a token have the roles read, work.\n"
    fake.will("RevokeToken", "{}")
    assert run("token", "anonymous", "--end").stdout == "Clients need a token.\n"
    assert run("token", "anonymous").exit_code == 2
    assert run("token", "anonymous", "--end", "--role", "read").exit_code == 2
