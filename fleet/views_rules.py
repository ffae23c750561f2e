"""Pages of rules: the public one with every rule set and what two say otherwise, and the org's own in its settings."""

from __future__ import annotations

import re
from math import inf
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from kombu.exceptions import OperationalError

from fleet.api_shapes import rule as rule_json
from fleet.domain.explain import also_of, ends_of, needs_of
from fleet.domain.rules import LATEST, Reason, Rules, diff, load_rules, versions
from fleet.forms_settings import AdoptForm, AmendForm, plain
from fleet.models import Amendment, RuleAdoption, RuleComparison
from fleet.rules_preview import Preview, preview_amendment, preview_rule_set
from fleet.selectors_comparisons import list_comparisons
from fleet.selectors_rules import get_rules_page, rules_now
from fleet.services_comparisons import ask_for_comparison
from fleet.services_dated import DatedInvalid
from fleet.services_rules import adopt_rules, amend_rule, end_amendment, withdraw_adoption, withdraw_amendment
from fleet.tasks import compare_rules_of_org
from fleet.views_settings import access_of, actor_of, tried
from orgs.middleware import honours_clusters

#: Files of a rule set in the order in which people ask for them, and what they hold.
GROUPS = {
    "xid.toml": "Xid: the driver’s own errors",
    "sxid.toml": "SXid: NVSwitch errors",
    "throttle.toml": "Throttling",
    "links.toml": "Lanes, NVLinks and what is only watched",
    "ports.toml": "InfiniBand and RoCE ports",
    "presence.toml": "Presence, data quality and the rest",
}


def _version(text: str) -> str:
    """A version that is here. Raises Http404."""
    if text not in versions():
        raise Http404("There is no such rule set.")
    return text


def grouped(rules: Rules, search: str = "") -> list[dict[str, Any]]:
    """The reasons by file, each with its words; with `search` those whose code, title or explanation holds it."""
    groups: dict[str, list[dict[str, Any]]] = {name: [] for name in GROUPS}
    wanted = search.strip().lower()
    for reason in sorted(rules.reasons.values(), key=_place):
        if not any(wanted in text.lower() for text in (reason.code, reason.title, reason.explanation)):
            continue
        file = reason.where.partition(":")[0]
        groups.setdefault(file, []).append(_line(reason, rules))
    return [{"title": GROUPS.get(name, name), "lines": lines} for name, lines in groups.items() if lines]


def _place(reason: Reason) -> tuple[float, str]:
    """By the number in its code; what has none stands behind, in the order of the files."""
    found = re.match(r"S?XID_(\d+)", reason.code)
    return (int(found[1]), reason.code) if found else (inf, reason.code)


def _line(reason: Reason, rules: Rules) -> dict[str, Any]:
    also = also_of(reason, rules)
    return {"reason": reason, "needs": needs_of(reason), "ends": ends_of(reason), "also": also}


@require_safe
@cache_control(public=True, max_age=300)
def public_rules(request: HttpRequest) -> HttpResponse:
    """Every reason of a rule set in plain words; with `against` only what another says otherwise."""
    version = _version(request.GET.get("version") or LATEST)
    against = request.GET.get("against", "")
    search = request.GET.get("q", "").replace("\x00", "")[:80]
    rules = load_rules(version)
    changes = []
    if against:
        for change in diff(load_rules(_version(against)), rules):
            keys = [(key.replace("_", " "), plain(old), plain(new)) for key, old, new in change.keys]
            title = (rules.reasons.get(change.code) or load_rules(against).reasons[change.code]).title
            changes.append({"change": change, "title": title, "keys": keys})
    context = {
        "rules": rules,
        "version": version,
        "against": against,
        "versions": list(reversed(versions())),
        "groups": [] if against else grouped(rules, search),
        "search": search,
        "changes": changes,
    }
    return render(request, "fleet/rules.html", context)


@require_safe
@cache_control(public=True, max_age=300)
def public_rules_json(request: HttpRequest, version: str) -> JsonResponse:
    """A rule set for programs: every reason with all its fields, and the digest that verdicts rest on."""
    rules = load_rules(_version(version))
    reasons = [rule_json(rules.reasons[code]) for code in sorted(rules.reasons)]
    return JsonResponse({"version": rules.version, "digest": rules.digest, "reasons": reasons})


@honours_clusters
@require_http_methods(["GET", "HEAD", "POST"])
def org_rules(request: HttpRequest) -> HttpResponse:
    """The rules that the org folds by: adoptions and amendments; POST amends a reason."""
    form = AmendForm(request.POST or None, initial={"code": request.GET.get("code", "")[:64]})
    if request.method == "POST":
        actor, rules = actor_of(request), rules_now()
        if "compare" in request.POST:
            asked: list[RuleComparison] = []
            if tried(
                form,
                lambda data: asked.append(ask_for_comparison(actor, code=data["code"], changes=form.changes(rules))),
                {"changes": "value"},
            ):
                return _compare(request, asked[0])
            return _rules_page(request, form, AdoptForm(), 422)
        if "preview" in request.POST:
            shown: list[Preview] = []
            tried(
                form,
                lambda data: shown.append(preview_amendment(timezone.now(), data["code"], form.changes(rules))),
                {"changes": "value"},
            )
            return _rules_page(request, form, AdoptForm(), 422 if form.errors else 200, *shown)

        def amend(data: dict[str, Any]) -> None:
            row = amend_rule(
                actor,
                code=data["code"],
                changes=form.changes(rules),
                reason=data["reason"],
                from_at=data["from_at"],
                until_at=data["until_at"],
            )
            messages.success(request, f"{row.code} is amended from {row.from_at:%Y-%m-%d %H:%M} UTC on.")

        if tried(form, amend, {"changes": "value"}):
            return redirect("org_rules", org_slug=access_of(request).org.slug)
    return _rules_page(request, form, AdoptForm(), 422 if form.errors else 200)


def _rules_page(
    request: HttpRequest, form: AmendForm, adopt_form: AdoptForm, status: int = 200, preview: Preview | None = None
) -> HttpResponse:
    page = get_rules_page(timezone.now())
    lines = [
        {"line": line, "keys": [(key.replace("_", " "), plain(old), plain(new)) for key, old, new in line.keys]}
        for line in page.amendments
    ]
    context = {
        "section": "rules",
        "page": page,
        "lines": lines,
        "form": form,
        "adopt_form": adopt_form,
        "codes": sorted(page.rules.reasons),
        "newest": LATEST,
        "preview": preview,
        "comparisons": [] if access_of(request).clusters else list_comparisons(),
    }
    return render(request, "fleet/settings/rules.html", context, status=status)


def _compare(request: HttpRequest, row: RuleComparison) -> HttpResponse:
    """Have a worker begin, and show how far it is. Without a broker the job of the next minute begins it."""
    try:
        compare_rules_of_org.apply_async(args=[access_of(request).org.pk, row.pk, row.last_node_id], retry=False)
    except OperationalError:
        messages.info(request, "It begins within a minute or two.")
    return redirect("rules_comparison", org_slug=access_of(request).org.slug, comparison_id=row.pk)


@require_POST
def adopt(request: HttpRequest) -> HttpResponse:
    """Fold by another rule set from a full hour on."""
    actor, form = actor_of(request), AdoptForm(request.POST)
    if "compare" in request.POST:
        asked: list[RuleComparison] = []
        if tried(form, lambda data: asked.append(ask_for_comparison(actor, version=data["version"]))):
            return _compare(request, asked[0])
        return _rules_page(request, AmendForm(), form, 422)
    if "preview" in request.POST:
        shown: list[Preview] = []
        tried(form, lambda data: shown.append(preview_rule_set(timezone.now(), data["version"])))
        return _rules_page(request, AmendForm(), form, 422 if form.errors else 200, *shown)
    if tried(form, lambda data: adopt_rules(actor, **data)):
        messages.success(request, f"{form.cleaned_data['version']} is adopted.")
        return redirect("org_rules", org_slug=access_of(request).org.slug)
    return _rules_page(request, AmendForm(), form, 422)


@require_POST
def end_rule_row(request: HttpRequest, kind: str, row_id: int) -> HttpResponse:
    """End or withdraw an amendment (`amendments/<id>`), withdraw an adoption (`adoptions/<id>`)."""
    actor = actor_of(request)
    try:
        if kind == "amendments":
            row = Amendment.objects.filter(pk=row_id).first()
            if row is None:
                raise Http404("There is no such amendment.")
            takes_back = "withdraw" in request.POST
            done = withdraw_amendment(row, actor) if takes_back else end_amendment(row, timezone.now(), actor)
        else:
            adoption = RuleAdoption.objects.filter(pk=row_id).first() if kind == "adoptions" else None
            if adoption is None:
                raise Http404("There is no such adoption.")
            done = withdraw_adoption(adoption, actor)
        messages.success(request, "Done. Hours that it touches are folded again." if done else "It had ended before.")
    except DatedInvalid as error:
        messages.error(request, error.detail)
    return redirect("org_rules", org_slug=access_of(request).org.slug)
