"""The fleet's errors, told once, at the edge.

FleetError
├── BatchRejected     a batch that is not stored; `code` for programs, the sentence for people
│   ├── 400  malformed bytes: bad_gzip, trailing_bytes, bad_msgpack, bad_extension, duplicate_key, too_many_items
│   ├── 408  cut_short: the upload broke off; 411 length_required (both may be tried again)
│   ├── 413  too_large
│   ├── 415  bad_content_type, bad_content_encoding
│   └── 422  well-formed bytes that break the contract: invalid, bad_string, non_finite, schema_version, too_deep,
│            no_intervals, too_many_<key>
├── WrongCluster      403 other_cluster: the key is good for another cluster
├── WrongNode         403 other_node: the key is one node's own, and the batch names another
├── QuotaExceeded     429 quota_exceeded: this org, key or node sends too much; `wait_seconds` until it may go on
├── Busy              503 busy: this org's uploads hold their share of the threads; `wait_seconds` until another try
├── SeqConflict       409 seq_conflict: stored once with the flag, never folded
└── NotStored         503 not_stored: no receipt; the agent keeps the batch
"""

from __future__ import annotations

import math


class FleetError(Exception):
    """Base of every error that this app raises on purpose."""

    code = "fleet_error"
    status = 500

    def __init__(self, detail: str):
        super().__init__(detail)
        self.detail = detail

    @property
    def is_permanent(self) -> bool:
        """Whether sending the same batch again can't help: the agent sets it aside."""
        return self.status in (400, 409, 413, 415, 422)


class BatchRejected(FleetError):
    """This batch is refused as a whole."""

    def __init__(self, status: int, code: str, detail: str):
        super().__init__(detail)
        self.status = status
        self.code = code


class WrongCluster(FleetError):
    """The key names another cluster than the batch."""

    code = "other_cluster"
    status = 403


class WrongNode(FleetError):
    """A node's own key may not speak for another node."""

    code = "other_node"
    status = 403


class SeqConflict(FleetError):
    """Two different batches carry one seq of one installation: a copied disk or a forgery."""

    code = "seq_conflict"
    status = 409


class QuotaExceeded(FleetError):
    """This org, key or node sends more than it may; the agent keeps the batch."""

    code = "quota_exceeded"
    status = 429

    def __init__(self, detail: str, wait_s: float):
        super().__init__(detail)
        self.wait_seconds = math.ceil(wait_s)


class Busy(FleetError):
    """This org's uploads hold all the threads that one org may hold; the agent keeps the batch."""

    code = "busy"
    status = 503

    def __init__(self, detail: str, wait_s: int):
        super().__init__(detail)
        self.wait_seconds = wait_s


class NotStored(FleetError):
    """The batch is not on disk; try again later."""

    code = "not_stored"
    status = 503
