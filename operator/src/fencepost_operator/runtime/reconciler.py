"""The body of a pipeline's loop: observe, decide, record, tell, act.  It knows neither kopf nor any vendor."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from fencepost_operator.actions import Action
from fencepost_operator.api import Event, ObjectKey, Pipeline, Reason, ReconcileConfig
from fencepost_operator.backoff import jittered, retry_delay
from fencepost_operator.decision.chain import ActionFailure, Decision, decide
from fencepost_operator.errors import Conflict, PortError
from fencepost_operator.observation import Observation, Unknown
from fencepost_operator.ports import (
    Clock,
    FenceStore,
    Metrics,
    Objects,
    Offsets,
    Pipelines,
    Releases,
    Runs,
)
from fencepost_operator.runtime.executor import Executor, reason_of_failure
from fencepost_operator.runtime.observer import Observer

log = logging.getLogger(__name__)

AT_ONCE: Final = 0.0
AFTER_CONFLICT: Final = 0.1
"""Seconds: somebody else has just written, and may be about to write more."""

_CONFLICT: Final = "conflict"
_GONE: Final = "gone"
_BLIND: Final = "blind"
"""The runs could not be listed: a driver that is dead by now would not be noticed."""
_FRUITLESS: Final = frozenset({_CONFLICT, _GONE, _BLIND})
"""Outcomes of passes that end without an error and look after nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The whole world of the loop."""

    pipelines: Pipelines
    releases: Releases
    runs: Runs
    objects: Objects
    fences: FenceStore
    offsets: Offsets
    metrics: Metrics
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """The last action, how often it was tried in a row, and when the same action may be tried again.

    An action is the same by its content: after a change of the spec neither the error nor the backoff of what the old
    one asked for applies.
    """

    action: Action
    attempts: int
    retry_at: datetime
    failure: ActionFailure | None


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Makes passes over pipelines.

    All that must survive a crash is in the status; only how often an action was just tried in vain is kept here.
    """

    ports: Ports
    config: ReconcileConfig
    _attempts: dict[ObjectKey, _Attempt] = field(default_factory=dict)

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Make one pass; return the seconds after which to look again, or None when the pipeline is gone.

        Raises PortError when the API server cannot be asked for the pipeline or refuses its status.
        """
        started = time.monotonic()
        try:
            again, outcome = await self._pass(key)
        except Conflict as error:
            log.debug("%s was changed by somebody else: %s", key, error)
            again, outcome = AFTER_CONFLICT, _CONFLICT
        self.ports.metrics.reconciled(key, outcome=outcome, seconds=time.monotonic() - started)
        if outcome not in _FRUITLESS:
            self.ports.metrics.succeeded(key, self.ports.clock.now())
        return again

    async def _pass(self, key: ObjectKey) -> tuple[float | None, str]:
        pipeline = await self.ports.pipelines.read(key)
        if pipeline is None:
            self._attempts.pop(key, None)
            self.ports.metrics.forget(key)
            return None, _GONE
        observation = await Observer(self.ports, self.config).observe(pipeline)
        last = self._attempts.get(key)
        decision = decide(pipeline, observation, self.config, action_failure=last.failure if last else None)
        recorded = await self._record(pipeline, decision)
        action = decision.action
        if action is None:
            self._attempts.pop(key, None)
            blind = isinstance(observation.runs, Unknown)
            return self._pause(pipeline, decision), _BLIND if blind else "steady"
        if last is not None and last.action == action and observation.now < last.retry_at:
            return (last.retry_at - observation.now).total_seconds(), "waiting"
        return await self._act(recorded, observation, action)

    async def _record(self, pipeline: Pipeline, decision: Decision) -> Pipeline:
        """Write the status if it changed, then tell the status_events: what is done next must be known beforehand."""
        if decision.status != pipeline.status:
            pipeline = await self.ports.pipelines.write_status(pipeline, decision.status)
        await self._publish_events(pipeline, decision.events)
        committed = decision.status.committed
        self.ports.metrics.observed(pipeline.key, decision.status, committed.offsets if committed else {})
        return pipeline

    async def _publish_events(self, pipeline: Pipeline, events: Sequence[Event]) -> None:
        for event in events:
            log.info("%s: %s", pipeline.key, event.message, extra={"reason": event.reason})
        if not events:
            return
        try:
            await self.ports.pipelines.publish(pipeline, events)
        except PortError as error:
            log.warning("%s: Events could not be published: %s", pipeline.key, error)

    async def _act(self, pipeline: Pipeline, observation: Observation, action: Action) -> tuple[float, str]:
        last = self._attempts.get(pipeline.key)
        attempts = last.attempts + 1 if last is not None and last.action == action else 1
        try:
            await Executor(self.ports, self.config).execute(pipeline, action)
        except PortError as error:
            return await self._report_failure(pipeline, observation, _failed(action, error, attempts)), "action_failure"
        self._note(pipeline.key, observation, action, attempts, _without_effect(action, attempts))
        return AT_ONCE, type(action).__name__

    async def _report_failure(self, pipeline: Pipeline, observation: Observation, failure: ActionFailure) -> float:
        """Say that the action failed, in the status and by an Event, and wait longer each time."""
        action = failure.action
        self._note(pipeline.key, observation, action, failure.attempts, failure)
        name = type(action).__name__
        log.warning("%s: %s failed: %s", pipeline.key, name, failure.message, extra={"reason": failure.reason})
        await self._record(pipeline, decide(pipeline, observation, self.config, action_failure=failure))
        return retry_delay(failure.attempts)

    def _note(
        self, key: ObjectKey, observation: Observation, action: Action, attempts: int, failure: ActionFailure | None
    ) -> None:
        retry_at = observation.now + timedelta(seconds=retry_delay(attempts))
        self._attempts[key] = _Attempt(action=action, attempts=attempts, retry_at=retry_at, failure=failure)

    def _pause(self, pipeline: Pipeline, decision: Decision) -> float:
        """Return how long to wait: less where something changes, and spread where nothing is expected.

        Commits and new records are no Kubernetes events; how fresh the status is of them is decided here.
        """
        if decision.requeue_after < self.config.resync_interval:
            return decision.requeue_after
        changes = decision.status != pipeline.status
        return jittered(
            min(self.config.refresh_interval, decision.requeue_after) if changes else decision.requeue_after
        )


def _failed(action: Action, error: PortError, attempts: int) -> ActionFailure:
    reason = reason_of_failure(action, error)
    return ActionFailure(action=action, reason=reason, message=str(error), remedy=error.remedy, attempts=attempts)


def _without_effect(action: Action, attempts: int) -> ActionFailure | None:
    """Return what to report if the same action is due again after it succeeded more than once in a row."""
    if attempts <= 1:
        return None
    return ActionFailure(
        action=action,
        reason=Reason.NO_EFFECT,
        message="it succeeds, but nothing changes",
        remedy="look for what reverts or caps it, such as an admission webhook, a quota or another controller",
        attempts=attempts,
    )
