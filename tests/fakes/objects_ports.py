"""The ports to what the operator reads and writes of objects in Kubernetes, on a `World`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fakes.gate import Gate
from fakes.world import World, owner_uid
from fencepost_operator.actions import Manifest
from fencepost_operator.api import (
    FINALIZER,
    FINISHED_LABEL,
    Event,
    ObjectKey,
    Pipeline,
    Rewind,
    RewindStatus,
    Status,
    Trial,
    read_pipeline,
    read_rewind,
    read_trial,
    write_rewind_status,
    write_status,
)
from fencepost_operator.api.pins import pinned_by_pipelines, pinned_by_revision
from fencepost_operator.errors import Conflict, Rejected
from fencepost_operator.observation import References


@dataclass(slots=True)
class FakePipelines:
    world: World
    gate: Gate

    async def read(self, key: ObjectKey) -> Pipeline | None:
        return await self.gate.read("pipeline", lambda: self._read(key))

    def _read(self, key: ObjectKey) -> Pipeline | None:
        found = self.world.objects.get(key)
        return read_pipeline(_copied(found)) if found is not None else None

    async def namespace_ends(self, key: ObjectKey) -> bool:
        return await self.gate.read("namespace", lambda: key.namespace in self.world.ending_namespaces)

    async def pinned_snapshots(self, key: ObjectKey) -> frozenset[str]:
        return await self.gate.read("pins", lambda: self._pinned(key))

    def _pinned(self, key: ObjectKey) -> frozenset[str]:
        bodies = [body for found, body in self.world.objects.items() if found.namespace == key.namespace]
        found, kept = pinned_by_pipelines(bodies, key.name)
        for place, revision in self.world.revisions.items():
            if place.namespace == key.namespace and place.name in kept:
                found.update(pinned_by_revision(revision, key.name))
        return frozenset(found)

    async def write_status(self, pipeline: Pipeline, status: Status) -> Pipeline:
        written: list[Pipeline] = []

        def effect() -> None:
            self._check(pipeline)
            self.world.objects[pipeline.key]["status"] = write_status(status)
            self.world.touch(pipeline.key)
            written.append(read_pipeline(_copied(self.world.objects[pipeline.key])))

        await self.gate.write("write_status", effect)
        return written[0]

    async def set_finalizer(self, pipeline: Pipeline, *, present: bool) -> None:
        def effect() -> None:
            self._check(pipeline)
            found = self.world.objects[pipeline.key]
            found["metadata"]["finalizers"] = [FINALIZER] if present else []
            self.world.touch(pipeline.key)
            if "deletionTimestamp" in found["metadata"] and not present:
                self.world.forget(pipeline.key)

        await self.gate.write("set_finalizer", effect)

    async def publish(self, pipeline: Pipeline, events: Sequence[Event]) -> None:
        del pipeline
        self.world.events.extend((event.reason, event.message) for event in events)

    def _check(self, pipeline: Pipeline) -> None:
        found = self.world.objects.get(pipeline.key)
        if found is None or found["metadata"]["resourceVersion"] != pipeline.resource_version:
            raise Conflict("the object has been modified")


@dataclass(slots=True)
class FakeRewinds:
    world: World
    gate: Gate
    _known: dict[tuple[str, str], Rewind] = field(default_factory=dict)
    """By uid and resourceVersion: a body that did not change is not parsed again."""

    async def unfinished(self, pipeline: ObjectKey, *, expected: bool) -> tuple[Rewind, ...]:
        del expected
        return await self.gate.read("rewinds", lambda: self._unfinished(pipeline))

    def _unfinished(self, pipeline: ObjectKey) -> tuple[Rewind, ...]:
        return tuple(
            rewind
            for rewind in map(self._read, self.world.rewinds.values())
            if (rewind.key.namespace, rewind.pipeline) == (pipeline.namespace, pipeline.name)
            and not rewind.is_marked_finished
        )

    async def write_status(self, rewind: Rewind, status: RewindStatus) -> Rewind:
        answer = rewind

        def effect() -> None:
            nonlocal answer
            found = self._touched(rewind)
            found["status"] = write_rewind_status(status)
            answer = self._read(found)

        await self.gate.write("write_rewind", effect)
        return answer

    async def mark(self, rewind: Rewind, *, held: bool, finished: bool) -> None:
        def effect() -> None:
            metadata = self._touched(rewind)["metadata"]
            metadata["finalizers"] = [FINALIZER] if held else []
            metadata["labels"] = {FINISHED_LABEL: "true"} if finished else {}
            if "deletionTimestamp" in metadata and not held:
                del self.world.rewinds[rewind.key]

        await self.gate.write("mark_rewind", effect)

    async def publish(self, rewind: Rewind, events: Sequence[Event]) -> None:
        del rewind
        self.world.events.extend((event.reason, event.message) for event in events)

    def _read(self, body: dict[str, Any]) -> Rewind:
        identity = (body["metadata"]["uid"], body["metadata"]["resourceVersion"])
        if identity not in self._known:
            self._known[identity] = read_rewind(_copied(body))
        return self._known[identity]

    def _touched(self, rewind: Rewind) -> dict[str, Any]:
        found = self.world.rewinds.get(rewind.key)
        if found is None or found["metadata"]["resourceVersion"] != rewind.resource_version:
            raise Conflict("the object has been modified")
        found["metadata"]["resourceVersion"] = str(int(rewind.resource_version) + 1)
        return found


@dataclass(slots=True)
class FakeObjects:
    world: World
    gate: Gate

    async def references(self, key: ObjectKey, names: Sequence[str], *, age: float = 0.0) -> References:
        del age
        return await self.gate.read("references", lambda: self._references(key, names))

    def _references(self, key: ObjectKey, names: Sequence[str]) -> References:
        return References(hashes={name: self.world.references.get((key.namespace, name)) for name in names})

    async def secret(self, key: ObjectKey, name: str) -> Mapping[str, str]:
        if (key.namespace, f"Secret/{name}") not in self.world.references:
            raise Rejected(f"Secret {name} does not exist")
        return {}

    def forget_secrets(self, namespace: str) -> None:
        """None is kept."""


def _copied(body: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of an object, as an API server sends one; through JSON it takes a sixth of `copy.deepcopy`."""
    copied: dict[str, Any] = json.loads(json.dumps(body))
    return copied


@dataclass(slots=True)
class FakeUpgradeTrials:
    """The trials that upgrades wait for; nothing runs them but a test."""

    world: World
    gate: Gate

    async def read(self, key: ObjectKey) -> Trial | None:
        return await self.gate.read("trial", lambda: self._read(key))

    def _read(self, key: ObjectKey) -> Trial | None:
        found = self.world.trials.get(key)
        return read_trial(_copied(found)) if found is not None else None

    async def create(self, manifest: Manifest) -> None:
        await self.gate.write("create_trial", lambda: self._create(manifest))

    def _create(self, manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        key = ObjectKey(metadata["namespace"], metadata["name"])
        if key not in self.world.trials:
            self.world.create_trial(key, manifest)
        elif owner_uid(self.world.trials[key]) != owner_uid(manifest):
            raise Rejected(f"PipelineTrial {key.name} exists and belongs to another object")
