"""When each session was last used, to within five minutes: what the list of sessions shows beside where it began."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

from orgs.addresses import client_address

SEEN = "seen"  # in the session itself, so that most requests ask nothing of the database
EVERY_SECONDS = 300


class SessionActivity:
    """Notes that a signed-in session is used, once in five minutes, and from which address.

    In place of allauth's own tracking, which reads and writes a row with every request.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if settings.SESSION_COOKIE_NAME in request.COOKIES and self.is_due(request):
            self.note(request)
        return self.get_response(request)

    def is_due(self, request: HttpRequest) -> bool:
        """Whether somebody is signed in and was not noted lately."""
        return time.time() - request.session.get(SEEN, 0) >= EVERY_SECONDS and request.user.is_authenticated

    def note(self, request: HttpRequest) -> None:
        """Once in five minutes: now, and from here."""
        request.session[SEEN] = int(time.time())
        used: dict[str, Any] = {"last_seen_at": timezone.now()}
        if address := client_address(request.META):
            used["ip"] = address
        UserSession.objects.filter(session_key=request.session.session_key).update(**used)


@receiver(user_logged_in)
def _begins(request: HttpRequest | None, **_: Any) -> None:
    """A session that has just begun was just used."""
    if request is not None:
        request.session[SEEN] = int(time.time())
