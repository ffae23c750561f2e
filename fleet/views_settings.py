"""Settings that the fleet owns: expected hardware, maintenance windows, clusters and nodes. Parse, ask, answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from fleet.forms_settings import (
    AssignForm,
    ClusterExpectedForm,
    ExpectedForm,
    LabelForm,
    MergeForm,
    ProbeForm,
    WindowForm,
)
from fleet.models import Cluster, DeviceAssignment, ExpectedHardware, Node, ProbeTarget
from fleet.probe import networks
from fleet.selectors import visible_clusters
from fleet.selectors_dated import get_hardware_page, get_node_hardware, list_windows, window_lines
from fleet.selectors_node import find_node
from fleet.selectors_nodes_list import list_clusters
from fleet.services_dated import (
    DatedInvalid,
    add_probe,
    assign_device,
    end_expected,
    end_probe,
    expect_cluster,
    expect_hardware,
    withdraw,
)
from fleet.services_incidents import Actor
from fleet.services_nodes import merge_nodes, set_label, set_retired
from fleet.services_windows import add_window, withdraw_window
from orgs.access import Access
from orgs.addresses import client_address
from orgs.middleware import honours_clusters

SEARCH_LENGTH = 80
WINDOWS = 300  # of a page


def access_of(request: HttpRequest) -> Access:
    """What OrgMiddleware found."""
    access: Access = request.access  # type: ignore[attr-defined]
    return access


def actor_of(request: HttpRequest) -> Actor:
    """Who writes. Raises PermissionDenied → 403 for whoever may not change settings."""
    access = access_of(request)
    if not access.may_write:
        raise PermissionDenied("Only an owner or admin may change this.")
    name = request.user.get_username() if request.user.is_authenticated else access.role
    return Actor(name, access.org, client_address(request.META))


def node_of(request: HttpRequest, node_id: int) -> Node:
    """A node that the asker may see. Raises Http404."""
    found = find_node(node_id, access_of(request).clusters)
    if found is None:
        raise Http404("There is no such node, or it is not yours to see.")
    return found


def cluster_of(request: HttpRequest, cluster_id: int) -> Cluster:
    """A cluster that the asker may see. Raises Http404."""
    found = visible_clusters(access_of(request).clusters).get(cluster_id)
    if found is None:
        raise Http404("There is no such cluster, or it is not yours to see.")
    return found


def tried(form: forms.Form, act: Callable[[dict[str, Any]], Any], names: dict[str, str] | None = None) -> bool:
    """Whether a valid form did what it asks for; what is refused stands at its field (`names`: service → form)."""
    if not form.is_valid():
        return False
    try:
        act(form.cleaned_data)
    except DatedInvalid as error:
        field = (names or {}).get(error.field, error.field)
        form.add_error(field if field in form.fields else None, error.detail)
        return False
    return True


# Expected hardware


@honours_clusters
@require_http_methods(["GET", "HEAD", "POST"])
def hardware(request: HttpRequest) -> HttpResponse:
    """Every node with what is expected of it and what is there; POST declares one number for a cluster's nodes."""
    form = ClusterExpectedForm(request.POST or None)
    if request.method == "POST":
        actor = actor_of(request)

        def declare(data: dict[str, Any]) -> None:
            cluster = _named(access_of(request), data["cluster"])
            count = expect_cluster(cluster, actor, gpus=data["gpus"], from_at=data["from_at"], reason=data["reason"])
            messages.success(request, f"{data['gpus']} GPUs are expected of each of {count} nodes of {cluster.name}.")

        if tried(form, declare):
            return redirect("hardware", org_slug=access_of(request).org.slug)
    search = request.GET.get("q", "").replace("\x00", "")[:SEARCH_LENGTH]
    page = get_hardware_page(timezone.now(), access_of(request).clusters, search)
    context = {"section": "hardware", "page": page, "form": form, "search": search, "is_probing": bool(networks())}
    return render(request, "fleet/settings/hardware.html", context, status=422 if form.errors else 200)


def _named(access: Access, name: str) -> Cluster:
    """The cluster with this name, if the person may see it. Raises DatedInvalid."""
    found = Cluster.objects.filter(name=name, removed_at=None).first()
    if found is None or not access.sees(found.name):
        raise DatedInvalid("cluster", "There is no such cluster.")
    return found


@honours_clusters
@require_safe
def node_hardware(request: HttpRequest, node_id: int) -> HttpResponse:
    """One node: its declarations, assignments and probes, with the forms to enter others."""
    return _node_page(request, node_of(request, node_id))


def _node_page(request: HttpRequest, node: Node, status: int = 200, **tried_forms: forms.Form) -> HttpResponse:
    found = get_node_hardware(timezone.now(), node)
    declared = found.declared
    initial: dict[str, Any] = {"gpus": found.seen.gpus or None}
    if declared is not None:
        initial = {
            "gpus": declared.gpus,
            "devices": "\n".join(declared.devices),
            "ports": "\n".join(_port_line(port) for port in declared.ports or ()),
            "owns_driver": declared.owns_driver,
            "owns_fabric": declared.owns_fabric,
        }
    context = {
        "section": "hardware",
        "page": found,
        "node": node,
        "expected_form": tried_forms.get("expected") or ExpectedForm(initial=initial, prefix="expected"),
        "assign_form": tried_forms.get("assign") or AssignForm(prefix="assign"),
        "probe_form": tried_forms.get("probe") or ProbeForm(prefix="probe"),
        "is_probing": bool(networks()),
        "now": timezone.now(),
    }
    return render(request, "fleet/settings/node_hardware.html", context, status=status)


def _port_line(port: dict[str, Any]) -> str:
    words = [port["key"], port.get("gpu"), port.get("rate_gbps")]
    if words[2] is not None and words[1] is None:
        words = words[:1]
    return " ".join(str(word) for word in words if word is not None)


@require_POST
def expect(request: HttpRequest, node_id: int) -> HttpResponse:
    """Declare what a node should have."""
    actor, node = actor_of(request), node_of(request, node_id)
    form = ExpectedForm(request.POST, prefix="expected")
    if tried(form, lambda data: expect_hardware(node, actor, **data)):
        messages.success(request, "Declared. Hours that it touches are folded again within seconds.")
        return redirect("node_hardware", org_slug=access_of(request).org.slug, node_id=node.pk)
    return _node_page(request, node, 422, expected=form)


@require_POST
def assign(request: HttpRequest, node_id: int) -> HttpResponse:
    """Say that a device was given to a place."""
    actor, node = actor_of(request), node_of(request, node_id)
    form = AssignForm(request.POST, prefix="assign")
    if tried(form, lambda data: assign_device(node, actor, **data)):
        messages.success(request, "Entered: what was held for repair ends at that instant.")
        return redirect("node_hardware", org_slug=access_of(request).org.slug, node_id=node.pk)
    return _node_page(request, node, 422, assign=form)


@require_POST
def add_node_probe(request: HttpRequest, node_id: int) -> HttpResponse:
    """Look from now on whether a node can be reached."""
    actor, node = actor_of(request), node_of(request, node_id)
    form = ProbeForm(request.POST, prefix="probe")
    if tried(form, lambda data: add_probe(node, actor, **data)):
        messages.success(request, "The server looks every 15 seconds from now on.")
        return redirect("node_hardware", org_slug=access_of(request).org.slug, node_id=node.pk)
    return _node_page(request, node, 422, probe=form)


@require_POST
def end_row(request: HttpRequest, node_id: int, kind: str, row_id: int) -> HttpResponse:
    """End or withdraw a row of a node: a declaration ends now, a probe stops; with `withdraw` it never was."""
    actor, node = actor_of(request), node_of(request, node_id)
    tables: dict[str, type[ExpectedHardware] | type[DeviceAssignment] | type[ProbeTarget]] = {
        "declarations": ExpectedHardware,
        "assignments": DeviceAssignment,
        "probes": ProbeTarget,
    }
    row = tables[kind]._default_manager.filter(pk=row_id, node=node).first() if kind in tables else None
    if row is None:
        raise Http404("There is no such row.")
    try:
        if isinstance(row, ProbeTarget):
            done = end_probe(row, actor)
        elif isinstance(row, ExpectedHardware) and "withdraw" not in request.POST:
            done = end_expected(row, timezone.now(), actor)
        else:
            done = withdraw(row, actor)
        messages.success(request, "Done." if done else "It had ended before.")
    except DatedInvalid as error:
        messages.error(request, error.detail)
    return redirect("node_hardware", org_slug=access_of(request).org.slug, node_id=node.pk)


# Maintenance windows


@honours_clusters
@require_http_methods(["GET", "HEAD", "POST"])
def maintenance(request: HttpRequest) -> HttpResponse:
    """The announced windows; POST enters one."""
    access = access_of(request)
    form = WindowForm(request.POST or None, initial={"cluster": request.GET.get("cluster", "")[:256]})
    if request.method == "POST":
        actor = actor_of(request)

        def enter(data: dict[str, Any]) -> None:
            cluster = _named(access, data["cluster"])
            node = None
            if data["node"]:
                node = Node.objects.filter(cluster=cluster, name=data["node"], merged_into=None).first()
                if node is None:
                    raise DatedInvalid("node", f"There is no such node in {cluster.name}.")
            names = ("starts_at", "ends_at", "source", "noticed_at", "reference", "reason")
            add_window(actor, cluster=cluster, node=node, place=data["gpu"], **{name: data[name] for name in names})

        if tried(form, enter):
            messages.success(request, "Entered. It changes no verdict; contracts that exclude maintenance take it in.")
            return redirect("maintenance", org_slug=access.org.slug)
    rows = list(list_windows(access.clusters)[: WINDOWS + 1])
    names = sorted(cluster.name for cluster in visible_clusters(access.clusters).values())
    context = {
        "section": "maintenance",
        "form": form,
        "lines": window_lines(timezone.now(), rows[:WINDOWS]),
        "is_cut": len(rows) > WINDOWS,
        "names": names,
    }
    return render(request, "fleet/settings/maintenance.html", context, status=422 if form.errors else 200)


@require_POST
def withdraw_maintenance(request: HttpRequest, window_id: int) -> HttpResponse:
    """Take a window back."""
    actor = actor_of(request)
    row = list_windows(access_of(request).clusters).filter(pk=window_id).first()
    if row is None:
        raise Http404("There is no such window.")
    withdraw_window(row, actor)
    messages.success(request, "Withdrawn. It stays listed.")
    return redirect("maintenance", org_slug=access_of(request).org.slug)


# Clusters and nodes


@honours_clusters
@require_safe
def clusters(request: HttpRequest) -> HttpResponse:
    """The clusters and nodes that were ever heard, retired and merged ones too."""
    found = list_clusters(access_of(request).clusters)
    return render(request, "fleet/clusters.html", {"clusters": found, "section": "clusters"})


def _back(request: HttpRequest) -> HttpResponse:
    return redirect("clusters", org_slug=access_of(request).org.slug)


def _labelled(request: HttpRequest, what: Node | Cluster) -> HttpResponse:
    actor = actor_of(request)
    form = LabelForm(request.POST)
    if tried(form, lambda data: set_label(what, data["label"], actor)):
        messages.success(request, f"{what.name} is shown as {form.cleaned_data['label'] or what.name}.")
    else:
        messages.error(request, " ".join(str(text) for texts in form.errors.values() for text in texts))
    return _back(request)


@require_POST
def label_cluster(request: HttpRequest, cluster_id: int) -> HttpResponse:
    """Call a cluster otherwise."""
    return _labelled(request, cluster_of(request, cluster_id))


@require_POST
def label_node(request: HttpRequest, node_id: int) -> HttpResponse:
    """Call a node otherwise."""
    return _labelled(request, node_of(request, node_id))


def _retired(request: HttpRequest, what: Node | Cluster) -> HttpResponse:
    is_retired = request.POST.get("retired", "yes") == "yes"
    set_retired(what, is_retired, actor_of(request))
    shown = "is retired: the fleet shows it again when it reports." if is_retired else "is shown again."
    messages.success(request, f"{what.name} {shown}")
    return _back(request)


@require_POST
def retire_cluster(request: HttpRequest, cluster_id: int) -> HttpResponse:
    """Hide a cluster until it reports, or show it again."""
    return _retired(request, cluster_of(request, cluster_id))


@require_POST
def retire_node(request: HttpRequest, node_id: int) -> HttpResponse:
    """Hide a node until it reports, or show it again."""
    return _retired(request, node_of(request, node_id))


@require_POST
def merge_node(request: HttpRequest, node_id: int) -> HttpResponse:
    """Make a node an earlier or later identity of another."""
    actor, node = actor_of(request), node_of(request, node_id)
    form = MergeForm(request.POST)

    def merge(data: dict[str, Any]) -> None:
        others = Node.objects.filter(cluster=node.cluster, merged_into=None).exclude(pk=node.pk)
        found = list(others.filter(name=data["into"])[:2]) or list(others.filter(identity=data["into"])[:2])
        if len(found) != 1:
            raise DatedInvalid("into", "Name one other node of the same cluster, or how it is known.")
        merge_nodes(node, found[0], actor)
        messages.success(request, f"{node.name} is {found[0].name} now; both histories are folded into one.")

    if not tried(form, merge):
        messages.error(request, " ".join(str(text) for texts in form.errors.values() for text in texts))
    return _back(request)
