"""Pipelines by the user's kubeconfig."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kubernetes.aio.client import Configuration

from fencepost.contract import ContractError, DriverConfig, split_offset_key
from fencepost_cli.errors import CliError
from fencepost_cli.ports import Annotation, Found, Unread
from fencepost_cli.stores.kubernetes.kubeconfig import answered, configured
from fencepost_cli.stores.kubernetes.pipeline_objects import created
from fencepost_cli.stores.kubernetes.port_forwards import PortForwards
from fencepost_operator.adapters.kubernetes.api_server import CONFIG_MAPS, ApiServer, Gone, Resource
from fencepost_operator.adapters.kubernetes.objects import KubernetesObjects
from fencepost_operator.api import (
    GROUP,
    PLURAL,
    REWIND_KIND,
    REWIND_PLURAL,
    VERSION,
    ObjectKey,
    RewindSpec,
    RewindStatus,
    SnapshotsStatus,
    Spec,
    parse,
    read_rewind,
    read_status,
)
from fencepost_operator.api.codec import encode
from fencepost_operator.desired import labels, names
from fencepost_operator.desired.identity.hashes import optional_references, referenced
from fencepost_operator.desired.jobs import run_config
from fencepost_operator.errors import Conflict

_PIPELINES: Final = Resource(prefix=f"/apis/{GROUP}/{VERSION}", plural=PLURAL)
_REWINDS: Final = Resource(prefix=_PIPELINES.prefix, plural=REWIND_PLURAL)
_SCOPE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KubeconfigCluster:
    """Implements the Cluster port; `context` None is the current one."""

    context: str | None = None

    def find(self, name: str, namespace: str | None) -> Found:
        """Return a pipeline, its Secrets and the scope. Raises CliError."""
        return asyncio.run(self._find(name, namespace))

    async def _find(self, name: str, namespace: str | None) -> Found:
        configuration, usual = await configured(self.context)
        key = ObjectKey(namespace or usual, name)
        rights = "get the pipeline, its run's ConfigMap and its Secrets"
        return await answered(configuration, key.namespace, lambda api: _read(api, key), rights)

    def referenced(self, spec: Spec, name: str, namespace: str | None) -> tuple[Found, Sequence[str]]:
        """Return a pipeline that need not exist, and the 'Kind/name' of what it lacks. Raises CliError."""

        async def read() -> tuple[Found, Sequence[str]]:
            configuration, usual = await configured(self.context)
            key = ObjectKey(namespace or usual, name)
            rights = "get the Secrets and ConfigMaps that the spec names"
            return await answered(configuration, key.namespace, lambda api: _referenced(api, key, spec), rights)

        return asyncio.run(read())

    def config_map(self, key: ObjectKey, name: str) -> Mapping[str, str]:
        """Return the data of a ConfigMap of the pipeline's namespace. Raises CliError."""

        async def read(api: ApiServer) -> Mapping[str, str]:
            found = await api.get(CONFIG_MAPS, namespace=key.namespace, name=name)
            return (found or {}).get("data") or {}

        return asyncio.run(self._with(key, read, f"get ConfigMap {name}"))

    def forwards(self, namespace: str, notify: Callable[[str], None]) -> PortForwards:
        """Return the ways into the cluster for a `with` block."""

        async def configuration() -> Configuration:
            return (await configured(self.context))[0]

        return PortForwards(configuration, namespace, notify)

    def annotate(self, key: ObjectKey, annotation: str, value: str) -> None:
        """Set an annotation of a pipeline. Raises CliError."""
        body = {"metadata": {"annotations": {annotation: value}}}

        async def merge(api: ApiServer) -> None:
            await api.merge(_PIPELINES, namespace=key.namespace, name=key.name, body=body)

        asyncio.run(self._with(key, merge, "patch the pipeline"))

    def annotation(self, key: ObjectKey, annotation: str) -> Annotation:
        """Return an annotation of a pipeline. Raises CliError."""

        async def read(api: ApiServer) -> Annotation:
            body = await api.get(_PIPELINES, namespace=key.namespace, name=key.name)
            metadata = (body or {}).get("metadata") or {}
            value = (metadata.get("annotations") or {}).get(annotation)
            return Annotation(value, str(metadata.get("resourceVersion", "")))

        return asyncio.run(self._with(key, read, "get the pipeline"))

    def replace_annotation(self, key: ObjectKey, annotation: str, value: str | None, version: str) -> bool:
        """Set an annotation of the pipeline as it was at this version; False: it has changed since. Raises CliError."""
        body = {"metadata": {"resourceVersion": version, "annotations": {annotation: value}}}

        async def merge(api: ApiServer) -> bool:
            try:
                await api.merge(_PIPELINES, namespace=key.namespace, name=key.name, body=body)
            except Gone:
                raise
            except Conflict:
                return False
            return True

        return asyncio.run(self._with(key, merge, "patch the pipeline"))

    def unread(self, key: ObjectKey) -> Unread:
        """Return what the operator says of the pipeline's uncommitted records. Raises CliError."""

        async def read(api: ApiServer) -> Unread:
            body = await api.get(_PIPELINES, namespace=key.namespace, name=key.name)
            status = read_status((body or {}).get("status"))
            risk = status.data_risk
            if risk is None or risk.partition is None:
                return Unread(status.lag, None, None)
            return Unread(status.lag, split_offset_key(risk.partition)[0], risk.oldest_uncommitted_at)

        return asyncio.run(self._with(key, read, "get the pipeline"))

    def create_rewind(self, pipeline: ObjectKey, spec: RewindSpec, name: str | None) -> ObjectKey:
        """Create a PipelineRewind, without a name under one that is made up; return its place. Raises CliError."""

        async def create(api: ApiServer) -> ObjectKey:
            return await created(api, _REWINDS, REWIND_KIND, pipeline, encode(spec), name)

        return asyncio.run(self._with(pipeline, create, "create PipelineRewinds"))

    def rewind(self, key: ObjectKey) -> RewindStatus | None:
        """Return the progress of a rewind, None when it does not exist. Raises CliError."""

        async def read(api: ApiServer) -> RewindStatus | None:
            body = await api.get(_REWINDS, namespace=key.namespace, name=key.name)
            return None if body is None else read_rewind(body).status

        return asyncio.run(self._with(key, read, "get PipelineRewinds"))

    def snapshots(self, key: ObjectKey) -> SnapshotsStatus:
        """Return what the operator says of a pipeline's snapshots now. Raises CliError."""

        async def read(api: ApiServer) -> SnapshotsStatus:
            body = await api.get(_PIPELINES, namespace=key.namespace, name=key.name)
            return read_status((body or {}).get("status")).snapshots or SnapshotsStatus()

        return asyncio.run(self._with(key, read, "get the pipeline"))

    async def _with(self, key: ObjectKey, work: Callable[[ApiServer], Awaitable[T]], rights: str) -> T:
        configuration, _ = await configured(self.context)
        return await answered(configuration, key.namespace, work, rights)


async def _read(api: ApiServer, key: ObjectKey) -> Found:
    body = await api.get(_PIPELINES, namespace=key.namespace, name=key.name)
    if body is None:
        raise CliError(
            f"pipeline {key} not found", remedy=f"see `kubectl get spl -n {key.namespace}`, or choose another context"
        )
    spec = parse(body)
    if not isinstance(spec, Spec):
        raise CliError(f"the spec of {key} cannot be understood: {spec[0]}", remedy="correct it and apply it again")
    return await _with_secrets(api, key, spec, scope=await _scope(api, key, body))


async def _referenced(api: ApiServer, key: ObjectKey, spec: Spec) -> tuple[Found, Sequence[str]]:
    references = await KubernetesObjects(api).references(key, referenced(spec))
    missing = [name for name in references.missing() if name not in optional_references(spec)]
    return await _with_secrets(api, key, spec, scope=None, missing=missing), missing


async def _with_secrets(
    api: ApiServer, key: ObjectKey, spec: Spec, *, scope: str | None, missing: Collection[str] = ()
) -> Found:
    objects = KubernetesObjects(api)

    async def secret(name: str | None) -> Mapping[str, str] | None:
        return await objects.secret(key, name) if name and f"Secret/{name}" not in missing else None

    return Found(
        key=key,
        spec=spec,
        scope=scope,
        fence_secret=await secret(spec.checkpoint.database.credentials_secret),
        tls_secret=await secret(tls.secret_name if (tls := spec.checkpoint.database.tls) is not None else None),
        kafka_secret=await secret(spec.source.kafka.properties_secret),
    )


async def _scope(api: ApiServer, key: ObjectKey, body: Mapping[str, Any]) -> str | None:
    """Return the operator's scope from the configuration of the newest run, None without a readable one."""
    run = (body.get("status") or {}).get("run") or {}
    epochs = [run["epoch"]] if isinstance(run.get("epoch"), int) else []
    if not epochs:
        selector = f"{labels.PIPELINE}={key.name},{labels.COMPONENT}={labels.DRIVER}"
        found = await api.list(CONFIG_MAPS, namespace=key.namespace, labels=selector)
        marks = [str((one["metadata"].get("labels") or {}).get(labels.EPOCH)) for one in found]
        epochs = sorted((int(mark) for mark in marks if mark.isdecimal()), reverse=True)[:1]
    for epoch in epochs:
        config_map = await api.get(CONFIG_MAPS, namespace=key.namespace, name=names.job_name(key.name, epoch))
        text = ((config_map or {}).get("data") or {}).get(run_config.KEY)
        if text:
            return _scope_in(text, key)
    return None


def _scope_in(text: str, key: ObjectKey) -> str | None:
    """Return the scope of a run's configuration, which any user of the namespace may have written."""
    try:
        pipeline = DriverConfig.from_json(text).pipeline
    except ContractError:
        return None
    scope = pipeline.removesuffix(f"/{key.namespace}/{key.name}")
    return scope if scope != pipeline and _SCOPE.fullmatch(scope) else None
