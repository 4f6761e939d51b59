"""Each file of `deploy/` can be read by who it is for, and speaks of things that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from bedrock_worker.cli import main as worker_program
from prometheus_client import CollectorRegistry, ProcessCollector
from ruamel.yaml import YAML

from bedrockjobs.base.settings import Settings
from bedrockjobs.cli import main as program
from bedrockjobs.commands.overview import OverviewReply
from bedrockjobs.engine.events import Listeners, RunEnded, RunOpened, TicksEntered
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.job.readiness import Pauses, Takers
from bedrockjobs.observe import logs
from bedrockjobs.observe.measurements import Measurements
from bedrockjobs.observe.prometheus import Metrics
from bedrockjobs.views.queues import Group, Held, Look, Totals

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = sorted(path.relative_to(DEPLOY).as_posix() for path in DEPLOY.rglob("*") if path.is_file())
UNITS = sorted(path for path in (DEPLOY / "systemd").iterdir() if path.suffix in (".service", ".socket"))
BOARD = DEPLOY / "grafana/bedrockjobs.json"
ALERTS = DEPLOY / "prometheus/alerts.yaml"

SERVER_VARIABLES = {f"BEDROCKJOBS_{field.upper()}" for field in (*Settings.model_fields, "log_format")}
WORKER_VARIABLES = {str(name) for option in worker_program.params for name in option.envvar or ()}
PAGES = {"/livez", "/readyz", "/metrics", "/healthz"}
WELL_KNOWN = {"up"}
"""What Prometheus itself knows of a target."""


def yaml(name: str) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(YAML(typ="safe").load_all(DEPLOY / name))


def test_every_file_is_judged_here() -> None:
    assert set(FILES) == {
        "container/Containerfile", "container/compose.yaml", "grafana/bedrockjobs.json",
        "kubernetes/bedrockjobs.yaml", "litestream/litestream.yml", "prometheus/alerts.yaml",
        "prometheus/scrape.yaml", "systemd/bedrock-worker@.service", "systemd/bedrockjobs.service",
        "systemd/bedrockjobs.socket", "systemd/litestream-bedrockjobs.service", "systemd/mail.env",
    }  # fmt: skip


# --- metrics ---------------------------------------------------------------------------------------------


class _Queue:
    """Stands for the views: one job of one prefix is ready."""

    ended = False

    def __init__(self) -> None:
        """Be what is asked of the views, too."""
        self.standings = self.queues = self

    async def overview_and_look(self) -> tuple[OverviewReply, Look]:
        """Return how things stand."""
        held = Held("2026-01-01 00:00:00", Pauses(()), {}, Takers((), {}), {})
        numbers = {name: 0 for name, field in OverviewReply.model_fields.items() if field.annotation is int}
        reply = OverviewReply(**numbers, now=held.now, oldest_ready="", more=[], problems=[], next=[])
        return reply, Look(held, [Group("", "mail", "", due=1)], False, [])

    async def add_up(self, look: Look, groups: list[Group], totals: Totals) -> None:
        """Add nothing."""


class _Work:
    """Stands for the dispatcher."""

    pending = commands = commits = waiting = 0


@pytest.fixture
async def known() -> dict[str, set[str]]:
    """Return the labels of each series that a server has, by its name."""
    views: Any = _Queue()
    measurements = Measurements()
    ended = RunEnded(1, 1, "a", 1, "schedule", "w", "", "", "success", None, "", "", 0.0)
    Listeners([measurements]).tell(
        [
            TicksEntered("fired", 1, 0),
            TicksEntered("skipped", 1, 0, "paused"),
            RunOpened(1, 1, "w", 45, "schedule", 0.0),
            ended,
        ]
    )
    metrics = Metrics(
        views,
        views,
        _Work(),
        WorkerRegistry(),
        measurements,
        lambda: {"created": 1},
        Settings(database="jobs.db"),
    )
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    families = [*await metrics.scrape(), *registry.collect()]
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


_SERIES = re.compile(r"\b((?:bedrockjobs|process|up)(?:_[a-z0-9_]+)?)\b(?:\{([^}]*)\})?")


def series(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield the name of each series in an expression, with the labels that choose it."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    for name, labels in _SERIES.findall(bare):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", labels))


def test_series_are_found_in_an_expression() -> None:
    assert list(series('sum by (x) (rate(bedrockjobs_a_total{s=~"b|{c}", t!="d"}[5m])) > process_b')) == [
        ("bedrockjobs_a_total", {"s", "t"}), ("process_b", set()),
    ]  # fmt: skip


def judge(expression: str, known: dict[str, set[str]]) -> None:
    """Check that an expression speaks of series that there are, and closes what it opens."""
    found = list(series(expression))
    assert found, expression
    for name, labels in found:
        if name not in WELL_KNOWN:
            assert name in known, f"{name} in {expression}"
            assert labels <= known[name] | {"instance", "job"}, expression
    for opening, closing in ("()", "{}", "[]"):
        assert expression.count(opening) == expression.count(closing), expression


async def test_the_board_shows_what_there_is(known: dict[str, set[str]]) -> None:
    board = json.loads(BOARD.read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len(panels) >= 20
    for panel in panels:
        assert panel["description"], panel["title"]
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            judge(target["expr"].replace("[$__rate_interval]", "[5m]"), known)


def test_no_panel_of_the_board_hides_another() -> None:
    board = json.loads(BOARD.read_text())
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }  # fmt: skip
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)


async def test_every_metric_of_the_server_is_on_the_board_or_in_a_rule(known: dict[str, set[str]]) -> None:
    text = BOARD.read_text() + ALERTS.read_text()
    ours = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known if name.startswith("bedrockjobs_")}
    unseen = {name for name in ours if name not in text and not name.endswith("_created")}
    assert unseen == {"bedrockjobs_repeating_jobs", "bedrockjobs_draining"}


async def test_the_rules_speak_of_what_there_is(known: dict[str, set[str]]) -> None:
    (rules,) = yaml("prometheus/alerts.yaml")
    names = set()
    for rule in rules["groups"][0]["rules"]:
        judge(rule["expr"], known)
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "action"}
        names.add(rule["alert"])
    assert len(names) == len(rules["groups"][0]["rules"]) >= 10


def test_the_commands_that_the_rules_name_are_those_of_the_program() -> None:
    (rules,) = yaml("prometheus/alerts.yaml")
    actions = [rule["annotations"]["action"] for rule in rules["groups"][0]["rules"]]
    commands = [command for action in actions for command in re.findall("`([^`]*)`", action)]
    assert not any("bedrockjobs" in re.sub("`[^`]*`", "", action) for action in actions)
    ours = {command for command in commands if command.startswith("bedrockjobs ")}
    assert len(ours) >= 8
    for line in ours:
        _, *words = line.replace("JOBID", "1").split()
        command: Any = program
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        parse(command, words)


def test_a_rule_of_a_metric_that_is_not_there_is_noticed() -> None:
    with pytest.raises(AssertionError, match="bedrockjobs_nothing"):
        judge("bedrockjobs_nothing > 0", {})


def test_prometheus_reads_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(
        [promtool, "check", "rules", str(ALERTS)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_scraped_are_pages_of_the_server() -> None:
    (found,) = yaml("prometheus/scrape.yaml")
    metrics, schedules = found["scrape_configs"]
    assert metrics["job_name"] == "bedrockjobs"
    assert all("/healthz?schedule=" in target for target in schedules["static_configs"][0]["targets"])


# --- systemd ---------------------------------------------------------------------------------------------


def settings_of(unit: Path) -> dict[str, list[str]]:
    """Return the settings of a unit; a setting may stand more than once."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, sign, value = line.partition("=")
            assert sign, line
            found.setdefault(name, []).append(value)
    return found


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
    assert "2" in settings["RestartPreventExitStatus"]
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


def parse(command: Any, arguments: list[str]) -> None:
    """Let a program read its arguments; raises where it would not take them."""
    command.make_context("test", list(arguments))


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


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the container file."""
    text = (DEPLOY / "container/Containerfile").read_text()
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [(words[0], words[1]) for line in text.splitlines() if len(words := line.split(maxsplit=1)) == 2]


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


# --- the page --------------------------------------------------------------------------------------------


async def test_every_metric_has_its_line_on_the_page(known: dict[str, set[str]]) -> None:
    page = (DEPLOY.parent / "docs/how-to/monitor.md").read_text()
    written = {name: set(re.findall(r"\w+", labels)) for name, labels in _LINE.findall(page)}
    ours = {name: labels - {"le"} for name, labels in known.items() if name.startswith("bedrockjobs_")}
    ours = {re.sub(r"_(bucket|sum|count|created)$", "", name): labels for name, labels in ours.items()}
    assert written == ours


_LINE = re.compile(r"`(bedrockjobs_\w+)(?:\{([^}`]*)\})?`(?=[^|\n]*\|)")


def test_the_page_names_every_check_of_the_doctor() -> None:
    page = (DEPLOY.parent / "docs/how-to/monitor.md").read_text()
    source = (DEPLOY.parent / "bedrockjobs/cli/doctor.py").read_text()
    checks = set(re.findall(r'Finding\(\s*"\w+",\s*"(\w+)"', source)) - {"database"}
    assert checks == set(re.findall(r"^\| `(\w+)` \| .*", page.split("| check |")[1], re.MULTILINE))


def test_the_page_names_every_key_of_a_log_line() -> None:
    page = (DEPLOY.parent / "docs/how-to/monitor.md").read_text()
    rows = page.split("| key |")[1].split("\n\n")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)) == logs.KEYS
