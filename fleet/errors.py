"""The fleet's errors, told once, at the edge.

FleetError
└── BatchRejected     a batch that is not stored; `code` for programs, the sentence for people
    ├── 400  malformed bytes: bad_gzip, trailing_bytes, bad_msgpack, duplicate_key, too_deep, too_many_items
    ├── 413  too_large
    ├── 415  bad_content_type, bad_content_encoding
    └── 422  well-formed bytes that break the contract: invalid, bad_string, non_finite, bad_order, schema_version
"""

from __future__ import annotations


class FleetError(Exception):
    """Base of every error that this app raises on purpose."""

    code = "fleet_error"
    status = 500


class BatchRejected(FleetError):
    """This batch is refused as a whole. `permanent` tells the agent that sending it again cannot help."""

    def __init__(self, status: int, code: str, detail: str):
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.permanent = status in (400, 413, 415, 422)
