"""What the OpenAPI document says of keys and of refusals."""

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


PROBLEM = {
    "type": "object",
    "description": "RFC 9457: what was refused and why. `code` is for programs, `detail` for people.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
    },
    "required": ["title", "status", "code", "detail"],
}


def add_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A hook of drf-spectacular: each operation may be refused, and every refusal is a problem document."""
    result["components"].setdefault("schemas", {}).setdefault("Problem", PROBLEM)
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for methods in result["paths"].values():
        for operation in methods.values():
            if isinstance(operation, dict) and "responses" in operation:
                operation["responses"].setdefault("4XX", {"description": "Refused.", "content": content})
                operation["responses"].setdefault("503", {"description": "Not now; try again.", "content": content})
    _simplify(result["components"]["schemas"])
    return result


def _simplify(schema: Any) -> None:
    """A value of any kind is also null: the library's `oneOf: [{}, null]` would let null match twice, which is none."""
    if isinstance(schema, dict):
        if schema.get("oneOf") == [{}, {"type": "null"}]:
            del schema["oneOf"]
        for part in schema.values():
            _simplify(part)
    elif isinstance(schema, list):
        for part in schema:
            _simplify(part)
