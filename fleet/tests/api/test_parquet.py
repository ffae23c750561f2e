"""Parquet files of the API, read back by an engine that is none of the writer's: the same as the JSON, with types."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from fleet.api_parquet import MEDIA_TYPE, parquet
from fleet.api_schemas import SlotRun
from fleet.tests.api.conftest import HOSTILE, HOUR_MS, at, start_ms

pytestmark = pytest.mark.django_db


class Table:
    """A Parquet file as DuckDB reads it."""

    def __init__(self, content: bytes, folder: Path):
        file = folder / "table.parquet"
        file.write_bytes(content)
        self.db = duckdb.connect()
        found = self.db.sql(f"select * from read_parquet('{file}')")
        self.types = dict(zip(found.columns, map(str, found.types), strict=True))
        instants = [name for name, kind in self.types.items() if kind == "TIMESTAMP WITH TIME ZONE"]
        chosen = ", ".join(f'epoch_ms("{n}") as "{n}"' if n in instants else f'"{n}"' for n in found.columns)
        rows = self.db.sql(f"select {chosen} from read_parquet('{file}')").fetchall()
        self.rows = [dict(zip(found.columns, row, strict=True)) for row in rows]
        pairs = self.db.sql(f"select key, value from parquet_kv_metadata('{file}')").fetchall()
        self.note = next(json.loads(value) for key, value in pairs if key == b"goodput")


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A JSON result as the table holds it."""
    return {
        name: int(datetime.fromisoformat(value).timestamp() * 1000) if name in ("from", "to")
        else " ".join(value) if isinstance(value, list) else value
        for name, value in row.items()
    }  # fmt: skip


def test_the_tables_are_those_of_the_json(read: Any, north_id: int, tmp_path: Path) -> None:
    span = f"from={at(start_ms())}&to={at(start_ms() + 2 * HOUR_MS)}"
    gpu = f"/v1/gpus/{north_id}/1"
    for path in (f"{gpu}/slots?{span}", f"{gpu}/hours?{span}", f"/v1/availability?{span}&group=gpu"):
        page = read(path).json()
        answer = read(path, HTTP_ACCEPT=MEDIA_TYPE)
        assert answer["Content-Type"] == MEDIA_TYPE
        table = Table(answer.content, tmp_path)
        assert page["results"]
        wanted = [plain(row) for row in page["results"]]
        assert [{name: row[name] for name in one} for one, row in zip(wanted, table.rows, strict=True)] == wanted, path
        assert table.note["from"] == page["from"]
        by_suffix = read(path.replace("?", ".parquet?", 1))
        assert (by_suffix.content, by_suffix["ETag"]) == (answer.content, answer["ETag"])
    assert (table.types["from"], table.types["simulated"]) == ("TIMESTAMP WITH TIME ZONE", "BOOLEAN")
    assert (table.types["known_seconds"], table.types["availability_percent"]) == ("BIGINT", "VARCHAR")
    assert HOSTILE in {row["node"] for row in table.rows}  # exact: it is no spreadsheet


def test_long_ranges_are_for_parquet_and_what_can_not_be_is_a_problem(read: Any, north_id: int, tmp_path: Path) -> None:
    now = int(datetime.now(UTC).timestamp() * 1000)
    for path, days in (("slots", 90), ("hours", 399)):
        long = f"/v1/gpus/{north_id}/1/{path}?from={at(now - days * 24 * HOUR_MS)}"
        assert read(long).status_code == 422
        table = Table(read(long, HTTP_ACCEPT=MEDIA_TYPE).content, tmp_path)
        assert {row["row"] for row in table.rows} >= {"none", "provisional"}
        assert table.rows[-1]["to"] - table.rows[0]["from"] >= days * 24 * HOUR_MS - HOUR_MS
    beyond = read(f"/v1/gpus/{north_id}/1/slots.parquet?from={at(now - 93 * 24 * HOUR_MS)}")
    assert (beyond.status_code, beyond["Content-Type"]) == (422, "application/problem+json")
    assert "Page through it" in beyond.json()["errors"]["to"][0]
    assert read("/v1/nodes", HTTP_ACCEPT=MEDIA_TYPE).status_code == 406
    assert read("/v1/nodes.parquet").status_code == 404


def test_an_empty_table_keeps_its_columns(tmp_path: Path) -> None:
    columns = ["from", "slots", "certain"]
    table = Table(parquet([], columns, SlotRun().fields, {}), tmp_path)
    assert (list(table.types), table.rows, table.note) == (columns, [], {})
