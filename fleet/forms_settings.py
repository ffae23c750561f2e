"""Forms of the settings that the fleet owns. Every instant is typed in UTC: a page can't know another zone's rules."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone

from fleet.domain.rules import AMENDABLE, Rules, versions
from fleet.models import MaintenanceWindow, ProbeTarget


class UtcField(forms.DateTimeField):
    """An instant in UTC, to the minute."""

    def __init__(self, **more: Any) -> None:
        format_ = "%Y-%m-%dT%H:%M"
        widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format=format_)
        super().__init__(widget=widget, input_formats=[format_, "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M"], **more)

    def to_python(self, value: Any) -> datetime | None:
        """An aware datetime."""
        found = super().to_python(value)
        return found.replace(tzinfo=UTC) if found is not None else None


def now_minute() -> datetime:
    """Now, to the minute, as a form shows it."""
    return timezone.now().replace(second=0, microsecond=0)


REASON: dict[str, Any] = {"max_length": 500, "label": "Why", "required": False}


class ExpectedForm(forms.Form):
    """What a node should have."""

    gpus = forms.IntegerField(min_value=0, max_value=4096, required=False, label="GPUs", help_text="Empty: as learned.")
    from_at = UtcField(label="From, UTC", initial=now_minute)
    until_at = UtcField(label="Until, UTC", required=False, help_text="Empty: until another takes its place.")
    devices = forms.CharField(
        required=False,
        label="Devices",
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="UUIDs or bus ids, one a line; compared on this page only.",
    )
    ports = forms.CharField(
        required=False,
        label="Ports",
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="One a line: key, then the index of its GPU and its rate in Gbit/s if known, such as "
        "<span class='mono'>mlx5_0/1 0 400</span>. Empty: as learned.",
    )
    owns_driver = forms.BooleanField(required=False, label="The provider runs the driver")
    owns_fabric = forms.BooleanField(required=False, label="The provider runs the fabric")
    reason = forms.CharField(**REASON)

    def clean_devices(self) -> list[str]:
        """One a line."""
        return [line.strip() for line in self.cleaned_data["devices"].splitlines() if line.strip()]

    def clean_ports(self) -> list[dict[str, Any]] | None:
        """`key [gpu [rate]]` a line; None for none."""
        out: list[dict[str, Any]] = []
        for line in self.cleaned_data["ports"].splitlines():
            words = line.split()
            if not words:
                continue
            if len(words) > 3 or any(not re.fullmatch(r"\d{1,6}", word) for word in words[1:]):
                raise ValidationError(f"“{line[:60]}”: key, then the index of its GPU, then its rate in Gbit/s.")
            numbers = [int(word) for word in words[1:]] + [None, None]
            out.append({"key": words[0], "gpu": numbers[0], "rate_gbps": numbers[1]})
        return out or None


class ClusterExpectedForm(forms.Form):
    """The same number for every node of a cluster."""

    cluster = forms.CharField(max_length=256, widget=forms.TextInput(attrs={"list": "clusters"}))
    gpus = forms.IntegerField(min_value=0, max_value=4096, label="GPUs a node")
    from_at = UtcField(label="From, UTC", initial=now_minute)
    reason = forms.CharField(**REASON)


class AssignForm(forms.Form):
    """A device given to a place."""

    place = forms.IntegerField(min_value=0, max_value=4095, label="GPU")
    device = forms.CharField(max_length=256, label="UUID of the device")
    at = UtcField(label="At, UTC", initial=now_minute)
    reason = forms.CharField(max_length=500, label="Why")


class ProbeForm(forms.Form):
    """Where to look."""

    kind = forms.ChoiceField(choices=ProbeTarget.Kind.choices)
    address = forms.CharField(max_length=255, label="Address", help_text="An IP address or a host name.")
    port = forms.IntegerField(
        min_value=1, max_value=65535, required=False, initial=22, help_text="Of a TCP connection."
    )


class WindowForm(forms.Form):
    """A maintenance window."""

    cluster = forms.CharField(max_length=256, widget=forms.TextInput(attrs={"list": "clusters"}))
    node = forms.CharField(max_length=256, required=False, help_text="Its name; empty: the whole cluster.")
    gpu = forms.IntegerField(min_value=0, max_value=4095, required=False, label="GPU", help_text="Empty: all of it.")
    starts_at = UtcField(label="From, UTC")
    ends_at = UtcField(label="Until, UTC")
    source = forms.ChoiceField(choices=MaintenanceWindow.Source.choices, label="Announced by")
    noticed_at = UtcField(label="Notice reached us, UTC", required=False, help_text="Empty: without notice.")
    reference = forms.CharField(max_length=200, required=False, help_text="Number or link of the notice.")
    reason = forms.CharField(max_length=500, label="What", required=False)


class AmendForm(forms.Form):
    """The org's own rule for one reason."""

    code = forms.CharField(max_length=64, label="Reason", widget=forms.TextInput(attrs={"list": "codes"}))
    key = forms.ChoiceField(
        choices=[(key, key.replace("_", " ")) for key in AMENDABLE], label="What changes", initial="weight"
    )
    value = forms.CharField(
        max_length=1000,
        label="To",
        help_text="A number, a word, true or false; several words with commas for a list.",
    )
    from_at = UtcField(label="From, UTC", initial=now_minute, help_text="The first full hour at or after this.")
    until_at = UtcField(label="Until, UTC", required=False, help_text="Empty: it stays in force.")
    reason = forms.CharField(max_length=500, label="Why", help_text="Stands beside every verdict that it gives.")

    def changes(self, rules: Rules) -> dict[str, Any]:
        """The change, its value in the type of the rule's field."""
        data = self.cleaned_data
        reason = rules.reasons.get(data["code"])
        old = getattr(reason, data["key"], None)
        text = data["value"].strip()
        if isinstance(old, bool):
            value: Any = {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)
        elif isinstance(old, int):
            value = int(text) if re.fullmatch(r"\d{1,6}", text) else text
        elif isinstance(old, tuple):
            value = [] if text == "none" else [word.strip() for word in text.split(",") if word.strip()]
        else:
            value = text
        return {data["key"]: value}


class AdoptForm(forms.Form):
    """A rule set to fold by."""

    version = forms.ChoiceField(label="Rule set")
    from_at = UtcField(label="From, UTC", initial=now_minute, help_text="The first full hour at or after this.")
    reason = forms.CharField(max_length=500, label="Why")

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.fields["version"].choices = [(one, one) for one in reversed(versions())]  # type: ignore[attr-defined]


class LabelForm(forms.Form):
    """What people call a node or cluster."""

    label = forms.CharField(max_length=120, required=False)


class MergeForm(forms.Form):
    """The node that another is an earlier or later identity of."""

    into = forms.CharField(max_length=256)


def plain(value: Any) -> str:
    """A rule's value in words."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value)
