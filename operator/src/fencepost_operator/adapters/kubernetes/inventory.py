"""All objects of pipelines at once, by their versions: an event that was missed shows in a difference.

A watch that begins again may have missed that an object was deleted.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fencepost_operator.adapters.kubernetes.api_server import (
    JOBS,
    METADATA_ONLY,
    PODS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    ApiServer,
    Json,
)
from fencepost_operator.adapters.kubernetes.pipelines import PIPELINES
from fencepost_operator.adapters.kubernetes.spark_clusters import without_status
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels
from fencepost_operator.ports import Digests

_PAGE: Final = 500
"""Objects in one answer; their metadata takes one or two KiB each."""
_CHILDREN: Final = (PODS, JOBS, STATEFUL_SETS, SERVICES)
_PARTS: Final = frozenset({STATEFUL_SETS.plural, SERVICES.plural})
_LISTED: Final = {resource.plural: resource for resource in (PIPELINES, *_CHILDREN, SECRETS)}
"""By plural."""


@dataclass(frozen=True, slots=True)
class KubernetesInventory:
    """Implements the Inventory port; `namespace` is the operator's own, where Helm keeps the revisions."""

    api: ApiServer
    namespace: str

    async def digests(self, namespaces: Sequence[str]) -> Mapping[ObjectKey, Digests]:
        """Return the digests of each pipeline of these namespaces, or of all."""
        found: dict[ObjectKey, set[int]] = defaultdict(set)
        parts: dict[ObjectKey, set[int]] = defaultdict(set)
        async for item in self._all(PIPELINES.plural, namespaces, ""):
            found[_key(item, "name")].add(_asked(item["metadata"]))
        for plural in (resource.plural for resource in _CHILDREN):
            async for item in self._all(plural, namespaces, labels.PIPELINE):
                key, metadata = _key(item, labels.PIPELINE), item["metadata"]
                found[key].add(_identity(plural, metadata))
                if plural in _PARTS:
                    parts[key].add(without_status(metadata))
        async for item in self._all(
            SECRETS.plural, (self.namespace,), f"owner=helm,{labels.PIPELINE},{labels.NAMESPACE}"
        ):
            marks = item["metadata"]["labels"]
            key = ObjectKey(marks[labels.NAMESPACE], marks[labels.PIPELINE])
            found[key].add(_identity("release", item["metadata"]))
        return {key: Digests(hash(frozenset(items)), hash(frozenset(parts[key]))) for key, items in found.items()}

    def _all(self, plural: str, namespaces: Sequence[str], selector: str) -> AsyncIterator[Json]:
        return self.api.items(_LISTED[plural], namespaces, labels=selector, accept=METADATA_ONLY, size=_PAGE)


def _key(item: Json, label: str) -> ObjectKey:
    metadata = item["metadata"]
    return ObjectKey(metadata["namespace"], metadata["name"] if label == "name" else metadata["labels"][label])


def _asked(metadata: Json) -> int:
    """Return the hash of what changes with a request about a pipeline, and not with a write of its status."""
    parts = ("uid", "generation", "deletionTimestamp", "finalizers", "annotations")
    return hash(json.dumps([metadata.get(part) for part in parts], sort_keys=True))


def _identity(kind: str, metadata: Json) -> int:
    return hash((kind, metadata["name"], metadata["uid"], metadata["resourceVersion"]))
