"""The body of a pipeline's loop: observe, decide, record, page, act.  It knows neither kopf nor any vendor."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from fencepost_operator.actions import (
    Action,
    AddFinalizer,
    CreateFence,
    DropSnapshots,
    KeepRevision,
    StartPurge,
    TakeSnapshot,
    TryCode,
)
from fencepost_operator.api import (
    Event,
    ObjectKey,
    Pipeline,
    Reason,
    ReconcileConfig,
    Spec,
)
from fencepost_operator.autoscaling.arrivals import Arrivals, ArrivalWindow
from fencepost_operator.backoff import jittered, retry_delay
from fencepost_operator.decision.decide import decide
from fencepost_operator.decision.decision import Decision
from fencepost_operator.decision.failover import is_waited_for
from fencepost_operator.decision.reporting.page_outbox import due_pages, with_pages
from fencepost_operator.decision.reporting.page_text import page_of
from fencepost_operator.decision.rest import apart_from_figures, awaits_its_driver, is_at_rest
from fencepost_operator.decision.rewind.queue import without_pipeline
from fencepost_operator.decision.rewind.step_status import RewindUpdate
from fencepost_operator.decision.run.handoff import standby_of
from fencepost_operator.decision.run.heartbeats import given_up, is_alive
from fencepost_operator.errors import Busy, Conflict, NotLeading, PortError
from fencepost_operator.observation import Known, Observation, Unknown
from fencepost_operator.ports import Ports
from fencepost_operator.runtime.clock_steps import ClockSteps
from fencepost_operator.runtime.passes.attempts import Attempts
from fencepost_operator.runtime.passes.executor import Executor, reason_of_failure
from fencepost_operator.runtime.passes.last_passes import LastPasses, Rest
from fencepost_operator.runtime.passes.observer import Observer
from fencepost_operator.runtime.passes.signs_of_life import SignsOfLife
from fencepost_operator.runtime.permits.replacement import ReplacementPermits
from fencepost_operator.runtime.permits.restart import RestartPermits

log = logging.getLogger(__name__)

AT_ONCE: Final = 0.0
AFTER_CONFLICT: Final = 0.1
"""Seconds after a first conflict, which is a race; twice as long after each one that follows."""

AFTER_BUSY: Final = 1.0
"""Seconds: an action's turn has not come; the pipeline is observed again before it goes back to the queue."""

CONFLICT_REMEDY: Final = "find out who else writes this object, and stop that"

_CONFLICT: Final = "conflict"
_GLANCE: Final = "glance"
"""Nothing but figures was asked for: neither an event nor a census has shown a change of a pipeline at rest."""
_GONE: Final = "gone"
_BLIND: Final = "blind"
"""The runs could not be listed: a driver that is dead by now would not be noticed."""
_CONTINUED: Final = frozenset({AddFinalizer.__name__, CreateFence.__name__})
"""Outcomes after which the pass continues: they change the object's metadata and the fence row, and nothing else that
it has seen."""
_NOT_RECONCILED: Final = frozenset({_CONFLICT, _GONE, _BLIND})
"""Outcomes of passes that end without an error and do not reconcile."""


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Makes passes over pipelines.

    All that must survive a crash is in the status.  What is kept here are the failed attempts of the current action,
    the figures that are not written yet, and what Kubernetes has shown of pipelines at rest.  Only figures follow from
    that: whatever else a pass decides, it decides again on what it asks Kubernetes for at that moment.
    """

    ports: Ports
    config: ReconcileConfig
    permits: RestartPermits = field(init=False)
    replacements: ReplacementPermits = field(default_factory=ReplacementPermits)
    _attempts: dict[ObjectKey, Attempts] = field(default_factory=dict)
    _conflicts: Counter[ObjectKey] = field(default_factory=Counter)
    """Passes in a row that ended in a conflict."""
    _steps: ClockSteps = field(default_factory=ClockSteps)
    _arrivals: dict[ObjectKey, ArrivalWindow] = field(default_factory=dict)
    """Of the pipelines whose number of workers follows from it."""
    _last: LastPasses = field(init=False)
    _signs: SignsOfLife = field(init=False)
    _census_at: float = -math.inf
    """When all objects of all pipelines were last looked at, by the monotonic clock."""

    def __post_init__(self) -> None:
        config = self.config
        self._last = LastPasses(
            figures_interval=config.figures_interval,
            figures_per_second=config.figures_per_second,
            slowest_figures=config.slowest_figures,
        )
        self._signs = SignsOfLife(ports=self.ports, config=config)
        self.permits = RestartPermits(limit=self.config.max_concurrent_restarts, timeout=self.config.restart_timeout)

    async def reconcile(self, key: ObjectKey, *, woken: bool = True) -> float | None:
        """Make one pass; return the seconds after which to look again, or None when the pipeline is gone.

        `woken`: something happened to it since the last pass began.
        Raises PortError when the API server cannot be asked for the pipeline or refuses its status.
        """
        started = time.monotonic()
        try:
            again, outcome = await self._pass(key, woken=woken)
        except Conflict as error:
            log.debug("%s was changed by another client: %s", key, error)
            self._conflicts[key] += 1
            again, outcome = retry_delay(self._conflicts[key], first=AFTER_CONFLICT), _CONFLICT
        else:
            self._conflicts.pop(key, None)
        self.ports.metrics.reconciled(key, outcome=outcome, seconds=time.monotonic() - started)
        if outcome not in _NOT_RECONCILED:
            self.ports.metrics.succeeded(key, self.ports.clock.now())
        return again

    def is_glance(self, key: ObjectKey) -> bool:
        """Return whether the next pass is a glance unless something happens, as the last one was.

        Who makes each second glance show more than figures gets no more passes by that than these.
        """
        now = self.ports.clock.monotonic()
        return self._has_census(now) and self._last.has_glanced(key, now)

    def note_census(self) -> None:
        """Note that each pipeline was woken of which an object has changed, whether or not an event has shown that."""
        self._census_at = self.ports.clock.monotonic()

    def _has_census(self, now: float) -> bool:
        return now - self._census_at < self.config.census_holds

    async def _pass(self, key: ObjectKey, *, woken: bool) -> tuple[float | None, str]:
        now = self.ports.clock.monotonic()
        rest = self._last.take_rest(key, now)
        has_census = self._has_census(now)
        if rest is not None and has_census and not woken and (again := await self._glance(rest)) is not None:
            return again, _GLANCE
        found = await self.ports.pipelines.read(key)
        if found is None:
            await self._end(key)
            return None, _GONE
        observer = Observer(self.ports, self.config)
        found = await observer.with_valid_spec(self._last.begin(found))
        seen = await self._signs.exchange(found, await observer.observe(found))
        again, outcome = await self._step(found, seen, has_census=has_census)
        while outcome in _CONTINUED and (left := await self.ports.pipelines.read(key)) is not None:
            if (left.uid, left.generation) != (found.uid, found.generation):  # what it asks for now was not looked at
                break
            found = await observer.with_valid_spec(self._last.begin(left))
            seen = await observer.with_fence(found, seen)
            again, outcome = await self._step(found, seen, has_census=has_census)
        return again, outcome

    async def _step(self, found: Pipeline, seen: Observation, *, has_census: bool) -> tuple[float, str]:
        """Decide by what was seen, record the decision and act; return when to look again, and what the pass did."""
        key = found.key
        pipeline, observation = self._measured(found, seen)
        monotonic = self.ports.clock.monotonic()
        attempts = self._attempts.setdefault(key, Attempts())
        observation, decision = self._decide(pipeline, observation, attempts, monotonic)
        recorded = await self._record(found, decision)
        self._note(pipeline, recorded, decision, observation, monotonic)
        action = decision.action
        is_blind = isinstance(observation.runs, Unknown)
        if action is None:
            self._attempts.pop(key, None)
            if has_census and is_at_rest(recorded, observation, decision):
                config, starts = self.config, awaits_its_driver(decision)
                holds = config.start_look_interval if starts else config.look_interval
                self._last.begin_rest(recorded, seen, monotonic + jittered(holds))
            return self._pause(pipeline, decision), _BLIND if is_blind else "steady"
        last = attempts.last(action)
        if last is not None and monotonic < last.retry_at:
            again, outcome = last.retry_at - monotonic, "waiting"
        else:
            again, outcome = await self._act(recorded, observation, action, attempts)
        if isinstance(action, TakeSnapshot | DropSnapshots | StartPurge | KeepRevision | TryCode):
            # A copy that fails must not keep the loop from reconciling the run, nor hide that it cannot.
            return min(again, self._pause(pipeline, decision)), _BLIND if is_blind else outcome
        return min(again, decision.requeue_after) if is_waited_for(pipeline) else again, outcome

    async def _glance(self, rest: Rest) -> float | None:
        """Look at Cassandra and Kafka alone; return when to look again, None where they show more than figures."""
        found = rest.pipeline
        seen = await Observer(self.ports, self.config).glance(found, rest.observation)
        seen = await self._signs.exchange(found, seen)
        pipeline, observation = self._measured(found, seen)
        monotonic = self.ports.clock.monotonic()
        decision = self._conclude(pipeline, observation, Attempts())
        is_news = apart_from_figures(decision.status) != apart_from_figures(found.status)
        if is_news or decision.events or not is_at_rest(found, observation, decision):
            return None
        recorded = await self._record(found, decision)
        self._note(pipeline, recorded, decision, observation, monotonic)
        self._last.continue_rest(replace(rest, pipeline=recorded, has_glanced=True))
        pause, is_expected = self._pause(pipeline, decision), decision.requeue_after < self.config.resync_interval
        return pause if is_expected else max(pause, jittered(self._round()))

    def _measured(self, found: Pipeline, seen: Observation) -> tuple[Pipeline, Observation]:
        """Return the pipeline and what was observed by what this process has measured."""
        monotonic = self.ports.clock.monotonic()
        pipeline = self._steps.by_this_clock(found, seen.now, monotonic)
        observation = self._steps.measured(found, pipeline, seen, monotonic)
        observation = replace(observation, arrivals=self._arriving(pipeline, observation, monotonic))
        if isinstance(observation.fence, Known) and observation.fence.value is not None:
            self.ports.metrics.committed(found.key, observation.fence.value)
        return pipeline, observation

    def _arriving(self, pipeline: Pipeline, observation: Observation, monotonic: float) -> Arrivals | None:
        """Return how fast records arrive, where the number of workers follows from it."""
        spec, source = pipeline.spec, observation.source
        if not isinstance(spec, Spec) or spec.cluster.autoscale is None:
            self._arrivals.pop(pipeline.key, None)
            return None
        if not isinstance(source, Known):
            return None
        return self._arrivals.setdefault(pipeline.key, ArrivalWindow()).seen(monotonic, source.value.ends)

    def _note(
        self, before: Pipeline, recorded: Pipeline, decision: Decision, observation: Observation, monotonic: float
    ) -> None:
        """Note what was recorded, by which clocks, and whether the driver was seen alive."""
        self.replacements.note(recorded.key, is_alive(before.status, decision.status, observation), monotonic)
        self._count_silent(monotonic)
        rewinds = [update.status for update in decision.rewinds]
        self._steps.recorded(recorded.key, recorded.status, rewinds, observation.now, monotonic)

    async def _end(self, key: ObjectKey) -> None:
        """Forget a pipeline that is gone, and remove what nothing else would."""
        self._drop(key)
        rewinds = await self.ports.rewinds.unfinished(key, expected=False)
        await self._record_rewinds(without_pipeline(rewinds, self.ports.clock.now()))
        await self._remove_left_release(key)
        self.forget(key)

    def _drop(self, key: ObjectKey) -> None:
        """Drop what passes over a pipeline have left here for the next ones."""
        self._attempts.pop(key, None)
        self._conflicts.pop(key, None)
        self._last.forget(key)
        self._signs.forget(key)
        self._steps.forget(key)
        self._arrivals.pop(key, None)
        self.permits.forget(key)
        self.replacements.forget(key)
        now = self.ports.clock.monotonic()
        self._count_restarts(now)
        self._count_silent(now)

    def forget(self, key: ObjectKey) -> None:
        """Drop all that is known of a pipeline that is gone, or that another replica reconciles from now on."""
        self._drop(key)
        self.ports.releases.forget(key)
        self.ports.metrics.forget(key)
        self.ports.pager.forget(key)

    async def _remove_left_release(self, key: ObjectKey) -> None:
        """Remove the Helm release of a pipeline whose finalizer was removed by hand: nothing else would."""
        if await self.ports.releases.release(key) is None:
            return
        self.ports.may_write()
        what = "is gone without a cleanup, as when its finalizer is removed by hand: uninstalling its Spark cluster"
        log.warning("%s %s", key, what, extra={"reason": Reason.DELETING})
        await self.ports.releases.uninstall(key)

    def _decide(
        self, pipeline: Pipeline, observation: Observation, attempts: Attempts, monotonic: float
    ) -> tuple[Observation, Decision]:
        """Decide with or without a permit to restart; no other pipeline's pass comes between the look and the note."""
        key, permits = pipeline.key, self.permits
        observation = replace(observation, may_restart=permits.may_restart(key, monotonic))
        decision = self._conclude(pipeline, observation, attempts)
        since = decision.status.planned_restart_since
        permits.note(key, since=since, queued=decision.is_queued, wall=observation.now, now=monotonic)
        self._count_restarts(monotonic)
        return observation, decision

    def _count_restarts(self, now: float) -> None:
        self.ports.metrics.restarts(in_progress=self.permits.in_progress(now), queued=self.permits.queued(now))

    def _count_silent(self, now: float) -> None:
        self.ports.metrics.silent_drivers(silent=self.replacements.silent(now), waiting=self.replacements.waiting(now))

    def _conclude(self, pipeline: Pipeline, observation: Observation, attempts: Attempts) -> Decision:
        """Decide, with the pages that are to be recorded with the decision.

        A run is given up for want of heartbeats with a permit; a pass that asks for the same one again has it.
        """
        decision = decide(pipeline, observation, self.config, failures=attempts.failures)
        epoch, monotonic = given_up(decision.status, observation), self.ports.clock.monotonic()
        if epoch is not None and not self.replacements.take(pipeline.key, epoch, monotonic):
            observation = replace(observation, may_replace=False)
            decision = decide(pipeline, observation, self.config, failures=attempts.failures)
        return with_pages(pipeline, decision, self.ports.pager.facts(pipeline.key), self.config, observation.now)

    async def _record(self, pipeline: Pipeline, decision: Decision) -> Pipeline:
        """Write the status if it is due, then publish the Events: what is done next must be known beforehand."""
        now = self.ports.clock.monotonic()
        if self._last.is_due(pipeline.key, decision.status, now):
            written = await self.ports.pipelines.write_status(pipeline, decision.status)
            self.ports.metrics.recorded()
            pipeline = written.under(pipeline)
            self._last.wrote(pipeline.key, pipeline.status, now)
        elif decision.status != pipeline.status:
            pipeline = replace(pipeline, status=decision.status)
            self._last.skipped(pipeline.key, pipeline.status)
        self._page(pipeline, decision)
        await self._publish_events(pipeline, decision.events)
        await self._record_rewinds(decision.rewinds)
        committed = decision.status.committed
        offsets = committed.offsets if committed else {}
        self.ports.metrics.observed(pipeline.key, decision.status, offsets, decision.backlog)
        return pipeline

    def _page(self, pipeline: Pipeline, decision: Decision) -> None:
        """Hand the pages that are due to the pager, now that they are recorded; it sends them concurrently."""
        now, status = self.ports.clock.now(), decision.status
        due = due_pages(pipeline, status, now)
        self.ports.pager.set_pages(
            pipeline.key, [page_of(pipeline, status, page, decision.backlog, self.config, now) for page in due]
        )

    async def _record_rewinds(self, updates: Sequence[RewindUpdate]) -> None:
        """Write what changed of each rewind: its status, then whether it is held or over."""
        for update in updates:
            rewind, status, finished = update.rewind, update.status, update.status.is_finished
            if status != rewind.status:
                rewind = await self.ports.rewinds.write_status(rewind, status)
            if (rewind.is_held, rewind.is_marked_finished) != (update.held, finished):
                await self.ports.rewinds.mark(rewind, held=update.held, finished=finished)
            if update.events:
                try:
                    await self.ports.rewinds.publish(rewind, update.events)
                except PortError as error:
                    log.warning("%s: Events could not be published: %s", rewind.key, error)

    async def _publish_events(self, pipeline: Pipeline, events: Sequence[Event]) -> None:
        for event in events:
            log.info("%s: %s", pipeline.key, event.message, extra={"reason": event.reason})
        if not events:
            return
        try:
            await self.ports.pipelines.publish(pipeline, events)
        except PortError as error:
            log.warning("%s: Events could not be published: %s", pipeline.key, error)

    async def _act(
        self, pipeline: Pipeline, observation: Observation, action: Action, attempts: Attempts
    ) -> tuple[float, str]:
        """Do it. A failure is reported in the status and by an Event, and waits longer each time.

        A queue is not a failure, and a first Conflict is a race.  A constant writer must not keep the loop busy.
        """
        name, now = type(action).__name__, self.ports.clock.monotonic()
        try:
            async with self._signs.given_meanwhile(pipeline, observation):
                await Executor(self.ports, self.config).execute(pipeline, action)
        except NotLeading:
            raise
        except Busy as error:
            log.info("%s: %s waits: %s", pipeline.key, name, error)
            return AFTER_BUSY, "queued"
        except (PortError, Conflict) as error:
            if isinstance(error, Conflict) and attempts.last(action) is None:
                attempts.conflicted(action, now)
                raise
            reason = reason_of_failure(pipeline, action, error)
            remedy = error.remedy if isinstance(error, PortError) else CONFLICT_REMEDY
            failure = attempts.failed(action, now, reason=reason, message=str(error), remedy=remedy)
            log.warning("%s: %s failed: %s", pipeline.key, name, error, extra={"reason": reason})
            await self._record(pipeline, self._conclude(pipeline, observation, attempts))
            return retry_delay(failure.attempts), "action_failure"
        attempts.succeeded(action, now)
        return AT_ONCE, name

    def _round(self) -> float:
        """Return the seconds in which each pipeline is looked at once."""
        return min(len(self._last) / self.config.looks_per_second, self.config.slowest_look)

    def _pause(self, pipeline: Pipeline, decision: Decision) -> float:
        """Return how long to wait: less where something changes, and spread where nothing is expected.

        Kubernetes sends no event for a commit or a new record; how fresh the status is of them is decided here.
        """
        again, changes = decision.requeue_after, decision.status != pipeline.status
        pause = again if again < self.config.resync_interval else jittered(again)
        if standby_of(decision.status) is not None:
            pause = min(pause, self.config.standby_interval)
        return min(pause, jittered(self.config.refresh_interval)) if changes else pause
