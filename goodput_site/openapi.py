"""What the OpenAPI document says of keys."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """A customer key as a bearer token."""

    target_class = "orgs.authentication.KeyAuthentication"
    match_subclasses = True
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """`Authorization: Bearer gp_…`."""
        return {"type": "http", "scheme": "bearer", "description": "A key of the org: gp_…"}
