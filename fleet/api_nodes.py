"""Nodes and GPUs of the API: what they are now, a GPU's slots and hours, one slot explained, a node's kernel events."""

from __future__ import annotations

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from fleet import api_params as ask
from fleet import api_schemas as schema
from fleet import api_shapes as shapes
from fleet.api import ListView, OrgView
from fleet.api_parquet import JSON_CSV_OR_PARQUET, is_parquet
from fleet.api_shapes_explain import explanation
from fleet.domain.rules import load_rules
from fleet.domain.slots import HOUR_MS, slot_of
from fleet.selectors_api import (
    GpuLine,
    NodeLine,
    TooMuch,
    Wanted,
    get_gpu,
    get_node,
    iter_nodes,
    list_gpus,
    list_nodes,
)
from fleet.selectors_api_explain import get_explanation
from fleet.selectors_api_facts import Fact, list_facts
from fleet.selectors_api_time import hour_lines, slot_runs
from fleet.selectors_live import WORDS, to_ms

SLOT_LIMIT_HOURS = 7 * 24
HOUR_LIMIT_HOURS = 92 * 24
PARQUET_SLOT_LIMIT_HOURS = 92 * 24
PARQUET_HOUR_LIMIT_HOURS = 400 * 24
EVENT_LIMIT_HOURS = 24
NONE_SUCH = "There is no such resource, or it is not yours."
FILTERS = ("cluster", "node", "state", "cursor", "page_size")
FILTERS_DOC = [
    schema.param("cluster", "Only this cluster, by name."),
    schema.param("node", "Only the node with this name."),
    schema.param("state", "Only what has this state now.", enum=WORDS),
    *schema.PAGING,
]
VERDICT_COLUMNS = (
    *("state", "marks", "weight", "lower_loss_weight", "higher_loss_weight", "since", "causes", "reasons"),
)


def wanted_of(request: Request, cluster: str) -> Wanted:
    """The filters of a list of nodes or GPUs."""
    params = request.query_params
    return Wanted(cluster, ask.text(params, "cluster"), ask.text(params, "node"), ask.choice(params, "state", WORDS))


def node_or_404(node_id: int, cluster: str) -> NodeLine:
    """The node, if the key may see it. Raises NotFound → 404."""
    line = get_node(timezone.now(), node_id, cluster)
    if line is None:
        raise NotFound(NONE_SUCH)
    return line


def gpu_or_404(node_id: int, index: int, cluster: str) -> GpuLine:
    """The GPU's place, if the key may see it. Raises NotFound → 404."""
    found = get_gpu(timezone.now(), node_id, index, cluster)
    if found is None:
        raise NotFound(NONE_SUCH)
    return found


class Nodes(ListView):
    """Nodes as they are now."""

    columns = (
        *("id", "name", "cluster", "simulated", "state", "silent", "gpus_total"),
        *(f"gpus_{word}" for word in WORDS),
        *("open_incidents", "first_seen", "last_sample", "last_received", "agent_version", "driver_version"),
        *("dropped_batches", "broken_sources", "causes", "reasons"),
    )

    @extend_schema(
        operation_id="list_nodes",
        parameters=FILTERS_DOC,
        responses=schema.answers(schema.listing(schema.Node), 422, csv=True),
    )
    def get(self, request: Request, format: str | None = None) -> Response:
        """Nodes by id: state, GPUs per state, open incidents, what the agent says of itself."""
        ask.allow(request.query_params, FILTERS)
        wanted = wanted_of(request, self.cluster)
        after, size = self.paging(request, 1)
        lines, following = list_nodes(timezone.now(), wanted, after[0] if after else None, size)
        return self.page(
            request, [shapes.node(line) for line in lines], None if following is None else ask.cursor_for(following)
        )


class GovernedNodes(ListView):
    """Nodes in the fields of NVIDIA's capacity and fleet management (CAP01, CAP02)."""

    columns = tuple(schema.GovernedNode().fields)

    @extend_schema(
        operation_id="list_governed_nodes",
        parameters=FILTERS_DOC,
        responses=schema.answers(schema.listing(schema.GovernedNode), 422, csv=True),
    )
    def get(self, request: Request, format: str | None = None) -> Response:
        """Nodes as resource governance asks for them; what nothing here can know is null."""
        ask.allow(request.query_params, FILTERS)
        after, size = self.paging(request, 1)
        lines, following = list_nodes(
            timezone.now(), wanted_of(request, self.cluster), after[0] if after else None, size
        )
        rows = [shapes.governed(line, self.key.org_slug) for line in lines]
        return self.page(request, rows, None if following is None else ask.cursor_for(following))


class Node(OrgView):
    """One node."""

    @extend_schema(operation_id="get_node", responses=schema.answers(schema.NodeInFull, 404))
    def get(self, request: Request, node_id: int) -> Response:
        """A node with its GPUs and ports."""
        ask.allow(request.query_params, ())
        return Response(shapes.node_in_full(node_or_404(node_id, self.cluster)))


class Gpus(ListView):
    """GPUs as they are now."""

    columns = (
        *("node_id", "node", "cluster", "simulated", "index", "uuid", "pci_bus_id", "model"),
        *VERDICT_COLUMNS,
        "last_sample",
    )

    @extend_schema(
        operation_id="list_gpus",
        parameters=FILTERS_DOC,
        responses=schema.answers(schema.listing(schema.Gpu), 422, csv=True),
    )
    def get(self, request: Request, format: str | None = None) -> Response:
        """Places of GPUs by node and index: the device in each, its state and weight now, and the reasons."""
        ask.allow(request.query_params, FILTERS)
        wanted = wanted_of(request, self.cluster)
        after, size = self.paging(request, 2)
        lines, following = list_gpus(timezone.now(), wanted, (after[0], after[1]) if after else None, size)
        return self.page(
            request, [shapes.gpu(line) for line in lines], None if following is None else ask.cursor_for(*following)
        )


class Gpu(OrgView):
    """One GPU's place."""

    @extend_schema(operation_id="get_gpu", responses=schema.answers(schema.Gpu, 404))
    def get(self, request: Request, node_id: int, index: int) -> Response:
        """A GPU's place as it is now."""
        ask.allow(request.query_params, ())
        return Response(shapes.gpu(gpu_or_404(node_id, index, self.cluster)))


class Slots(ListView):
    """A GPU's slots."""

    renderer_classes = JSON_CSV_OR_PARQUET
    row = schema.SlotRun
    columns = (
        *("from", "to", "slots", "state", "word", "weight", "lower_loss_weight", "higher_loss_weight"),
        *("certain", "possible", "rules", "row"),
    )

    @extend_schema(
        operation_id="list_slots",
        parameters=schema.RANGE,
        responses=schema.answers(schema.ranged(schema.SlotRun), 404, 422, csv=True, parquet=True),
    )
    def get(self, request: Request, node_id: int, index: int, format: str | None = None) -> Response:
        """A GPU's verdicts, one line per stretch. The last hour unless said; at most 7 days, 92 as Parquet."""
        gpu_or_404(node_id, index, self.cluster)
        ask.allow(request.query_params, ("from", "to"))
        most = PARQUET_SLOT_LIMIT_HOURS if is_parquet(request) else SLOT_LIMIT_HOURS
        span = ask.span(request.query_params, to_ms(timezone.now()), limit_hours=most, default_hours=1)
        runs = slot_runs(node_id, f"g{index}", span)
        return self.page(request, [shapes.slot_run(run) for run in runs], **span.as_json())


class Hours(ListView):
    """A GPU's hours."""

    renderer_classes = JSON_CSV_OR_PARQUET
    row = schema.HourLine
    columns = tuple(schema.HourLine().fields)

    @extend_schema(
        operation_id="list_hours",
        parameters=schema.RANGE,
        responses=schema.answers(schema.ranged(schema.HourLine), 404, 422, csv=True, parquet=True),
    )
    def get(self, request: Request, node_id: int, index: int, format: str | None = None) -> Response:
        """A GPU's hours added up, widened to whole ones. The last day unless said; at most 92 days, 400 as Parquet."""
        gpu_or_404(node_id, index, self.cluster)
        ask.allow(request.query_params, ("from", "to"))
        most = PARQUET_HOUR_LIMIT_HOURS if is_parquet(request) else HOUR_LIMIT_HOURS
        span = ask.span(request.query_params, to_ms(timezone.now()), limit_hours=most, grid_ms=HOUR_MS)
        lines = hour_lines(node_id, f"g{index}", span)
        return self.page(request, [shapes.hour(line) for line in lines], **span.as_json())


class Explain(OrgView):
    """One slot of a GPU, explained."""

    @extend_schema(
        operation_id="explain_slot",
        parameters=[schema.param("at", "An instant in the slot, RFC 3339 with an offset; now unless said.")],
        responses=schema.answers(schema.Explanation, 404, 422),
    )
    def get(self, request: Request, node_id: int, index: int) -> Response:
        """The verdict of a slot, the rule behind each reason, and the facts around it as they were received."""
        gpu_or_404(node_id, index, self.cluster)
        ask.allow(request.query_params, ("at",))
        now = timezone.now()
        at_ms = ask.instant(request.query_params, "at")
        slot = slot_of(to_ms(now) if at_ms is None else at_ms)
        found = get_explanation(now, node_id, index, slot, self.cluster)
        if found is None:
            raise NotFound(NONE_SUCH)
        return Response(explanation(found))


class Events(ListView):
    """Kernel events."""

    columns = (
        *(
            "at",
            "node_id",
            "node",
            "cluster",
            "kind",
            "code",
            "reason",
            "title",
            "party",
            "pci_bus_id",
            "gpu_index",
            *shapes.EVENT_DETAILS,
        ),
        *("clock_good", "batch_sha256", "received_at"),
    )

    @extend_schema(
        operation_id="list_events",
        parameters=[
            schema.param("node_id", "Only this node.", int),
            schema.param("cluster", "Only this cluster, by name."),
            schema.param("node", "Only the node with this name."),
            *schema.RANGE,
            *schema.PAGING,
        ],
        responses=schema.answers(schema.ranged(schema.Event), 404, 422, csv=True),
    )
    def get(self, request: Request, format: str | None = None) -> Response:
        """Kernel events in order, decoded from the batches; never a raw line. At most 24 hours, one unless said."""
        params = request.query_params
        ask.allow(params, ("node_id", "cluster", "node", "from", "to", "cursor", "page_size"))
        now, node_id = timezone.now(), ask.number(params, "node_id")
        wanted = Wanted(self.cluster, ask.text(params, "cluster"), ask.text(params, "node"))
        lines = [node_or_404(node_id, self.cluster)] if node_id is not None else list(iter_nodes(now, wanted))
        nodes = {line.id: line for line in lines}
        span = ask.span(params, to_ms(now), limit_hours=EVENT_LIMIT_HOURS, default_hours=1)
        after, size = self.paging(request, 2)
        try:
            facts = list_facts(list(nodes), span, events=True)
        except TooMuch as error:
            ask.refuse("to", str(error))
        places = _places(facts)
        first = next((i for i, place in enumerate(places) if place > after), len(places)) if after else 0
        rules = load_rules()
        page = [shapes.event(fact, nodes[fact.node_id], rules) for fact in facts[first : first + size]]
        following = ask.cursor_for(*places[first + size - 1]) if first + size < len(facts) else None
        return self.page(request, page, following, **span.as_json())


def _places(facts: list[Fact]) -> list[tuple[int, int]]:
    """Each fact's place for a cursor: its instant, and which it is of those at that instant."""
    seen: dict[int, int] = {}
    places = []
    for fact in facts:
        places.append((fact.ms, seen.get(fact.ms, 0)))
        seen[fact.ms] = places[-1][1] + 1
    return places
