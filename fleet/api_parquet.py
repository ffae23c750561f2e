"""Parquet of the API's long tables: typed columns, compressed, for pandas, Polars, DuckDB or Spark.

The columns are those of the CSV, with the types that the schema gives them. Several values in one field are joined with
blanks, as in the CSV; unlike there nothing is made inert, since no spreadsheet opens such a file by a double click.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rest_framework import serializers
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from fleet.api_formats import JSON_OR_CSV, PlainRenderer, flat

MEDIA_TYPE = "application/vnd.apache.parquet"
COMPRESSION = "zstd(3)"


class ParquetRenderer(PlainRenderer):
    """`results` as one table with the view's `columns`, typed by its `row`; what stands beside them is metadata."""

    media_type = MEDIA_TYPE
    format = "parquet"
    charset = None
    render_style = "binary"

    def body(self, data: Any, view: Any) -> bytes:
        """A Parquet file."""
        beside = {name: value for name, value in data.items() if name not in ("results", "next")}
        return parquet(data["results"], view.columns, view.row().fields, beside)


def is_parquet(request: Request) -> bool:
    """Whether the answer will be a Parquet file: its ranges may be longer."""
    return request.accepted_renderer is not None and request.accepted_renderer.format == ParquetRenderer.format


def parquet(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    fields: Mapping[str, Any],
    beside: Mapping[str, Any],
) -> bytes:
    """The rows as a Parquet file; `beside` becomes the metadata `goodput`, as JSON."""
    # 30 MB of a library that most processes never need
    from arro3.core import Array, DataType, Table
    from arro3.io import write_parquet

    lines = [flat(row) for row in rows]
    arrays = []
    for name in columns:
        cells = [line.get(name) for line in lines]
        field = fields[name]
        if isinstance(field, serializers.DateTimeField):
            ms = [None if cell is None else _ms(cell) for cell in cells]
            arrays.append(Array(ms, DataType.int64()).cast(DataType.timestamp("ms", tz="UTC")))
        elif isinstance(field, serializers.IntegerField):
            arrays.append(Array(cells, DataType.int64()))
        elif isinstance(field, serializers.BooleanField):
            arrays.append(Array([None if cell is None else cell == "true" for cell in cells], DataType.bool()))
        else:
            arrays.append(Array([None if cell is None else str(cell) for cell in cells], DataType.string()))
    out = io.BytesIO()
    note = json.dumps(beside, ensure_ascii=False, separators=(",", ":"))
    write_parquet(
        Table.from_arrays(arrays, names=list(columns)),
        out,
        compression=COMPRESSION,
        key_value_metadata={"goodput": note},
    )
    return out.getvalue()


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


JSON_CSV_OR_PARQUET: list[type[BaseRenderer]] = [*JSON_OR_CSV, ParquetRenderer]
