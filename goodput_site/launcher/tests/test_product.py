"""The product itself under the launcher: data flows within a minute, and no kill loses a receipted batch."""

import contextlib
import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from fleet.tests.bodies import SLOT_MS, packed

from ..processes import http_get
from .conftest import Installation, eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def product() -> Iterator[Installation]:
    with contextlib.closing(Installation("product", real=True)) as made:
        yield made.up()


def test_simulated_node_is_in_the_fleet_within_a_minute(product: Installation) -> None:
    eventually(lambda: '"demo"' in http_get(product.port, "/v1/fleet")[1], seconds=60)
    assert http_get(product.port, "/readyz")[0] == 200
    assert http_get(product.port, "/")[0] in (200, 302)


def test_a_fresh_server_offers_a_release(product: Installation) -> None:
    """So that the one line of the guide works from it with nothing else done."""
    status, manifest = http_get(product.port, "/releases/manifest.json")
    assert status == 200
    assert all(http_get(product.port, file["url"])[0] == 200 for file in json.loads(manifest)["files"])


class Sender(threading.Thread):
    """Posts batch after batch like an agent: the next one only when the last one has its receipt."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.receipts: list[str] = []
        self.failures = 0
        self.enough = threading.Event()

    def run(self) -> None:
        # two weeks ago: a quick machine sends a day's worth of minutes within this test, and none may lie ahead of now
        first_ts = (int(time.time() * 1000) // SLOT_MS - 14 * 5760) * SLOT_MS + SLOT_MS // 2
        while not self.enough.is_set():
            ts = first_ts + len(self.receipts) * 4 * SLOT_MS
            body, sha256 = packed(first_ts=ts, node_id="killed-about", seq=len(self.receipts) + 1)
            if self.post(body) == sha256:
                self.receipts.append(sha256)
            else:
                self.failures += 1
                time.sleep(0.1)

    def post(self, body: bytes) -> str:
        """The hash in the receipt; empty when there is none."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            link.request(
                "POST", "/v1/batches", body, {"Content-Type": "application/msgpack", "Content-Encoding": "gzip"}
            )
            answer = link.getresponse()
            return json.loads(answer.read())["batch_sha256"] if answer.status == 202 else ""
        except (OSError, http.client.HTTPException):
            return ""
        finally:
            link.close()


def test_no_kill_loses_a_receipted_batch(product: Installation) -> None:
    sender = Sender(product.port)
    sender.start()
    for name in ("web", "worker", "valkey", "pg") * 2:
        sent = len(sender.receipts)
        eventually(lambda sent=sent: len(sender.receipts) > sent + 20, lambda: f"{sender.failures} failures")
        before = product.part(name)
        os.kill(before["pid"], signal.SIGKILL)
        eventually(lambda name=name, before=before: product.part(name)["pid"] not in (None, before["pid"]))
    sent = len(sender.receipts)
    eventually(lambda: len(sender.receipts) > sent + 20, lambda: f"{sender.failures} failures")
    sender.enough.set()
    sender.join(20)

    url = json.loads((product.folder / "var/run/env.json").read_text())["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as database:
        (schema,) = database.execute("SELECT schema_name FROM orgs_org WHERE slug = 'local'").fetchone() or ("",)
        rows = f"FROM \"{schema}\".fleet_inbox WHERE node = 'killed-about'"
        kept = [row[0] for row in database.execute(f"SELECT encode(sha256, 'hex') {rows}")]
        assert set(sender.receipts) <= set(kept)
        assert len(kept) == len(set(kept))
        unfolded = f"SELECT count(*) FROM \"{schema}\".fleet_waiting WHERE node = 'killed-about'"
        eventually(lambda: database.execute(unfolded).fetchone() == (0,), lambda: "some are never folded")
        # What the crashes took of the open hours came back: every receipted minute is in the strips, each once.
        seconds = (
            f'SELECT coalesce(sum(observed_s / gpus), 0) FROM "{schema}".fleet_nodehour h'
            f" JOIN \"{schema}\".fleet_node n ON n.id = h.node_id WHERE n.name = 'killed-about' AND gpus > 0"
        )
        least, most = 60 * len(sender.receipts) - 60, 60 * len(kept)
        eventually(
            lambda: least <= (database.execute(seconds).fetchone() or (0,))[0] <= most,
            lambda: f"{database.execute(seconds).fetchone()} observed seconds, not {least} to {most}",
        )
