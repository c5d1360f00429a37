"""The Leases by which the operator's replicas agree on who acts: one for each shard of the pipelines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fencepost_operator.adapters.kubernetes.api_server import ApiServer, Json, Resource
from fencepost_operator.adapters.kubernetes.pods import instant, integer
from fencepost_operator.api import GROUP
from fencepost_operator.ports import LeaseRecord

LEASES: Final = Resource(prefix="/apis/coordination.k8s.io/v1", plural="leases")
_SHARDS: Final = f"{GROUP}/shards"
_WANTED_BY: Final = f"{GROUP}/wanted-by"
_TROUBLES: Final = f"{GROUP}/troubles"


@dataclass(frozen=True, slots=True)
class KubernetesShardLeases:
    """Implements the ShardLeases port: shard 0 has the Lease `name`, and each other one `name`-shard-<number>."""

    api: ApiServer
    namespace: str
    name: str

    async def all(self) -> Mapping[int, LeaseRecord]:
        """Return those that exist, by shard."""
        found = await self.api.list(LEASES, namespace=self.namespace)
        named = re.compile(rf"{re.escape(self.name)}(?:-shard-([1-9][0-9]?))?")
        matches = ((named.fullmatch(item["metadata"]["name"]), item) for item in found)
        return {int(match[1] or 0): _record(item) for match, item in matches if match is not None}

    def of(self, shard: int) -> KubernetesLeases:
        """Return the Lease of one shard."""
        return KubernetesLeases(self.api, self.namespace, f"{self.name}-shard-{shard}" if shard else self.name)


@dataclass(frozen=True, slots=True)
class KubernetesLeases:
    """Implements the Leases port for one Lease."""

    api: ApiServer
    namespace: str
    name: str

    async def read(self) -> LeaseRecord | None:
        """Return the Lease as it is now, or None if it does not exist."""
        found = await self.api.get(LEASES, namespace=self.namespace, name=self.name)
        return _record(found) if found is not None else None

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Create the Lease when the record has no resourceVersion, else replace it on that condition.

        Raises Conflict after another client's write or deletion.
        """
        metadata = {
            "name": self.name,
            "namespace": self.namespace,
            # A PUT creates a Lease that is not there, whatever resourceVersion it names; with a uid it does not.
            "uid": record.uid,
            "resourceVersion": record.resource_version,
        }
        annotations = {
            _SHARDS: str(record.shards or ""),
            _WANTED_BY: record.wanted_by,
            _TROUBLES: record.troubles,
        }
        body: Json = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                **{name: value for name, value in metadata.items() if value},
                "annotations": {name: text for name, text in annotations.items() if text},
            },
            "spec": {
                "holderIdentity": record.holder,
                # Of a lease that was released, the duration must be positive all the same.
                "leaseDurationSeconds": int(record.duration),
                "acquireTime": _micro_time(record.acquired_at),
                "renewTime": _micro_time(record.renewed_at),
                "leaseTransitions": record.transitions,
            },
        }
        if not record.resource_version:
            return _record(await self.api.create(LEASES, namespace=self.namespace, body=body))
        return _record(await self.api.replace(LEASES, namespace=self.namespace, name=self.name, body=body))


def _record(found: Json) -> LeaseRecord:
    spec, annotations = found.get("spec") or {}, found["metadata"].get("annotations") or {}
    renewed = instant(spec.get("renewTime")) or instant(found["metadata"]["creationTimestamp"])
    assert renewed is not None  # noqa: S101 - the API server sets creationTimestamp on every object
    return LeaseRecord(
        holder=spec.get("holderIdentity") or "",
        duration=float(spec.get("leaseDurationSeconds") or 0),
        acquired_at=instant(spec.get("acquireTime")) or renewed,
        renewed_at=renewed,
        transitions=spec.get("leaseTransitions") or 0,
        uid=found["metadata"]["uid"],
        resource_version=found["metadata"]["resourceVersion"],
        shards=integer(annotations.get(_SHARDS, "")) or 0,
        wanted_by=annotations.get(_WANTED_BY, ""),
        troubles=annotations.get(_TROUBLES, ""),
    )


def _micro_time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"
