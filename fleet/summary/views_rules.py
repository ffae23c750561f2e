"""The console's page of rule sets: which org is on which, and adopting one now or later."""

from __future__ import annotations

from datetime import UTC

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from fleet.domain.rules import LATEST, load_rules, versions
from fleet.services_dated import DatedInvalid
from fleet.services_rules import full_hour
from fleet.summary import rollout
from fleet.summary.views import staff_only, who
from orgs.middleware import sensitive
from orgs.models import Org
from orgs.sheets import csv_response

OLDER = "older"  # in place of an org: every one that is not on the chosen rule set


class AdoptForm(forms.Form):
    """Whom, what and from when."""

    org = forms.ChoiceField(label="Org")
    version = forms.ChoiceField(label="Rule set")
    from_at = forms.DateTimeField(
        required=False,
        label="From (UTC)",
        help_text="The first full hour at or after it; empty: the next full hour.",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        input_formats=["%Y-%m-%dT%H:%M"],
    )
    reason = forms.CharField(max_length=500, label="Why", widget=forms.TextInput(attrs={"autocomplete": "off"}))

    def __init__(self, orgs: list[Org], data: object = None):
        super().__init__(data)  # type: ignore[arg-type]
        self.orgs = orgs
        self.fields["org"].choices = [  # type: ignore[attr-defined]
            (OLDER, "every org that is not on it"),
            *((str(org.pk), org.slug) for org in orgs),
        ]
        names = [(version, version) for version in reversed(versions())]
        self.fields["version"].choices = names  # type: ignore[attr-defined]

    def chosen(self, rows: list[rollout.Adopted]) -> list[Org]:
        """The orgs that are meant."""
        wanted, version = self.cleaned_data["org"], self.cleaned_data["version"]
        if wanted == OLDER:
            return [row.org for row in rows if (row.next_version or row.version) != version]
        return [org for org in self.orgs if str(org.pk) == wanted]


@sensitive
@staff_only
@require_http_methods(["GET", "HEAD", "POST"])
def rules(request: HttpRequest) -> HttpResponse:
    """Every org's rule set; POST adopts one for an org or for all that are on another."""
    now = timezone.now()
    rows = rollout.list_adopted(now)
    form = AdoptForm([row.org for row in rows], request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        from_at = data["from_at"].replace(tzinfo=UTC) if data["from_at"] else full_hour(now)
        orgs = form.chosen(rows)
        try:
            done, refused = rollout.adopt_for(
                orgs, version=data["version"], reason=data["reason"], from_at=from_at, now=now, **who(request)
            )
        except DatedInvalid as error:
            form.add_error("from_at", error.detail)
        else:
            if done:
                names = ", ".join(org.slug for org in done[:5]) + (
                    f" and {len(done) - 5} more" if len(done) > 5 else ""
                )
                since = full_hour(from_at)
                messages.success(request, f"{names}: rule set {data['version']} from {since:%Y-%m-%d %H:%M} UTC on.")
            elif not refused:
                messages.warning(request, f"Every org is on {data['version']} already.")
            for org, why in refused:
                messages.error(request, f"{org.slug}: {why}")
            return redirect("provider_rules")
    context = {
        "section": "rules",
        "rows": rows,
        "form": form,
        "latest": load_rules(LATEST),
        "behind": sum(not row.is_latest for row in rows),
        "changes": rollout.changes_to_latest(rows),
    }
    return render(request, "provider/rules.html", context, status=422 if request.method == "POST" else 200)


@staff_only
@require_safe
def rules_csv(request: HttpRequest) -> HttpResponse:
    """What the page shows."""
    rows = rollout.list_adopted(timezone.now())
    return csv_response("goodput-rule-sets.csv", rollout.COLUMNS, [row.values() for row in rows])
