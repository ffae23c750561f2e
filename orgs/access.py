"""The only way from a person to an org. Not yours and not there give the same answer."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import AnonymousUser

from orgs.errors import NoSuchOrg
from orgs.models import Membership, Org, User

LOCAL_VISITOR = "local visitor"


@dataclass(frozen=True)
class Access:
    """An org as one person may see it. `role` is a Membership.Role, `provider`, or `local visitor`."""

    org: Org
    role: str

    @property
    def may_write(self) -> bool:
        """Whether this person may change settings of the org."""
        return self.role in (Membership.Role.OWNER, Membership.Role.ADMIN, "provider")

    @property
    def may_remove_demo(self) -> bool:
        """Whether this person may remove the simulated cluster: who may write, and the visitor of the local mode."""
        return self.may_write or self.role == LOCAL_VISITOR


def is_open_to_all(slug: str) -> bool:
    """Whether this org stands open without login: the default org of a server in local mode, and nothing else."""
    return bool(settings.GOODPUT_EXPOSE.is_open) and slug == settings.GOODPUT_DEFAULT_ORG


def get_access(user: User | AnonymousUser, slug: str) -> Access:
    """The org with this slug and the person's role in it. Raises NoSuchOrg → 404."""
    org = Org.objects.filter(slug=slug).first()
    if org is not None and org.status == Org.Status.ACTIVE:
        if user.is_authenticated and user.is_active:
            role = Membership.objects.filter(user=user, org=org).values_list("role", flat=True).first()
            if role:
                return Access(org, role)
            if user.is_staff:
                return Access(org, "provider")
        if is_open_to_all(slug):
            return Access(org, LOCAL_VISITOR)
    raise NoSuchOrg("There is no such org, or it is not yours.")


def list_orgs(user: User | AnonymousUser) -> list[Org]:
    """The orgs that a person may enter, by slug."""
    orgs = Org.objects.filter(status=Org.Status.ACTIVE)
    if user.is_authenticated and user.is_staff:
        return list(orgs)
    mine = list(orgs.filter(memberships__user=user)) if user.is_authenticated else []
    if settings.GOODPUT_EXPOSE.is_open and all(org.slug != settings.GOODPUT_DEFAULT_ORG for org in mine):
        mine += orgs.filter(slug=settings.GOODPUT_DEFAULT_ORG)
    return mine
