"""The API under /v1/: each view parses, asks one selector, answers. The key or the session names the org."""

from __future__ import annotations

from typing import Any, cast

from django.db import connection
from django.db.models import Exists, OuterRef, Subquery
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param
from rest_framework.views import APIView

from fleet.api_formats import JSON_OR_CSV, finish
from fleet.api_ingest import Batches
from fleet.api_params import Unprocessable, allow, cursor, instant, number, page_size
from fleet.api_throttle import Rate, ReadRate
from fleet.domain.slots import HOUR_MS
from fleet.models import BatchMark, Cluster, Inbox, Waiting
from fleet.selectors_api_evidence import keys_of
from goodput_site.pagination import CursorPages
from orgs.authentication import Refused
from orgs.errors import KeyRefused
from orgs.keys import KeyInfo

__all__ = ["BatchesOrEvidence", "Clusters", "Evidence", "ListView", "OrgView", "Unprocessable"]

PAGE_PARAMS = ("cursor", "page_size")


class OrgView(APIView):
    """A view that runs inside the caller's org, after checking that the key may read. Reads are counted per key."""

    key: KeyInfo
    rate: Rate | None = None
    throttle_classes = [ReadRate]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate, check the scope, enter the org. OrgMiddleware leaves it again."""
        super().initial(request, *args, **kwargs)
        self.key = cast(KeyInfo, request.auth)
        try:
            self.key.require("read")
        except KeyRefused as error:
            raise Refused(error) from error
        connection.set_schema(self.key.schema_name)  # type: ignore[attr-defined]

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Add what is left of the minute, and the ETag."""
        done = super().finalize_response(request, response, *args, **kwargs)
        if self.rate is not None:
            done["RateLimit-Limit"] = str(self.rate.limit)
            done["RateLimit-Remaining"] = str(self.rate.remaining)
            done["RateLimit-Reset"] = str(self.rate.reset_s)
        return finish(done, getattr(request, "_request", request))

    @property
    def cluster(self) -> str:
        """The one cluster that the key is good for; empty when it sees all of the org."""
        return self.key.cluster


class ListView(OrgView):
    """A view of many: `results` as JSON or, by Accept or suffix, as CSV with these columns; pages by cursor."""

    renderer_classes = JSON_OR_CSV
    columns: tuple[str, ...] = ()

    def page(self, request: Request, results: list[Any], next_cursor: str | None = None, **more: Any) -> Response:
        """One page; where the next begins stands in `next` and in the header Link."""
        link = None
        if next_cursor is not None:
            link = replace_query_param(request.build_absolute_uri(), "cursor", next_cursor)
        headers = {"Link": f'<{link}>; rel="next"'} if link else {}
        return Response({**more, "next": link, "results": results}, headers=headers)

    def paging(self, request: Request, parts: int) -> tuple[tuple[int, ...] | None, int]:
        """(the place after which this page begins, its size)."""
        return cursor(request.query_params, parts), page_size(request.query_params)


class ClusterSerializer(serializers.ModelSerializer[Cluster]):
    """A cluster."""

    class Meta:
        model = Cluster
        fields = ["id", "name", "is_simulated", "created_at"]


class Clusters(generics.ListAPIView[Cluster], OrgView):
    """Clusters of the org."""

    renderer_classes = JSON_OR_CSV
    columns = tuple(ClusterSerializer.Meta.fields)
    serializer_class = ClusterSerializer
    queryset = Cluster.objects.filter(removed_at=None)

    def get_queryset(self) -> Any:
        """Those that the key may see."""
        allow(self.request.query_params, PAGE_PARAMS)
        clusters = super().get_queryset()
        return clusters.filter(name=self.key.cluster) if self.key.cluster else clusters


class EvidenceSerializer(serializers.ModelSerializer[Inbox]):
    """One received batch: what was kept, without its bytes."""

    sha256 = serializers.SerializerMethodField(help_text="Lower-case hex SHA-256 of the MessagePack bytes.")
    is_folded = serializers.SerializerMethodField(help_text="Whether it is in the strips.")
    error = serializers.CharField(source="mark", allow_null=True, help_text="Why it is not, or what is odd about it.")

    class Meta:
        model = Inbox
        fields = [
            "sha256",
            "cluster",
            "node",
            "agent_id",
            "seq",
            "received_at",
            "has_suspect_clock",
            "is_seq_conflict",
            "is_folded",
            "error",
        ]

    def get_sha256(self, batch: Inbox) -> str:
        """The hash as hex."""
        return bytes(batch.sha256).hex()

    def get_is_folded(self, batch: Any) -> bool:
        """Whether it left the queue into the strips."""
        return not batch.waits and not batch.is_seq_conflict and batch.mark in (None, BatchMark.Reason.MOVED)


class NewestFirst(CursorPages):
    """By time of receipt."""

    ordering = ("-received_at", "-sha256")  # type: ignore[assignment]


class Evidence(generics.ListAPIView[Inbox], OrgView):
    """Received batches of the weeks that are not packed yet."""

    renderer_classes = JSON_OR_CSV
    columns = tuple(EvidenceSerializer.Meta.fields)
    serializer_class = EvidenceSerializer
    pagination_class = NewestFirst
    _same = {"sample_day": OuterRef("sample_day"), "sha256": OuterRef("sha256")}
    queryset = Inbox.objects.defer("body").annotate(
        mark=Subquery(BatchMark.objects.filter(**_same).values("reason")[:1]),
        waits=Exists(Waiting.objects.filter(**_same)),
    )

    def get_queryset(self) -> Any:
        """Those that the key may see."""
        params = self.request.query_params
        allow(params, ("node_id", "from", "to", *PAGE_PARAMS))
        node_id, begin, end = number(params, "node_id"), instant(params, "from"), instant(params, "to")
        batches = super().get_queryset()
        if self.key.cluster:
            batches = batches.filter(cluster=self.key.cluster)
        if node_id is not None:
            batches = batches.filter(node_key__in=keys_of(node_id))
        if begin is not None:
            batches = batches.filter(last_hour__gte=begin // HOUR_MS)
        if end is not None:
            batches = batches.filter(first_hour__lt=-(-end // HOUR_MS))
        return batches

    @extend_schema(
        operation_id="list_batches",
        summary="Batches received, newest first; of older weeks, which are packed, ask for one by its hash",
        parameters=[
            OpenApiParameter("node_id", int, description="Only this node's."),
            OpenApiParameter("from", OpenApiTypes.DATETIME, description="Only those that touch this hour or later."),
            OpenApiParameter("to", OpenApiTypes.DATETIME, description="Only those that touch an hour before this."),
        ],
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Batches received, newest first."""
        return super().get(request, *args, **kwargs)


_upload = Batches.as_view()


class BatchesOrEvidence(Evidence):
    """GET lists received batches; POST, handed to the lean view before anything else, stores one."""

    post = Batches.post  # for the schema only

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """An upload takes the short way."""
        return _upload(request) if request.method == "POST" else super().dispatch(request, *args, **kwargs)
