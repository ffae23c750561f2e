# goodput-agent: reads one node's GPUs and delivers. Build from the root of the source.
# The base is named by version; pin its digest where you build (--build-arg BASE=python:…@sha256:…).
ARG BASE=python:3.13.9-slim-bookworm

FROM ${BASE} AS build
WORKDIR /build
COPY requirements.lock deploy/docker/agent-lock.py ./
RUN python agent-lock.py requirements.lock > agent.lock \
    && python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary=:all: -r agent.lock
COPY agent agent
RUN /venv/bin/python -m agent.build --out /out

FROM ${BASE}
LABEL org.opencontainers.image.title="goodput-agent" \
      org.opencontainers.image.description="Goodput's agent: GPU hardware facts of one node" \
      org.opencontainers.image.licenses="Apache-2.0"
# journalctl, for nodes whose kernel log is read from the journal
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends systemd \
    && rm -rf /var/lib/apt/lists/*
RUN groupadd --system --gid 10001 goodput \
    && useradd --system --uid 10001 --gid 10001 --home-dir /var/lib/goodput-agent --shell /usr/sbin/nologin goodput \
    && install -d -o goodput -g goodput -m 0700 /var/lib/goodput-agent \
    && find / -xdev -perm /6000 -type f -exec chmod a-s {} +
COPY --from=build /out/goodput-agent.pyz /usr/local/bin/goodput-agent
COPY deploy/docker/agent-entry.sh /usr/local/bin/agent-entry
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 GOODPUT_STATE_DIR=/var/lib/goodput-agent
USER 10001:10001
VOLUME /var/lib/goodput-agent
HEALTHCHECK --interval=60s --timeout=10s CMD ["goodput-agent", "status"]
ENTRYPOINT ["/usr/local/bin/agent-entry"]
CMD ["run"]
