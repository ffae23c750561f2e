#!/bin/sh
# What a server container runs: prepare, web, worker, alerts or beat. Waits for its services by itself; any other word is run.
set -eu

# A secret may come as a file: X_FILE names it (Docker and Kubernetes secrets).
for name in GOODPUT_SECRET_KEY GOODPUT_AGENT_TOKEN POSTGRES_PASSWORD POSTGRES_ADMIN_PASSWORD \
    DATABASE_URL REDIS_URL; do
    eval "file=\${${name}_FILE:-}"
    if [ -n "$file" ]; then
        value=$(cat "$file")
        export "$name=$value"
        unset "${name}_FILE"
    fi
done
if [ -z "${DATABASE_URL:-}" ]; then
    # the password may hold any character, so it is quoted for the URL
    DATABASE_URL=$(python -c 'import os; from urllib.parse import quote as q; e = os.environ.get
print("postgresql://%s:%s@%s:%s/%s" % (q(e("POSTGRES_USER", "goodput_server"), ""), q(e("POSTGRES_PASSWORD", ""), ""),
      e("POSTGRES_HOST", "postgres"), e("POSTGRES_PORT", "5432"), q(e("POSTGRES_DB", "goodput"), "")))')
    export DATABASE_URL
fi
[ -n "${GOODPUT_PUBLIC_URL:-}" ] || unset GOODPUT_PUBLIC_URL
export DJANGO_SETTINGS_MODULE=goodput_site.settings

cd /app
case ${1:-web} in
    prepare)
        if [ -n "${POSTGRES_ADMIN_USER:-}" ]; then # who may make the role that the server has
            python manage.py own_database --admin "$POSTGRES_ADMIN_USER" --wait "${GOODPUT_WAIT_SECONDS:-300}"
            unset POSTGRES_ADMIN_USER POSTGRES_ADMIN_PASSWORD
        fi
        python deploy/docker/wait.py services
        exec python manage.py prepare --no-static --agent-token-file "$GOODPUT_VAR/agent/token"
        ;;
    web)
        python deploy/docker/wait.py migrations
        exec python -m granian --interface wsgi --host 0.0.0.0 --port 8080 --no-ws \
            --workers "${GOODPUT_WEB_WORKERS:-1}" --blocking-threads "${GOODPUT_WEB_THREADS:-4}" goodput_site.wsgi:application
        ;;
    worker)
        python deploy/docker/wait.py migrations
        exec python -m celery -A goodput_site.celery:app worker --pool prefork -c "${GOODPUT_FOLD_WORKERS:-1}" \
            -n "worker@$(hostname)" --without-gossip --without-mingle -l INFO
        ;;
    alerts)
        python deploy/docker/wait.py migrations
        exec python -m celery -A goodput_site.celery:app worker -Q alerts --pool threads -c 8 \
            -n "alerts@$(hostname)" --without-gossip --without-mingle -l INFO
        ;;
    beat)
        python deploy/docker/wait.py migrations
        exec python -m celery -A goodput_site.celery:app beat -s /tmp/schedule --pidfile= -l INFO
        ;;
    *) exec "$@" ;;
esac
