"""Forms of the way in: the login with its limits, a new password."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.core.exceptions import ValidationError

from orgs import attempts
from orgs.addresses import client_address
from orgs.errors import TooManyAttempts


class LoginForm(AuthenticationForm):
    """E-mail address and password. `wait_seconds` is above zero when too many were tried."""

    wait_seconds = 0
    error_messages = {
        "invalid_login": "This address and password do not belong together.",
        "inactive": "This address and password do not belong together.",
    }

    def __init__(self, request: Any = None, *args: Any, **kwargs: Any):
        super().__init__(request, *args, **kwargs)
        self.fields["username"].widget = forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True})
        self.fields["username"].label = "E-mail address"

    def clean(self) -> dict[str, Any]:
        """Count the try, then look at the password. Raises ValidationError."""
        email, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if not email or not password:
            return super().clean()
        address = client_address(self.request.META) if self.request else None
        try:
            attempt = attempts.begin(address, email)
        except TooManyAttempts as error:
            self.wait_seconds = error.wait_seconds
            raise ValidationError(error.detail, code=error.code) from error
        cleaned = super().clean()
        attempt.succeeded()
        return cleaned


class ForgotForm(forms.Form):
    """Whom to mail a one-time link."""

    email = forms.EmailField(
        label="E-mail address", max_length=254, widget=forms.EmailInput(attrs={"autocomplete": "username"})
    )


class PasswordForm(PasswordChangeForm):
    """A new password, twice; the old one too, unless the person has none or came by a one-time link."""

    field_order = ["old_password", "new_password1", "new_password2"]

    def __init__(self, user: Any, *args: Any, needs_old: bool, **kwargs: Any):
        super().__init__(user, *args, **kwargs)
        if not needs_old:
            del self.fields["old_password"]
