"""`manage.py own_database`: a superuser makes the server's role, which then owns the database and no more."""

from __future__ import annotations

import os
import time
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import psycopg
from django.core.management.base import BaseCommand, CommandError, CommandParser

from orgs.database_role import RoleRefused, own, password_of, role_and_database

DEFAULT = "devpassword"  # docker-compose.release.yml's


class Command(BaseCommand):
    """Runs before the first `prepare`, and before any later one: it finds nothing to do then."""

    help = "Make the role of DATABASE_URL, no superuser, and let it own the database with everything in it."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """--admin, --wait."""
        parser.add_argument(
            "--admin", required=True, help="a superuser; the password is POSTGRES_ADMIN_PASSWORD in the environment"
        )
        parser.add_argument("--wait", type=int, default=0, metavar="SECONDS", help="how long the server may take")

    def handle(self, *args: Any, admin: str, wait: int, **options: Any) -> None:
        """Connect and hand over, a line per step."""
        url = os.environ["DATABASE_URL"]
        with self.connected(url, admin, wait) as connection:
            try:
                for line in own(url, connection):
                    self.stdout.write(line)
            except (RoleRefused, psycopg.Error) as error:
                raise CommandError(str(error).strip()) from error

    def connected(self, url: str, admin: str, wait: int) -> psycopg.Connection:
        """The superuser's connection to the server's database.

        Where POSTGRES_ADMIN_PASSWORD is refused, the password of DATABASE_URL is tried, because a stack that had one
        role had one password, and Compose's default; the superuser is then given the asked one.
        """
        asked = os.environ.get("POSTGRES_ADMIN_PASSWORD", "")
        shared = unquote(urlsplit(url).password or "")
        until = time.monotonic() + wait
        for password in dict.fromkeys(one for one in (asked, shared, DEFAULT) if one):
            connection = self.tried(address(url, admin, password), until)
            if connection and asked and password != asked:
                connection.execute(password_of(connection, admin, asked))
                self.stdout.write(f"set the password of {admin}")
            if connection:
                return connection
        raise CommandError(
            f"The superuser {admin} of the database {role_and_database(url)[1]} has another password. Set "
            "POSTGRES_ADMIN_PASSWORD to the one that the database was made with."
        )

    def tried(self, url: str, until: float) -> psycopg.Connection | None:
        """A connection, or None where the password is refused. Raises CommandError when nothing answers in time."""
        while True:
            try:
                return psycopg.connect(url, autocommit=True, connect_timeout=5, client_encoding="utf8")
            except psycopg.OperationalError as error:
                if "authentication failed" in str(error):
                    return None
                if time.monotonic() > until:
                    raise CommandError(f"The database does not answer: {str(error).strip()}") from error
                time.sleep(1)


def address(url: str, user: str, password: str) -> str:
    """`url` with another user and password."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{host}"))
