"""Routes of people: the way in, out and around. Sign-up is left out: people are invited."""

from __future__ import annotations

from allauth.account import views as account
from allauth.socialaccount.providers.openid_connect import views as oidc
from django.urls import include, path
from django.views.decorators.http import require_POST

from orgs import views, views_account

login, logout = views.LoginView.as_view(), require_POST(account.logout)
urlpatterns = [
    path("", views.home, name="home"),
    path("login/", login, name="login"),
    path("login/", login, name="account_login"),  # the library's names of the same pages
    path("logout/", logout, name="logout"),
    path("logout/", logout, name="account_logout"),
    path("login/link/<str:uid>/<str:token>/", views.one_time_link, name="one_time_link"),
    path("invitation/<str:token>/", views.invitation, name="invitation"),
    path("password/", views.password, name="password_change"),
    path("password/", views.password, name="account_change_password"),
    path("password/", views.password, name="account_set_password"),
    path("password/forgot/", views.ForgotView.as_view(), name="account_reset_password"),
    path("password/forgot/sent/", account.password_reset_done, name="account_reset_password_done"),
    path(
        "password/new/<str:uidb36>/<str:key>/", account.password_reset_from_key, name="account_reset_password_from_key"
    ),
    path("password/new/done/", account.password_reset_from_key_done, name="account_reset_password_from_key_done"),
    path("account/address/", views_account.address, name="new_address"),
    path("account/address/", views_account.address, name="account_email"),  # the library's name
    path("account/address/<str:token>/", views_account.confirm_address, name="new_address_link"),
    path("account/confirm/", account.reauthenticate, name="account_reauthenticate"),
    path("account/second-factor/", include("allauth.mfa.urls")),
    path("account/sessions/", include("allauth.usersessions.urls")),
    path("account/sso/", include("allauth.socialaccount.urls")),
    path("account/oidc/<slug:provider_id>/login/", views.single_sign_on, name="openid_connect_login"),
    path("account/oidc/<slug:provider_id>/login/callback/", oidc.callback, name="openid_connect_callback"),
]
