"""Forms of the provider's console."""

from __future__ import annotations

from django import forms

from orgs.services import MAX_CLUSTER_CHARS, MAX_NAME_CHARS


class NewOrgForm(forms.Form):
    """A customer with its first owner and its first key."""

    name = forms.CharField(
        max_length=MAX_NAME_CHARS, label="Name", widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    slug = forms.CharField(
        max_length=40,
        label="Short name",
        help_text="In every address of the org: lower-case letters, digits and hyphens, such as acme-ai.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "pattern": r"[a-z0-9\-]+"}),
    )
    email = forms.EmailField(
        label="E-mail address of its first owner", widget=forms.EmailInput(attrs={"autocomplete": "off"})
    )
    cluster = forms.CharField(
        required=False,
        max_length=MAX_CLUSTER_CHARS,
        label="Cluster",
        help_text="The first key is good for this cluster only; empty: for every cluster.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
