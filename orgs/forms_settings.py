"""Forms of an org's settings: an invitation, a role, a key."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from orgs.access import Access
from orgs.errors import OrgInvalid
from orgs.models import ApiKey, Membership
from orgs.services import MAX_CLUSTER_CHARS, MAX_NAME_CHARS, check_restriction

ROLE_HELP = {
    Membership.Role.OWNER: "everything, owners too",
    Membership.Role.ADMIN: "members, keys and settings",
    Membership.Role.FINANCE: "claims and audit trail, no keys and no members",
    Membership.Role.VIEWER: "reads only",
}
LIVES = ((30, "30 days"), (90, "90 days"), (365, "1 year"), (0, "never"))
OVERLAPS = ((0, "at once"), (1, "in 1 hour"), (24, "in 24 hours"), (168, "in 7 days"))
PURPOSES = (
    ("ingest", "Ingest: an agent sends, reads nothing"),
    ("read", "Read: dashboards and scripts"),
    ("admin-read", "Admin read: also members, keys, audit trail"),
    ("enrol", "Enrol: many nodes; gives each its own ingest key, sends and reads nothing"),
)


def roles_for(access: Access, *, told: bool = True) -> list[tuple[str, str]]:
    """The roles that this person may give."""
    roles = [role for role in Membership.Role if role != Membership.Role.OWNER or access.may_own]
    return [(role.value, f"{role.label}: {ROLE_HELP[role]}" if told else role.label) for role in reversed(roles)]


def split(text: str) -> list[str]:
    """Names between commas or line ends."""
    return [name.strip() for name in text.replace("\n", ",").split(",") if name.strip()]


class RoleForm(forms.Form):
    """A role and, for those who only read, the clusters that they see."""

    role = forms.ChoiceField()
    clusters = forms.CharField(
        required=False,
        max_length=4000,
        label="Only these clusters",
        help_text="For a viewer or finance. Names, separated by commas; empty: all clusters.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )

    def __init__(self, access: Access, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.access = access
        self.role_field.choices = roles_for(access)

    @property
    def role_field(self) -> forms.ChoiceField:
        """The field of the role."""
        field = self.fields["role"]
        assert isinstance(field, forms.ChoiceField)
        return field

    def clean(self) -> dict[str, Any]:
        """`clusters` as a list. Raises ValidationError."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        try:
            cleaned["clusters"] = check_restriction(cleaned.get("role", ""), split(cleaned.get("clusters", "")))
        except OrgInvalid as error:
            raise ValidationError({"clusters": error.detail}) from error
        return cleaned


class InviteForm(RoleForm):
    """Whom to invite, as what."""

    field_order = ["email", "role", "clusters"]
    email = forms.EmailField(
        label="E-mail address", max_length=254, widget=forms.EmailInput(attrs={"autocomplete": "off"})
    )


class KeyForm(forms.Form):
    """What a key is for."""

    name = forms.CharField(
        max_length=MAX_NAME_CHARS,
        help_text="What it is for, such as rack 7 or our Grafana.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    scope = forms.ChoiceField(choices=PURPOSES, label="What it may do")
    cluster = forms.CharField(
        required=False,
        max_length=MAX_CLUSTER_CHARS,
        help_text="Good for this cluster only; empty: for every cluster of the org.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "list": "clusters"}),
    )
    days = forms.TypedChoiceField(choices=LIVES, coerce=int, initial=365, label="Expires")

    def lives(self) -> timedelta | None:
        """How long the key lives; None: until it is revoked."""
        return timedelta(days=self.cleaned_data["days"]) or None


class RollForm(forms.Form):
    """When the old key stops."""

    overlap = forms.TypedChoiceField(choices=OVERLAPS, coerce=int, initial=24, label="The old key stops")

    def span(self) -> timedelta:
        """The overlap."""
        return timedelta(hours=self.cleaned_data["overlap"])


class AcceptForm(forms.Form):
    """A new person's name and password."""

    name = forms.CharField(
        required=False, max_length=120, label="Your name", widget=forms.TextInput(attrs={"autocomplete": "name"})
    )
    password = forms.CharField(
        strip=False,
        help_text="Ten characters or more, not a common one.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )


def scope_words(scopes: Iterable[str]) -> str:
    """Scopes for reading, such as `ingest, read`."""
    return ", ".join(scope for scope in ApiKey.Scope.values if scope in set(scopes))
