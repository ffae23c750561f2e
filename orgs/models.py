"""Tables of the public schema: people, orgs, memberships, keys, the audit trail."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone
from django_tenants.models import TenantMixin


class UserManager(BaseUserManager["User"]):
    """Users are found by e-mail address, whatever its case."""

    def create_user(self, email: str, password: str | None = None, **more: Any) -> User:
        """A saved user; without a password only a one-time link lets them in."""
        user = self.model(email=self.normalize_email(email).strip(), **more)
        user.set_password(password)
        user.full_clean(exclude=["password"])
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **more: Any) -> User:
        """A user who may do everything in `/admin/` and `/provider/`."""
        return self.create_user(email, password, is_staff=True, is_superuser=True, **more)

    def get_by_natural_key(self, username: str | None) -> User:
        """The user with this address."""
        return self.get(email__iexact=(username or "").strip())


class User(AbstractBaseUser, PermissionsMixin):
    """A person, known by their e-mail address. `is_staff` marks the provider's own people."""

    email = models.EmailField(max_length=254, unique=True)
    name = models.CharField(max_length=120, blank=True)
    is_staff = models.BooleanField(default=False, help_text="Provider staff: may enter /admin/ and /provider/.")
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects: ClassVar[UserManager] = UserManager()

    class Meta:
        constraints = [models.UniqueConstraint(Lower("email"), name="orgs_user_email_unique")]

    def __str__(self) -> str:
        return self.email


class Org(TenantMixin):  # type: ignore[misc]  # django-tenants has no types
    """A customer of the provider, one PostgreSQL schema. Made by `services.create_org`, never by `save()` alone.

    The schema is named after a never-reused id: a reused name would silently adopt the old tables.
    """

    class Status(models.TextChoices):
        ACTIVE = "active"
        SUSPENDED = "suspended"

    slug = models.SlugField(max_length=40, unique=True)
    name = models.CharField(max_length=120)
    status = models.CharField(max_length=10, choices=Status, default=Status.ACTIVE)
    created_at = models.DateTimeField(default=timezone.now)

    auto_create_schema = False  # saving an old row must never create and migrate a dropped schema
    auto_drop_schema = False

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug


class OrgTombstone(models.Model):
    """What is left of a deleted org: its id and names, so that neither is taken for another's."""

    org_id = models.BigIntegerField(unique=True)
    slug = models.CharField(max_length=40)
    name = models.CharField(max_length=120)
    deleted_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.slug} (deleted)"


class SchemaRecipe(models.Model):
    """The statements that make an org's schema by the migrations whose files have this digest (see schemas.py)."""

    digest = models.CharField(max_length=64, primary_key=True)
    statements = models.JSONField()
    made_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"recipe {self.digest[:12]}"


class Membership(models.Model):
    """A person's role in an org."""

    class Role(models.TextChoices):
        OWNER = "owner"
        ADMIN = "admin"
        FINANCE = "finance"
        VIEWER = "viewer"

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    org = models.ForeignKey(Org, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role, default=Role.VIEWER)
    clusters = ArrayField(
        models.CharField(max_length=256), default=list, blank=True, help_text="Only these clusters; empty: all of them."
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "org"], name="orgs_membership_once")]

    def __str__(self) -> str:
        return f"{self.user} is {self.role} of {self.org}"


class Invitation(models.Model):
    """Somebody who may join an org by a link, once, until it expires. `nonce` makes the link (invitations.py).

    `base_url` is the address of this server that the inviting person used: links in a later mail lead there too.
    """

    LIVES = timedelta(days=7)

    org = models.ForeignKey(Org, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField(max_length=254)
    role = models.CharField(max_length=10, choices=Membership.Role, default=Membership.Role.VIEWER)
    clusters = ArrayField(models.CharField(max_length=256), default=list, blank=True)
    nonce = models.CharField(max_length=32, help_text="Changes when the invitation is sent again: older links end.")
    base_url = models.CharField(max_length=300)
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.CharField(max_length=254)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True, help_text="When a mail server took the message.")
    mail_attempts = models.SmallIntegerField(default=0)
    mail_error = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                Lower("email"),
                "org",
                condition=models.Q(accepted_at=None, revoked_at=None),
                name="orgs_invitation_open_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.email} → {self.org}"

    def state(self, now: datetime) -> str:
        """`accepted`, `revoked`, `expired` or `open`."""
        if self.accepted_at:
            return "accepted"
        if self.revoked_at:
            return "revoked"
        return "expired" if self.expires_at <= now else "open"


class ApiKey(models.Model):
    """A key of an org: its prefix may be shown, of its secret only the SHA-256 is kept.

    A literal such as `devtoken` can be a key too; it has no prefix of its own and is shown by its first characters.
    """

    class Scope(models.TextChoices):
        INGEST = "ingest"
        READ = "read"
        ADMIN_READ = "admin-read", "Admin read"
        ENROL = "enrol"

    org = models.ForeignKey(Org, on_delete=models.CASCADE, related_name="keys")
    name = models.CharField(max_length=120)
    prefix = models.CharField(max_length=16)
    secret_hash = models.BinaryField(max_length=32, unique=True)
    scopes = ArrayField(models.CharField(max_length=16, choices=Scope))
    cluster = models.CharField(max_length=256, blank=True, help_text="If set, the key is good for this cluster only.")
    node = models.CharField(
        max_length=256, blank=True, default="", db_default="", help_text="If set, this node's own key (enrolment)."
    )
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.CharField(max_length=254, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    last_used_address = models.GenericIPAddressField(null=True, blank=True)
    successor = models.CharField(max_length=16, blank=True, help_text="Prefix of the key that took its place.")

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.name})"

    def state(self, now: datetime) -> str:
        """`revoked`, `expired`, `rolled` (good until it expires, a successor exists) or `active`."""
        if self.revoked_at:
            return "revoked"
        if self.expires_at and self.expires_at <= now:
            return "expired"
        return "rolled" if self.successor else "active"


class LoginAttempt(models.Model):
    """A password that was tried; rows live as long as they count (see attempts.py)."""

    at = models.DateTimeField()
    sender = models.CharField(max_length=64, help_text="An IPv4 address or an IPv6 /64.")
    account = models.CharField(max_length=64, help_text="HMAC of the address that was typed.")

    class Meta:
        indexes = [
            models.Index(fields=["sender", "at"], name="orgs_attempt_sender"),
            models.Index(fields=["account", "at"], name="orgs_attempt_account"),
            models.Index(fields=["at"], name="orgs_attempt_at"),
        ]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.sender}"


class AuditEntry(models.Model):
    """Who did what, when, from where. Append-only: the database refuses UPDATE and DELETE.

    Names are copied, not referenced, so that an entry outlives the person and the org.
    """

    at = models.DateTimeField(default=timezone.now, db_index=True)
    org_id = models.BigIntegerField(null=True, db_index=True)
    org_slug = models.CharField(max_length=40, blank=True)
    actor = models.CharField(max_length=254, help_text="E-mail address, key prefix, or `system`.")
    action = models.CharField(max_length=64)
    target = models.CharField(max_length=256, blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    address = models.GenericIPAddressField(null=True)

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor} {self.action} {self.target}"
