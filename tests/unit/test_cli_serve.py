"""`bedrockjobs serve`: options, environment and defaults become Settings, and invalid ones an error."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from cli_fake import run

from bedrockjobs.base.settings import Settings
from bedrockjobs.cli.settings_sources import option_name, variable_name


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Install a fake server that records its settings and exits with 69."""
    seen: list[Settings] = []
    module = ModuleType("bedrockjobs.server")
    module.run_server = lambda settings, _: seen.append(settings) or 69  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bedrockjobs.server", module)
    for field in Settings.model_fields:
        monkeypatch.delenv(variable_name(field), raising=False)
    return seen


def test_the_exit_status_is_the_servers(served: list[Settings]) -> None:
    assert run("serve").exit_code == 69
    assert served == [Settings()]


def test_an_option_beats_the_environment_which_beats_the_default(served: list[Settings]) -> None:
    env = {"BEDROCKJOBS_PORT": "7000", "BEDROCKJOBS_HOST": "::1", "BEDROCKJOBS_STANDBY": "true"}
    run("serve", "--port", "0", "--no-standby", env=env)
    assert (served[0].port, served[0].host, served[0].standby) == (0, "::1", False)
    assert served[0].database == "jobs.db"


@pytest.mark.parametrize("field", Settings.model_fields)
def test_every_setting_is_an_option_with_its_variable_and_its_words(
    field: str, served: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = " ".join(run("serve", "--help").output.split())
    assert option_name(field) in shown
    assert f"[{variable_name(field)}" in shown
    assert " ".join((Settings.model_fields[field].description or "").split()) in shown

    default = getattr(Settings(), field)
    texts = {
        "host": "localhost",
        "database": "x.db",
        "durability": "relaxed",
        "compatibility": "current",
        "unix": "x.sock",
        "root_path": "/queue",
        "log_format": "json",
        "public_hosts": "q.example.com",
        "database_schema": "jobs",
        "database_direct": "postgresql://h/d",
        "server_name": "a",
        "database_read": "postgresql://h/d",
        "isolation": "serial",
        "unix_role": "read,work",
        "tls_cert": "cert.pem",
        "tls_key": "key.pem",
        "tls_client_ca": "ca.pem",
        "public_url": "https://q.example.com",
        "smtp": "smtp://localhost:25",
        "mail_from": "a@example.com",
        "trusted_proxies": "10.0.0.2",
        "proxy_user_header": "X-User",
        "proxy_role": "operate",
        "heartbeat_url": "https://watch.example.com/4f6e",
        "notify_commands": "/etc/bedrockjobs/notify",
    }
    if isinstance(default, bool):
        other = not default
        arguments = [option_name(field) if other else option_name(field).replace("--", "--no-", 1)]
    else:
        other = texts[field] if isinstance(default, str) else default + 1
        arguments = [option_name(field), str(other)]
    of_url = ["--database", "postgresql://h/d"] if field in ("database_read", "isolation") else []
    run("serve", *of_url, *arguments)
    run("serve", *of_url, env={variable_name(field): str(other)})
    assert [getattr(settings, field) for settings in served] == [other, other]


def test_the_help_lists_the_rare_limits_last(served: list[Settings]) -> None:
    shown = run("serve", "--help").output
    places = [
        shown.index(text) for text in ("--host", "--help", "Limits of number", "--batch-max", "Time limits")
    ]
    assert places == sorted(places)


def test_times_are_durations_or_seconds(served: list[Settings]) -> None:
    run("serve", "--head-s", "1m30s", "--body-s", "0.5")
    assert (served[0].head_s, served[0].body_s) == (90, 0.5)


@pytest.mark.parametrize(
    ("arguments", "env", "complaint"),
    [
        (["--port", "http"], {}, "--port: expected a whole number"),
        (["--port", "70000"], {}, "--port: expected at most 65535, got '70000'"),
        ([], {"BEDROCKJOBS_PORT": "-1"}, "BEDROCKJOBS_PORT: expected at least 0, got '-1'"),
        (["--head-s", "soon"], {}, "--head-s: expected a duration"),
        (["--durability", "none"], {}, "'full', 'replicated', 'relaxed'"),
        ([], {"BEDROCKJOBS_DURABILITY": "none"}, "BEDROCKJOBS_DURABILITY: expected 'full', 'replicated' or"),
        (["--database", "mysql://x/y"], {}, "database: expected a path, sqlite:///path or postgresql://"),
        (["--server-name", "a b"], {}, "--server-name: expected"),
        (["--batch-max", "0"], {}, "--batch-max: expected at least 1"),
        (["--nonsense"], {}, "No such option '--nonsense'"),
    ],
)
def test_a_bad_value_is_told_and_nothing_starts(
    arguments: list[str], env: dict[str, str], complaint: str, served: list[Settings]
) -> None:
    result = run("serve", *arguments, env=env)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert result.stdout == ""
    assert served == []
