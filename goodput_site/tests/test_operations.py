"""The server's own metrics and logs: counted where it happens, read by whoever may, described, and free of secrets."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from django.utils import timezone

from fleet.summary.models import JobBeat, OrgSummary
from goodput_site import counters, operations
from goodput_site.request_log import AddRequestId, JsonLines, with_ids

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-for-prometheus"
pytestmark = pytest.mark.django_db


@pytest.fixture
def page(settings: Any) -> Any:
    """The metrics as a scraper reads them."""
    settings.GOODPUT_METRICS_TOKEN = TOKEN
    return lambda: Client().get("/provider/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).content.decode()


def test_what_is_counted_is_added_up_and_shown(page: Any) -> None:
    counters.flush()  # what other tests of this process counted
    before = counters.read().get(("goodput_ingest_batches_total", "stored"), 0)
    counters.count("goodput_ingest_batches_total", "stored")
    counters.count("goodput_ingest_batches_total", "stored")
    counters.flush()
    assert counters.read()["goodput_ingest_batches_total", "stored"] == before + 2
    assert f'goodput_ingest_batches_total{{outcome="stored"}} {int(before + 2)}\n' in page()


def test_gauges_are_the_orgs_summaries(page: Any) -> None:
    now = timezone.now()
    OrgSummary.objects.create(
        org_id=4711, as_of=now, waiting_batches=12, oldest_unfolded_seconds=34, failed_batches=1, dropped_total=5
    )
    JobBeat.objects.create(name="a-job", at=now)
    text = page()
    assert 'goodput_inbox_waiting_batches{org="4711"} 12\n' in text
    assert 'goodput_inbox_oldest_seconds{org="4711"} 34\n' in text
    assert 'goodput_inbox_failed_batches{org="4711"} 1\n' in text
    assert 'goodput_agents_dropped_batches_total{org="4711"} 5\n' in text
    assert 'goodput_job_beat_timestamp_seconds{job="a-job"} ' in text
    assert "goodput_counters_up 1\n" in text


def test_a_broker_that_is_away_is_said_and_costs_no_counts(page: Any, settings: Any, monkeypatch: Any) -> None:
    import redis

    counters.flush()
    away = redis.Redis(port=1, socket_connect_timeout=0.2)
    monkeypatch.setattr(counters, "_client", [away])
    counters.count("goodput_task_runs_total", "kept")
    with contextlib.suppress(redis.RedisError):  # unless the process's own thread has just tried
        counters.flush()
    assert "goodput_counters_up 0\n" in page()
    monkeypatch.undo()
    settings.GOODPUT_METRICS_TOKEN = TOKEN
    key = ("goodput_task_runs_total", "kept")
    for _ in range(200):  # the process's own thread may be at it
        counters.flush()
        if key in counters.read():
            break
        time.sleep(0.05)
    assert counters.read()[key] == 1


@pytest.mark.parametrize("given", ["", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", "Bearer Ä"])
def test_without_the_token_there_is_no_such_page(given: str, settings: Any) -> None:
    for token in ("", TOKEN):
        settings.GOODPUT_METRICS_TOKEN = token
        assert Client().get("/provider/metrics", headers={"Authorization": given}).status_code in (302, 404)


def test_an_upload_is_counted_by_what_came_of_it(settings: Any) -> None:
    from goodput_site.wsgi import application

    counters.flush()
    before = counters.read()
    environ = {
        "REQUEST_METHOD": "POST", "PATH_INFO": "/v1/batches", "SERVER_NAME": "localhost", "SERVER_PORT": "80",
        "HTTP_HOST": "localhost", "CONTENT_TYPE": "text/plain", "CONTENT_LENGTH": "1", "wsgi.input": io.BytesIO(b"x"),
        "wsgi.url_scheme": "http", "SERVER_PROTOCOL": "HTTP/1.1", "wsgi.errors": io.StringIO(),
    }  # fmt: skip
    answered: list[Any] = []
    body = b"".join(application(environ, lambda status, headers: answered.extend((status, dict(headers)))))
    code = json.loads(body)["code"]
    counters.flush()
    key = ("goodput_ingest_refusals_total", code)
    assert counters.read()[key] == before.get(key, 0) + 1
    assert re.fullmatch(r"[0-9a-f]{16}", answered[1]["X-Request-Id"])


def test_metrics_are_described_and_alerts_use_those_that_there_are() -> None:
    handbook = (ROOT / "docs/handbook/monitoring.md").read_text()
    described = dict(re.findall(r"^\| `(goodput_\w+)` \| (\w+) \|", handbook, re.M))
    assert described == {name: kind for name, (kind, _, _) in operations.METRICS.items()}
    rules = yaml.safe_load((ROOT / "deploy/prometheus/goodput-alerts.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len(alerts) > 5
    for rule in alerts:
        used = set(re.findall(r"goodput_\w+", rule["expr"]))
        assert used, rule["alert"]
        assert used <= set(operations.METRICS), rule["alert"]
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]


def _asked(path: str, **more: str) -> tuple[list[logging.LogRecord], dict[str, str]]:
    """The lines that one request caused, and its answer's headers."""
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    def application(environ: Any, start_response: Any) -> list[bytes]:
        logging.getLogger("goodput.trial").warning("inside")
        start_response("404 Not Found" if "missing" in environ["PATH_INFO"] else "200 OK", [])
        return [b""]

    keep = Keep()
    keep.addFilter(AddRequestId())
    loggers = [logging.getLogger(name) for name in ("goodput.request", "goodput.trial")]
    for logger in loggers:
        logger.addHandler(keep)
        logger.setLevel(logging.INFO)
    headers: dict[str, str] = {}
    try:
        wsgi = with_ids(application, ("/v1/batches", "/static/"))
        wsgi({"PATH_INFO": path, "REQUEST_METHOD": "GET", **more}, lambda status, given: headers.update(given))
    finally:
        for logger in loggers:
            logger.removeHandler(keep)
    return records, headers


def test_every_line_of_a_request_bears_its_id_and_so_does_the_answer() -> None:
    records, headers = _asked("/o/alpha/", QUERY_STRING="token=secret", HTTP_X_REQUEST_ID="from-the-proxy.1")
    assert headers["X-Request-Id"] == "from-the-proxy.1"
    assert [record.request_id for record in records] == ["from-the-proxy.1"] * 2  # type: ignore[attr-defined]
    assert records[1].getMessage().startswith("GET /o/alpha/ 200 ")
    assert "secret" not in "".join(JsonLines().format(record) for record in records)


def test_an_id_that_could_break_a_line_is_not_taken() -> None:
    for given in ("a\r\nb: c", "x" * 65, "short", "ünicode-id"):
        _, headers = _asked("/", HTTP_X_REQUEST_ID=given)
        assert re.fullmatch(r"[0-9a-f]{16}", headers["X-Request-Id"])
    records, _ = _asked("/a\nb")
    assert "\n" not in records[-1].getMessage()


def test_uploads_that_go_well_leave_no_line_and_refused_ones_do() -> None:
    for quiet in ("/v1/batches", "/static/app.css"):
        assert [record.name for record in _asked(quiet)[0]] == ["goodput.trial"]
    assert [record.name for record in _asked("/missing")[0]] == ["goodput.trial", "goodput.request"]


def test_a_json_line_is_one_object_with_its_traceback() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.getLogger("x").makeRecord("x", 40, "f", 1, "it %s", ("failed",), __import__("sys").exc_info())
    text = JsonLines().format(record)
    line = json.loads(text)
    assert "\n" not in text
    assert (line["level"], line["message"], line["request"]) == ("ERROR", "it failed", "-")
    assert "ValueError" in line["traceback"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["at"])
