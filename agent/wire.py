"""The wire: what an agent transmits, key by key. This module is its only definition in code.

One body is the gzip of one MessagePack map. The tables below name every key that may be in it; the server builds its
typed decoder from them, the public data contract page prints them, and `encode` refuses a key that is not listed.
Standard library only at import time; Python 3.9 or newer.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

SCHEMA_VERSION = 1
SAMPLE_SECONDS = 15  # one sample per slot, taken at the slot's centre
INTERVALS_PER_BATCH = 4
MAX_GPUS = 64
MAX_PORTS = 64
MAX_COUNTERS = 64  # per port
MAX_EVENTS = 256  # per interval, xids and events each
MAX_FUNCTIONS = 256  # PCI functions per interval
MAX_NESTING = 6
MAX_STRING_BYTES = 256
MAX_INT = 2**63 - 1
MAX_MASK = 2**64 - 1
MAX_BODY_BYTES = 1 << 20  # compressed
MAX_RAW_BYTES = 8 << 20  # decompressed

CONTENT_TYPE = "application/msgpack"
HEADER_DROPPED = "X-Goodput-Dropped-Batches"
HEADER_SIGNATURE = "X-Goodput-Signature"
HEADER_BACKLOG = "X-Goodput-Backlog"  # `1` beside a batch that has waited: those of now may go before it (ADR 0014)
SIGNATURE_DOMAIN = b"goodput batch v1\n"  # the signed message is this tag and the 32 bytes of the SHA-256
RECEIPT_DOMAIN = b"goodput/receipt/v1\x00"  # the server's log signs receipts under this one
ENROL_DOMAIN = b"goodput enrol v1\n"  # the same for an enrolment: another tag, so neither passes for the other
SIMULATED_SUFFIX = "+sim"


class WireError(ValueError):
    """A batch that this contract does not allow to be sent; the message names the key."""


class Field(NamedTuple):
    """One key of a map.

    `type` is one of: `uint` (0..2^63-1), `mask` (64 bits), `number` (finite, not negative), `str`, `bool`, `time` (ms
    since 1970 UTC), `counts` (map name -> uint), `words` (map name -> str), `strs` (array of str), `map` or `array` (of
    the table named in `of`). `public` marks the data contract of the product guide; the rest are optional facts of the
    same version.
    """

    key: str
    type: str
    meaning: str
    unit: str = ""
    required: bool = False
    public: bool = False
    of: str = ""
    most: int = 0  # the greatest number of elements of an array or a map


def _f(key: str, type: str, meaning: str, unit: str = "", **more: Any) -> Field:
    return Field(key, type, meaning, unit, **more)


BATCH: Tuple[Field, ...] = (
    _f("schema_version", "uint", "wire schema version", required=True, public=True),
    _f("cluster_id", "str", "cluster name, chosen by the operator", required=True, public=True),
    _f("node_id", "str", "node identity (default: host name)", required=True, public=True),
    _f("agent_version", "str", "agent build; simulated sources end in +sim", required=True, public=True),
    _f("agent_id", "str", "identity of this installation (random)"),
    _f("seq", "uint", "count of batches that this installation ever made, without gaps"),
    _f("boot_id", "str", "random id of this boot (a hash of the kernel's)"),
    _f("boot_at", "uint", "instant of this boot", "ms since 1970 UTC"),
    _f("last_shutdown", "str", "clean, unclean or unknown: was a shutdown notice written before this boot?"),
    _f("last_alive", "uint", "newest instant that the boot before this one left on disk", "ms since 1970 UTC"),
    _f("sync", "map", "the newest receipt's server time and the boot-time clock when it came", of="SYNC"),
    _f("hw_id", "str", "salted hash of the machine's hardware identity"),
    _f("driver_version", "str", "version of the NVIDIA driver"),
    _f(
        "intervals",
        "array",
        "up to four samples of about 15 s, in time order",
        of="INTERVAL",
        most=INTERVALS_PER_BATCH,
        required=True,
        public=True,
    ),
)

SYNC: Tuple[Field, ...] = (
    _f("received_at", "uint", "server time of the newest receipt", "ms since 1970 UTC", required=True),
    _f("boottime", "uint", "the node's boot-time clock when that receipt came", "ms", required=True),
)

INTERVAL: Tuple[Field, ...] = (
    _f("ts", "time", "when the sample was taken", "ms since 1970 UTC", required=True, public=True),
    _f("mono", "uint", "CLOCK_MONOTONIC at the sample", "ms"),
    _f("boottime", "uint", "CLOCK_BOOTTIME at the sample: it goes on while a machine is suspended", "ms"),
    _f("clock", "map", "what the kernel says of its wall clock", of="CLOCK"),
    _f("sources", "words", "per collector: ok, absent, error, timeout, blind or lost", most=16),
    _f("nvml_error", "uint", "NVML's return code when it failed"),
    _f("net", "words", "last upload, gateway and configured peers: ok, fail or none", most=32),
    _f("gpus", "array", "one map per GPU", of="GPU", most=MAX_GPUS, public=True),
    _f("ib_ports", "array", "one map per port; empty if none", of="PORT", most=MAX_PORTS, public=True),
    _f("xids", "array", "Xid events since the previous interval", of="XID", most=MAX_EVENTS, public=True),
    _f("events", "array", "kernel events with their own time", of="EVENT", most=MAX_EVENTS),
    _f("pci", "words", "bus id of NVIDIA functions: present, absent or dead", most=MAX_FUNCTIONS),
    _f("pci_links", "array", "their links and errors, from sysfs", of="PCI_LINK", most=MAX_FUNCTIONS),
)

PCI_LINK: Tuple[Field, ...] = (
    _f("pci_bus_id", "str", "canonical bus id of the function", required=True),
    _f("speed", "uint", "speed of its link now", "MT/s per lane"),
    _f("width", "uint", "lanes of its link now"),
    _f("aer_fatal", "uint", "fatal PCIe errors (AER) since the previous sample", "count"),
    _f("aer_nonfatal", "uint", "non-fatal PCIe errors since the previous sample", "count"),
    _f("aer_correctable", "uint", "corrected PCIe errors since the previous sample", "count"),
)

CLOCK: Tuple[Field, ...] = (
    _f("status", "str", "synchronised, unsynchronised or unknown", required=True),
    _f("error_ms", "uint", "the kernel's own error bound", "ms"),
)

GPU: Tuple[Field, ...] = (
    _f("uuid", "str", "UUID of the GPU", required=True, public=True),
    _f("name", "str", "product name", public=True),
    _f("pci_bus_id", "str", "canonical bus id such as 0000:3b:00.0, lower case", public=True),
    _f("memory_used", "uint", "memory in use", "bytes", public=True),
    _f("memory_total", "uint", "memory", "bytes", public=True),
    _f("sm_clock", "uint", "SM clock", "MHz", public=True),
    _f("sm_clock_max", "uint", "greatest SM clock", "MHz", public=True),
    _f("throttle_reasons", "mask", "clocks event reasons", "bit mask", public=True),
    _f("throttle_supported", "bool", "whether the driver reports clocks event reasons", public=True),
    _f("temperature", "uint", "temperature", "°C", public=True),
    _f("ecc_corrected", "uint", "volatile corrected ECC errors", "count", public=True),
    _f("ecc_uncorrected", "uint", "volatile uncorrected ECC errors", "count", public=True),
    _f("pcie_gen", "uint", "PCIe generation now", public=True),
    _f("pcie_gen_max", "uint", "greatest PCIe generation", public=True),
    _f("pcie_width", "uint", "PCIe lanes now", public=True),
    _f("pcie_width_max", "uint", "greatest number of PCIe lanes", public=True),
    _f("gpu_utilization", "uint", "share of time in which a kernel ran", "per cent", public=True),
    _f(
        "memory_utilization",
        "uint",
        "share of time in which memory was read or written",
        "per cent",
        public=True,
    ),
    _f("recovery_action", "uint", "NVML's recovery action as its integer"),
    _f("throttle_time", "counts", "ms throttled since the previous sample, per reason", "ms", most=16),
    _f("row_remap", "map", "row remapping", of="ROW_REMAP"),
    _f("pcie_replays", "uint", "PCIe replays since the previous sample", "count"),
    _f("nvlink_inactive", "uint", "NVLinks that are not active", "links"),
    _f("power", "uint", "power drawn", "mW"),
    _f("power_limit", "uint", "power limit", "mW"),
    _f("ecc_mode", "bool", "whether ECC is on"),
    _f("mig_mode", "bool", "whether MIG is on"),
    _f("serial_hash", "str", "salted hash of the board's serial number"),
    _f("fabric", "map", "NVML's fabric information, for NVLink domains", of="FABRIC"),
)

ROW_REMAP: Tuple[Field, ...] = (
    _f("correctable", "uint", "rows remapped for corrected errors", "count"),
    _f("uncorrectable", "uint", "rows remapped for uncorrected errors", "count"),
    _f("pending", "bool", "a remapping waits for a reset"),
    _f("failed", "bool", "a remapping failed"),
)

FABRIC: Tuple[Field, ...] = (
    _f("cluster", "str", "hashed id of the NVLink cluster"),
    _f("clique", "str", "id of the clique in it"),
    _f("state", "uint", "NVML's fabric state"),
)

PORT: Tuple[Field, ...] = (
    _f("device", "str", "device such as mlx5_0", required=True, public=True),
    _f("port", "uint", "port number", required=True, public=True),
    _f("state", "str", "ACTIVE, DOWN, INIT or ARMED", public=True),
    _f("link_rate", "number", "link rate", "Gb/s", public=True),
    _f("counters", "counts", "counter deltas since the previous sample", most=MAX_COUNTERS, public=True),
    _f("reasons", "strs", "codes such as IB_PORT_DOWN: shown, never believed", most=16, public=True),
    _f("guid_hash", "str", "salted hash of the port's GUID: the port's identity"),
    _f("pci_bus_id", "str", "canonical bus id of the device"),
    _f("phys_state", "str", "LinkUp, Polling, Disabled …"),
    _f("link_layer", "str", "InfiniBand or Ethernet"),
    _f("is_vf", "bool", "whether this is a virtual function"),
    _f("pegged", "strs", "names of counters stuck at their maximum", most=MAX_COUNTERS),
    _f("near", "strs", "bus ids of the GPUs under the same PCIe switch, else root port", most=MAX_GPUS),
)

XID: Tuple[Field, ...] = (
    _f("code", "uint", "Xid number", required=True, public=True),
    _f("pci_bus_id", "str", "canonical bus id", public=True),
    _f("reason", "str", "reason code XID_<n>", public=True),
)

EVENT: Tuple[Field, ...] = (
    _f(
        "kind",
        "str",
        "xid, sxid, bus_lost, gpu_reset, driver_load, driver_unload, driver_unbind or shutdown",
        required=True,
    ),
    _f("code", "uint", "Xid or SXid number"),
    _f("pci_bus_id", "str", "canonical bus id"),
    _f("at", "uint", "the event's own time", "ms since 1970 UTC"),
    _f("mono", "uint", "the event's own time on CLOCK_MONOTONIC", "ms"),
    _f("boot_id", "str", "its boot, if not the batch's"),
    _f("backlog", "bool", "read after a restart of the agent"),
    _f("severity", "str", "fatal or nonfatal, as the line says"),
    _f("action", "uint", "recovery action of Xid 154"),
    _f("unit", "str", "sub-unit of 74 and 144 to 150"),
    _f("link", "uint", "link of 74 and 144 to 150"),
    _f("instance", "str", "MIG instance"),
    _f("slices", "uint", "its compute slices, of 7"),
    _f("count", "uint", "lines of a storm that this event stands for"),
)

TABLES: Dict[str, Tuple[Field, ...]] = {
    "BATCH": BATCH,
    "SYNC": SYNC,
    "INTERVAL": INTERVAL,
    "CLOCK": CLOCK,
    "PCI_LINK": PCI_LINK,
    "GPU": GPU,
    "ROW_REMAP": ROW_REMAP,
    "FABRIC": FABRIC,
    "PORT": PORT,
    "XID": XID,
    "EVENT": EVENT,
}

_BUS_ID = re.compile(r"^(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?$")


def canonical_bus_id(text: str) -> Optional[str]:
    """The bus id as `0000:3b:00.0`: lower case, the domain at least four digits, function 0 where none is named.

    None when `text` is no PCI bus id (a device number ends at 1f). NVML's eight-digit domains (`00000000:3B:00.0`) lose
    their leading zeros.
    """
    match = _BUS_ID.match(text.strip().lower())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    if int(device, 16) > 0x1F:
        return None
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function or '0'}"


def ordered(value: Mapping[str, Any], table: str = "BATCH", path: str = "") -> Dict[str, Any]:
    """The map with its keys in the table's order and absent values left out, down to its leaves.

    Raises WireError for a key that the contract does not list or a required one that is missing. The order matters only
    for speed: the server recognises bodies in this order without a second look for duplicate keys.
    """
    fields = TABLES[table]
    unlisted = set(value) - {field.key for field in fields}
    if unlisted:
        raise WireError(f"{path}{sorted(unlisted)[0]} is not part of the data contract")
    out: Dict[str, Any] = {}
    for field in fields:
        item = value.get(field.key)
        if item is None:
            if field.required:
                raise WireError(f"{path}{field.key} is missing")
            continue
        where = f"{path}{field.key}."
        if field.type == "map":
            item = ordered(item, field.of, where)
        elif field.type == "array":
            item = [ordered(element, field.of, where) for element in item]
        out[field.key] = item
    return out


def encode(batch: Mapping[str, Any]) -> bytes:
    """The MessagePack bytes of a batch. Raises WireError for anything that the contract does not list."""
    import msgpack

    packed: bytes = msgpack.packb(ordered(batch), use_bin_type=True)
    return packed


def pack(batch: Mapping[str, Any]) -> Tuple[bytes, str]:
    """(body, sha256): the gzip member to upload and the lower-case hex SHA-256 of the MessagePack bytes inside it.

    The gzip header carries no time, so the same batch gives the same bytes.
    """
    raw = encode(batch)
    return gzip.compress(raw, compresslevel=1, mtime=0), hashlib.sha256(raw).hexdigest()


def signed_message(sha256: bytes) -> bytes:
    """What an installation signs for a batch: a domain tag and the SHA-256 of the MessagePack bytes."""
    return SIGNATURE_DOMAIN + sha256


ENROLMENT = {
    "agent_id": "identity of this installation, as in its batches",
    "public_key": "its Ed25519 key, base64 of 32 bytes",
    "cluster_id": "cluster name",
    "node_id": "node identity",
    "hw_id": "salted hash of the machine's DMI identity, where it tells one",
    "agent_version": "agent build",
}


def enrolment_message(body: bytes) -> bytes:
    """What an installation signs to prove that it holds the key it enrols: a domain tag and the body's SHA-256."""
    return ENROL_DOMAIN + hashlib.sha256(body).digest()


def receipt_message(batch_sha256: str, node: str, seq: Optional[int], received_at: str) -> bytes:
    """What a receipt's signature is over; `received_at` as it stands in the receipt. A duplicate's is the same."""
    parts = [batch_sha256, node, seq, received_at]
    return RECEIPT_DOMAIN + json.dumps(parts, separators=(",", ":"), ensure_ascii=False).encode()


def fingerprint(public_key: bytes) -> str:
    """How people compare keys: the first 16 hex digits of the SHA-256, in groups of four."""
    digest = hashlib.sha256(public_key).hexdigest()[:16]
    return " ".join(digest[at : at + 4] for at in range(0, 16, 4))


def listed_keys() -> Iterator[Tuple[str, Field]]:
    """(table name, field) of every key that may travel, in the order of the contract page."""
    for name, fields in TABLES.items():
        for field in fields:
            yield name, field
