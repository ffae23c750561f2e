"""The form of a channel: the fields of its kind. What it may hold the service decides (channels.py)."""

from __future__ import annotations

import json
from typing import Any

from django import forms

from fleet.alerts.channels import HAS, PARTIES
from fleet.alerts.models import Channel
from fleet.domain.alerting.words import SEVERITIES

PLAIN = {"autocomplete": "off", "spellcheck": "false"}
HOLDS = ((0, "at once"), (60, "after 1 minute"), (300, "after 5 minutes"), (900, "after 15 minutes"))
DIGESTS = ((0, "each by itself"), (15, "every 15 minutes"), (60, "every hour"), (1440, "every day"))
KIND_WORDS = {
    "incident": "incidents",
    "silence": "telemetry silence",
    "agents": "two agents on one node",
    "budget": "contract uptime that nears a step",
    "deadline": "claim deadlines",
}
SEVERITY_WORDS = {
    "info": "possible, degraded or down",
    "warning": "degraded or down",
    "critical": "down only",
}
URL_HELP = {
    Channel.Kind.WEBHOOK: "Gets a POST of JSON.",
    Channel.Kind.SLACK: "An incoming webhook of Slack, Mattermost, Rocket.Chat or Zulip.",
    Channel.Kind.PAGERDUTY: "Empty: PagerDuty's own. That of its EU region is https://events.eu.pagerduty.com/v2/enqueue.",
    Channel.Kind.ALERTMANAGER: "Its own address, such as http://alertmanager:9093; /api/v2/alerts is added.",
}
KEPT = "One is kept, and never shown. Leave it empty to keep it."


class ChannelForm(forms.Form):
    """A channel of one kind, new or as it is."""

    name = forms.CharField(
        max_length=120, help_text="Such as on-call, or #gpu-alerts.", widget=forms.TextInput(attrs=PLAIN)
    )
    recipients = forms.CharField(
        label="To", help_text="E-mail addresses, one a line.", widget=forms.Textarea(attrs={**PLAIN, "rows": 3})
    )
    url = forms.CharField(required=False, label="URL", max_length=1000, widget=forms.TextInput(attrs=PLAIN))
    routing_key = forms.CharField(
        required=False,
        label="Integration key",
        max_length=64,
        help_text="Of a service's integration Events API v2.",
        widget=forms.PasswordInput(attrs=PLAIN),
    )
    authorization = forms.CharField(
        required=False,
        label="Authorization header",
        max_length=1000,
        help_text="If it wants one, such as Bearer and a token.",
        widget=forms.PasswordInput(attrs=PLAIN),
    )
    template = forms.CharField(
        required=False,
        label="Template",
        max_length=8000,
        help_text="A JSON object with names in braces, such as {line}, {title}, {url}; empty: all there is.",
        widget=forms.Textarea(attrs={**PLAIN, "rows": 4, "class": "mono"}),
    )
    least_severity = forms.ChoiceField(
        label="Tell of", choices=[(one, SEVERITY_WORDS[one]) for one in SEVERITIES], initial="warning"
    )
    hold_seconds = forms.TypedChoiceField(
        label="When",
        coerce=int,
        choices=HOLDS,
        initial=60,
        help_text="What is over by then is told to nobody.",
    )
    digest_minutes = forms.TypedChoiceField(label="Messages go", coerce=int, choices=DIGESTS, initial=0)
    kinds = forms.MultipleChoiceField(
        required=False,
        label="Only about",
        choices=list(KIND_WORDS.items()),
        widget=forms.CheckboxSelectMultiple,
        help_text="None chosen: about all of it.",
    )
    parties = forms.MultipleChoiceField(
        required=False,
        label="Only whose fault",
        choices=[(one, one) for one in PARTIES],
        widget=forms.CheckboxSelectMultiple,
        help_text="None chosen: anybody's.",
    )
    clusters = forms.CharField(
        required=False,
        label="Only these clusters",
        max_length=4000,
        help_text="Names, separated by commas; empty: all.",
        widget=forms.TextInput(attrs={**PLAIN, "list": "clusters"}),
    )
    is_enabled = forms.BooleanField(required=False, initial=True, label="Switched on")

    def __init__(self, kind: str, *args: Any, channel: Channel | None = None, held: tuple[str, ...] = (), **more: Any):
        if channel is not None:
            more.setdefault("initial", _initial(channel))
        super().__init__(*args, **more)
        self.kind = Channel.Kind(kind)
        for name in ("recipients", "url", "routing_key", "authorization", "template", "digest_minutes"):
            if name not in HAS[self.kind]:
                del self.fields[name]
        if channel is None:
            del self.fields["is_enabled"]
        elif "hold_seconds" in self.fields:
            self._keep(("hold_seconds", HOLDS, f"after {channel.hold_seconds} s", channel.hold_seconds))
            self._keep(("digest_minutes", DIGESTS, f"every {channel.digest_minutes} min", channel.digest_minutes))
        if "url" in self.fields:
            self.fields["url"].help_text = URL_HELP[self.kind]
        for name in ("url", "routing_key", "authorization"):
            if name in self.fields and name in held:
                self.fields[name].help_text = KEPT
                if name == "url" and channel is not None:
                    self.fields[name].widget.attrs["placeholder"] = f"{channel.target}/…"

    def _keep(self, chosen: tuple[str, tuple[tuple[int, str], ...], str, int]) -> None:
        """A value that no choice has (the API takes any) stays one."""
        name, choices, words, value = chosen
        field = self.fields.get(name)
        if isinstance(field, forms.TypedChoiceField) and value not in dict(choices):
            field.choices = [*choices, (value, words)]

    def given(self) -> dict[str, Any]:
        """What was typed, as the service takes it."""
        data = dict(self.cleaned_data)
        if "recipients" in data:
            data["recipients"] = [one.strip() for one in data["recipients"].replace(",", "\n").split() if one.strip()]
        data["clusters"] = [one.strip() for one in data["clusters"].split(",") if one.strip()]
        return data


def _initial(channel: Channel) -> dict[str, Any]:
    template = channel.template
    return {
        "name": channel.name,
        "recipients": "\n".join(channel.recipients),
        "template": "" if template is None else json.dumps(template, indent=2, ensure_ascii=False),
        "kinds": channel.kinds,
        "clusters": ", ".join(channel.clusters),
        "parties": channel.parties,
        "least_severity": channel.least_severity,
        "hold_seconds": channel.hold_seconds,
        "digest_minutes": channel.digest_minutes,
        "is_enabled": channel.is_enabled,
    }
