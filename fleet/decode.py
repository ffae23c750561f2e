"""From the bytes of an upload to typed facts: one bounded gzip member, one MessagePack map, the limits of wire.md.

The Structs are generated from the tables of `agent.wire`, so the contract has one definition. Attributes are named
as the keys; an absent optional is None, an absent array is empty. Unknown keys are skipped here and stay in the
exact bytes.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from math import copysign
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agent import wire
from fleet.errors import BatchRejected
from fleet.msgpack_scan import scan


class _Absent(tuple):  # type: ignore[type-arg]
    """An empty tuple that is not `()`: so an array sent as empty and one not sent encode differently."""


_UInt = Annotated[int, Meta(ge=0, le=wire.MAX_INT)]
_Str = Annotated[str, Meta(max_length=wire.MAX_STRING_BYTES)]
_SCALARS: dict[str, Any] = {
    "uint": _UInt,
    "mask": Annotated[int, Meta(ge=0)],  # MessagePack itself ends at 64 bits
    "number": Annotated[int, Meta(ge=0, le=10**9)] | Annotated[float, Meta(ge=0, le=1e9)],
    "str": _Str,
    "bool": bool,
    "time": _UInt | msgspec.msgpack.Ext,  # not datetime: msgspec would take RFC 3339 text for one too
}


#: The same without limits: for bytes that were checked against them before they were stored.
_PLAIN: dict[str, Any] = {
    "uint": int,
    "mask": int,
    "number": int | float,
    "str": str,
    "bool": bool,
    "time": int | msgspec.msgpack.Ext,
    "counts": dict[str, int],
    "words": dict[str, str],
    "strs": tuple[str, ...],
}


class _PortCounters(msgspec.Struct, gc=False):
    """Of a port's counters what the fold asks for: the others would be half of a decode."""

    link_downed: int | None = None


def _type_of(field: wire.Field, structs: dict[str, Any], is_limited: bool = True) -> Any:
    """The type that msgspec decodes this field to."""
    if field.type == "map":
        return structs[field.of]
    if not is_limited:
        if field.type == "array":
            return tuple[structs[field.of], ...]  # type: ignore[valid-type,name-defined]
        return _PLAIN[field.type]
    most = Meta(max_length=field.most)
    if field.type == "array":
        return Annotated[tuple[structs[field.of], ...], most]  # type: ignore[valid-type,name-defined]
    if field.type == "counts":
        return Annotated[dict[_Str, _UInt], most]
    if field.type == "words":
        return Annotated[dict[_Str, _Str], most]
    if field.type == "strs":
        return Annotated[tuple[_Str, ...], most]
    return _SCALARS[field.type]


def _build_structs(is_limited: bool = True, counters: Any = None) -> dict[str, Any]:
    """A Struct per table of the wire, innermost first, with or without its limits.

    `counters`: the type of a port's counters, where not all of them are wanted.
    """
    structs: dict[str, Any] = {}
    for name in (
        "SYNC",
        "CLOCK",
        "ROW_REMAP",
        "FABRIC",
        "GPU",
        "PORT",
        "XID",
        "EVENT",
        "PCI_LINK",
        "INTERVAL",
        "BATCH",
    ):
        fields: list[Any] = []
        for field in wire.TABLES[name]:
            kind = _type_of(field, structs, is_limited)
            if counters is not None and name == "PORT" and field.key == "counters":
                kind = counters
            if field.required:
                fields.append((field.key, kind))
            else:
                fields.append((field.key, kind, _Absent() if field.type in ("array", "strs") else None))
        structs[name] = msgspec.defstruct(
            name.title().replace("_", ""),
            fields,
            kw_only=True,
            omit_defaults=True,
            gc=False,
            module=__name__,
        )
    return structs


STRUCTS = _build_structs()
Batch = STRUCTS["BATCH"]
_decoder = msgspec.msgpack.Decoder(Batch)
_trusted = msgspec.msgpack.Decoder(_build_structs(is_limited=False)["BATCH"])
_folding = msgspec.msgpack.Decoder(_build_structs(is_limited=False, counters=_PortCounters)["BATCH"])
_encoder = msgspec.msgpack.Encoder()
_path_of_error = re.compile(r" - at (?:`key` in )?`(\$?[^`]*)`$")
_limit_of_error = re.compile(r"^Expected `(?:array|object)` of length <= ")
_TIMESTAMP = -1  # MessagePack's own extension type


def gunzip(body: bytes) -> bytes:
    """The content of exactly one gzip member, at most `wire.MAX_RAW_BYTES`.

    Raises BatchRejected: 413 `too_large`, 400 `bad_gzip` (not gzip, truncated, wrong checksum) or `trailing_bytes`.
    """
    stream = zlib.decompressobj(wbits=31)
    try:
        raw = stream.decompress(body, wire.MAX_RAW_BYTES + 1)
    except zlib.error as error:
        raise BatchRejected(400, "bad_gzip", "The body is not one valid gzip member.") from error
    if len(raw) > wire.MAX_RAW_BYTES:
        raise BatchRejected(413, "too_large", f"The batch is larger than {wire.MAX_RAW_BYTES} bytes when unpacked.")
    if not stream.eof:
        raise BatchRejected(400, "bad_gzip", "The gzip member is cut short.")
    if stream.unused_data:
        raise BatchRejected(400, "trailing_bytes", "There are bytes after the gzip member; send exactly one.")
    return raw


def decode(raw: bytes) -> Any:
    """The typed batch in `raw` (MessagePack). `ts` is ms since 1970 UTC whichever way it was sent.

    Raises BatchRejected: 400 for bytes that are no honest MessagePack map, 422 for a map that breaks the contract.
    """
    batch = _decode(_decoder, raw, check=True)
    _check_strings(batch)
    for interval in batch.intervals:
        for port in interval.ib_ports:
            rate = port.link_rate
            if isinstance(rate, float) and copysign(1.0, rate) < 0:
                raise BatchRejected(422, "non_finite", "link_rate is not a finite number of at least 0.")
    return batch


def decode_trusted(raw: bytes) -> Any:
    """As `decode`, for bytes that were checked before they were stored (the inbox)."""
    return _decode(_trusted, raw)


def decode_for_fold(raw: bytes) -> Any:
    """As `decode_trusted`; of the ports' counters only those that the fold asks for, and only where they are not 0."""
    batch = _decode(_folding, raw)
    for interval in batch.intervals:
        for port in interval.ib_ports:
            counters = port.counters
            if counters is not None:
                downed = counters.link_downed
                port.counters = {"link_downed": downed} if downed else None
    return batch


def _decode(decoder: Any, raw: bytes, check: bool = False) -> Any:
    try:
        batch = decoder.decode(raw)
    except RecursionError as error:
        raise BatchRejected(400, "too_deep", "The batch nests too deeply to be read at all.") from error
    except (msgspec.MsgspecError, ValueError) as error:
        if check:
            scan(raw, wire.MAX_NESTING)  # bytes that are not even honest MessagePack are a 400, not a 422
        if isinstance(error, msgspec.ValidationError):
            raise _contract_error(str(error)) from error
        if "UTF-8" in str(error):
            raise BatchRejected(422, "bad_string", "A string is not UTF-8.") from error
        raise BatchRejected(400, "bad_msgpack", "The body is not a MessagePack map of this contract.") from error
    # Bytes that a typed encoder reproduces exactly hold no duplicate, no unknown key and no hidden depth.
    if check and _encoder.encode(batch) != raw:
        scan(raw, wire.MAX_NESTING)
    for interval in batch.intervals:
        if interval.ts.__class__ is not int:
            interval.ts = _milliseconds(interval.ts)
    if batch.schema_version != wire.SCHEMA_VERSION:
        raise BatchRejected(422, "schema_version", f"This server reads schema_version {wire.SCHEMA_VERSION} only.")
    if not batch.intervals:
        raise BatchRejected(422, "no_intervals", "A batch holds 1 to 4 intervals.")
    return batch


def _milliseconds(stamp: msgspec.msgpack.Ext) -> int:
    """ms since 1970 UTC of a MessagePack timestamp (32, 64 or 96 bits), rounded down."""
    data = bytes(stamp.data)
    if stamp.code != _TIMESTAMP or len(data) not in (4, 8, 12):
        raise BatchRejected(422, "invalid", "ts: Expected `int` or a MessagePack timestamp, got another extension.")
    if len(data) == 8:
        nanoseconds, seconds = divmod(int.from_bytes(data, "big"), 1 << 34)
    else:
        nanoseconds = int.from_bytes(data[:-8], "big")
        seconds = int.from_bytes(data[-8:], "big", signed=len(data) == 12)
    milliseconds = seconds * 1000 + nanoseconds // 1_000_000
    if nanoseconds > 999_999_999 or not 0 <= milliseconds <= wire.MAX_INT:
        raise BatchRejected(422, "invalid", "ts: the MessagePack timestamp is out of range.")
    return milliseconds


def _contract_error(message: str) -> BatchRejected:
    """A 422 that names the place in the batch, never its content. Each limit of the wire has its own code."""
    match = _path_of_error.search(message)
    where = (match.group(1).removeprefix("$").lstrip(".") if match else "") or "the batch"
    what = _path_of_error.sub("", message)
    code = "invalid"
    if _limit_of_error.match(what):
        code = f"too_many_{where.rpartition('.')[2]}"
    elif what.startswith("Expected `str` of length"):
        code = "bad_string"
    elif "`float`" in what and "got" not in what:
        code = "non_finite"
    return BatchRejected(422, code, f"{where}: {what[:200]}.")


def _string_getters() -> dict[str, Callable[[Any], tuple[Any, ...]]]:
    """Per table: a function that takes all its plain strings at once, as a tuple."""
    names = {t: [f.key for f in fields if f.type == "str"] for t, fields in wire.TABLES.items()}
    # attrgetter of a single name gives no tuple, hence one name twice
    return {t: attrgetter(*keys, keys[0]) for t, keys in names.items() if keys}


_strings_of = _string_getters()


def _strings(batch: Any) -> set[str]:
    """Every distinct string of a batch. Written out by table: it stands in the hot path of ingest."""
    found: set[Any] = set(_strings_of["BATCH"](batch))
    for interval in batch.intervals:
        for words in (interval.sources, interval.net, interval.pci):
            if words:
                found.update(words)
                found.update(words.values())
        if interval.clock is not None:
            found.add(interval.clock.status)
        for gpu in interval.gpus:
            found.update(_strings_of["GPU"](gpu))
            if gpu.throttle_time:
                found.update(gpu.throttle_time)
            if gpu.fabric is not None:
                found.update(_strings_of["FABRIC"](gpu.fabric))
        for port in interval.ib_ports:
            found.update(_strings_of["PORT"](port))
            found.update(port.reasons, port.pegged, port.near, port.counters or ())
        for xid in interval.xids:
            found.update(_strings_of["XID"](xid))
        for event in interval.events:
            found.update(_strings_of["EVENT"](event))
        for link in interval.pci_links:
            found.add(link.pci_bus_id)
    found.discard(None)
    return found


def _check_strings(batch: Any) -> None:
    """Refuse strings that are not printable text or longer than 256 bytes of UTF-8 (422 `bad_string`)."""
    strings = _strings(batch)
    joined = "".join(strings)
    if not joined.isprintable():
        raise BatchRejected(422, "bad_string", "A string holds NUL, a control or an invisible formatting character.")
    if not joined.isascii() and any(len(text.encode()) > wire.MAX_STRING_BYTES for text in strings):
        raise BatchRejected(422, "bad_string", f"A string is longer than {wire.MAX_STRING_BYTES} bytes.")
    if not batch.cluster_id.strip() or not batch.node_id.strip():
        raise BatchRejected(422, "bad_string", "cluster_id and node_id must not be empty.")
