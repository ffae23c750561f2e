"""Routes of people: the way in, out and around."""

from __future__ import annotations

from django.contrib.auth import views as auth
from django.urls import path

from orgs import views

urlpatterns = [
    path("", views.home, name="home"),
    path("login/", views.LoginView.as_view(), name="login"),
    path("logout/", auth.LogoutView.as_view(), name="logout"),
    path("login/forgot/", views.forgot, name="forgot"),
    path("login/link/<str:uid>/<str:token>/", views.one_time_link, name="one_time_link"),
    path("invitation/<str:token>/", views.invitation, name="invitation"),
    path("password/", views.change_password, name="password_change"),
]
