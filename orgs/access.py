"""The only way from a person to an org. Not yours and not there give the same answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.conf import settings
from django.contrib.auth.models import AnonymousUser

from orgs.errors import NoSuchOrg
from orgs.models import Membership, Org, User

LOCAL_VISITOR = "local visitor"
PROVIDER = "provider"


@dataclass(frozen=True)
class Access:
    """An org as one person may see it. `role` is a Membership.Role, `provider`, or `local visitor`.

    `clusters` are the only ones that this person may see; empty means all. `is_viewing` marks provider staff who look
    at the org as its viewers do.
    """

    org: Org
    role: str
    clusters: tuple[str, ...] = ()
    is_viewing: bool = False

    @property
    def may_write(self) -> bool:
        """Whether this person may change settings, keys and members of the org."""
        return self.role in (Membership.Role.OWNER, Membership.Role.ADMIN, PROVIDER)

    @property
    def may_own(self) -> bool:
        """Whether this person may make and unmake owners."""
        return self.role in (Membership.Role.OWNER, PROVIDER)

    @property
    def may_claim(self) -> bool:
        """Whether this person may file claims and write down what became of them."""
        return self.may_write or self.role == Membership.Role.FINANCE

    @property
    def may_audit(self) -> bool:
        """Whether this person may read the org's audit trail."""
        return self.may_claim

    @property
    def may_remove_demo(self) -> bool:
        """Whether this person may remove the simulated cluster: who may write, and the visitor of the local mode."""
        return self.may_write or self.role == LOCAL_VISITOR

    def sees(self, cluster: str) -> bool:
        """Whether this person may see a cluster of the org."""
        return not self.clusters or cluster in self.clusters

    def as_viewer(self) -> Access:
        """The same org as its viewers see it."""
        return replace(self, role=Membership.Role.VIEWER, is_viewing=True)


def is_open_to_all(slug: str) -> bool:
    """Whether this org stands open without login: the default org of a server in local mode, and nothing else."""
    return bool(settings.GOODPUT_EXPOSE.is_open) and slug == settings.GOODPUT_DEFAULT_ORG


def get_access(user: User | AnonymousUser, slug: str) -> Access:
    """The org with this slug and the person's role in it. Raises NoSuchOrg → 404."""
    org = Org.objects.filter(slug=slug).first()
    if org is not None and org.status == Org.Status.ACTIVE:
        if user.is_authenticated and user.is_active:
            mine = Membership.objects.filter(user=user, org=org).first()
            if mine:
                return Access(org, mine.role, tuple(mine.clusters))
            if user.is_staff:
                return Access(org, PROVIDER)
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
