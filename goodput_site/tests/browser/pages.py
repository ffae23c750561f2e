"""Every page of the site and each of its states, for the walk in test_every_page.py.

The URL configuration is the list: a route that stands neither in PAGES nor in NO_PAGE fails a test, so that no new page
is forgotten. `{node}`, `{incident}` and the like are filled in by the walk's own data.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

ORG = "o/<slug:org_slug>/"
SETTINGS = f"{ORG}settings/"


@dataclass(frozen=True)
class State:
    """One state of a page: who looks (`nobody`, `owner`, `provider`), at what address, and the status it has then.

    `is_ours` is False where another project drew the page: its colours are not ours to mend.
    """

    name: str
    path: str
    who: str = "owner"
    status: int = 200
    is_ours: bool = True


def org(name: str, path: str = "", **more: int) -> State:
    """A page of the org with the bad days, seen by its owner."""
    return State(name, f"/o/walk/{path}", **more)  # type: ignore[arg-type]


def quiet(path: str = "") -> State:
    """The same page of an org in which nothing ever happened."""
    return State("empty", f"/o/walk-fresh/{path}")


def public(path: str) -> tuple[State, ...]:
    """A page for everybody."""
    return (State("as it is", path, "nobody"),)


def staff(name: str, path: str, status: int = 200) -> State:
    """A page of the provider's console."""
    return State(name, path, "provider", status)


PAGES: dict[str, tuple[State, ...]] = {
    "login/": (State("as it is", "/login/", "nobody"), State("with a way on", "/login/?next=/o/walk/", "nobody")),
    "login/link/<str:uid>/<str:token>/": (State("dead", "/login/link/x/y/", "nobody", 410),),
    "invitation/<str:token>/": (State("over", "/invitation/x/", "nobody", 410),),
    "alerts/confirm/<str:token>/": (State("over", "/alerts/confirm/x/", "nobody", 410),),
    "password/": (State("as it is", "/password/"),),
    "password/forgot/": (State("without a mail server", "/password/forgot/", "nobody", 404),),
    "password/forgot/sent/": public("/password/forgot/sent/"),
    "password/new/<str:uidb36>/<str:key>/": (State("dead", "/password/new/x/y/", "nobody"),),
    "password/new/done/": public("/password/new/done/"),
    "account/second-factor/": (State("none yet", "/account/second-factor/"),),
    "account/second-factor/totp/activate/": (State("as it is", "/account/second-factor/totp/activate/"),),
    "account/second-factor/webauthn/add/": (State("as it is", "/account/second-factor/webauthn/add/"),),
    "account/sessions/": (State("as it is", "/account/sessions/"),),
    "account/address/": (State("as it is", "/account/address/"),),
    "account/address/<str:token>/": (State("over", "/account/address/x/", status=410),),
    ORG: (
        org("bad days"),
        org("a week", "?period=7d"),
        org("a node opened", "?open={node}"),
        org("nothing matches", "?q=nothing"),
        org("bad period", "?period=2026-13", status=422),
        quiet(),
        State("fifty nodes", "/o/walk-fifty/"),
        State("no such org", "/o/nobodys/", status=404),
    ),
    f"{ORG}nodes/<int:node_id>/": (
        org("bad days", "nodes/{node}/"),
        org("a week", "nodes/{node}/?period=7d"),
        org("no such node", "nodes/999999/", status=404),
    ),
    f"{ORG}nodes/<int:node_id>/gpus/<int:index>/": (
        org("now", "nodes/{node}/gpus/3/"),
        org("in a fault", "nodes/{fault_node}/gpus/{fault_gpu}/?at={fault_at}"),
        org("before anything", "nodes/{node}/gpus/3/?at=2026-01-01T00:00:00Z"),
        org("bad time", "nodes/{node}/gpus/3/?at=nonsense", status=422),
    ),
    f"{ORG}domains/": (org("none", "domains/"),),  # with some: fleet/tests/test_domains.py
    f"{ORG}incidents/": (
        org("all", "incidents/"),
        org("open", "incidents/?state=open"),
        org("of a node", "incidents/?node=sim-0001"),
        org("bad day", "incidents/?day=x", status=422),
        quiet("incidents/"),
    ),
    f"{ORG}incidents/<int:incident_id>/": (
        org("resolved", "incidents/{incident}/"),
        org("open", "incidents/{open_incident}/"),
        org("of several nodes", "incidents/{head}/"),
        org("a share of it", "incidents/{member}/"),
        org("none such", "incidents/999999/", status=404),
    ),
    f"{ORG}reviews/": (
        org("asks", "reviews/"),
        org("looked at", "reviews/?state=looked+at"),
        org("of a node", "reviews/?state=all&node={node}"),
        quiet("reviews/"),
    ),
    f"{ORG}incidents/statistics/": (org("a month", "incidents/statistics/"), quiet("incidents/statistics/")),
    SETTINGS + "members/": (org("as it is", "settings/members/"),),
    SETTINGS + "keys/": (org("as it is", "settings/keys/"), quiet("settings/keys/")),
    SETTINGS + "agents/": (
        org("some", "settings/agents/"),
        org("nothing matches", "settings/agents/?search=nothing"),
        quiet("settings/agents/"),
    ),
    SETTINGS + "audit/": (org("as it is", "settings/audit/"),),
    SETTINGS + "clusters/": (org("as it is", "settings/clusters/"), quiet("settings/clusters/")),
    SETTINGS + "hardware/": (org("as it is", "settings/hardware/"), quiet("settings/hardware/")),
    SETTINGS + "hardware/<int:node_id>/": (org("a node", "settings/hardware/{node}/"),),
    SETTINGS + "maintenance/": (org("none", "settings/maintenance/"), quiet("settings/maintenance/")),
    SETTINGS + "rules/": (org("as it is", "settings/rules/"),),
    SETTINGS + "rules/comparisons/<int:comparison_id>/": (
        org("done", "settings/rules/comparisons/{comparison}/"),
        org("none such", "settings/rules/comparisons/999999/", status=404),
    ),
    "rules/": public("/rules/"),
    SETTINGS + "alerts/": (org("some", "settings/alerts/"), quiet("settings/alerts/")),
    SETTINGS + "alerts/new/<slug:kind>/": tuple(
        org(kind, f"settings/alerts/new/{kind}/") for kind in ("email", "webhook", "slack", "pagerduty", "alertmanager")
    ),
    SETTINGS + "alerts/<int:channel_id>/": (
        org("failing", "settings/alerts/{channel}/"),
        org("switched off", "settings/alerts/{off_channel}/"),
    ),
    SETTINGS + "alerts/log/": (
        org("some", "settings/alerts/log/"),
        org("nothing matches", "settings/alerts/log/?thread=incident-0"),
        quiet("settings/alerts/log/"),
    ),
    f"{ORG}sla/": (org("a contract", "sla/"), quiet("sla/")),
    f"{ORG}sla/catalog/": (org("as it is", "sla/catalog/"),),
    f"{ORG}sla/new/": (org("as it is", "sla/new/"),),
    f"{ORG}sla/<int:contract_id>/": (
        org("this month", "sla/{contract}/"),
        org("a month with a loss", "sla/{contract}/?month={month}"),
        org("can't be measured", "sla/{unmeasured}/?month={month}"),
    ),
    f"{ORG}reports/": (org("some", "reports/"), quiet("reports/")),
    f"{ORG}reports/late/": (org("nothing", "reports/late/"),),
    f"{ORG}reports/<int:report_id>/": (org("issued", "reports/{report}/"),),
    f"{ORG}claims/": (org("one", "claims/"), quiet("claims/")),
    f"{ORG}claims/anchors/": (org("none yet", "claims/anchors/"),),
    f"{ORG}claims/<int:claim_id>/": (org("draft", "claims/{claim}/"),),
    "provider/": (staff("some orgs", "/provider/"),),
    "provider/orgs/new/": (staff("as it is", "/provider/orgs/new/"),),
    "provider/orgs/<int:org_id>/": (staff("as it is", "/provider/orgs/{org}/"),),
    "provider/jobs/": (staff("as it is", "/provider/jobs/"),),
    "provider/rules/": (staff("as it is", "/provider/rules/"),),
    "provider/audit/": (staff("as it is", "/provider/audit/"),),
    "provider/claims/": (staff("nothing filed", "/provider/claims/"),),
    "provider/catalog/": (staff("as it is", "/provider/catalog/"),),
    "v1/docs": (State("Swagger UI", "/v1/docs", "nobody", is_ours=False),),
}

# What is no page of its own, and why. A pattern of a route → the reason.
NO_PAGE: dict[str, str] = {
    "": "leads on to an org or to the login",
    f"{SETTINGS}": "leads on to its first section",
    "admin/*": "Django's own",
    "account/confirm/": "asks again who it is, in the middle of a step: test_account_pages.py",
    "account/second-factor/*": "steps that need another before them: test_account_pages.py",
    "account/sso/*": "only with a single sign-on",
    "account/oidc/*": "only with a single sign-on",
    **dict.fromkeys(
        ("*.csv", "*.json", "*.txt", "*.sh", "*.ps1", "*.yml", "*.ics", "*.pdf", "*.zip", "*.webmanifest"), "a download"
    ),
    "env.example": "a download",
    "releases/<str:name>": "a download",
    "provider/exports/<slug:file_name>/": "a download",
    "provider/claims/<int:org_id>/<int:claim_id>/": "a filed claim of a customer: claims/tests/test_both_sides.py",
    "metrics": "for programs",
    "provider/metrics": "for programs",
    "healthz": "for programs",
    "readyz": "for programs",
    "v1/*": "for programs; v1/docs is a page",
}

# Routes that are only sent: a test asks each and gets 405.
SENT_ONLY = (
    "logout/",
    f"{SETTINGS}members/<int:membership_id>/*",
    f"{SETTINGS}invitations/*",
    f"{SETTINGS}keys/<int:key_id>/*",
    f"{SETTINGS}agents/<int:key_id>/*",
    f"{SETTINGS}clusters/<int:cluster_id>/*",
    f"{SETTINGS}nodes/<int:node_id>/*",
    f"{SETTINGS}hardware/<int:node_id>/?*",
    f"{SETTINGS}maintenance/<int:window_id>/*",
    f"{SETTINGS}rules/?*",
    f"{SETTINGS}alerts/deliveries/*",
    f"{SETTINGS}alerts/<int:channel_id>/?*",
    f"{ORG}incidents/<int:incident_id>/?*",
    f"{ORG}reviews/look*",
    f"{ORG}clusters/<int:cluster_id>/remove-demo/",
    f"{ORG}sla/<int:contract_id>/?*",
    f"{ORG}claims/calendar/*",
    f"{ORG}claims/<int:claim_id>/<slug:to>/",
    "provider/orgs/<int:org_id>/?*",
    "provider/view/end/",
    "provider/jobs/tasks/*",
)


def kind_of(route: str) -> str:
    """`page`, `sent`, or why it is no page. Raises KeyError for a route that nobody has thought of."""
    if route in PAGES or route.startswith("guide/"):
        return "page"
    exact = NO_PAGE.get(route)
    if exact:
        return exact
    for pattern, why in NO_PAGE.items():
        if pattern.startswith("*.") and fnmatchcase(route, pattern):
            return why
    if any(fnmatchcase(route, _literal(pattern)) for pattern in SENT_ONLY):
        return "sent"
    for pattern, why in NO_PAGE.items():
        if pattern and fnmatchcase(route, _literal(pattern)):
            return why
    raise KeyError(f"/{route} stands in no list of tests/browser/pages.py: name its states, or why it is no page")


def _literal(pattern: str) -> str:
    return pattern.replace("[", "[[]")


def is_page(route: str) -> bool:
    """Whether a route is a page; what nobody has thought of is none here, a test of its own complains."""
    try:
        return kind_of(route) == "page"
    except KeyError:
        return False


def states_of(route: str) -> tuple[State, ...]:
    """The states of a page; a page of the guide is for everybody."""
    return PAGES[route] if route in PAGES else public(f"/{route}")
