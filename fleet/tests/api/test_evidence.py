"""Evidence by hash, exact to the byte; rules as data; metrics and the dashboard that reads them."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from django_tenants.utils import tenant_context

from fleet.domain.rules import load_rules
from fleet.metrics_text import METRICS, NodeFigures, as_text, escape
from fleet.models import Inbox
from fleet.selectors_api import NodeLine
from fleet.selectors_live import read_summary
from fleet.tests.api.conftest import HOSTILE, get

pytestmark = pytest.mark.django_db
DASHBOARD = Path(__file__).resolve().parents[3] / "deploy" / "grafana" / "goodput.json"
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\\\|\\"|\\n)*",?)*)\})? (\S+)')


def test_a_batch_is_given_back_to_the_byte(filled: Any, read: Any) -> None:
    newest = read("/v1/batches").json()["results"][0]
    one = read(f"/v1/batches/{newest['sha256']}").json()
    assert (one["node"], one["seq"], one["received_at"]) == (newest["node"], newest["seq"], newest["received_at"])
    assert one["hours"]["from"] < one["hours"]["to"]
    body = read(one["body"])
    assert body["Content-Type"] == "application/gzip"
    assert hashlib.sha256(zlib.decompress(body.content, wbits=31)).hexdigest() == one["sha256"]
    with tenant_context(filled):
        assert body.content == bytes(Inbox.objects.get(sha256=bytes.fromhex(one["sha256"])).body)
    again = read(one["body"], HTTP_IF_NONE_MATCH=f'"{one["sha256"]}"')
    assert (again.status_code, again.content) == (304, b"")
    assert read(one["body"], HTTP_ACCEPT="application/gzip").content == body.content
    missing = read(f"/v1/batches/{'0' * 64}/body", HTTP_ACCEPT="application/gzip")
    assert (missing.status_code, missing["Content-Type"]) == (404, "application/problem+json")


def test_a_hash_in_capitals_or_with_a_suffix_is_none(ask: Any) -> None:
    for name in ("A" * 64, "0" * 63, "0" * 64 + ".json"):
        assert ask(f"/v1/batches/{name}").status_code == 404


def test_rules_are_those_of_the_fold(ask: Any) -> None:
    rules = load_rules()
    answer = ask("/v1/rules").json()
    assert (answer["version"], answer["digest"]) == (rules.version, rules.digest)
    assert [rule["code"] for rule in answer["results"]] == sorted(rules.reasons)
    assert ask(f"/v1/rules?version={rules.version}").json() == answer
    one = ask("/v1/rules/XID_79").json()
    assert (one["party"], one["xid"], one["weight"]) == ("infrastructure", 79, rules.reasons["XID_79"].weight)
    assert one["ends_in_words"]


def test_switch_events_are_named_by_their_rule() -> None:
    from types import SimpleNamespace

    from fleet.api_shapes import event

    raw = {"kind": "sxid", "code": 12028, "pci_bus_id": None, "severity": "nonfatal"}
    fact = SimpleNamespace(event=SimpleNamespace(**raw), ms=0, sha256=b"x" * 32, received_at=None, is_clock_good=True)
    rules = load_rules()
    expected = rules.sxid(12028, "nonfatal")
    assert expected is not None
    assert event(fact, line_of(1, 1), rules)["reason"] == expected.code  # type: ignore[arg-type]


def samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    """The samples of a metrics page; fails on a line that is none."""
    found = []
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("#"):
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        labels = dict(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', match[2] or ""))
        found.append((match[1], labels, float(match[3])))
    return found


def test_metrics_say_what_the_api_says(filled: Any, read: Any, north_id: int) -> None:
    response = read("/metrics", HTTP_ACCEPT="application/openmetrics-text;version=1.0.0,text/plain;q=0.5,*/*;q=0.1")
    assert response["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = samples(response.content.decode())
    by_name: dict[str, list[tuple[dict[str, str], float]]] = {}
    for name, labels, value in found:
        by_name.setdefault(name, []).append((labels, value))
    for gpu in read("/v1/gpus").json()["results"]:
        mine = {"node_id": str(gpu["node_id"]), "gpu": str(gpu["index"])}.items()
        lower = [v for labels, v in by_name["goodput_gpu_weight_lower_loss_ratio"] if mine <= labels.items()]
        assert lower == [gpu["lower_loss_weight"] / 100]
        states = {labels["state"]: v for labels, v in by_name["goodput_gpu_state"] if mine <= labels.items()}
        assert states == {word: float(word == gpu["state"]) for word in states}
        assert len(states) == 5
    names = {labels["node"] for labels, _ in by_name["goodput_node_gpus"]}
    assert names == {"north-1", escape(HOSTILE)}
    assert set(by_name) <= set(METRICS)
    helped = re.findall(r"^# TYPE (\S+) (\S+)$", response.content.decode(), re.MULTILINE)
    assert helped == [(name, METRICS[name][0]) for name in METRICS if name in by_name]
    only = read("/metrics?cluster=south").content.decode()
    assert "north" not in only


def test_metrics_want_a_key_that_reads(alpha: Any, key_of: Any, lan: Any) -> None:
    for token, status in ((None, 401), ("gp_nobody", 401), (key_of(alpha, "ingest"), 403)):
        response = get("/metrics", token)
        assert (response.status_code, response["Content-Type"]) == (status, "application/problem+json")


def line_of(node_id: int, gpus: int, name: str = "n") -> NodeLine:
    """A node with so many GPUs, all available."""
    subjects = [
        {"subject": f"g{i}", "kind": "gpu", "device": f"GPU-{node_id}-{i}", "state": "observed", "nominal": 100}
        for i in range(gpus)
    ]
    now = read_summary(json.dumps({"subjects": subjects}), False)
    return NodeLine(node_id, f"{name}{node_id}", "c", False, 0, 1000, 1000, "1", 0, 0, 0, now)


def test_labels_of_any_content_stay_in_their_quotes() -> None:
    for name in ('a"} 1\nx{y="', "back\\slash\\", "\n", '\\"', "ü\u2028"):
        found = samples(as_text([line_of(1, 1, name)], {}))
        assert {labels["node"] for _, labels, _ in found if "node" in labels} == {escape(f"{name}1")}


def test_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(nodes: int) -> int:
        return len(samples(as_text([line_of(i, 8) for i in range(nodes)], {})))

    per_node = count(2) - count(1)
    assert per_node <= 8 * 10 + 15
    monkeypatch.setattr("fleet.metrics_text.MAX_GPUS", 8)
    found = samples(as_text([line_of(1, 8), line_of(2, 8)], {1: NodeFigures(100, 1, 1)}))
    assert ("goodput_metrics_truncated", {}, 1.0) in found
    assert not any(name.startswith("goodput_gpu_") for name, _, _ in found)


def test_the_dashboard_reads_the_metrics_that_there_are_and_all_of_them() -> None:
    board = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    queries += [str(variable["query"]) for variable in board["templating"]["list"] if variable["type"] == "query"]
    assert queries
    used = {name for query in queries for name in re.findall(r"goodput_[a-z_]+", query)}
    assert used == set(METRICS)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in board["panels"]:
        assert panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
