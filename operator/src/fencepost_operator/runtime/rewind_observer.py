"""Looks at what the next rewind of a pipeline needs, and at nothing that its step does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from fencepost.fence.snapshots import Snapshot
from fencepost_operator.api import Pipeline, ReconcileConfig, Rewind, RewindSpec, RewindStep, Spec
from fencepost_operator.decision.rewind.purge_jobs import purge_due
from fencepost_operator.decision.rewind.queue import next_rewind
from fencepost_operator.desired import names
from fencepost_operator.desired.connections import cassandra_connection, kafka_connection
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
        snapshot, positions, backup, job, first = await asyncio.gather(
            self._target(pipeline, pipeline.spec, rewind, rewind.spec),
            self._positions(pipeline, pipeline.spec, rewind, rewind.spec.to.timestamp),
            self._snapshot(pipeline, pipeline.spec, rewind.status.backup if rewind.status.target is None else None),
            self._job(pipeline, rewind),
            self._first_commit(pipeline, pipeline.spec, rewind),
        )
        return RewindFacts(snapshot=snapshot, positions=positions, backup=backup, job=job, first_commit=first)

    async def _target(
        self, pipeline: Pipeline, spec: Spec, rewind: Rewind, asked: RewindSpec
    ) -> Fact[Snapshot | None] | NotAsked:
        return await self._snapshot(pipeline, spec, asked.to.snapshot if rewind.status.target is None else None)

    async def _positions(
        self, pipeline: Pipeline, spec: Spec, rewind: Rewind, timestamp: datetime | None
    ) -> Fact[Mapping[str, int]] | NotAsked:
        if timestamp is None or rewind.status.target is not None:
            return NotAsked()
        return await self.see(self.ports.offsets.at(kafka_connection(pipeline.key, spec), timestamp))

    async def _snapshot(self, pipeline: Pipeline, spec: Spec, wanted: str | None) -> Fact[Snapshot | None] | NotAsked:
        if wanted is None:
            return NotAsked()
        connection = cassandra_connection(pipeline.key, spec.checkpoint.cassandra)
        return await self.see(self.ports.fences.find_snapshot(connection, self._row(pipeline), wanted))

    async def _job(self, pipeline: Pipeline, rewind: Rewind) -> Fact[PurgeJob | None] | NotAsked:
        name = purge_due(rewind)
        return NotAsked() if name is None else await self.see(self.ports.purges.find(pipeline.key, name, rewind.uid))

    async def _first_commit(
        self, pipeline: Pipeline, spec: Spec, rewind: Rewind
    ) -> Fact[Mapping[str, int] | None] | NotAsked:
        status, done = rewind.status, rewind.status.step(RewindStep.SET_OFFSETS)
        if done is None or done.finished_at is None or status.epoch is None or status.version is None:
            return NotAsked()
        connection = cassandra_connection(pipeline.key, spec.checkpoint.cassandra)
        return await self.see(
            self.ports.fences.first_commit(
                connection, self._row(pipeline), epoch=status.epoch, version=status.version, since=done.finished_at
            )
        )

    def _row(self, pipeline: Pipeline) -> str:
        return names.fence_key(self.config.scope, pipeline.key)
