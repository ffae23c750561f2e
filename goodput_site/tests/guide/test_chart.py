"""The Helm chart: rendered with several sets of values and checked against Kubernetes' own schemas. No cluster here.

Needs helm (`python .ci/helm.py`) and kubernetes-validate; without them it says so.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from goodput_site.guide import content
from goodput_site.tests.guide.tools import tool

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy/helm/goodput-monitor"
TRIAL = ("postgresql.enabled=true", "valkey.enabled=true")
EXTERNAL = ("databaseUrl=postgresql://goodput:x@db/goodput", "redisUrl=redis://broker")
AWAY = ("server.enabled=false", "agent.endpoint=https://g.example/v1/batches", "agent.tokenSecret=t")
SETS = {
    "trial": TRIAL,
    "external": EXTERNAL,
    "public": (*EXTERNAL, "expose=public", "publicUrl=https://g.example", "networkPolicy.enabled=true"),
    "own secret": ("server.existingSecret=mine", "agent.enabled=false"),
    "agent only": AWAY,
    "kmsg": (*AWAY, "agent.kernelLog.source=kmsg"),
    "no kernel log": (*AWAY, "agent.kernelLog.source=none", "networkPolicy.enabled=true"),
    "monitored": (*EXTERNAL, "serviceMonitor.enabled=true", "serviceMonitor.tokenSecret=t"),
    "timescale": (*TRIAL, "postgresql.image=timescale/timescaledb:2.17-pg17"),
}


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    """Run helm."""
    return subprocess.run([tool("helm"), *words], capture_output=True, text=True)


def rendered(values: tuple[str, ...], *more: str) -> subprocess.CompletedProcess[str]:
    """The chart with these values."""
    return helm("template", "goodput", str(CHART), *(word for value in values for word in ("--set", value)), *more)


def objects(values: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rendered objects."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    done = rendered(values)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def containers(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every container of the objects."""
    pods = [each["spec"]["template"]["spec"] for each in found if "template" in each.get("spec", {})]
    return [container for pod in pods for container in pod["containers"]]


def test_the_chart_has_this_version() -> None:
    text = (CHART / "Chart.yaml").read_text()
    assert re.findall(r"(?m)^(?:version|appVersion): (.+)$", text) == [content.version()] * 2


def test_no_unknown_key_is_taken_anywhere() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def walk(part: dict[str, Any], path: str) -> None:
        if "properties" in part:
            assert part["additionalProperties"] is False, path
            for name, inner in part["properties"].items():
                walk(inner, f"{path}.{name}")

    walk(schema, "values")


@pytest.mark.full
def test_helm_lints_it() -> None:
    done = helm("lint", "--strict", str(CHART), *(word for value in EXTERNAL for word in ("--set", value)))
    assert done.returncode == 0, done.stdout


@pytest.mark.full
@pytest.mark.parametrize("name", SETS)
def test_kubernetes_schemas_accept_it(name: str, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    known = [each for each in objects(SETS[name]) if each["kind"] != "ServiceMonitor"]  # a kind that is not Kubernetes'
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(known))
    command = [tool("kubernetes-validate"), "-k", "1.35", "--strict", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((*TRIAL, "agent.endpont=x"), "endpont"),
        ((*TRIAL, "nosuch=1"), "nosuch"),
        ((*TRIAL, "agent.endpoint=ftp://x"), "endpoint"),
        ((*TRIAL, "agent.kernelLog.source=all"), "source"),
        ((*TRIAL, "expose=local"), "expose"),
        ((*TRIAL, "expose=public"), "publicUrl"),
        ((), "databaseUrl"),
        (("server.enabled=false",), "agent.endpoint"),
    ],
)
def test_wrong_values_are_refused(values: tuple[str, ...], words: str) -> None:
    done = rendered(values)
    assert done.returncode != 0
    assert words in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("name", SETS)
def test_only_kmsg_is_privileged_and_nobody_else_has_a_capability(name: str) -> None:
    for container in containers(objects(SETS[name])):
        context = container["securityContext"]
        if name == "kmsg":
            assert context["privileged"]
        else:
            assert "privileged" not in context
            assert context["capabilities"] == {"drop": ["ALL"]}, container["name"]
            assert context["allowPrivilegeEscalation"] is False


@pytest.mark.full
def test_the_guides_own_lines_render() -> None:
    """`helm install` needs a cluster; the same words with `template` do not."""
    page = next(page for page in content.PAGES if page.name == "kubernetes")
    lines = re.findall(r"(?m)^helm install (.+)$", content.text_of(page, "http://localhost:8080"))
    assert len(lines) == 2
    for line in lines:
        words = [str(CHART) if word.startswith("deploy/") else word for word in line.split()]
        done = helm("template", *words)
        assert done.returncode == 0, done.stderr
        assert "kind: DaemonSet" in done.stdout


@pytest.mark.full
def test_secrets_are_of_this_installation() -> None:
    first, second = (secrets_of(objects(TRIAL))["goodput-server"] for _ in range(2))
    assert first["GOODPUT_SECRET_KEY"] != second["GOODPUT_SECRET_KEY"]
    assert len(first["GOODPUT_SECRET_KEY"]) >= 50
    assert not any(word in " ".join(first.values()) for word in ("devtoken", "devpassword", "devsecret"))


def secrets_of(found: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """The values of each secret, by its name."""
    return {each["metadata"]["name"]: each["stringData"] for each in found if each["kind"] == "Secret"}


@pytest.mark.full
def test_only_the_job_that_makes_the_servers_role_knows_the_superuser() -> None:
    found = objects(TRIAL)
    secrets = secrets_of(found)
    admin = secrets["goodput-postgresql"]["POSTGRES_ADMIN_PASSWORD"]
    assert secrets["goodput-server"]["DATABASE_URL"].startswith("postgresql://goodput_server:")
    assert admin not in " ".join(secrets["goodput-server"].values())
    knowing = {each["name"] for each in containers(found) if "goodput-postgresql" in json.dumps(each)}
    assert knowing == {"postgresql", "prepare"}
    external = objects(EXTERNAL)
    assert list(secrets_of(external)) == ["goodput-server"]
    assert "POSTGRES_ADMIN_USER" not in json.dumps(external)
