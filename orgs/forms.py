"""The form of the way in, in our words. django-allauth's other forms are used as they are."""

from __future__ import annotations

from typing import Any

from allauth.account.forms import LoginForm as AllauthLoginForm
from django import forms


class LoginForm(AllauthLoginForm):
    """E-mail address and password."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.fields["login"].label = "E-mail address"
        self.fields["login"].max_length = 254
        self.fields["login"].widget = forms.EmailInput(attrs={"autocomplete": "username webauthn", "autofocus": True})
        self.fields["password"].widget = forms.PasswordInput(attrs={"autocomplete": "current-password"})
        self.fields["password"].help_text = ""
