"""How a command enters an org: whoever may run manage.py may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError
from django_tenants.utils import tenant_context

from claims.errors import ClaimsError
from claims.services import Actor
from orgs.models import Org

NAME = "manage.py"


@contextmanager
def in_org(slug: str) -> Iterator[Actor]:
    """The org's schema, with the command as actor; a refusal becomes one sentence."""
    org = Org.objects.filter(slug=slug).first()
    if org is None:
        raise CommandError(f"There is no org {slug}.")
    with tenant_context(org):
        try:
            yield Actor(NAME, org)
        except ClaimsError as error:
            raise CommandError(str(error)) from error
