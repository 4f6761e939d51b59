"""`bedrockjobs serve` with TLS as a process: HUP reloads its certificate without losing connections."""

from __future__ import annotations

import signal
import socket
import ssl
from pathlib import Path

import pytest
from click.testing import CliRunner
from live_server import start, stop

from bedrockjobs.cli import main
from bedrockjobs.client import Client
from bedrockjobs.commands import Ping
from tests.certificates import Authority

DEADLINE_S = 60.0
"""Time limit for the server to reload, many times what it needs."""


def serial(port: int, authority: Authority) -> str:
    """Return the serial number of the server's certificate."""
    plain = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
    with authority.trusting().wrap_socket(plain, server_hostname="localhost") as inside:
        found = inside.getpeercert()
        assert found is not None
        return str(found["serialNumber"])


def test_hup_reloads_the_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path / "tls")
    settings = authority.serving()
    server = start(tmp_path / "jobs.db", "--tls-cert", settings["tls_cert"], "--tls-key", settings["tls_key"])
    try:
        port = int(server.address.rpartition(":")[2])
        address = f"https://localhost:{port}"
        before = serial(port, authority)
        with Client(address, ca=authority.ca) as client:
            client.call(Ping())
            (connection,) = client._pool._idle
            authority.serving()  # the same files, written again
            server.process.send_signal(signal.SIGHUP)
            tries = 0
            while serial(port, authority) == before:
                tries += 1
                assert tries < 1_000
            client.call(Ping())
            assert client._pool._idle == [connection]
        monkeypatch.setenv("BEDROCKJOBS_CA", str(authority.ca))
        assert CliRunner().invoke(main, ["ping", "-s", address]).exit_code == 0
        stranger = Authority(tmp_path / "other")
        said = CliRunner().invoke(main, ["--ca", str(stranger.ca), "ping", "-s", address])
        assert said.exit_code == 69
        assert "its certificate is not trusted: " in said.stderr
        assert isinstance(connection._socket, ssl.SSLSocket)
    finally:
        assert stop(server.process) == 0
