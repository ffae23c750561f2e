"""`manage.py explain --org SLUG --gpu UUID --at INSTANT`: one slot of one GPU on one screen, facts to verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet import api_shapes_explain as shapes
from fleet.api_params import Unprocessable, instant
from fleet.domain.slots import slot_of
from fleet.models import Node
from fleet.selectors_api_explain import Explanation, find_gpu, get_explanation
from orgs.models import Org

PLACE = re.compile(r"(?P<node>.+)/(?P<index>\d{1,3})")
SHOWN = (
    *("sm_clock", "sm_clock_max", "gpu_utilization", "power", "power_limit", "temperature", "throttle_reasons"),
    *("throttle_time", "recovery_action", "row_remap", "ecc_uncorrected", "nvlink_inactive", "pcie_width"),
)


class Command(BaseCommand):
    """Explain a slot."""

    help = "Explain one slot of one GPU: the facts as received, the verdict, each reason's rule and what would end it."

    def add_arguments(self, parser: CommandParser) -> None:
        """--org, --gpu, --at."""
        parser.add_argument("--org", required=True, help="slug of the org")
        parser.add_argument("--gpu", required=True, help="UUID of the GPU, or NODE/INDEX for a place")
        parser.add_argument("--at", required=True, help="an instant in the slot, RFC 3339 with its offset")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print what is known of the slot."""
        org = Org.objects.filter(slug=options["org"]).first()
        if org is None:
            raise CommandError(f"There is no org {options['org']}.")
        try:
            at_ms = instant({"at": options["at"]}, "at")
        except Unprocessable as error:
            raise CommandError("--at: an instant in RFC 3339, such as 2026-11-30T12:00:00Z.") from error
        with tenant_context(org):
            node_id, index = _place(options["gpu"])
            found = get_explanation(timezone.now(), node_id, index, slot_of(at_ms or 0))
            if found is None:
                raise CommandError(f"No GPU {options['gpu']} is known in {org.slug}.")
            for line in lines(found):
                self.stdout.write(line)


def _place(gpu: str) -> tuple[int, int]:
    """(node id, index) of a UUID or of NODE/INDEX. Raises CommandError."""
    place = find_gpu(gpu)
    match = PLACE.fullmatch(gpu)
    if place is None and match:
        nodes = list(Node.objects.filter(name=match["node"], cluster__removed_at=None).values_list("pk", flat=True)[:2])
        if len(nodes) > 1:
            raise CommandError(f"Several clusters have a node {match['node']}: name the GPU by its UUID.")
        place = (nodes[0], int(match["index"])) if nodes else None
    if place is None:
        raise CommandError(f"No place holds the GPU {gpu} now. For one that was replaced, name its place: NODE/INDEX.")
    return place


def lines(found: Explanation) -> Iterator[str]:
    """The screen, line by line."""
    one = shapes.explanation(found)
    verdict = one["verdict"]
    yield f"{one['node']} GPU {one['index']} ({one['uuid'] or 'UUID not known'}) in {one['cluster']}"
    yield f"Slot {one['slot']}: {one['from']} to {one['to']}, row {verdict['row']}"
    yield ""
    weight = "not counted" if verdict["weight"] is None else verdict["weight"]
    bounds = f"{verdict['lower_loss_weight']} in the claims reading, {verdict['higher_loss_weight']} in the other"
    yield f"VERDICT  {verdict['state']}, weight {weight} ({bounds}), the same from {verdict['from']} to {verdict['to']}"
    yield f"  {one['meaning']}"
    for reason in one["reasons"]:
        yield f"  {reason['code']} ({reason['holds']}): {reason['title']}. {reason['explanation']}"
        share = f", {reason['share']} for the share of this slot" if reason["share"] is not None else ""
        yield f"    party {reason['party']}, weight {reason['weight']}{share}, contract category {reason['category']}"
        for label, key in (("needs", "needs"), ("ends with", "ends"), ("do", "action")):
            if reason[key]:
                yield f"    {label}: {reason[key]}"
        if reason["sources"]:
            yield f"    sources: {', '.join(reason['sources'])}"
    if not one["reasons"]:
        yield "  No reason: nothing speaks against it."
    for limit in one["limits"]:
        yield f"  {limit['code']} (beside it): {limit['title']}, {limit['read']}. {limit['explanation']}"
        yield f"    party {limit['party']}"
    note = "" if one["rules"]["found"] else " (the row's own version is not here; texts are of this one)"
    yield f"  Rule set {one['rules']['version']}, digest {one['rules']['digest'][:16]}…{note}"
    yield ""
    for row in one["rules"]["amendments"]:
        changes = ", ".join(f"{key} {value}" for key, value in sorted(row["changes"].items()))
        yield f"  Amendment {row['id']} of {row['code']}: {changes}, from {row['from']}"
        yield f"    because: {row['reason']} ({row['author']})"
    for incident in one["incidents"]:
        until = incident["resolved"] or "now (open)"
        yield f"INCIDENT {incident['id']}: {incident['code']}, {incident['opened']} to {until}, {incident['party']}"
    if one["incidents"]:
        yield ""
    yield "FACTS    samples around the slot, as received"
    boots = {sample["boot_id"] for sample in one["samples"]}
    agents = {sample["agent_id"] for sample in one["samples"]}
    for sample in one["samples"]:
        if len(agents) > 1:
            yield f"  of the agent {sample['agent_id']}:"
        if len(boots) > 1 and sample["boot_id"] != one["samples"][0]["boot_id"]:
            alive = f", last alive {sample['last_alive']}" if sample["last_alive"] else ""
            ended = sample["last_shutdown"] or "not said"
            yield f"  another boot, begun {sample['boot_at'] or 'not said'}; how the one before ended: {ended}{alive}"
        yield f"  {sample['at']}  {_reading(sample)}  batch {sample['batch_sha256'][:16]}…"
    if not one["samples"]:
        yield "  none within five minutes"
    yield "FACTS    kernel events within five minutes"
    for event in one["events"]:
        where = f"GPU {event['gpu_index']}" if event["gpu_index"] is not None else event["pci_bus_id"] or "the node"
        code = "" if event["code"] is None else f" {event['code']}"
        yield f"  {event['at']}  {event['kind']}{code} on {where}  batch {event['batch_sha256'][:16]}…"
    if not one["events"]:
        yield "  none"


def _reading(sample: dict[str, Any]) -> str:
    """The values of a sample that rules look at."""
    sources = " ".join(f"{name}={status}" for name, status in sorted(sample["sources"].items()))
    ports = ", ".join(
        f"port {one['name']} {one['state']}" + (f", went down {one['link_downed']} times" if one["link_downed"] else "")
        for one in sample["ports"]
    )
    sources = f"{ports}; {sources}" if ports else sources
    if not sample["listed"]:
        pci = f", PCI {sample['pci']}" if sample["pci"] else ""
        return f"NVML does not list it{pci}; {sources}"
    values = " ".join(f"{name}={sample['gpu'][name]}" for name in SHOWN if name in sample["gpu"])
    return f"{values}; {sources}"
