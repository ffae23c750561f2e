"""People, keys and the audit trail under /v1/, for the scope `admin-read`: reading only, and no secret in it."""

from __future__ import annotations

from typing import Any, cast

from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request

from orgs.authentication import Refused
from orgs.errors import KeyRefused
from orgs.keys import KeyInfo
from orgs.models import ApiKey, AuditEntry, Membership


class NewestFirst(CursorPagination):
    """Opaque cursors, by id."""

    ordering = "-pk"
    page_size = 100
    max_page_size = 1000
    page_size_query_param = "page_size"


class AdminView(generics.ListAPIView[Any]):
    """A list of the caller's org, for `admin-read` without a restriction to clusters."""

    pagination_class = NewestFirst

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate and check the scope. Raises Refused → 401, 403."""
        super().initial(request, *args, **kwargs)
        key = cast(KeyInfo, request.auth)
        try:
            key.require(ApiKey.Scope.ADMIN_READ)
            if key.cluster:
                raise KeyRefused("A key of one cluster reads nothing of the whole org.", "missing_scope", 403)
        except KeyRefused as error:
            raise Refused(error) from error

    def get_queryset(self) -> Any:
        """Rows of the caller's org and of no other."""
        return super().get_queryset().filter(org_id=cast(KeyInfo, self.request.auth).org_id)


class MemberSerializer(serializers.ModelSerializer[Membership]):
    """A member."""

    email = serializers.EmailField(source="user.email")
    name = serializers.CharField(source="user.name")

    class Meta:
        model = Membership
        fields = ["email", "name", "role", "clusters", "created_at"]


class Members(AdminView):
    """Members of the org."""

    serializer_class = MemberSerializer
    queryset = Membership.objects.select_related("user")

    @extend_schema(operation_id="list_members")
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """Who belongs to the org, and as what."""
        return super().get(request, *args, **kwargs)


class KeySerializer(serializers.ModelSerializer[ApiKey]):
    """A key, without its secret."""

    class Meta:
        model = ApiKey
        fields = [
            *("prefix", "name", "scopes", "cluster", "node", "created_at", "created_by", "expires_at", "revoked_at"),
            *("last_used_at", "last_used_address", "successor"),
        ]


class Keys(AdminView):
    """Keys of the org."""

    serializer_class = KeySerializer
    queryset = ApiKey.objects.all()

    @extend_schema(operation_id="list_keys")
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """Every key of the org, expired and revoked ones too."""
        return super().get(request, *args, **kwargs)


class AuditSerializer(serializers.ModelSerializer[AuditEntry]):
    """An entry of the audit trail."""

    class Meta:
        model = AuditEntry
        fields = ["id", "at", "actor", "action", "target", "before", "after", "address"]


class Audit(AdminView):
    """The org's audit trail."""

    serializer_class = AuditSerializer
    queryset = AuditEntry.objects.all()

    @extend_schema(operation_id="list_audit")
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """Who did what, when, from where, newest first."""
        return super().get(request, *args, **kwargs)
