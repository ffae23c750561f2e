"""That somebody looked at what asks for a look, and takes it back. Never a fact.

Kept by what a review is about (node, subject, code, the stretch of time), so that no re-fold touches it. Each use case
is one transaction with its audit entry, with the node held: no worker folds it meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone

from fleet.domain.slots import SLOT_MS, SLOTS_PER_HOUR
from fleet.fleet_json import when
from fleet.models import Node, NodeLive, Review, ReviewLook
from fleet.services_incidents import Actor
from orgs.services import record

MAX_NOTE_CHARS = 1000
MOST_AT_ONCE = 200


class LookInvalid(ValueError):
    """A value that it can't have; `field` names it."""

    def __init__(self, field: str, detail: str):
        super().__init__(detail)
        self.field, self.detail = field, detail


@dataclass(frozen=True)
class About:
    """A review, by what it is about: `slot` is any absolute slot in its stretch."""

    node_id: int
    slot: int
    code: str
    subject: str


def read_about(key: str) -> About:
    """The review that a form's value names, as `ReviewLine.key` writes it. Raises LookInvalid."""
    node_id, _, rest = key.partition(".")
    slot, _, rest = rest.partition(".")
    code, _, subject = rest.partition(".")
    is_number = all(part.isascii() and part.isdigit() and len(part) <= 18 for part in (node_id, slot))
    if not (is_number and int(slot) < 2**31 and code and subject) or "\x00" in rest:
        raise LookInvalid("review", "Choose what you looked at.")
    return About(int(node_id), int(slot), code, subject)


def look_at(wanted: Collection[About], note: str, actor: Actor) -> list[ReviewLook]:
    """Mark these reviews as looked at; the new marks. What somebody marked before stays as it was.

    The caller has checked that the nodes may be seen. What is no review any more is left out. Raises LookInvalid.
    """
    text = note.strip()
    if len(text) > MAX_NOTE_CHARS or "\x00" in text:
        raise LookInvalid("note", f"At most {MAX_NOTE_CHARS} characters, without NUL.")
    if not 0 < len(wanted) <= MOST_AT_ONCE:
        raise LookInvalid("review", f"Choose what you looked at, up to {MOST_AT_ONCE} at once.")
    by_node: dict[int, list[About]] = defaultdict(list)
    for about in wanted:
        by_node[about.node_id].append(about)
    made = []
    with transaction.atomic():
        list(NodeLive.objects.select_for_update().filter(pk__in=by_node).order_by("pk"))
        for node in Node.objects.filter(pk__in=by_node).order_by("pk"):
            made += [mark for about in by_node[node.pk] if (mark := _look(node, about, text, actor)) is not None]
    return made


def _look(node: Node, about: About, note: str, actor: Actor) -> ReviewLook | None:
    found = _stretch(about)
    if found is None:
        return None
    first, end, uuid = found
    same = ReviewLook.objects.filter(node=node, subject=about.subject, code=about.code, taken_back_at=None)
    if same.filter(first_slot__lt=end, end_slot__gt=first).exists():
        return None
    mark = ReviewLook.objects.create(
        node=node,
        subject=about.subject,
        code=about.code,
        first_slot=first,
        end_slot=end,
        uuid=uuid,
        by=actor.name[:254],
        note=note,
    )
    _record("review.looked_at", mark, actor)
    return mark


def _stretch(about: About) -> tuple[int, int, str] | None:
    """(first slot, end slot, UUID) of the reviews that follow each other around this slot; None where there is none."""
    rows = Review.objects.filter(node_id=about.node_id, subject=about.subject, code=about.code)
    hour = about.slot // SLOTS_PER_HOUR
    here = rows.filter(hour=hour, first_slot__lte=about.slot, end_slot__gt=about.slot).first()
    if here is None:
        return None
    first, end = here.first_slot, here.end_slot
    for one in rows.filter(hour__lte=hour, end_slot__lte=first).order_by("-end_slot").iterator(chunk_size=50):
        if one.end_slot != first:
            break
        first = one.first_slot
    for one in rows.filter(hour__gte=hour, first_slot__gte=end).order_by("first_slot").iterator(chunk_size=50):
        if one.first_slot != end:
            break
        end = one.end_slot
    return first, end, here.uuid


def look_over(about: About) -> ReviewLook | None:
    """The mark that stands for the review at this slot; None while there is none."""
    same = ReviewLook.objects.select_related("node").filter(node=about.node_id, subject=about.subject, code=about.code)
    return same.filter(taken_back_at=None, first_slot__lte=about.slot, end_slot__gt=about.slot).first()


def take_back_look(pk: int, actor: Actor) -> bool:
    """Have the reviews ask again; the mark stays in the record. False where somebody did before.

    Raises ReviewLook.DoesNotExist.
    """
    mark = ReviewLook.objects.select_related("node").get(pk=pk)
    with transaction.atomic():
        done = ReviewLook.objects.filter(pk=pk, taken_back_at=None).update(
            taken_back_at=timezone.now(), taken_back_by=actor.name[:254]
        )
        if done:
            _record("review.look_taken_back", mark, actor)
    return bool(done)


def _record(action: str, mark: ReviewLook, actor: Actor) -> None:
    after = {
        "code": mark.code,
        "subject": mark.subject,
        "from": when(mark.first_slot * SLOT_MS),
        "to": when(mark.end_slot * SLOT_MS),
    }
    if mark.note and action == "review.looked_at":
        after["note"] = mark.note
    record(action, actor=actor.name, org=actor.org, target=mark.node.name, address=actor.address, after=after)
