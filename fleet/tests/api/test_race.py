"""What a person writes while the fold rewrites the same incident is not lost."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.db import connection, transaction
from django_tenants.utils import tenant_context

from fleet import services_incidents as services
from fleet.models import Incident, NodeLive
from fleet.tests.api.test_human_layer import bare_incident

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_acknowledgement_waits_for_the_fold_and_stays(alpha: Any) -> None:
    one = bare_incident(alpha)
    done = threading.Event()

    def acknowledge() -> None:
        try:
            with tenant_context(alpha):
                services.acknowledge_incident(one.pk, services.Actor("ada", alpha))
        finally:
            connection.close()
            done.set()

    with tenant_context(alpha):
        NodeLive.objects.create(node_id=one.node_id)
        with transaction.atomic():
            list(NodeLive.objects.select_for_update().filter(pk=one.node_id))  # as a worker claims a node
            stale = Incident.objects.get(pk=one.pk)
            person = threading.Thread(target=acknowledge)
            person.start()
            time.sleep(0.2)
            assert not done.is_set()
            stale.end_slot += 1
            stale.save()  # as the fold does: every column
        person.join(10)
        after = Incident.objects.get(pk=one.pk)
        assert (after.acknowledged_by, after.end_slot) == ("ada", 141)


def test_writing_to_an_incident_that_a_refold_removed_raises(alpha: Any) -> None:
    one = bare_incident(alpha)
    with tenant_context(alpha):
        Incident.objects.all().delete()
        for write in (
            lambda: services.acknowledge_incident(one.pk, services.Actor("ada", alpha)),
            lambda: services.add_note(one.pk, "x", services.Actor("ada", alpha)),
            lambda: services.set_ticket(one.pk, {"ticket_number": "T"}, services.Actor("ada", alpha)),
        ):
            with pytest.raises(Incident.DoesNotExist):
                write()
