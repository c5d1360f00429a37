"""Looks at what the next rewind of a pipeline needs, and at nothing that its step does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from fencepost.fence.snapshots import Snapshot
from fencepost.state.state_check import StateCheck
from fencepost_operator.api import Pipeline, ReconcileConfig, Rewind, RewindSpec, RewindStatus, RewindStep, Spec
from fencepost_operator.decision.rewind.purge_jobs import purge_due
from fencepost_operator.decision.rewind.queue import next_rewind
from fencepost_operator.desired.connections import fence_place, kafka_connection
from fencepost_operator.observation import Fact, Known, NotAsked, PurgeJob, RewindFacts
from fencepost_operator.ports import Ports

See: TypeAlias = Callable[[Awaitable[Any]], Awaitable[Fact[Any]]]
"""Waits for an answer for as long as an observation may take; a failure is Unknown."""


@dataclass(frozen=True, slots=True)
class RewindObserver:
    """Makes the facts of one pipeline's rewind."""

    ports: Ports
    config: ReconcileConfig
    see: See

    async def facts(self, pipeline: Pipeline, rewinds: Fact[tuple[Rewind, ...]]) -> RewindFacts:
        """Return what is known for the next rewind; empty without one."""
        rewind = next_rewind(rewinds.value) if isinstance(rewinds, Known) else None
        if rewind is None or not isinstance(rewind.spec, RewindSpec) or not isinstance(pipeline.spec, Spec):
            return RewindFacts()
        if pipeline.deleting_since is not None:
            return RewindFacts()
        spec, to, status = pipeline.spec, rewind.spec.to, rewind.status
        is_open = status.target is None
        async with asyncio.TaskGroup() as group:
            wanted = to.snapshot if is_open else _state_of(status)
            snapshot = group.create_task(self._snapshot(pipeline, spec, wanted))
            positions = group.create_task(self._positions(pipeline, spec, to.timestamp if is_open else None))
            backup = group.create_task(self._snapshot(pipeline, spec, status.backup if is_open else None))
            held = group.create_task(self._snapshot(pipeline, spec, status.held_state if is_open else None))
            job = group.create_task(self._job(pipeline, rewind))
            first_commit = group.create_task(self._first_commit(pipeline, spec, status))
        return RewindFacts(
            snapshot=snapshot.result(),
            state=NotAsked()
            if rewind.spec.empty_state
            else await self._state(pipeline, spec, status, snapshot.result()),
            positions=positions.result(),
            backup=backup.result(),
            held=held.result(),
            job=job.result(),
            first_commit=first_commit.result(),
        )

    async def _positions(
        self, pipeline: Pipeline, spec: Spec, timestamp: datetime | None
    ) -> Fact[Mapping[str, int]] | NotAsked:
        if timestamp is None:
            return NotAsked()
        return await self.see(self.ports.offsets.at(kafka_connection(pipeline.key, spec), timestamp))

    async def _snapshot(self, pipeline: Pipeline, spec: Spec, wanted: str | None) -> Fact[Snapshot | None] | NotAsked:
        if wanted is None:
            return NotAsked()
        place = fence_place(pipeline.key, spec.checkpoint, self.config.scope)
        return await self.see(self.ports.fences.find_snapshot(*place, wanted))

    async def _state(
        self, pipeline: Pipeline, spec: Spec, status: RewindStatus, found: Fact[Snapshot | None] | NotAsked
    ) -> Fact[StateCheck] | NotAsked:
        """Continue the check of a snapshot's files, until the pipeline is stopped for the rewind."""
        if status.has_begun or not isinstance(found, Known) or found.value is None or found.value.checkpoint is None:
            return NotAsked()
        place = fence_place(pipeline.key, spec.checkpoint, self.config.scope)
        start = status.checked_files if status.checked_snapshot == str(found.value.id) else 0
        return await self.see(self.ports.fences.check_state(*place, found.value.checkpoint, start=start))

    async def _job(self, pipeline: Pipeline, rewind: Rewind) -> Fact[PurgeJob | None] | NotAsked:
        name = purge_due(rewind)
        return NotAsked() if name is None else await self.see(self.ports.purges.find(pipeline.key, name, rewind.uid))

    async def _first_commit(
        self, pipeline: Pipeline, spec: Spec, status: RewindStatus
    ) -> Fact[Mapping[str, int] | None] | NotAsked:
        done = status.step(RewindStep.SET_OFFSETS)
        if done is None or done.finished_at is None or status.epoch is None or status.version is None:
            return NotAsked()
        place, since = fence_place(pipeline.key, spec.checkpoint, self.config.scope), done.finished_at
        return await self.see(
            self.ports.fences.first_commit(*place, epoch=status.epoch, version=status.version, since=since)
        )


def _state_of(status: RewindStatus) -> str | None:
    """Return the snapshot whose state is still to be set, by its id: a newer one may have its name by now."""
    if status.target is None or status.has_done(RewindStep.SET_OFFSETS):
        return None
    return status.target.snapshot
