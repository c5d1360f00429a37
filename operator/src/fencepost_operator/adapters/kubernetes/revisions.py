"""Specs that were in effect, in ControllerRevisions of the pipeline's namespace."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from fencepost_operator.actions import Manifest
from fencepost_operator.adapters.kubernetes import pods
from fencepost_operator.adapters.kubernetes.api_server import (
    CONTROLLER_REVISIONS,
    METADATA_ONLY,
    AlreadyExists,
    ApiServer,
    Json,
)
from fencepost_operator.api import ObjectKey, Revision
from fencepost_operator.desired import labels
from fencepost_operator.errors import Conflict, Rejected

KEPT: Final = 10
"""The newest revisions of a pipeline that stay, besides those that are needed."""


@dataclass(frozen=True, slots=True)
class KubernetesRevisions:
    """Implements the Revisions port."""

    api: ApiServer

    async def find(self, key: ObjectKey, uid: str, name: str) -> Revision | None:
        """Return the pipeline's revision of this name. Raises Rejected for one that was changed, or is another's."""
        found = await self.api.get(CONTROLLER_REVISIONS, namespace=key.namespace, name=name)
        return None if found is None else _read(key, uid, name, found)

    async def store(self, key: ObjectKey, revision: Manifest, keep: Collection[str]) -> None:
        """Create the revision unless it is there; one of ours with other content is replaced. Then delete old ones."""
        metadata = revision["metadata"]
        name, uid = metadata["name"], metadata["ownerReferences"][0]["uid"]
        try:
            await self.api.create(CONTROLLER_REVISIONS, namespace=key.namespace, body=revision)
        except AlreadyExists as error:
            found = await self.api.get(CONTROLLER_REVISIONS, namespace=key.namespace, name=name)
            if found is None:
                raise Conflict(f"ControllerRevision {name} existed a moment ago and is gone") from error
            await self._replace_unless_equal(key, uid, revision, found)
        await self._prune(key, uid, {*keep, name})

    async def _replace_unless_equal(self, key: ObjectKey, uid: str, wanted: Manifest, found: Json) -> None:
        name = wanted["metadata"]["name"]
        pods.refuse_another_owner(wanted, found)
        try:
            _read(key, uid, name, found)
        except Rejected:
            made = found["metadata"]["uid"]
            await self.api.delete(CONTROLLER_REVISIONS, namespace=key.namespace, name=name, uid=made)
            await self.api.create(CONTROLLER_REVISIONS, namespace=key.namespace, body=wanted)

    async def _prune(self, key: ObjectKey, uid: str, keep: Collection[str]) -> None:
        """Delete all but the newest; only those that the pipeline owns."""
        marks = f"{labels.PIPELINE}={key.name},{labels.COMPONENT}={labels.REVISION}"
        found = await self.api.list(CONTROLLER_REVISIONS, namespace=key.namespace, labels=marks, accept=METADATA_ONLY)
        ours = [item["metadata"] for item in found if uid in pods.owner_uids(item)]
        ours.sort(key=lambda each: (str(each.get("creationTimestamp") or ""), each["name"]), reverse=True)
        for old in ours[KEPT:]:
            if old["name"] not in keep:
                await self.api.delete(CONTROLLER_REVISIONS, namespace=key.namespace, name=old["name"], uid=old["uid"])


def _read(key: ObjectKey, uid: str, name: str, found: Json) -> Revision:
    place = f"ControllerRevision {key.namespace}/{name}"
    if uid not in pods.owner_uids(found):
        raise Rejected(f"{place} belongs to {pods.owners(found)}", remedy="find out who created it, and delete it")
    try:
        return Revision.read(key.name, name, found.get("data"))
    except ValueError as error:
        raise Rejected(f"{place} {error}", remedy="delete it, and find out who changed it") from error
