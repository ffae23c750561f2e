"""Readers of hostile bytes as functions of bytes, and a coverage-guided fuzzer over them.

Each target raises when its reader does anything but read or refuse. The tests feed them mutated examples
(test_fuzzing.py); with `pip install atheris` (Linux, CPython 3.11 to 3.13) they can be searched by coverage for as long
as one likes, from the same examples:

    python -m goodput_site.tests.fuzzing body|kmsg|sysfs|contract|pack -max_total_time=60   # libFuzzer's own flags
"""

from __future__ import annotations

import gzip
import importlib
import io
import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agent import wire
from agent.collect.ib_parse import parse_counter, parse_guid, parse_phys_state, parse_rate, parse_state, port_facts
from agent.collect.kmsg_parse import parse_event, parse_record
from agent.collect.pci import function_state, parse_link
from claims.domain.contract_load import canonical, contract_from_json, contract_from_toml
from claims.errors import ClaimsError, PackError
from claims.verify.pack_file import NEEDED, read_pack
from claims.verify.unpack import decode as decode_plain

ROOT = Path(__file__).resolve().parents[2]
WORD = re.compile(r"[A-Za-z0-9_:./-]{1,40}")  # all that an event may hold beside numbers
SYSFS = (
    *(b"4: ACTIVE\n", b"5: LinkUp", b"400 Gb/sec (4X NDR)\n", b"18446744073709551615\n", b"N/A (no PMA)"),
    *(b"0002:c903:0032:1234", b"16.0 GT/s PCIe", b"16\n", b"\xde\x10\x21\x23", b"RxErr 0\nTOTAL_ERR_COR 3\n"),
)
SEVERITIES = {"fatal", "nonfatal"}


def body(data: bytes) -> None:
    """An upload, as a gzip member and as the MessagePack bytes within one: a batch, or a refusal that is short."""
    from fleet import decode
    from fleet.errors import BatchRejected

    for read in (decode.gunzip, decode.decode):
        refusal = None
        try:
            read(data)
        except BatchRejected as error:
            refusal = error
        assert refusal is None or (refusal.status in (400, 413, 422) and len(refusal.detail) < 500)


def kmsg(data: bytes) -> None:
    """A kernel log record: what comes out is numbers and words of ours, whatever a process calls itself."""
    text = data.decode("utf-8", "replace")
    record = parse_record(text)
    for line in (text, record.text if record else ""):
        event = parse_event(line)
        for value in (event or {}).values():
            assert isinstance(value, int) or WORD.fullmatch(value), event
            assert not isinstance(value, int) or 0 <= value <= wire.MAX_INT
        assert not event or event.get("severity", "fatal") in SEVERITIES


def sysfs(data: bytes) -> None:
    """A file of /sys: a value within the wire's bounds, or none."""
    text = data.decode("utf-8", "replace")
    for value in (parse_counter(text), parse_rate(text)):
        assert value is None or 0 <= value < 1 << 64
    for word in (parse_state(text), parse_phys_state(text), parse_guid(text)):
        assert word is None or WORD.fullmatch(word)
    names = ("state", "phys_state", "rate", "link_layer", "guid")
    port_facts({**dict.fromkeys(names, text), "near": [], "device": "mlx5_0", "port": 1})
    assert function_state(data[:4]) in ("present", "absent", "dead")
    files = ("current_link_speed", "current_link_width", "aer_dev_fatal", "aer_dev_nonfatal", "aer_dev_correctable")
    for value in parse_link(dict.fromkeys(files, text)).values():
        assert not isinstance(value, int) or value >= 0


def contract(data: bytes) -> None:
    """A contract file: a contract that reads back from its own canonical bytes, or a ContractError."""
    text = data.decode("utf-8", "replace")
    for read in (contract_from_json, contract_from_toml):
        try:
            found = read(text)
        except ClaimsError:
            continue
        assert canonical(contract_from_json(canonical(found))) == canonical(found)


def pack(data: bytes) -> None:
    """A claim pack, and a batch within one as the standard library alone reads it: files, or a PackError."""
    try:
        files = read_pack(io.BytesIO(data))
    except PackError:
        pass
    else:
        assert set(NEEDED) <= set(files)
        assert not any(".." in name or name.startswith("/") for name in files)
    with suppress(PackError):
        decode_plain(data)


def examples(target: str) -> list[bytes]:
    """Honest inputs to start from."""
    if target == "kmsg":
        cases = (json.loads(line) for line in (ROOT / "agent/tests/data/field-cases.jsonl").read_text().splitlines())
        lines = [line for case in cases if case["kind"].startswith("a.") for line in case["input"].splitlines()]
        return [line.removeprefix("READ -> ").encode() for line in lines if line.strip()]
    if target == "sysfs":
        return [*SYSFS]
    if target == "contract":
        files = sorted((ROOT / "claims/catalog").glob("*.toml"))
        small = '{"name":"n","version":"1","kind":"tiers","scope":"gpu","counts":["hardware_failure"]}'
        return [small.encode(), *[file.read_bytes() for file in files]]
    from fleet.tests.bodies import packed

    zipped, raw = packed()[0], gzip.decompress(packed()[0])
    if target == "body":
        return [zipped, raw]
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in NEEDED:
            archive.writestr(name, b"{}" * 20)
    return [whole.getvalue(), raw]


TARGETS: dict[str, Callable[[bytes], None]] = {one.__name__: one for one in (body, kmsg, sysfs, contract, pack)}


def main(words: list[str]) -> None:
    """Search one target by coverage until it fails or libFuzzer is told to end."""
    import atheris

    name, *flags = words
    ours = ("agent", "claims", "fleet")
    for loaded in [one for one in sys.modules if one.partition(".")[0] in ours]:
        del sys.modules[loaded]  # so that they are imported again with the marks by which coverage is followed
    with atheris.instrument_imports(include=[*ours, "goodput_site.tests.fuzzing"]):
        fresh = importlib.import_module("goodput_site.tests.fuzzing")
        found = fresh.examples(name)
        fresh.TARGETS[name](found[0])
    with tempfile.TemporaryDirectory(prefix="goodput-fuzz-") as corpus:
        for number, example in enumerate(found):
            Path(corpus, f"{number:05}").write_bytes(example)
        atheris.Setup([sys.argv[0], *flags, corpus], fresh.TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    import os

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "goodput_site.settings_test")
    main(sys.argv[1:])
