"""Forms of the way in, in our words. django-allauth's other forms are used as they are."""

from __future__ import annotations

from typing import Any

from allauth.account.forms import ChangePasswordForm, ResetPasswordKeyForm, SetPasswordForm
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


class NewAddressForm(forms.Form):
    """Another e-mail address."""

    email = forms.EmailField(
        label="New e-mail address", max_length=254, widget=forms.EmailInput(attrs={"autocomplete": "email"})
    )


class _NewPassword:
    """Labels of a new password, the same on every page that sets one."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        fields: dict[str, forms.Field] = self.fields  # type: ignore[attr-defined]
        for name, label in (
            *(("oldpassword", "Current password"), ("password1", "New password")),
            ("password2", "New password, again"),
        ):
            if name in fields:
                fields[name].label = label
                fields[name].widget.attrs.pop("placeholder", None)


class NewPasswordForm(_NewPassword, SetPasswordForm):
    """A first password, or one after a one-time link."""


class OtherPasswordForm(_NewPassword, ChangePasswordForm):
    """Another password, by the one that is known."""


class ForgottenPasswordForm(_NewPassword, ResetPasswordKeyForm):
    """Another password, by a link that came by mail."""
