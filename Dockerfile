# The operator. Build from the repository's root:
#   docker build -t fencepost-operator .
# Behind a proxy with a CA of its own: --secret id=ca,src=<bundle of PEM certificates>.
# A release names its base images by digest: --build-arg DEBIAN=debian:bookworm-slim@sha256:… and GOLANG likewise.

ARG DEBIAN=debian:bookworm-slim
ARG GOLANG=golang:1.26-bookworm

FROM ${GOLANG} AS helm
ARG HELM_VERSION=v3.19.5
# GOGC: the compiler collects garbage less often, which takes a sixth less CPU.
ENV CGO_ENABLED=0 GOTOOLCHAIN=local GOBIN=/out GOGC=400
RUN --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt,required=false \
    go install -trimpath -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=${HELM_VERSION}" \
      "helm.sh/helm/v3/cmd/helm@${HELM_VERSION}"

FROM ${DEBIAN} AS python
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3-venv \
 && rm -rf /var/lib/apt/lists/*
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1
COPY uv.txt /uv.txt
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt,required=false \
    python3 -m venv /uv && /uv/bin/pip install --only-binary :all: --require-hashes -r /uv.txt
WORKDIR /lock
COPY pyproject.toml uv.lock ./
COPY operator/pyproject.toml operator/
COPY job-image/pyproject.toml job-image/
# uv reads the lock; pip checks each file against its hash. pip itself stays out of the image.
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt,required=false \
    /uv/bin/uv export --quiet --frozen --package fencepost-operator --no-dev --no-emit-workspace -o requirements.txt \
 && python3 -m venv --without-pip /opt/fencepost/venv \
 && /uv/bin/python -m pip --python /opt/fencepost/venv/bin/python install \
      --no-compile --require-hashes --only-binary :all: -r requirements.txt \
 # The operator speaks plain JSON to the API server: the client's typed models, 110 MB, are never imported.
 && find /opt/fencepost/venv/lib/python3.11/site-packages/kubernetes -type f ! -name __init__.py \
      \( -path '*/client/models/*' -o -path '*/client/api/*' \) -delete
# The workspace's own packages are plain Python.
COPY job-image/src/fencepost /opt/fencepost/venv/lib/python3.11/site-packages/fencepost
COPY operator/src/fencepost_operator /opt/fencepost/venv/lib/python3.11/site-packages/fencepost_operator
# Compiled ahead, since the root file system is read-only.
RUN /opt/fencepost/venv/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/fencepost/venv/lib \
 && /opt/fencepost/venv/bin/python -c "import fencepost_operator.app"

FROM ${DEBIAN}
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 tini \
 && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* /usr/share/man
COPY --from=helm /out/helm /usr/local/bin/helm
COPY --from=python /opt/fencepost/venv /opt/fencepost/venv
COPY charts/spark-cluster /opt/fencepost/charts/spark-cluster
ENV PATH=/opt/fencepost/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp HELM_CACHE_HOME=/tmp/helm/cache HELM_CONFIG_HOME=/tmp/helm/config HELM_DATA_HOME=/tmp/helm/data
LABEL org.opencontainers.image.title=fencepost-operator \
      org.opencontainers.image.description="The Fencepost operator" \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=0.1.0
# Group 0, so that an arbitrary uid works too. Nothing but /tmp is written to.
USER 10001:0
WORKDIR /tmp
EXPOSE 8080 8081 8443
ENTRYPOINT ["/usr/bin/tini", "--", "python", "-m", "fencepost_operator"]
