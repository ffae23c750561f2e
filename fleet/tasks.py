"""Celery's doors to the fold. A message only says "look at this org": losing one loses nothing."""

from __future__ import annotations

import logging

from celery import shared_task
from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError
from django.utils import timezone
from django_tenants.utils import schema_context

from fleet import probe as probing
from fleet import silence
from fleet.alerts.agents_watch import watch_agents
from fleet.alerts.silence_watch import watch_silence
from fleet.day_sums import sum_days, sums_due
from fleet.domain.state import OtherFormat
from fleet.folding import fold_waiting
from fleet.packing import pack_due
from fleet.partitions import ensure_partitions
from fleet.recovery import is_noting_due, note_progress, recover
from fleet.refolding import forget_old_states, refold_dirty
from fleet.reviews import backfill_reviews
from fleet.sealing import seal_due
from fleet.selectors_waiting import orgs_with_probes, orgs_with_work, rest_of_org
from fleet.services_comparisons import waiting_comparison, work_on_comparison
from orgs.models import Org
from orgs.tasks import fan_out, org_task

log = logging.getLogger(__name__)
SPREAD_SECONDS = 50  # of a minute's jobs of all orgs
SEAL_SPREAD_SECONDS = 600  # of a quarter of an hour
BACKFILL_SECONDS = 20.0  # of deriving past reviews in one go
SEAL_SECONDS = 60.0  # of packing in one go, so that a worker is soon free for the fold again
FEW_ORGS = 20  # that are folded as soon as anything waits
GATHER_SECONDS = 4.0  # that batches of an org wait for others where many orgs have work
FOLD_TURN_SECONDS = 2  # from one slice of a comparison to the next: a sweep comes each second
HINT_SECONDS = 10  # a message that waited longer is dropped: the next sweep sends another


@shared_task(name="fleet.tasks.sweep")  # type: ignore[untyped-decorator]
def sweep() -> int:
    """Ask one statement which orgs have work and send each to a worker; the number of orgs sent.

    A fold costs some 9 ms of CPU per org before its first batch. Where many orgs have work at once, each is folded
    when its oldest batch has waited a little, and then several batches share that cost.
    """
    with schema_context("public"):
        orgs = list(Org.objects.filter(status=Org.Status.ACTIVE))
        ids = orgs_with_work(orgs)
        if len(ids) > FEW_ORGS:
            ids = orgs_with_work(orgs, waited_s=GATHER_SECONDS)
    for org_id in ids:
        fold_org.apply_async(args=[org_id], expires=HINT_SECONDS)
    return len(ids)


@org_task(name="fleet.tasks.fold_org")
def fold_org(org: Org) -> int:
    """Fold what waits in an org, then the hours that late facts made dirty; after a crash first mend what it took."""
    recover(timezone.now())
    folded = 0
    try:
        folded = fold_waiting(timezone.now())
        rest = rest_of_org()
        if rest.is_dirty:
            refold_dirty(timezone.now())
    except OtherFormat as error:
        forget_old_states(error, timezone.now())
        rest = rest_of_org()
    if rest.next_day is not None and rest.next_day < sums_due(timezone.now()):
        sum_days(timezone.now())
    if is_noting_due(rest.noted, timezone.now()):
        note_progress(timezone.now())
    return folded


@shared_task(name="fleet.tasks.close_silence")  # type: ignore[untyped-decorator]
def close_silence() -> int:
    """Send every org to a worker to write the hours of its silent nodes; the number of orgs."""
    with schema_context("public"):
        ids = list(Org.objects.filter(status=Org.Status.ACTIVE).values_list("pk", flat=True))
    return fan_out(close_silence_of_org, ids, over=SPREAD_SECONDS, expires=60)


@org_task(name="fleet.tasks.close_silence_of_org")
def close_silence_of_org(org: Org) -> int:
    """Write the hours of an org's silent nodes; tell of those that fell silent and of those with two agents.

    A comparison of rules that no worker is at is taken up again.
    """
    left = waiting_comparison(timezone.now())
    if left is not None:
        compare_rules_of_org.apply_async(args=[org.pk, *left], expires=60)
    watch_silence(timezone.now())
    watch_agents(timezone.now())
    return silence.close_silence(timezone.now())


@org_task(name="fleet.tasks.compare_rules_of_org")
def compare_rules_of_org(org: Org, comparison_id: int, after: int) -> bool:
    """The slice behind the node `after` of a comparison of rules; sends the next while there is more. Whether.

    The fold has its turn before the next: with one worker, what waits behind a whole slice is too old to be run.
    """
    last = work_on_comparison(comparison_id, after)
    if last is not None:
        compare_rules_of_org.apply_async(args=[org.pk, comparison_id, last], countdown=FOLD_TURN_SECONDS)
    return last is not None


@shared_task(name="fleet.tasks.probe")  # type: ignore[untyped-decorator]
def probe() -> int:
    """Send every org that has a probe to a worker; the number of orgs. Nothing while the probe is off."""
    if not probing.networks():
        return 0
    with schema_context("public"):
        ids = orgs_with_probes(Org.objects.filter(status=Org.Status.ACTIVE))
    for org_id in ids:
        probe_org.apply_async(args=[org_id], expires=probing.ROUND_SECONDS)
    return len(ids)


@org_task(name="fleet.tasks.probe_org")
def probe_org(org: Org) -> int:
    """One round of an org's probes."""
    return probing.probe_round(timezone.now())


@shared_task(name="fleet.tasks.seal")  # type: ignore[untyped-decorator]
def seal() -> int:
    """Send every org to a worker to pack its old weeks and seal its old days; the number of orgs."""
    with schema_context("public"):
        ids = list(Org.objects.filter(status=Org.Status.ACTIVE).values_list("pk", flat=True))
    return fan_out(seal_org, ids, over=SEAL_SPREAD_SECONDS, expires=900)


@org_task(name="fleet.tasks.seal_org")
def seal_org(org: Org) -> int:
    """Derive the reviews that old hours lack, pack what is due, a minute at most, then seal and drop what is due.

    The number of batches packed.
    """
    backfill_reviews(BACKFILL_SECONDS)
    packed = pack_due(timezone.now(), settings.GOODPUT_REPACK_DAYS, SEAL_SECONDS)
    sealed = seal_due(timezone.now(), settings.GOODPUT_RAW_HORIZON_DAYS)
    for why in filter(None, (packed.stopped, sealed.stopped)):
        log.info("org %s: %s", org.slug, why)
    return packed.batches


@shared_task(name="fleet.tasks.make_partitions")  # type: ignore[untyped-decorator]
def make_partitions() -> int:
    """Make next weeks' inbox partitions in every org; the number made. One bad org does not stop the others."""
    made = 0
    with schema_context("public"):
        for org in Org.objects.filter(status=Org.Status.ACTIVE):
            try:
                made += ensure_partitions(org.schema_name, timezone.now())
            except DatabaseError:
                log.exception("org %s: its partitions could not be made", org.slug)
    return made


@shared_task(name="fleet.tasks.clear_sessions")  # type: ignore[untyped-decorator]
def clear_sessions() -> None:
    """Delete sessions that have expired."""
    call_command("clearsessions")
