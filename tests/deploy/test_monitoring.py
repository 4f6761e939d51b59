"""The dashboard, the alert rules and the monitoring page name only existing metrics, commands and checks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import click
import pytest
from prometheus_client import CollectorRegistry, ProcessCollector

from bedrockjobs.base.principal import Scope
from bedrockjobs.base.settings import Settings
from bedrockjobs.cli import main as program
from bedrockjobs.commands.overview import OverviewReply
from bedrockjobs.engine.events import Listeners, RunEnded, RunOpened, TicksEntered
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.job.eligibility import EligibleWorkers, Pauses
from bedrockjobs.observe import logs
from bedrockjobs.observe.prometheus import Metrics
from bedrockjobs.observe.stats import Measurements
from bedrockjobs.store.base import ServerRow
from bedrockjobs.views.queues import Held, QueuedGroup, QueueSnapshot, Totals
from tests.deploy.shipped import DEPLOY, parse, yaml

BOARD = DEPLOY / "grafana/bedrockjobs.json"
ALERTS = DEPLOY / "prometheus/alerts.yaml"
STARTED = "2026-01-01 00:00:00.000"
WELL_KNOWN = {"up"}
"""What Prometheus itself knows of a target."""


class _Queue:
    """Fake views, with one ready job of one prefix."""

    ended = False

    def __init__(self) -> None:
        """Serve as the views, too."""
        self.standings = self.queues = self

    def scoped(self, _: Scope | None) -> Any:
        """Return the views of a scope."""
        return self

    async def overview_and_snapshot(self, *, ahead: bool) -> tuple[OverviewReply, QueueSnapshot]:
        """Return an overview."""
        held = Held("2026-01-01 00:00:00", Pauses(()), {}, EligibleWorkers((), {}), {})
        numbers = {name: 0 for name, field in OverviewReply.model_fields.items() if field.annotation is int}
        reply = OverviewReply(**numbers, now=held.now, oldest_ready="", more=[], problems=[], next=[])
        return reply, QueueSnapshot(held, [QueuedGroup("", "mail", "", due=1)], False, [])

    async def add_up(self, look: QueueSnapshot, groups: list[QueuedGroup], totals: Totals) -> None:
        """Add nothing."""

    async def workflows_counted(self, _: str) -> tuple[int, bool]:
        """Return a count of workflows."""
        return 1, False


class _Work:
    """A fake dispatcher."""

    pending = commands = commits = waiting = 0


@pytest.fixture
async def known() -> dict[str, set[str]]:
    """Return the labels of each series that a server has, by its name."""
    views: Any = _Queue()
    measurements = Measurements()
    ended = RunEnded(1, 1, "a", 1, "schedule", "w", "", "", "success", None, "", "", 0.0)
    Listeners([measurements]).publish(
        [
            TicksEntered("fired", 1, 0),
            TicksEntered("skipped", 1, 0, "paused"),
            RunOpened(1, 1, "w", 45, "schedule", 0.0),
            ended,
        ]
    )
    presence = WorkerRegistry()
    presence.servers = [ServerRow("a", "localhost:4000", STARTED, STARTED, "1.0")]
    metrics = Metrics(
        views, views, _Work(), presence, measurements, lambda: {"created": 1}, Settings(database="jobs.db")
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
        ("bedrockjobs_a_total", {"s", "t"}),
        ("process_b", set()),
    ]


def judge(expression: str, known: dict[str, set[str]]) -> None:
    """Check that an expression names existing series and has balanced brackets."""
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
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
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
