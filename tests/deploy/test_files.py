"""Each file of `deploy/` is accepted by the program it is meant for, and names only things that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bedrock_worker.cli import main as worker_program
from click.testing import CliRunner

from bedrockjobs.base.settings import Settings
from bedrockjobs.cli import main as program
from tests.deploy.installed import instructions, readme_lines, run_image
from tests.deploy.shipped import DEPLOY, parse, yaml

FILES = sorted(path.relative_to(DEPLOY).as_posix() for path in DEPLOY.rglob("*") if path.is_file())
UNITS = sorted(path for path in (DEPLOY / "systemd").iterdir() if path.suffix in (".service", ".socket"))

SERVER_VARIABLES = {f"BEDROCKJOBS_{field.upper()}" for field in (*Settings.model_fields, "log_format")}
WORKER_VARIABLES = {str(name) for option in worker_program.params for name in option.envvar or ()}
PAGES = {"/livez", "/readyz", "/metrics", "/healthz"}


def test_every_file_is_judged_here() -> None:
    assert set(FILES) == {
        "container/Containerfile",
        "container/compose.postgresql.yaml",
        "container/compose.yaml",
        "container/pgbouncer.ini",
        "grafana/bedrockjobs.json",
        "kubernetes/bedrockjobs.yaml",
        "kubernetes/postgresql.yaml",
        "litestream/litestream.yml",
        "patroni/patroni.yml",
        "prometheus/alerts.yaml",
        "prometheus/scrape.yaml",
        "systemd/bedrock-worker@.service",
        "systemd/bedrockjobs.service",
        "systemd/bedrockjobs.socket",
        "systemd/config.toml",
        "systemd/litestream-bedrockjobs.service",
        "systemd/mail.env",
    }


# --- systemd ---------------------------------------------------------------------------------------------


def settings_of(unit: Path) -> dict[str, list[str]]:
    """Return the settings of a unit; a setting may occur more than once."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, sign, value = line.partition("=")
            assert sign, line
            found.setdefault(name, []).append(value)
    return found


def test_the_settings_file_is_good() -> None:
    done = CliRunner().invoke(program, ["config", "check", str(DEPLOY / "systemd/config.toml")])
    assert (done.exit_code, done.output.endswith("config.toml: good\n")) == (0, True), done.output


def test_nobody_starts_again_what_cannot_start() -> None:
    for name in ("bedrockjobs", "bedrock-worker@"):
        assert settings_of(DEPLOY / f"systemd/{name}.service")["RestartPreventExitStatus"] == ["2 78"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_says_what_it_is_and_when_it_starts(unit: Path) -> None:
    settings = settings_of(unit)
    assert settings["Description"]
    assert settings["WantedBy"]


def test_systemd_reads_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    for unit in UNITS:
        text = re.sub(r"(ExecStart|ExecReload)=/\S+", r"\1=/bin/true", unit.read_text())
        (tmp_path / unit.name).write_text(text)
    names = [str(tmp_path / unit.name) for unit in UNITS]
    done = subprocess.run([analyze, "verify", "--man=no", *names], capture_output=True, text=True, timeout=60)
    complaints = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "bedrock" in line]
    assert (done.returncode, complaints) == (0, []), done.stderr


def test_the_servers_unit_is_told_apart_by_what_the_server_does() -> None:
    settings = settings_of(DEPLOY / "systemd/bedrockjobs.service")
    assert settings["Type"] == ["notify"]
    assert int(settings["WatchdogSec"][0]) >= 10
    default = Settings.model_fields
    assert int(settings["LimitNOFILE"][0]) == default["connections_max"].default + 64
    assert int(settings["TimeoutStopSec"][0]) > default["drain_s"].default
    assert settings["RestartPreventExitStatus"] == ["2 78"]  # wrong usage, a bad settings file
    for name in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "LockPersonality"):
        assert settings[name] == ["yes"], name


def test_the_programs_take_the_options_that_the_units_give_them() -> None:
    (line,) = settings_of(DEPLOY / "systemd/bedrockjobs.service")["ExecStart"]
    path, command, *arguments = line.replace("${STATE_DIRECTORY}", "/var/lib/bedrockjobs").split()
    assert Path(path).name == "bedrockjobs"
    parse(program.commands[command], arguments)
    (line,) = settings_of(DEPLOY / "systemd/bedrock-worker@.service")["ExecStart"]
    path, *arguments = line.replace("$COMMAND", "/bin/true").split()
    assert Path(path).name == "bedrock-worker"
    parse(worker_program, ["--name", "mail/*", *arguments])


def test_the_variables_are_those_of_the_programs() -> None:
    for line in settings_of(DEPLOY / "systemd/bedrockjobs.service")["Environment"]:
        assert line.partition("=")[0] in SERVER_VARIABLES
    names = set(settings_of(DEPLOY / "systemd/mail.env"))
    assert names - {"COMMAND"} <= WORKER_VARIABLES
    assert "COMMAND" in names


def test_the_socket_is_the_port_that_the_server_would_open() -> None:
    settings = settings_of(DEPLOY / "systemd/bedrockjobs.socket")
    port = Settings.model_fields["port"].default
    assert settings["ListenStream"] == [f"127.0.0.1:{port}", f"[::1]:{port}"]


# --- containers ------------------------------------------------------------------------------------------


def test_the_container_file_runs_the_server_as_nobody_in_particular() -> None:
    found = instructions()
    known = "FROM COPY RUN ENV USER WORKDIR VOLUME EXPOSE STOPSIGNAL HEALTHCHECK CMD"
    assert {name for name, _ in found} <= set(known.split())
    last = dict(found)
    assert int(last["USER"]) > 0
    assert last["STOPSIGNAL"] == "SIGTERM"
    name, command, *arguments = json.loads(last["CMD"])
    assert name == "bedrockjobs"
    parse(program.commands[command], arguments)
    health = json.loads(last["HEALTHCHECK"].partition("CMD ")[2])
    assert health[0] == "bedrockjobs"
    assert health[1] in program.commands
    variables = set(re.findall(r"BEDROCKJOBS_\w+(?==)", last["ENV"]))
    assert variables <= SERVER_VARIABLES
    assert len(variables) == 2


def test_what_the_image_runs_is_a_server_that_is_well(tmp_path: Path) -> None:
    """By day with this environment's programs, at night with the image's."""
    (tmp_path / "opt/bedrockjobs").mkdir(parents=True)
    (tmp_path / "opt/bedrockjobs/bin").symlink_to(Path(sys.executable).parent)
    run_image(tmp_path)


def test_the_readme_says_how_to_install_it_with_tools() -> None:
    assert readme_lines() == ["pipx install . && bedrockjobs serve", "uvx --from . bedrockjobs serve"]


def test_compose_starts_what_there_is() -> None:
    (found,) = yaml("container/compose.yaml")
    jobs, worker = found["services"]["jobs"], found["services"]["worker"]
    here = DEPLOY / "container" / jobs["build"]["context"]
    assert (here / jobs["build"]["dockerfile"]).resolve() == DEPLOY / "container/Containerfile"
    assert (here / "pyproject.toml").is_file()
    assert all(port.startswith("127.0.0.1:") for port in jobs["ports"]), "nobody has to log in"
    assert set(worker["environment"]) <= WORKER_VARIABLES
    parse(worker_program, worker["command"][1:])
    assert set(found["volumes"]) == {"jobs"}


def test_kubernetes_starts_what_there_is() -> None:
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml("kubernetes/bedrockjobs.yaml")}
    server = found["StatefulSet", "bedrockjobs"]
    assert server["spec"]["replicas"] == 1
    pod = server["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > Settings.model_fields["drain_s"].default
    (container,) = pod["containers"]
    probes = {
        container[kind]["httpGet"]["path"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert probes | {server["spec"]["template"]["metadata"]["annotations"]["prometheus.io/path"]} <= PAGES
    assert {each["name"] for each in container["env"]} <= SERVER_VARIABLES
    mounted = {each["name"] for each in container["volumeMounts"]}
    claimed = {each["metadata"]["name"] for each in server["spec"]["volumeClaimTemplates"]}
    assert mounted == claimed | {each["name"] for each in pod["volumes"]}

    (worker,) = found["Deployment", "bedrock-worker-mail"]["spec"]["template"]["spec"]["containers"]
    parse(worker_program, worker["command"][1:])
    assert {each["name"] for each in worker["env"]} <= WORKER_VARIABLES
    labels = found["Deployment", "bedrock-worker-mail"]["spec"]["template"]["metadata"]["labels"]
    policy = found["NetworkPolicy", "bedrockjobs"]["spec"]
    allowed = policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert allowed.items() <= labels.items()
    assert (
        policy["podSelector"]["matchLabels"].items()
        <= server["spec"]["template"]["metadata"]["labels"].items()
    )


def test_kubernetes_gives_no_pod_variables_that_look_like_ours() -> None:
    documents = yaml("kubernetes/bedrockjobs.yaml")
    (service,) = (each["metadata"]["name"] for each in documents if each["kind"] == "Service")
    linked = f"{service.upper().replace('-', '_')}_PORT"
    assert linked in SERVER_VARIABLES, "there is nothing left to protect the pods from"
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in documents
        if "template" in each.get("spec", {})
    }
    assert set(pods) == {"bedrockjobs", "bedrock-worker-mail"}
    assert {name for name, pod in pods.items() if pod.get("enableServiceLinks") is not False} == set()


def test_litestream_copies_the_database_of_the_unit() -> None:
    (found,) = yaml("litestream/litestream.yml")
    (database,) = found["dbs"]
    (line,) = settings_of(DEPLOY / "systemd/bedrockjobs.service")["ExecStart"]
    assert line.endswith(f"${{STATE_DIRECTORY}}/{Path(database['path']).name}")
    assert database["replica"]["type"] == "s3"
    unit = settings_of(DEPLOY / "systemd/litestream-bedrockjobs.service")
    assert unit["ReadWritePaths"] == [str(Path(database["path"]).parent)]
