"""Django's settings, read from the environment. Every variable is described in docs/settings.md (a test compares)."""

from __future__ import annotations

from pathlib import Path

import environ
from csp.constants import NONE, SELF

from goodput_site.exposure import (
    DEFAULT_SECRETS,
    Exposure,
    networks,
    own_hosts,
    refuse_default_secrets,
    refuse_plain_http,
)
from goodput_site.limits import quota

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()

# Exposure: who may reach this server, and what stands open to them (architecture 8). Never guessed from a request.
GOODPUT_EXPOSE = Exposure(env.str("GOODPUT_EXPOSE", "local"))
GOODPUT_PUBLIC_URL = env.str("GOODPUT_PUBLIC_URL", "").rstrip("/")
GOODPUT_PORT = env.int("GOODPUT_PORT", 8080)
GOODPUT_VAR = Path(env.str("GOODPUT_VAR", str(BASE_DIR / "var")))
GOODPUT_PROXIES = env.int("GOODPUT_PROXIES", 1 if GOODPUT_EXPOSE is Exposure.PUBLIC else 0)  # trusted, in front of us
GOODPUT_DEFAULT_ORG = env.str("GOODPUT_DEFAULT_ORG", "local")
GOODPUT_CITUS = env.bool("GOODPUT_CITUS", False)  # each org's schema is a shard (docs/scale-out.md)
GOODPUT_FOLD_CHUNK = env.int("GOODPUT_FOLD_CHUNK", 300)  # batches per transaction of the worker
GOODPUT_PROBE_NETWORKS = env.list("GOODPUT_PROBE_NETWORKS", default=[])  # that may be probed; none: the probe is off
GOODPUT_PROBE_CONTROL = env.str("GOODPUT_PROBE_CONTROL", "")  # host:port that answers whenever the probe is healthy
GOODPUT_ALERT_NETWORKS = networks(env.str("GOODPUT_ALERT_NETWORKS", "auto"), GOODPUT_EXPOSE)
# Where a cloud's metadata server signs instance tokens for this very machine; empty: such anchors can't be made.
GOODPUT_INSTANCE_TOKEN_URL = env.str("GOODPUT_INSTANCE_TOKEN_URL", "")
# A PKCS#12 file with what signs claims' PDFs (optional; needs pyHanko), and a file with its password.
GOODPUT_PDF_SIGNER = env.str("GOODPUT_PDF_SIGNER", "")
GOODPUT_PDF_SIGNER_PASSWORD_FILE = env.str("GOODPUT_PDF_SIGNER_PASSWORD_FILE", "")
GOODPUT_ALERT_SILENCE_MINUTES = max(2, env.int("GOODPUT_ALERT_SILENCE_MINUTES", 10))
GOODPUT_REPACK_DAYS = max(1, env.int("GOODPUT_REPACK_DAYS", 3))  # after a week's end, before its batches are packed
GOODPUT_RAW_HORIZON_DAYS = max(GOODPUT_REPACK_DAYS + 14, env.int("GOODPUT_RAW_HORIZON_DAYS", 90))
# Batches and bytes a second that are taken of one org, of one key, and of one node by its own key; 0: no limit.
GOODPUT_QUOTA_ORG = quota("GOODPUT_QUOTA_ORG", env.str("GOODPUT_QUOTA_ORG", "400,8000000"))
GOODPUT_QUOTA_KEY = quota("GOODPUT_QUOTA_KEY", env.str("GOODPUT_QUOTA_KEY", "400,8000000"))
GOODPUT_QUOTA_NODE = quota("GOODPUT_QUOTA_NODE", env.str("GOODPUT_QUOTA_NODE", "10,1000000"))
GOODPUT_WEB_THREADS = max(1, env.int("GOODPUT_WEB_THREADS", 4))  # of a web process; one org holds all but one
GOODPUT_WEB_WORKERS = max(1, env.int("GOODPUT_WEB_WORKERS", 1))  # processes of this host that share them
GOODPUT_KEY_CACHE_SECONDS = min(30, env.int("GOODPUT_KEY_CACHE_SECONDS", 15))

DATABASE_URL = env.str("DATABASE_URL", "postgresql://goodput:devpassword@127.0.0.1:5432/goodput")
REDIS_URL = env.str("REDIS_URL", "redis://127.0.0.1:6379/0")
SECRET_KEY = env.str("GOODPUT_SECRET_KEY", "devsecret-of-the-local-mode-only")
GOODPUT_DEFAULT_SECRETS = DEFAULT_SECRETS
refuse_default_secrets(GOODPUT_EXPOSE, SECRET_KEY, DATABASE_URL)
refuse_plain_http(GOODPUT_EXPOSE, GOODPUT_PUBLIC_URL)

DEBUG = False
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ALLOWED_HOSTS = own_hosts(GOODPUT_PUBLIC_URL)
CSRF_TRUSTED_ORIGINS = [GOODPUT_PUBLIC_URL] if GOODPUT_PUBLIC_URL else []
USE_X_FORWARDED_HOST = False

# Tenancy: an org is a schema. The two lists share no app, so a forgotten org is an error and never another org's rows.
SHARED_APPS = [
    "django_tenants",
    "orgs",
    "fleet.summary",
    "goodput_site",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
    "csp",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
]
TENANT_APPS = ["fleet", "fleet.alerts", "fleet.agents", "claims"]
INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]
TENANT_MODEL = "orgs.Org"
GOODPUT_CLUSTER_NAMES = "fleet.summary.selectors.cluster_names"  # whom the settings pages of an org ask for them
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
AUTH_USER_MODEL = "orgs.User"

_database = environ.Env.db_url_config(DATABASE_URL, engine="django_tenants.postgresql_backend")
DATABASES = {
    "default": {
        **_database,
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "connect_timeout": 5,
            "application_name": "goodput",
            "prepare_threshold": 5,
            **_database.get("OPTIONS", {}),  # what the URL asks for: sslmode, sslrootcert, ...
            **({"options": "-c citus.enable_schema_based_sharding=on"} if GOODPUT_CITUS else {}),
        },
    }
}

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "orgs.activity.SessionActivity",
    "orgs.middleware.OrgMiddleware",
]
ROOT_URLCONF = "goodput_site.urls"
WSGI_APPLICATION = "goodput_site.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "goodput_site.context.site",
            ],
        },
    }
]

STATIC_URL = "/static/"
STATIC_ROOT = Path(env.str("GOODPUT_STATIC_ROOT", str(GOODPUT_VAR / "static")))
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.ManifestStaticFilesStorage"},
}

# People
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "home"
PASSWORD_RESET_TIMEOUT = 3 * 24 * 3600  # a one-time link lives three days
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]

# The way in is django-allauth's; orgs/accounts.py holds where we differ. Nobody signs up: people are invited.
ACCOUNT_ADAPTER = "orgs.accounts.AccountAdapter"
ACCOUNT_FORMS = {
    "login": "orgs.forms.LoginForm",
    "set_password": "orgs.forms.NewPasswordForm",
    "change_password": "orgs.forms.OtherPasswordForm",
    "reset_password_from_key": "orgs.forms.ForgottenPasswordForm",
}
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "none"  # an address is proved by the link that was sent to it
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_EMAIL_SUBJECT_PREFIX = ""
ACCOUNT_SESSION_REMEMBER = True  # the cookie survives the relaunch of a home-screen app
ACCOUNT_LOGIN_ON_PASSWORD_RESET = True
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_REAUTHENTICATION_METHODS = ("password", "mfa")
ACCOUNT_REAUTHENTICATION_TIMEOUT = 1800
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if GOODPUT_EXPOSE is Exposure.PUBLIC else "http"
MFA_ADAPTER = "orgs.accounts.MfaAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_ALLOW_UNVERIFIED_EMAIL = True
MFA_TOTP_ISSUER = "Goodput"
MFA_TOTP_TOLERANCE = 1  # a phone's clock may be half a minute off
MFA_RECOVERY_CODES_SHOW_ONCE = True
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = GOODPUT_EXPOSE is not Exposure.PUBLIC  # http://localhost; browsers refuse others

# Single sign-on by OpenID Connect, where these are set (docs/security.md).
GOODPUT_OIDC_NAME = env.str("GOODPUT_OIDC_NAME", "single sign-on")
GOODPUT_OIDC_URL = env.str("GOODPUT_OIDC_URL", "").rstrip("/")
SOCIALACCOUNT_ADAPTER = "orgs.accounts.SingleSignOnAdapter"
SOCIALACCOUNT_QUERY_EMAIL = True
SOCIALACCOUNT_EMAIL_AUTHENTICATION = True  # an address that the identity provider vouches for is the person
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True
SOCIALACCOUNT_STORE_TOKENS = False
SOCIALACCOUNT_PROVIDERS = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [
            {
                "provider_id": "sso",
                "name": GOODPUT_OIDC_NAME,
                "client_id": env.str("GOODPUT_OIDC_CLIENT_ID", ""),
                "secret": env.str("GOODPUT_OIDC_CLIENT_SECRET", ""),
                "settings": {
                    "server_url": GOODPUT_OIDC_URL,
                    "verified_email": env.list("GOODPUT_OIDC_TRUSTED_DOMAINS", default=[]),
                },
            }
        ]
        if GOODPUT_OIDC_URL
        else [],
    }
}
vars().update(environ.Env.email_url_config(env.str("GOODPUT_EMAIL_URL", "consolemail://")))
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.str("GOODPUT_FROM_EMAIL", "goodput@localhost")

# Cookies: first-party, persistent, Lax, so that an iPhone home-screen app stays signed in.
# Names of our own: cookies know no port, and another Django on localhost would sign people out.
SESSION_COOKIE_NAME = "goodput_session"
CSRF_COOKIE_NAME = "goodput_csrf"
SESSION_COOKIE_AGE = 30 * 24 * 3600
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = GOODPUT_EXPOSE is Exposure.PUBLIC
CSRF_COOKIE_SECURE = GOODPUT_EXPOSE is Exposure.PUBLIC
CSRF_COOKIE_HTTPONLY = True

# Headers. One strict policy; only /admin/ may ever have its own.
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True
if GOODPUT_EXPOSE is Exposure.PUBLIC:
    if GOODPUT_PROXIES:
        SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SILENCED_SYSTEM_CHECKS = ["security.W021"]  # preloading binds a whole domain, which is not ours to decide
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF],
        "font-src": [SELF],
        "connect-src": [SELF],
        "manifest-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}

# API
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["orgs.authentication.KeyOrSessionAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "goodput_site.problems.exception_handler",
    "DEFAULT_PAGINATION_CLASS": "goodput_site.pagination.CursorPages",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Goodput",
    "DESCRIPTION": "Whether GPU hardware could run at spec, slot by slot.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    # Not the library's own hook: choices stand where they are used, without a name to keep free of collisions.
    "POSTPROCESSING_HOOKS": ["goodput_site.openapi.add_problems"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": f"{STATIC_URL}icons/icon-192.png",
}

# Work in the background. The inbox is the queue, so a lost message loses nothing (docs/adr/0004).
CELERY_BROKER_URL = REDIS_URL
CELERY_RESULT_BACKEND = None
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 120}
CELERY_TIMEZONE = "UTC"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TASK_ROUTES = {"fleet.alerts.tasks.*": {"queue": "alerts"}}  # a receiver that hangs holds up no fold
CELERY_BEAT_SCHEDULE = {
    "tell": {"task": "fleet.alerts.tasks.sweep", "schedule": 5.0, "options": {"expires": 10}},
    "forget-alerts": {"task": "fleet.alerts.tasks.forget", "schedule": 86400.0, "options": {"expires": 3600}},
    "fold-what-waits": {"task": "fleet.tasks.sweep", "schedule": 1.0, "options": {"expires": 5}},
    "probe": {"task": "fleet.tasks.probe", "schedule": 15.0, "options": {"expires": 10}},
    "close-silence": {"task": "fleet.tasks.close_silence", "schedule": 60.0, "options": {"expires": 60}},
    "clear-sessions": {"task": "fleet.tasks.clear_sessions", "schedule": 86400.0, "options": {"expires": 3600}},
    "send-mails": {"task": "orgs.tasks.send_mails", "schedule": 60.0, "options": {"expires": 60}},
    "summarise": {"task": "fleet.summary.tasks.summarise", "schedule": 60.0, "options": {"expires": 60}},
    "anchor-the-logs": {"task": "claims.tasks.anchor_all", "schedule": 300.0, "options": {"expires": 240}},
    "tend-the-claims": {"task": "claims.tasks.tend_all", "schedule": 3600.0, "options": {"expires": 3600}},
    "sign-the-logs": {"task": "claims.tasks.checkpoint_all", "schedule": 3600.0, "options": {"expires": 3600}},
    "draft-reports": {"task": "claims.tasks.draft_all", "schedule": 21600.0, "options": {"expires": 3600}},
    "pack-and-seal": {"task": "fleet.tasks.seal", "schedule": 900.0, "options": {"expires": 900}},
    "make-partitions": {"task": "fleet.tasks.make_partitions", "schedule": 3600.0, "options": {"expires": 3600}},
}

CACHES = {
    "default": {
        "BACKEND": "goodput_site.cache.PatientRedisCache",  # without Redis each process counts for itself
        "LOCATION": REDIS_URL,
        "OPTIONS": {"socket_connect_timeout": 0.5, "socket_timeout": 0.5},  # no page waits for a lost cache
        "KEY_FUNCTION": "django_tenants.cache.make_key",
    }
}

GOODPUT_METRICS_TOKEN = env.str("GOODPUT_METRICS_TOKEN", "")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s"},
        "json": {"()": "goodput_site.request_log.JsonLines"},
    },
    "filters": {
        "hide_links": {"()": "orgs.logs.HideLinks"},
        "request_id": {"()": "goodput_site.request_log.AddRequestId"},
    },
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": env.str("GOODPUT_LOG_FORMAT", "line"),
            "filters": ["hide_links", "request_id"],
        }
    },
    "root": {"handlers": ["stderr"], "level": env.str("GOODPUT_LOG_LEVEL", "INFO")},
    "loggers": {"django.server": {"level": "WARNING"}, "celery": {"level": "WARNING"}},
}
