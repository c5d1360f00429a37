"""Signs of life between the operators of Kubernetes clusters that share a fence: docs/fence-protocol.md#failover.

They decide when a waiting cluster takes over, and never whether two may commit: the fence alone decides that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from typing import Final

from fencepost.fence import BatchProgress, FenceRow, heartbeat_key
from fencepost_operator.api import ObjectKey, Pipeline, Reason, ReconcileConfig, Spec, condition_of
from fencepost_operator.decision.failover import (
    LOOKS,
    asked_target,
    cluster_of,
    is_waited_for,
    look_interval,
    sign_interval,
)
from fencepost_operator.decision.pausing import is_paused
from fencepost_operator.desired.connections import fence_place
from fencepost_operator.desired.names import sign_key
from fencepost_operator.observation import Fact, Known, LifeSigns, Observation, Unknown
from fencepost_operator.ports import Ports
from fencepost_operator.runtime.passes.observer import see

log = logging.getLogger(__name__)

_SLACK: Final = 0.9
"""Of an interval: passes that come a little early give a sign too."""

_REASON: Final = re.compile(r"[A-Za-z]{1,64}")
"""Whoever writes to the table writes the note."""

LONGEST_GAP: Final = 0.5
"""Of takeOverAfter, between two looks: after a longer outage of the store the measurement begins again."""

Evidence = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was last seen of another cluster, since when, in seconds of the monotonic clock, and whether it moved."""

    cluster: str
    sign: BatchProgress | None
    """Its operator's newest one; the store keeps it for an hour."""
    evidence: Evidence
    since: float
    looked_at: float
    has_moved: bool


def _note(pipeline: Pipeline, *, is_ours: bool) -> str:
    """Return the reason for which this cluster does not run the pipeline, or could not if it were moved to it."""
    if is_paused(pipeline):
        return Reason.PAUSED
    ready = condition_of(pipeline.status.conditions, "Ready")
    reason = ready.reason if ready is not None else Reason.PENDING
    is_stopped = reason == Reason.SUSPENDED or condition_of(pipeline.status.conditions, "Stalled") is not None
    is_able = not is_stopped if is_ours else reason == Reason.FAILOVER_STANDBY
    return "" if is_able else reason


@dataclass(slots=True, kw_only=True)
class SignsOfLife:
    """Gives signs for this cluster, and measures for how long another one has given none."""

    ports: Ports
    config: ReconcileConfig
    _given: dict[ObjectKey, float] = field(default_factory=dict)
    _seen: dict[ObjectKey, _Seen] = field(default_factory=dict)
    _number: int = 0

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known of a pipeline."""
        self._given.pop(key, None)
        self._seen.pop(key, None)

    async def exchange(self, pipeline: Pipeline, observation: Observation) -> Observation:
        """Give a sign where one is due; return the observation with what is seen of the other cluster.

        While the fence cannot be read, the owner may be unable to give a sign: after a while without a look the
        measurement begins again.
        """
        spec, fence, key = pipeline.spec, observation.fence, pipeline.key
        row = fence.value if isinstance(fence, Known) and isinstance(observation.runs, Known) else None
        if not isinstance(spec, Spec) or not is_waited_for(pipeline) or row is None:
            return observation
        is_ours = cluster_of(row) == self.config.cluster_uid
        await self._give(pipeline, spec, row)
        other = asked_target(pipeline, row) if is_ours else cluster_of(row)
        if other in {None, self.config.cluster_uid}:
            self._seen.pop(key, None)
            return observation
        return replace(observation, other_cluster=await self._look(pipeline, spec, row, str(other), is_ours=is_ours))

    @contextlib.asynccontextmanager
    async def given_meanwhile(self, pipeline: Pipeline, observation: Observation) -> AsyncGenerator[None]:
        """Give signs while an action takes its time, as a Helm that waits for its turn does."""
        spec, fence = pipeline.spec, observation.fence
        row = fence.value if isinstance(fence, Known) else None
        is_ours = row is not None and cluster_of(row) == self.config.cluster_uid
        if not isinstance(spec, Spec) or not is_waited_for(pipeline) or row is None or not is_ours:
            yield
            return
        giving = asyncio.create_task(self._give_each_interval(pipeline, spec, row))
        try:
            yield
        finally:
            giving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await giving

    async def _give_each_interval(self, pipeline: Pipeline, spec: Spec, row: FenceRow) -> None:
        while True:
            await asyncio.sleep(sign_interval(spec))
            await self._give(pipeline, spec, row)

    async def _give(self, pipeline: Pipeline, spec: Spec, row: FenceRow) -> None:
        """Give a sign if one is due. One that is not written is due again: an owner without signs is taken over."""
        now = self.ports.clock.monotonic()
        if now - self._given.get(pipeline.key, float("-inf")) < sign_interval(spec) * _SLACK:
            return
        self.ports.may_write()
        connection, fence_key = fence_place(pipeline.key, spec.checkpoint, self.config.scope)
        key = sign_key(fence_key, self.config.cluster_uid)
        self._number += 1
        note = _note(pipeline, is_ours=cluster_of(row) == self.config.cluster_uid)
        sign = self.ports.fences.give_sign(
            connection, key, epoch=row.epoch, version=row.version, number=self._number, note=note
        )
        given = await see(sign, self.config.observation_timeout)
        if isinstance(given, Unknown):
            log.warning("%s: no sign of life could be given: %s", pipeline.key, given.message)
        else:
            self._given[pipeline.key] = now

    async def _look(
        self, pipeline: Pipeline, spec: Spec, row: FenceRow, cluster: str, *, is_ours: bool
    ) -> Fact[LifeSigns | None]:
        """Return for how long another cluster has given no sign. Of an owner, what its driver does is a sign too.

        The silence lasts from the end of the look that saw something new to the begin of this one.
        """
        connection, fence_key = fence_place(pipeline.key, spec.checkpoint, self.config.scope)
        began, before = self.ports.clock.monotonic(), self._seen.get(pipeline.key)
        keys = [sign_key(fence_key, cluster)]
        if not is_ours and row.driver is not None:
            keys += [fence_key, heartbeat_key(fence_key)]
        reports: list[BatchProgress | None] = []
        for key in keys:
            found = await see(self.ports.fences.read_progress(connection, key), self.config.observation_timeout)
            if isinstance(found, Unknown):
                return found
            reports.append(found.value)
        now, patience = self.ports.clock.monotonic(), look_interval(spec) * LOOKS
        is_known = (
            before is not None and before.cluster == cluster and began - before.looked_at <= patience * LONGEST_GAP
        )
        sign = reports[0] or (before.sign if before is not None and before.cluster == cluster else None)
        evidence: Evidence = (sign,) if is_ours else (row.epoch, row.version, sign, *reports[1:])
        if before is None or not is_known:
            seen = _Seen(cluster, sign, evidence, now, now, has_moved=False)
        elif before.evidence != evidence:
            seen = _Seen(cluster, sign, evidence, now, now, has_moved=True)
        else:
            seen = replace(before, looked_at=now)
        self._seen[pipeline.key] = seen
        if sign is None:
            return Known(None)
        note = sign.note if _REASON.fullmatch(sign.note) else "Unknown" if sign.note else ""
        silent_for = max(0.0, began - seen.since)
        return Known(LifeSigns(cluster=cluster, silent_for=silent_for, has_moved=seen.has_moved, note=note))
