"""`manage.py release --out DIR`: builds what the guide offers for download, the same bytes each time."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from goodput_site.guide import building, content

VERSION = re.compile(r"\d+\.\d+\.\d+[0-9A-Za-z.+-]*")


class Command(BaseCommand):
    """Build the archives, the Compose files, the chart's package, the SBOM, checksums and manifest."""

    help = "Build a release into a folder; a server offers GOODPUT_VAR/releases."
    requires_system_checks: list[str] = []  # it needs no database

    def add_arguments(self, parser: CommandParser) -> None:
        """--out, --sign-key, --date, --binary."""
        parser.add_argument("--out", type=Path, required=True, help="folder to write to; older releases stay in it")
        parser.add_argument("--sign-key", type=Path, help="PEM file with an Ed25519 private key")
        parser.add_argument("--date", help="date of the release; that of the last commit without it")
        parser.add_argument("--binary", action="store_true", help="also the agent as an executable (PyInstaller)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write every file, the manifest last: whoever reads it finds all that it names."""
        version, date, out = content.version(), options["date"] or _date(), options["out"]
        if not VERSION.fullmatch(version) or not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date):
            raise CommandError(f"This is no version and date: {version}, {date}")
        key = None
        if options["sign_key"]:
            try:
                key = building.read_key(options["sign_key"])
            except (OSError, ValueError, TypeError) as error:
                raise CommandError(f"{options['sign_key']} holds no usable Ed25519 key: {error}") from error
        out.mkdir(parents=True, exist_ok=True)
        files = building.build(version, options["binary"])
        for image in sorted(out.glob(f"goodput-images-{version}.tar")):  # saved by hand; listed where it lies
            files[image.name] = image.read_bytes()
        for name, data in files.items():
            _write(out / name, data)
        _write(out / f"SHA256SUMS-{version}", building.checksums(version, date, files))
        document = json.dumps(building.manifest(version, date, files, key), indent=1).encode() + b"\n"
        _write(out / f"manifest-{version}.json", document)
        _write(out / "manifest.json", document)
        for file in building.manifest(version, date, files, key)["files"]:
            self.stdout.write(f"{file['sha256']}  {file['size']:>9}  {file['name']}")
        self.stdout.write(f"release {version} of {date} in {out}, {'signed' if key else 'not signed'}")


def _write(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.new")
    draft.write_bytes(data)
    draft.replace(path)


def _date() -> str:
    """The date of the last commit; today where there is no repository."""
    with contextlib.suppress(OSError):  # no git here
        asked = subprocess.run(
            ["git", "log", "-1", "--format=%cs"], capture_output=True, text=True, cwd=building.ROOT, check=False
        )
        if asked.returncode == 0 and asked.stdout.strip():
            return asked.stdout.strip()
    return datetime.datetime.now(datetime.UTC).date().isoformat()
