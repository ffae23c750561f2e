"""Settings, URLs, the Celery app and health: composes the apps, holds no domain code."""
