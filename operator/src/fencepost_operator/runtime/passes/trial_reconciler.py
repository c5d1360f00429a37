"""The body of a trial's loop: observe, decide, record, act. It is not the pipeline's, so no trial delays a pipeline."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, assert_never

from fencepost.contract import topics_of
from fencepost.fence import FenceRow
from fencepost_operator.api import ObjectKey, Pipeline, ReconcileConfig, Spec, Trial, TrialSpec
from fencepost_operator.backoff import retry_delay
from fencepost_operator.decision.trial.asked import progress_key
from fencepost_operator.decision.trial.deciding import (
    DeleteTrial,
    Promote,
    StartTrial,
    StopTrial,
    TrialAction,
    TrialDecision,
    decide_trial,
)
from fencepost_operator.desired.connections import fence_place
from fencepost_operator.desired.identity.hashes import referenced
from fencepost_operator.desired.jobs.trial_job import tried_spec
from fencepost_operator.errors import Conflict, PortError
from fencepost_operator.observation import Fact, Known, NoStart, NotAsked, StartingPoint, TrialFacts, Unknown
from fencepost_operator.ports import TrialPorts
from fencepost_operator.runtime.passes.observer import see

log = logging.getLogger(__name__)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True, kw_only=True)
class TrialReconciler:
    """Makes passes over trials. All that must survive a crash is in the status."""

    ports: TrialPorts
    config: ReconcileConfig
    _failures: Counter[ObjectKey] = field(default_factory=Counter)
    """Actions of a trial in a row that failed."""

    async def reconcile(self, key: ObjectKey, *, woken: bool = True) -> float | None:  # noqa: ARG002 - every pass asks
        """Make one pass; return the seconds after which to look again, None when nothing is left to do.

        Raises PortError when the API server cannot be asked for the trial, or refuses its status.
        """
        trial = await self.ports.trials.read(key)
        if trial is None or trial.deleting_since is not None:  # the garbage collector removes its Job
            self._failures.pop(key, None)
            return None
        decision = decide_trial(trial, await self._facts(trial), self.config)
        try:
            trial = await self._record(trial, decision)
        except Conflict as error:
            log.debug("%s was changed by another client: %s", key, error)
            return 1.0
        if decision.action is None:
            return decision.again
        return await self._act(trial, decision, decision.action)

    async def _record(self, trial: Trial, decision: TrialDecision) -> Trial:
        if decision.status != trial.status:
            self.ports.may_write()
            trial = await self.ports.trials.write_status(trial, decision.status)
        for event in decision.events:
            log.info("%s: %s", trial.key, event.message, extra={"reason": event.reason})
        if decision.events:
            try:
                await self.ports.trials.publish(trial, decision.events)
            except PortError as error:
                log.warning("%s: Events could not be published: %s", trial.key, error)
        return trial

    async def _act(self, trial: Trial, decision: TrialDecision, action: TrialAction) -> float | None:
        """Do it; a failure is logged, and the next pass decides again, later each time."""
        self.ports.may_write()
        try:
            await self._do(trial, action)
        except (PortError, Conflict) as error:
            self._failures[trial.key] += 1
            log.warning("%s: %s failed: %s", trial.key, type(action).__name__, error)
            return retry_delay(self._failures[trial.key])
        self._failures.pop(trial.key, None)
        return decision.again

    async def _do(self, trial: Trial, action: TrialAction) -> None:
        pipeline = ObjectKey(trial.key.namespace, trial.pipeline)
        match action:
            case StartTrial(job=job, config_map=config_map):
                await self.ports.jobs.start(pipeline, job, config_map)
            case StopTrial(name=name):
                await self.ports.jobs.stop(pipeline, name, trial.uid)
            case Promote(pipeline=found, job=job):
                await self.ports.pipelines.set_job(found, job)
            case DeleteTrial():
                await self.ports.trials.delete(trial)
            case _:
                assert_never(action)

    async def _facts(self, trial: Trial) -> TrialFacts:
        """Look at what the next step needs, and at nothing else."""
        now, key = self.ports.clock.now(), ObjectKey(trial.key.namespace, trial.pipeline)
        if not isinstance(trial.spec, TrialSpec):
            return TrialFacts(now=now, pipeline=Known(None))
        seen = await self._see(self.ports.pipelines.read(key))
        status, found = trial.status, seen.value if isinstance(seen, Known) else None
        if status.is_finished or found is None or not isinstance(found.spec, Spec):
            return TrialFacts(now=now, pipeline=seen, job=await self._job(key, trial))
        connection, row_key = fence_place(key, found.spec.checkpoint, self.config.scope)
        row = await self._see(self.ports.fences.read(connection, row_key))
        if isinstance(row, Unknown):
            return TrialFacts(now=now, pipeline=seen, row=row, job=await self._job(key, trial))
        progress = self.ports.fences.read_progress(connection, progress_key(trial, row_key))
        return TrialFacts(
            now=now,
            pipeline=seen,
            row=row,
            start=NotAsked()
            if status.has_begun
            else await self._start(trial.spec, trial, found, found.spec, row.value),
            references=await self._see(
                self.ports.objects.references(key, referenced(tried_spec(found.spec, trial.spec)))
            ),
            job=await self._job(key, trial),
            progress=await self._see(progress),
        )

    async def _job(self, pipeline: ObjectKey, trial: Trial) -> Fact[Any] | NotAsked:
        name = trial.status.job
        if name is None or trial.status.is_finished:
            return NotAsked()
        return await self._see(self.ports.jobs.find(pipeline, name, trial.uid))

    async def _start(
        self, asked: TrialSpec, trial: Trial, pipeline: Pipeline, spec: Spec, row: FenceRow | None
    ) -> Fact[StartingPoint | NoStart]:
        """Look for what the pipeline had committed at spec.since, of each topic that the trial reads.

        A commit does not know how old the pipeline is: a duration reaches back as far as the history does.
        """
        place, since = fence_place(pipeline.key, spec.checkpoint, self.config.scope), asked.since
        topics = topics_of(row.offsets if row is not None else ()) & set(spec.source.kafka.topics)
        if since.snapshot is not None:
            found = await self._see(self.ports.fences.find_snapshot(*place, since.snapshot))
            if not isinstance(found, Known):
                return found
            if (kept := found.value) is None or not topics <= topics_of(kept.offsets):
                return Known(NoStart())
            clock = (kept.at - _EPOCH) // timedelta(microseconds=1)
            return Known(
                StartingPoint(offsets=kept.offsets, topic_ids=kept.topic_ids, clock=clock, snapshot=str(kept.id))
            )
        moment = since.timestamp or trial.created_at - timedelta(seconds=since.duration or 0.0)
        seen = await self._see(self.ports.fences.committed_at(*place, moment, topics))
        first = seen.value.earliest if isinstance(seen, Known) and isinstance(seen.value, NoStart) else None
        if first is None or since.duration is None:
            return seen
        return await self._see(self.ports.fences.committed_at(*place, first, topics))

    async def _see(self, question: Awaitable[Any]) -> Fact[Any]:
        return await see(question, self.config.observation_timeout)
