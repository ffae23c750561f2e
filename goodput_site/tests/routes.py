"""Every route of the site, and a path for each."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from typing import Any

import duckdb
from django.urls import URLPattern, URLResolver, get_resolver

_CONVERTER = re.compile(r"<(?:(?P<kind>\w+):)?(?P<name>\w+)>")
_GROUP = re.compile(r"\(\?P<(?P<name>\w+)>[^)]*\)")
_OF_KIND = {"int": "1", "uuid": "00000000-0000-0000-0000-000000000001", "slug": "x", "str": "x", "path": "x/y"}


def routes() -> list[str]:
    """The routes as the URL configuration writes them, each once."""
    return list(dict.fromkeys(_walk(get_resolver().url_patterns, "")))


def path_of(route: str, **values: str) -> str:
    """A path that this route answers; parameters not in `values` get a plain value of their kind."""

    def fill(match: re.Match[str]) -> str:
        return values.get(match["name"]) or _OF_KIND[match["kind"] or "str"]

    path = _GROUP.sub(lambda match: values.get(match["name"], "x"), _CONVERTER.sub(fill, route))
    return "/" + path.replace("^", "").replace("$", "").replace("\\Z", "")


def words_of(response: Any) -> str:
    """What an answer says, also one that streams and a Parquet file, in which nothing stands in plain bytes."""
    content = b"".join(response.streaming_content) if response.streaming else response.content
    if not content.startswith(b"PAR1"):
        return str(content.decode(errors="replace"))
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        file.write(content)
        file.flush()
        table = duckdb.connect().sql(f"select columns(*)::varchar from read_parquet('{file.name}')")
        return f"{table.columns} {table.fetchall()}"


def _walk(patterns: list[URLPattern | URLResolver], prefix: str) -> Iterator[str]:
    for each in patterns:
        route = prefix + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from _walk(each.url_patterns, route)
        else:
            yield route
