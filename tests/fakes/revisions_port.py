"""The specs that are kept, on a `World`."""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import dataclass, replace

from fakes.gate import Gate
from fakes.world import World, owner_uid
from fencepost_operator.actions import Manifest
from fencepost_operator.adapters.kubernetes.revisions import KEPT
from fencepost_operator.api import ObjectKey, Revision
from fencepost_operator.errors import Rejected


@dataclass(slots=True)
class FakeRevisions:
    world: World
    gate: Gate

    async def find(self, key: ObjectKey, uid: str, name: str) -> Revision | None:
        return await self.gate.read("revision", lambda: self._find(key, uid, name))

    def _find(self, key: ObjectKey, uid: str, name: str) -> Revision | None:
        found = self.world.revisions.get(replace(key, name=name))
        if found is None:
            return None
        if owner_uid(found) != uid:
            raise Rejected(f"ControllerRevision {name} belongs to another")
        try:
            return Revision.read(key.name, name, found["data"])
        except ValueError as error:
            raise Rejected(f"ControllerRevision {name} {error}", remedy="find out who changed it") from error

    async def store(self, key: ObjectKey, revision: Manifest, keep: Collection[str]) -> None:
        await self.gate.write("store_revision", lambda: self._store(key, revision, keep))

    def _store(self, key: ObjectKey, revision: Manifest, keep: Collection[str]) -> None:
        name, uid = revision["metadata"]["name"], owner_uid(revision)
        place, present = replace(key, name=name), self.world.revisions
        if place in present and owner_uid(present[place]) != uid:
            raise Rejected(f"ControllerRevision {name} exists and belongs to another")
        if place not in present or present[place]["data"] != revision["data"]:
            present.pop(place, None)
            present[place] = copy.deepcopy(dict(revision))
        ours = [each for each, found in present.items() if owner_uid(found) == uid]
        for old in ours[: max(0, len(ours) - KEPT)]:
            if old.name not in {*keep, name}:
                del present[old]
