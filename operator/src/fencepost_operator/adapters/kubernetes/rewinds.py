"""The PipelineRewind objects in the API server."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fencepost_operator.adapters.kubernetes.api_server import ApiServer, Gone, Json, NotServed, Resource
from fencepost_operator.adapters.kubernetes.events import EventRecorder
from fencepost_operator.api import (
    FINALIZER,
    FINISHED_LABEL,
    GROUP,
    REWIND_KIND,
    REWIND_PLURAL,
    VERSION,
    Event,
    ObjectKey,
    Rewind,
    RewindStatus,
    read_rewind,
    write_rewind_status,
)

_REWINDS: Final = Resource(prefix=f"/apis/{GROUP}/{VERSION}", plural=REWIND_PLURAL)
_STATUS: Final = Resource(prefix=_REWINDS.prefix, plural=REWIND_PLURAL, subresource="status")
_PAGE: Final = 100
"""Rewinds in one answer of the API server; a tenant may create any number."""
_KEPT: Final = 20
"""Rewinds of a pipeline that are looked at: those in progress, and then the oldest. The others wait unseen."""


@dataclass(frozen=True, slots=True)
class KubernetesRewinds:
    """Implements the Rewinds port."""

    api: ApiServer
    recorder: EventRecorder

    async def unfinished(self, pipeline: ObjectKey, *, expected: bool) -> tuple[Rewind, ...]:
        """Return the pipeline's rewinds that are not marked as over; see the port."""
        unmarked = self.api.pages(
            _REWINDS,
            namespace=pipeline.namespace,
            labels=f"!{FINISHED_LABEL}",
            fields=f"spec.pipeline={pipeline.name}",
            size=_PAGE,
        )
        kept: list[Rewind] = []
        try:
            async for page in unmarked:
                kept = _first([*kept, *map(read_rewind, page)])
            return tuple(kept)
        except NotServed:  # not found: the CRDs are those of an older release
            if expected:
                raise
            return ()

    async def pipelines(self, namespaces: Sequence[str]) -> tuple[ObjectKey, ...]:
        """Return the pipelines that rewinds name which are not marked as over, whether or not they exist."""
        try:
            found = [item async for item in self.api.items(_REWINDS, namespaces, labels=f"!{FINISHED_LABEL}")]
        except NotServed:
            return ()
        named = ((item["metadata"]["namespace"], (item.get("spec") or {}).get("pipeline")) for item in found)
        return tuple({ObjectKey(namespace, name) for namespace, name in named if isinstance(name, str) and name})

    async def write_status(self, rewind: Rewind, status: RewindStatus) -> Rewind:
        """Replace the status, on condition of the resourceVersion. Raises Conflict, also when the object is gone."""
        body, place = self._body(rewind) | {"status": write_rewind_status(status)}, rewind.key
        return read_rewind(await self.api.replace(_STATUS, namespace=place.namespace, name=place.name, body=body))

    async def mark(self, rewind: Rewind, *, held: bool, finished: bool) -> None:
        """Set our finalizer and our label, on condition of the resourceVersion. Raises Conflict."""
        others = [name for name in rewind.finalizers if name != FINALIZER]
        metadata = {
            "resourceVersion": rewind.resource_version,
            "finalizers": [*others, FINALIZER] if held else others,
            "labels": {FINISHED_LABEL: "true" if finished else None},
        }
        place = rewind.key
        try:
            await self.api.merge(_REWINDS, namespace=place.namespace, name=place.name, body={"metadata": metadata})
        except Gone:
            if held:
                raise

    async def publish(self, rewind: Rewind, events: Sequence[Event]) -> None:
        """Record Events; that one cannot be recorded stops nothing."""
        for event in events:
            await self.recorder.record(self._body(rewind), event)

    @staticmethod
    def _body(rewind: Rewind) -> Json:
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": REWIND_KIND,
            "metadata": {
                "name": rewind.key.name,
                "namespace": rewind.key.namespace,
                "uid": rewind.uid,
                "resourceVersion": rewind.resource_version,
            },
        }


def _first(rewinds: Sequence[Rewind]) -> list[Rewind]:
    """Return the rewinds that are kept, in the order of their names."""

    def turn(rewind: Rewind) -> tuple[bool, datetime, str]:
        return not (rewind.is_held or rewind.status.has_begun), rewind.created_at, rewind.key.name

    kept = heapq.nsmallest(_KEPT, rewinds, key=turn)
    return sorted(kept, key=lambda each: each.key.name)
