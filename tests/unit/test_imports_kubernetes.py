"""CronJobs of Kubernetes: their schedules, what a Job becomes, and what is left out or refused."""

from __future__ import annotations

import pytest

from bedrockjobs.imports import kubernetes
from bedrockjobs.imports.imported import ImportedSchedule, Unreadable

SECRET = "{name: A, valueFrom: {}}"
CONTAINER = "image: i, command: [/bin/x]"


def cronjob(spec: str = "", job: str = "", container: str = CONTAINER, pod: str = "") -> ImportedSchedule:
    """Read one manifest, in which ``schedule`` is ``@daily`` unless the spec has one."""
    schedule = "" if "schedule:" in spec else "schedule: '@daily', "
    template = f"{{spec: {{{pod} containers: [{{{container}}}]}}}}"
    text = (
        f"kind: CronJob\nmetadata: {{name: a}}\n"
        f"spec: {{{schedule}{spec} jobTemplate: {{spec: {{{job} template: {template}}}}}}}\n"
    )
    (found,) = kubernetes.parse_kubernetes(text)
    return found


@pytest.mark.parametrize(
    ("said", "expression"),
    [
        ("*/5 * * * *", "*/5 * * * *"),
        ("5/20 * * * *", "5/20 * * * *"),
        ("0 0 ? * MON-fri", "0 0 * * MON-fri"),
        ("0 0 */1 * 1", "0 0 * * 1"),
        ("0 0 1,* * 1", "0 0 * * 1"),
        ("0 0 */2 * 1", "0 0 */2 * 1"),
        ("@midnight", "@midnight"),
        ("0 0 * * 2-fri", "0 0 * * 2-fri"),
    ],
)
def test_schedules(said: str, expression: str) -> None:
    """A field with * among its terms is unrestricted, also with a step of 1."""
    found = cronjob(f"schedule: '{said}',")
    assert (found.refused, found.expression) == ("", expression)
    assert not found.differs


@pytest.mark.parametrize(
    "said",
    ["@every 1h", "@reboot", "0 0 * * 7", "0 0 * * 5-7", "0 0 L * *", "0 0 0 * * *", "0 22-2 * * *", ""],
)
def test_schedules_that_kubernetes_or_this_server_lacks(said: str) -> None:
    """They are refused, with the text."""
    found = cronjob(f"schedule: '{said}',")
    assert found.refused
    assert not found.repeat


@pytest.mark.parametrize(
    ("said", "expression", "warning"),
    [
        ("*/100 * * * *", "*/100 * * * *", "minute */100: Kubernetes reads the first value alone"),
        ("0 3-23/24 * * *", "0 3-23/24 * * *", "hour 3-23/24: Kubernetes reads the first value alone"),
        ("0 *-3 * * *", "0 * * * *", "hour *-3: Kubernetes reads *-3 as *"),
        ("0 1,,2 * * *", "0 1,2 * * *", "hour 1,,2: Kubernetes leaves out empty terms"),
    ],
)
def test_terms_that_surprise_are_said(said: str, expression: str, warning: str) -> None:
    """And written as Kubernetes reads them."""
    found = cronjob(f"schedule: '{said}',")
    assert (found.refused, found.expression) == ("", expression)
    assert f"{warning}; written so" in found.warnings
    assert not found.differs


@pytest.mark.parametrize("term", ["51-14,*/1,6-46", "*/3,60,*/1", "*,mon", "1-2-3,*", "x,*", "*,*/0"])
def test_a_star_hides_no_other_term(term: str) -> None:
    """What Kubernetes refuses is refused, also beside a term that means everything."""
    assert cronjob(f"schedule: '{term} * * * *',").refused


def test_options() -> None:
    """Each has its counterpart, and the defaults of a Job are kept."""
    found = cronjob(
        "timeZone: Asia/Tokyo, suspend: true, concurrencyPolicy: Forbid, startingDeadlineSeconds: 60,"
        " successfulJobsHistoryLimit: 3, failedJobsHistoryLimit: 1,",
        "activeDeadlineSeconds: 90, backoffLimit: 0,",
    )
    assert (found.zone, found.paused) == ("Asia/Tokyo", True)
    assert found.options == {
        "argv": ["/bin/x"],
        "overlap": "skip",
        "keep_success": 3,
        "keep_fail": 1,
        "max_late": 60,
        "run_timeout": 90,
        "retries": 0,
    }
    options = cronjob().options
    assert options["retries"] == 6
    assert options.items() >= kubernetes.BACKOFF.items()


def test_commands() -> None:
    """Variables are set by env, and replaced as Kubernetes does."""
    found = cronjob(
        container="command: [sh, -c], args: ['echo $(A) $$(A) $(B) $A'],"
        " env: [{name: A, value: '1'}, {name: C}]"
    )
    assert found.options["argv"] == ["env", "A=1", "C=", "sh", "-c", "echo 1 $(A) $(B) $A"]
    found = cronjob(container="image: i, args: [x]")
    assert "argv" not in found.options
    assert any("a worker has to take jobs of this name" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("where", "given", "warning"),
    [
        ("spec", "concurrencyPolicy: Allow,", "Allow: a tick during a run"),
        ("spec", "concurrencyPolicy: Replace,", "Replace: a tick ends"),
        ("spec", "unknown: 1,", "line 3: spec.unknown is left out"),
        ("job", "activeDeadlineSeconds: 1,", "counts all attempts"),
        ("job", "podFailurePolicy: {},", "line 3: spec.jobTemplate.spec.podFailurePolicy is left out"),
        ("pod", "volumes: [],", "template.spec.volumes is left out"),
        ("container", f"{CONTAINER}, resources: {{}}", "container.resources is left out"),
        ("container", f"{CONTAINER}, env: [{SECRET}, {{name: B, value: u:$(A)}}]", "env B refers to A"),
        ("container", f"{CONTAINER}, env: [{SECRET}]", "env A comes from elsewhere"),
    ],
)
def test_what_is_lost_is_said(where: str, given: str, warning: str) -> None:
    """And the job is imported without it."""
    found = cronjob(**{where: given})
    assert not found.refused
    assert any(warning in told for told in found.warnings)


@pytest.mark.parametrize(
    ("where", "given", "why"),
    [
        ("spec", "timeZone: Nowhere,", "Nowhere"),
        ("spec", "suspend: 'yes',", "spec.suspend: line 3: expected true or false"),
        ("spec", "concurrencyPolicy: Never,", "expected Allow, Forbid or Replace"),
        ("job", "backoffLimit: -1,", "backoffLimit: line 3: expected a whole number"),
        ("job", "backoffLimit: true,", "backoffLimit: line 3: expected a whole number"),
        ("job", "completions: 2,", "expected 1"),
        ("pod", "initContainers: [{}],", "initContainers: expected none"),
        ("container", f"command: [x, $(A)], env: [{SECRET}]", "$(A): its value is not in the manifest"),
        ("container", "command: [1]", "expected texts"),
        ("container", "a: 1}, {a: 1", "expected one, not 2"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused(where: str, given: str, why: str) -> None:
    """With its key and line."""
    assert why in cronjob(**{where: given}).refused


def test_a_variable_that_grows_too_long_is_refused() -> None:
    """Each doubles the one before."""
    grown = ", ".join(f"{{name: a{n}, value: x$(a{n - 1})$(a{n - 1})}}" for n in range(1, 30))
    found = cronjob(container=f"command: [x], env: [{grown}]")
    assert f"at most {kubernetes.EXPANDED_CHARS_MAX}" in found.refused


ONE = "{kind: CronJob, metadata: {name: a, namespace: n}, spec: {}}"


def test_files() -> None:
    """Lists and documents are read, other kinds named, and a name must be unique in its namespace."""
    other = "kind: Service\n---\n"
    found = kubernetes.parse_kubernetes(f"{other}kind: List\nitems:\n- {ONE}\n- {ONE}\n")
    assert [(entry.name, entry.place) for entry in found] == [("n/a", "line 5"), ("n/a", "line 6")]
    assert all("have one name" in entry.refused for entry in found)
    assert "line 1: a Service is left out" in found[0].warnings
    assert kubernetes.parse_kubernetes("kind: Service\n") == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: {{ .Values.b }}\n", "helm template"),
        ("a: 1\n", "line 1: expected a Kubernetes manifest"),
        ("kind: CronJob\nkind: CronJob\n", "line 2: 'kind' is given twice"),
        ("a: &a [*a]\n", "line 1: an alias is inside"),
        ("? [a]\n: 1\n", "line 1: expected a key that is a text"),
        ("kind: x\n<<: 1\n", "line 2: <<: expected keys and values"),
    ],
)
def test_files_that_cannot_be_read(text: str, why: str) -> None:
    """They give an error with its line."""
    with pytest.raises(Unreadable, match=why):
        kubernetes.parse_kubernetes(text)
