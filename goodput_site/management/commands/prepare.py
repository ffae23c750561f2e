"""`manage.py prepare`: everything between an empty database and a server that may start. Safe to repeat."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.utils import timezone

from fleet.partitions import ensure_partitions
from orgs.errors import OrgInvalid
from orgs.keys import hash_of, is_public_knowledge
from orgs.models import ApiKey, Org
from orgs.services import SYSTEM, issue_key

AGENT_KEY_NAME = "agent of this machine"
TAKE_TURN = "select pg_advisory_xact_lock(hashtext('goodput-prepare'))"  # deploy/docker/wait.py looks for it


class Command(BaseCommand):
    """Migrate, make the default org, its partitions and the agent's key, collect static files."""

    help = "Bring database, default org, partitions, static files and the local agent's key up to date."

    def add_arguments(self, parser: CommandParser) -> None:
        """--agent-token-file, --no-static."""
        parser.add_argument("--agent-token-file", type=Path, help="where the local agent's key is kept (0600)")
        parser.add_argument("--no-static", action="store_true", help="leave static files alone")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the steps in order, one such command at a time."""
        with _turn():
            self.prepare(**options)
        self.stdout.write("ready")

    def prepare(self, **options: Any) -> None:
        """The steps."""
        self.check_durability()
        call_command("check", databases=["default"], tags=["database"])  # refuses a pooler that would mix orgs
        call_command("migrate_schemas", shared=True, verbosity=0)
        call_command("ensure_local_org")
        call_command("migrate_orgs", verbosity=0)
        for org in Org.objects.filter(status=Org.Status.ACTIVE):
            ensure_partitions(org.schema_name, timezone.now())
        if options["agent_token_file"]:
            self.ensure_agent_key(options["agent_token_file"])
        if not options["no_static"]:
            call_command("collectstatic", interactive=False, verbosity=0)

    def check_durability(self) -> None:
        """A receipt promises that the batch is on disk: refuse a database that would break the promise."""
        with connection.cursor() as cursor:
            for name in ("fsync", "synchronous_commit", "full_page_writes"):
                cursor.execute(f"show {name}")
                value = cursor.fetchone()[0]
                if value == "off":
                    raise CommandError(f"PostgreSQL runs with {name} = off. Turn it on: receipts promise durability.")

    def ensure_agent_key(self, path: Path) -> None:
        """Keep a working ingest key of the default org in `path`; a word in GOODPUT_AGENT_TOKEN is used as it is."""
        org = Org.objects.get(slug=settings.GOODPUT_DEFAULT_ORG)
        literal = os.environ.get("GOODPUT_AGENT_TOKEN") or None
        token = literal or (path.read_text().strip() if path.exists() else "")
        keys = ApiKey.objects.filter(secret_hash=hash_of(token), org=org, revoked_at=None)
        if not token or is_public_knowledge(token) or not keys.exists():
            try:
                _, token = issue_key(org, AGENT_KEY_NAME, [ApiKey.Scope.INGEST], actor=SYSTEM, literal=literal)
            except OrgInvalid as error:
                raise CommandError(f"GOODPUT_AGENT_TOKEN can't be used: {error.detail}") from error
        if not path.exists() or path.read_text().strip() != token:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(token + "\n")
            temporary.replace(path)


@contextmanager
def _turn() -> Iterator[None]:
    """Wait for any other `prepare` of this database, and show to whom it may concern that one runs.

    Between the last migration and the agent's key there is neither org nor key: whoever served then would refuse this
    machine's agent. A connection of its own, because the lock lasts as long as its transaction, pooler or not.
    """
    there = connection.get_connection_params()
    with psycopg.connect(**{name: there[name] for name in there.keys() - {"context", "cursor_factory"}}) as session:
        session.execute(TAKE_TURN)
        yield
