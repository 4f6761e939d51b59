"""The files of `deploy/` for servers on PostgreSQL: names refer to defined objects, and settings exist."""

from __future__ import annotations

import configparser
from typing import Any
from urllib.parse import urlsplit

import pytest
from bedrock_worker.cli import main as worker_program

from bedrockjobs.base.settings import Settings
from bedrockjobs.client.address import addresses_of
from bedrockjobs.store.postgresql.session import DatabaseSession
from tests.deploy.shipped import DEPLOY, parse, yaml
from tests.postgresql.cluster import CLUSTER

VARIABLES = {f"BEDROCKJOBS_{field.upper()}" for field in Settings.model_fields}
CONNECTIONS = 6
"""Of each server."""


@pytest.fixture
def compose() -> Any:
    """Return the services of Compose."""
    (found,) = yaml("container/compose.postgresql.yaml")
    return found


@pytest.fixture
def pooler() -> configparser.ConfigParser:
    """Return the settings of pgbouncer."""
    found = configparser.ConfigParser()
    assert found.read(DEPLOY / "container/pgbouncer.ini")
    return found


def test_compose_starts_two_equal_servers(compose: Any) -> None:
    one, other = (compose["services"][name] for name in ("jobs-1", "jobs-2"))
    apart = {"hostname", "ports"}
    assert {key: one[key] for key in one.keys() - apart} == {key: other[key] for key in other.keys() - apart}
    assert one["hostname"] != other["hostname"], "servers are told apart by their hosts"
    here = DEPLOY / "container" / one["build"]["context"]
    assert (here / one["build"]["dockerfile"]).resolve() == DEPLOY / "container/Containerfile"
    ports = [port for server in (one, other) for port in server["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in ports), "nobody has to log in"
    assert len(set(ports)) == 2


def test_the_urls_of_compose_lead_to_its_services(compose: Any, pooler: configparser.ConfigParser) -> None:
    services, server = compose["services"], compose["services"]["jobs-1"]["environment"]
    through, direct = (urlsplit(server[f"BEDROCKJOBS_{name}"]) for name in ("DATABASE", "DATABASE_DIRECT"))
    there = services["postgresql"]["environment"]
    assert {through.hostname, direct.hostname} <= set(services)
    assert direct.username == through.username == there["POSTGRES_USER"]
    assert direct.path == through.path == f"/{there['POSTGRES_DB']}"
    assert through.port == pooler.getint("pgbouncer", "listen_port")
    leads = dict(word.split("=") for word in pooler["databases"][through.path[1:]].split())
    assert (leads["host"], int(leads["port"]), leads["dbname"]) == (
        direct.hostname,
        direct.port,
        direct.path[1:],
    )
    assert "password" not in through.netloc + direct.netloc
    assert server["PGPASSWORD"] == there["POSTGRES_PASSWORD"]
    assert server["PGPASSWORD"] in compose["configs"]["users"]["content"]


def test_what_the_services_are_given_is_there(compose: Any, pooler: configparser.ConfigParser) -> None:
    services = compose["services"]
    assert set(compose["volumes"]) == {"postgresql"}
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
    given = {each["source"]: each["target"] for each in services["pgbouncer"]["configs"]}
    assert set(given) == set(compose["configs"])
    assert (DEPLOY / "container" / compose["configs"]["pgbouncer"]["file"]).is_file()
    assert given["pgbouncer"] in services["pgbouncer"]["build"]["dockerfile_inline"]
    assert pooler["pgbouncer"]["auth_file"] == given["users"]
    assert pooler.getint("pgbouncer", "max_client_conn") >= 2 * CONNECTIONS


def test_the_workers_of_compose_know_both_servers(compose: Any) -> None:
    worker = compose["services"]["worker"]
    parse(worker_program, worker["command"][1:])
    addresses = addresses_of(worker["environment"]["BEDROCKJOBS_WORKER_SERVER"])
    assert [address.host for address in addresses] == ["jobs-1", "jobs-2"]  # type: ignore[union-attr]


def test_the_image_has_the_driver() -> None:
    assert "/src[postgresql]" in (DEPLOY / "container/Containerfile").read_text()


def test_the_variables_of_servers_are_settings(compose: Any) -> None:
    given = {name for name in compose["services"]["jobs-1"]["environment"] if name.startswith("BEDROCK")}
    assert {"BEDROCKJOBS_DATABASE", "BEDROCKJOBS_DATABASE_DIRECT"} <= given <= VARIABLES


# --- Kubernetes ------------------------------------------------------------------------------------------


def kubernetes(name: str) -> dict[tuple[str, str], Any]:
    """Return the objects of a file by their kinds and names."""
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml(f"kubernetes/{name}.yaml")}


def test_kubernetes_starts_servers_that_any_worker_finds_as_before() -> None:
    alone, shared = kubernetes("bedrockjobs"), kubernetes("postgresql")
    for key in (("Service", "bedrockjobs"), ("NetworkPolicy", "bedrockjobs")):
        assert shared[key] == alone[key]
    servers = shared["Deployment", "bedrockjobs"]
    assert servers["spec"]["replicas"] == 2
    labels = servers["spec"]["template"]["metadata"]["labels"]
    for key in (("PodDisruptionBudget", "bedrockjobs"), ("NetworkPolicy", "bedrockjobs")):
        spec = shared[key]["spec"]
        assert (spec.get("selector") or spec["podSelector"])["matchLabels"].items() <= labels.items()
    pod, other = (each["spec"]["template"]["spec"] for each in (servers, alone["StatefulSet", "bedrockjobs"]))
    assert pod["enableServiceLinks"] is False
    assert pod["terminationGracePeriodSeconds"] > Settings.model_fields["drain_s"].default
    (container,), (alike,) = pod["containers"], other["containers"]
    for key in ("startupProbe", "livenessProbe", "readinessProbe", "ports", "securityContext"):
        assert container[key] == alike[key]
    assert {each["name"] for each in container["env"]} <= VARIABLES
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


def test_the_servers_use_the_database_that_the_operator_makes() -> None:
    found = kubernetes("postgresql")
    ((kind, name),) = (key for key in found if key[0] == "Cluster")
    spec = found[kind, name]["spec"]
    (container,) = found["Deployment", "bedrockjobs"]["spec"]["template"]["spec"]["containers"]
    (variable,) = container["env"]
    assert variable["name"] == "BEDROCKJOBS_DATABASE"
    assert variable["valueFrom"]["secretKeyRef"] == {"name": f"{name}-app", "key": "uri"}
    assert spec["bootstrap"]["initdb"]["encoding"] == "UTF8"
    assert 0 < spec["postgresql"]["synchronous"]["number"] < spec["instances"] - 1, "one may be lost"


# --- Patroni ---------------------------------------------------------------------------------------------


def test_patroni_never_promotes_without_the_last_commits() -> None:
    (found,) = yaml("patroni/patroni.yml")
    shared = found["bootstrap"]["dcs"]
    assert shared["synchronous_mode"] is shared["synchronous_mode_strict"] is True
    assert shared["ttl"] >= shared["loop_wait"] + 2 * shared["retry_timeout"], "Patroni demands that"
    assert found["watchdog"]["mode"] == "required"
    assert {"encoding": "UTF8"} in found["bootstrap"]["initdb"]


def test_postgresql_knows_the_parameters_that_patroni_gives_it() -> None:
    (found,) = yaml("patroni/patroni.yml")
    given = found["bootstrap"]["dcs"]["postgresql"]["parameters"]
    session = DatabaseSession(CLUSTER.url, "public")
    query = "SELECT name FROM pg_settings WHERE name = ANY ($1::text[])"
    known = session.run_statements([(query, (list(given),))])[0]
    session.close()
    assert {name for (name,) in known} == set(given)
