#!/bin/sh
# A command of the server in a container that runs: docker compose exec web goodput-manage create_user --email …
# What the entry point works out for the server (secrets from files, the database's address) holds for it, too.
exec /app/deploy/docker/server-entry.sh python manage.py "$@"
