"""Settings of the test run: the product's own, with a quick password hasher and plain static files."""

from goodput_site.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
ALLOWED_HOSTS = [*ALLOWED_HOSTS, "testserver"]  # noqa: F405
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
STORAGES = {**STORAGES, "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}  # noqa: F405
STATIC_ROOT = None  # type: ignore[assignment]  # static files come from where they lie
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = True
