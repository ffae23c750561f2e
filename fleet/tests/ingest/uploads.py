"""Uploads for tests: hostile bodies, and a way to post them through the very handler that serves agents."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import msgpack
from django.db import connection

from agent import wire
from fleet.api_ingest import Upload
from fleet.tests.bodies import batch, gpu, interval
from goodput_site.wsgi import INGEST_PATH

TS = 1_790_000_002_500  # 2026-09-21, the centre of a slot


@dataclass(frozen=True)
class Answer:
    """What came back: status, headers by lower-case name, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        """The machine code of a problem document, None for a receipt. Fails if a refusal is no problem document."""
        if self.status < 400:
            return None
        assert self.headers["content-type"] == "application/problem+json", self
        problem = self.json()
        assert problem["status"] == self.status
        code: str = problem["code"]
        return code


def post(body: bytes, token: str | None = None, stream: Any = None, **environ: str | None) -> Answer:
    """POST to the application of uploads, as goodput_site/wsgi.py routes it. None in `environ` removes a key."""
    env: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": INGEST_PATH,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "localhost",
        "CONTENT_TYPE": wire.CONTENT_TYPE,
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": "gzip",
        "wsgi.url_scheme": "http",
        "wsgi.input": stream or BytesIO(body),
        "wsgi.errors": BytesIO(),
    }
    if token is not None:
        env["HTTP_AUTHORIZATION"] = f"Bearer {token}"
    env.update(environ)
    env = {key: value for key, value in env.items() if value is not None}
    said: list[Any] = []
    content = b"".join(Upload()(env, lambda status, headers: said.append((status, headers))))
    status, headers = said[0]
    return Answer(int(status.split()[0]), {name.lower(): value for name, value in headers}, content)


def post_raw(raw: bytes, token: str, **environ: str | None) -> Answer:
    """POST these MessagePack bytes as one gzip member."""
    return post(gzip.compress(raw, 1, mtime=0), token, **environ)


def count(org: Any, where: str = "true") -> int:
    """The rows of an org's inbox."""
    with connection.cursor() as cursor:
        cursor.execute(f'select count(*) from "{org.schema_name}".fleet_inbox where {where}')
        return int(cursor.fetchone()[0])


def holding(table: str, **keys: Any) -> dict[str, Any]:
    """A batch of one sample that holds one map of this table of the wire, with these keys over its required ones."""
    if table == "BATCH":
        return batch(TS, intervals=[interval(TS)], **keys) if "intervals" not in keys else batch(TS, **keys)
    if table == "SYNC":
        return holding("BATCH", sync={"received_at": TS, "boottime": 5, **keys})
    if table == "INTERVAL":
        return batch(TS, intervals=[{**interval(TS), **keys}])
    if table == "CLOCK":
        return holding("INTERVAL", clock={"status": "synchronised", **keys})
    if table == "GPU":
        return holding("INTERVAL", gpus=[gpu(0, **keys)])
    if table in ("ROW_REMAP", "FABRIC"):
        return holding("GPU", **{table.lower(): keys})
    if table == "PORT":
        return holding("INTERVAL", ib_ports=[{"device": "mlx5_0", "port": 1, **keys}])
    if table == "XID":
        return holding("INTERVAL", xids=[{"code": 79, **keys}])
    if table == "PCI_LINK":
        return holding("INTERVAL", pci_links=[{"pci_bus_id": "0000:3b:00.0", **keys}])
    return holding("INTERVAL", events=[{"kind": "xid", **keys}])


def packed_raw(value: Any) -> bytes:
    """MessagePack of anything, contract or not."""
    raw: bytes = msgpack.packb(value, use_bin_type=True)
    return raw


def with_extra(value: bytes, key: bytes = b"\xa1x") -> bytes:
    """A healthy batch with one more key, given as raw MessagePack."""
    raw = packed_raw(holding("BATCH"))
    return bytes([raw[0] + 1]) + raw[1:] + key + value


def bomb() -> bytes:
    """A gzip member of a GiB of zeros in about 1 MB: one compressed block, repeated. Its checksum is wrong."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros, times = bytes(16 << 20), 64
    first = squeeze.compress(zeros) + squeeze.flush(zlib.Z_FULL_FLUSH)
    block = squeeze.compress(zeros) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return first + block * (times - 1) + squeeze.flush()
