"""Settings of the test run: the product's own, with a quick password hasher and plain static files.

Nothing is read from or written to the installation that may stand in this checkout: keys and releases of the tests lie
in a folder of their own, in the environment so that every process of the run has the same one.
"""

import atexit
import os
import shutil
import tempfile


def _remove(folder: str, maker: int) -> None:
    if os.getpid() == maker:  # a fork of it ends earlier
        shutil.rmtree(folder, ignore_errors=True)


if "GOODPUT_VAR" not in os.environ:
    os.environ["GOODPUT_VAR"] = tempfile.mkdtemp(prefix="goodput-tests-")
    os.chmod(os.environ["GOODPUT_VAR"], 0o711)  # noqa: S103 - a server's own account passes through
    atexit.register(_remove, os.environ["GOODPUT_VAR"], os.getpid())

from goodput_site.settings import *  # noqa: F403, E402

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
ALLOWED_HOSTS = [*ALLOWED_HOSTS, "testserver"]  # noqa: F405
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
STORAGES = {**STORAGES, "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}  # noqa: F405
STATIC_ROOT = None  # type: ignore[assignment]  # static files come from where they lie
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = True

GOODPUT_WEB_THREADS = 64  # tests upload from many threads of one process
