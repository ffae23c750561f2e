"""A key that is revoked in the middle of an upload: the batch counts as before or is refused, and all records agree.

The same for an agent's signing key: what the fold, the log and its checkpoint say follows from the two instants alone.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone
from django_tenants.utils import tenant_context

from claims.ledger import make_checkpoint, revocations
from claims.models import Leaf
from fleet.agents import services
from fleet.agents.models import AgentKey, BatchFlaw
from fleet.agents.selectors import list_agents
from fleet.agents.signatures import PUBLIC_BYTES
from fleet.agents.tests.support import Installation
from fleet.folding import fold_waiting
from fleet.models import Inbox
from fleet.tests.bodies import packed
from fleet.tests.ingest.uploads import post
from orgs.models import ApiKey
from orgs.services import revoke_key
from orgs.tests.races import beside, someone_waits, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("lan")]


def enrolled(org: Any, key_of: Any) -> tuple[Installation, AgentKey]:
    """An installation with its key in force."""
    one = Installation()
    assert one.enrol(key_of(org, "ingest")).status_code == 200
    assert len(one.public) == PUBLIC_BYTES
    with tenant_context(org):
        return one, AgentKey.objects.get()


def judged() -> dict[str, int]:
    """How the installation's batches were signed, as the fold counted them."""
    (agent,) = list_agents()
    return {state: number for state, number in agent.counts.items() if number}


def checkpoint(org: Any) -> None:
    """A checkpoint of what came until now."""
    assert make_checkpoint(org, timezone.now() + timedelta(minutes=3)) is not None


def test_an_upload_that_is_being_stored_when_its_key_is_revoked_is_whole_and_the_next_is_refused(
    alpha: Any, key_of: Any
) -> None:
    token = key_of(alpha, "ingest")
    key = ApiKey.objects.get()

    def upload() -> Any:
        try:
            return post(packed(agent_id="a", seq=1)[0], token)
        finally:
            connections.close_all()

    post(packed(agent_id="a", seq=0)[0], token)  # its week has a partition
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f'lock table "{alpha.schema_name}".fleet_inbox in share mode')
            sent = pool.submit(upload)
            wait_for(someone_waits)
            with ThreadPoolExecutor(1) as other:  # committed while the INSERT waits
                other.submit(_revoke, key).result(60)
        answer = sent.result(60)
    assert answer.status == 202, "the key was good when it was asked for"
    assert post(packed(agent_id="a", seq=2)[0], token).code == "revoked_key"
    receipt = answer.json()
    with tenant_context(alpha):
        assert Inbox.objects.count() == 2
        stored = Inbox.objects.get(seq=1)
        assert (bytes(stored.sha256).hex(), stored.key_id) == (receipt["batch_sha256"], key.pk)
        assert stored.received_at == datetime.fromisoformat(receipt["received_at"])
        checkpoint(alpha)
        leaf = Leaf.objects.get(batch_sha256=bytes.fromhex(receipt["batch_sha256"]))
        assert (leaf.what, leaf.received_at) == ("batch", stored.received_at)
        assert Leaf.objects.filter(what="batch").count() == 2


def _revoke(key: ApiKey) -> None:
    try:
        revoke_key(key, actor="test")
    finally:
        connections.close_all()


def test_what_comes_while_a_signing_key_is_being_revoked_is_marked_by_the_instant_of_it(
    alpha: Any, key_of: Any
) -> None:
    """The revocation has its instant and is not committed; a batch comes after it and is folded meanwhile."""
    one, row = enrolled(alpha, key_of)
    with tenant_context(alpha):
        one.send(alpha, 1)

    def send_and_fold() -> int:
        one.send(alpha, 2)
        return fold_waiting(timezone.now())

    _, folded = beside(alpha, lambda: services.revoke(row, alpha, actor="ada"), send_and_fold)
    assert folded == 2
    with tenant_context(alpha):
        row.refresh_from_db()
        before, after = Inbox.objects.order_by("seq").values_list("received_at", flat=True)
        assert before < row.changed_at <= after
        assert judged() == {"valid": 1, "revoked": 1}
        assert BatchFlaw.objects.get().why == "revoked"
        checkpoint(alpha)
        ((leaf, (_, micros)),) = revocations()
        assert leaf.received_at == row.changed_at
        assert int(micros) == round(row.changed_at.timestamp() * 1_000_000)
        assert Leaf.objects.filter(what="batch").count() == 2


def test_a_revocation_beside_a_fold_is_of_after_all_that_this_fold_judged(alpha: Any, key_of: Any) -> None:
    one, row = enrolled(alpha, key_of)

    def send_and_fold() -> int:
        with tenant_context(alpha):
            return fold_waiting(timezone.now())

    with tenant_context(alpha):
        one.send(alpha, 1)
    folded, _ = beside(alpha, send_and_fold, lambda: services.revoke(row, alpha, actor="ada"))
    assert folded == 1
    with tenant_context(alpha):
        row.refresh_from_db()
        assert Inbox.objects.get().received_at < row.changed_at
        assert judged() == {"valid": 1}
        assert not BatchFlaw.objects.exists()
