"""The StreamingPipeline objects in the API server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from fencepost_operator.adapters.kubernetes.api_server import (
    CONTROLLER_REVISIONS,
    METADATA_ONLY,
    NAMESPACES,
    ApiServer,
    Gone,
    Json,
    Resource,
)
from fencepost_operator.adapters.kubernetes.events import EventRecorder
from fencepost_operator.api import (
    FINALIZER,
    GROUP,
    KIND,
    PLURAL,
    VERSION,
    Event,
    ObjectKey,
    Pipeline,
    Reason,
    Status,
    read_pipeline,
    read_status,
    write_status,
)
from fencepost_operator.api.pins import pinned_by_pipelines, pinned_by_revision
from fencepost_operator.desired import labels
from fencepost_operator.errors import Denied, Rejected

log = logging.getLogger(__name__)

PIPELINES: Final = Resource(prefix=f"/apis/{GROUP}/{VERSION}", plural=PLURAL)
_STATUS: Final = Resource(prefix=PIPELINES.prefix, plural=PLURAL, subresource="status")


@dataclass(frozen=True, slots=True)
class KubernetesPipelines:
    """Implements the Pipelines port."""

    api: ApiServer
    recorder: EventRecorder

    async def read(self, key: ObjectKey) -> Pipeline | None:
        """Return the pipeline as it is now, or None when it is gone."""
        found = await self.api.get(PIPELINES, namespace=key.namespace, name=key.name)
        return read_pipeline(found) if found is not None else None

    async def keys(self, namespaces: Sequence[str]) -> tuple[ObjectKey, ...]:
        """Return the pipelines of these namespaces, of all if empty; raises Rejected without the CRD.

        One of several namespaces that the operator may not read is left out.
        """
        return tuple([_key(item) async for item in self._all(namespaces, accept=METADATA_ONLY)])

    async def restarting(self, namespaces: Sequence[str]) -> dict[ObjectKey, datetime]:
        """Return the pipelines that are being restarted by plan, and since when."""
        found = {
            _key(item): read_status(item.get("status")).planned_restart_since async for item in self._all(namespaces)
        }
        return {key: since for key, since in found.items() if since}

    async def left(self, namespaces: Sequence[str]) -> tuple[ObjectKey, ...]:
        """Return all pipelines of these namespaces; raises Denied where that cannot be known, unless one is gone."""
        found: list[ObjectKey] = []
        for namespace in namespaces or (None,):
            try:
                one = (namespace,) if namespace is not None else ()
                found += [_key(item) async for item in self._all(one, accept=METADATA_ONLY)]
            except Denied:
                if namespace is None or not await self._is_gone(namespace):
                    raise
        return tuple(found)

    async def _is_gone(self, namespace: str) -> bool:
        """Return whether a namespace does not exist; one that may not be looked at counts as there."""
        try:
            return await self.api.get(NAMESPACES, name=namespace) is None
        except Denied:
            return False

    def _all(self, namespaces: Sequence[str], *, accept: str = "application/json") -> AsyncIterator[Json]:
        return self.api.items(PIPELINES, namespaces, accept=accept, left_out=_log_left_out)

    async def namespace_ends(self, key: ObjectKey) -> bool:
        """Return whether the pipeline's namespace is being deleted, with all that is in it."""
        found = await self.api.get(NAMESPACES, name=key.namespace)
        return found is None or "deletionTimestamp" in found["metadata"]

    async def pinned_snapshots(self, key: ObjectKey) -> frozenset[str]:
        """Return the ids of the pipeline's snapshots that pipelines of its namespace pin; see the port.

        The kept specs are read after the statuses that name them.
        """
        found, kept = set[str](), set[str]()
        async for item in self._all((key.namespace,)):
            pinned, revisions = pinned_by_pipelines([item], key.name)
            found |= pinned
            kept |= revisions
        marks = f"{labels.COMPONENT}={labels.REVISION}"
        async for page in self.api.pages(CONTROLLER_REVISIONS, namespace=key.namespace, labels=marks):
            for item in page:
                if item["metadata"]["name"] in kept:
                    found.update(pinned_by_revision(item, key.name))
        return frozenset(found)

    async def write_status(self, pipeline: Pipeline, status: Status) -> Pipeline:
        """Replace the status, on condition of the resourceVersion. Raises Conflict, also when the object is gone."""
        body, place = self._body(pipeline) | {"status": write_status(status)}, pipeline.key
        return read_pipeline(await self.api.replace(_STATUS, namespace=place.namespace, name=place.name, body=body))

    async def set_finalizer(self, pipeline: Pipeline, *, present: bool) -> None:
        """Add or remove our finalizer, on condition of the resourceVersion. Raises Conflict."""
        if pipeline.has_finalizer is present:
            return
        others = [name for name in pipeline.finalizers if name != FINALIZER]
        metadata = {
            "resourceVersion": pipeline.resource_version,
            "finalizers": [*others, FINALIZER] if present else others,
        }
        place = pipeline.key
        try:
            await self.api.merge(PIPELINES, namespace=place.namespace, name=place.name, body={"metadata": metadata})
        except Gone:
            if present:
                raise

    async def set_job(self, pipeline: Pipeline, job: Mapping[str, Any]) -> None:
        """Set fields of spec.job, on condition of the resourceVersion. Raises Conflict, Rejected."""
        body = {"metadata": {"resourceVersion": pipeline.resource_version}, "spec": {"job": dict(job)}}
        place = pipeline.key
        await self.api.merge(PIPELINES, namespace=place.namespace, name=place.name, body=body)

    async def publish(self, pipeline: Pipeline, events: Sequence[Event]) -> None:
        """Record Events; that one cannot be recorded stops nothing."""
        for event in events:
            await self.recorder.record(self._body(pipeline), event)

    @staticmethod
    def _body(pipeline: Pipeline) -> Json:
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "metadata": {
                "name": pipeline.key.name,
                "namespace": pipeline.key.namespace,
                "uid": pipeline.uid,
                "resourceVersion": pipeline.resource_version,
            },
        }


def _key(item: Json) -> ObjectKey:
    return ObjectKey(item["metadata"]["namespace"], item["metadata"]["name"])


def _log_left_out(namespace: str, error: Denied) -> None:
    log.warning(
        "the pipelines of namespace %s are left out: %s", namespace, error,
        extra={"reason": Reason.LIST_FAILED, "remedy": error.remedy},
    )  # fmt: skip


async def cluster_uid(api: ApiServer) -> str:
    """Return what identifies this Kubernetes cluster: the uid of its namespace kube-system."""
    found = await api.get(NAMESPACES, name="kube-system")
    if found is None:
        raise Rejected("this cluster has no namespace kube-system", remedy="is the API server a Kubernetes cluster's?")
    uid: str = found["metadata"]["uid"]
    return uid
