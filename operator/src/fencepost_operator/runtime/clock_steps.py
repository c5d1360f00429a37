"""What this process has measured: the wall clock may step, and another operator's may differ."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from fencepost_operator.api import ObjectKey, Pipeline, Rewind, RewindStatus, Status
from fencepost_operator.api.model import Model
from fencepost_operator.api.moments import M, Moment, with_moments
from fencepost_operator.decision.pausing import is_paused
from fencepost_operator.observation import Fact, Known, Observation, Run

TOLERANCE: Final = 2.0
"""Seconds by which the two may differ between two passes: far more than a slew, far less than any timeout of a run."""

_REMEMBERED: Final = 50
"""Pods of one pipeline: those that were looked at last. Whoever adds pods pushes out nothing else that is seen."""


class _Seen(Enum):
    """What this process has seen, apart from pods, which have their uid."""

    STATUS = "without another operator's moments"
    STOP = "the request to stop the run"
    NODE = "the node of the run"
    DELETION = "the deletion of the pipeline"


@dataclass(slots=True)
class _Moments:
    """What the moments that were recorded were by the monotonic clock."""

    _known: dict[datetime, float] = field(default_factory=dict)

    def by_this_clock(self, recorded: Sequence[M], wall: datetime, monotonic: float) -> tuple[M, ...]:
        """Return all that is recorded with its moments as the wall clock, as it is now, would have shown them."""
        found: dict[datetime, float] = {}

        def moved(recorded: datetime, kind: Moment) -> datetime:
            at = found[recorded] = self._known.get(recorded, _at(recorded, kind, wall, monotonic))
            now = wall - timedelta(milliseconds=round(1000 * (monotonic - at)))
            if not recorded.microsecond:
                now = now.replace(microsecond=0)
            is_ahead = kind is Moment.PAST and recorded > wall
            if not is_ahead and abs((now - recorded).total_seconds()) <= TOLERANCE:
                return recorded
            found[now] = at
            return now

        models = tuple(with_moments(model, moved) for model in recorded)
        self._known = found
        return models

    def note(self, recorded: Iterable[Model], wall: datetime, monotonic: float) -> None:
        """Note the moments that are recorded now, and the clocks by which they were decided."""

        def noted(recorded: datetime, kind: Moment) -> datetime:
            self._known.setdefault(recorded, _at(recorded, kind, wall, monotonic))
            return recorded

        for model in recorded:
            with_moments(model, noted)


@dataclass(slots=True)
class ClockSteps:
    """What was measured of each pipeline."""

    _left: dict[ObjectKey, Status] = field(default_factory=dict)
    """The status after the last pass that was recorded."""
    _moments: dict[ObjectKey, _Moments] = field(default_factory=dict)
    """Those in the status."""
    _of_rewinds: dict[ObjectKey, _Moments] = field(default_factory=dict)
    """Those in the statuses of the pipeline's rewinds."""
    _since: dict[ObjectKey, dict[Hashable, tuple[Hashable, float]]] = field(default_factory=dict)
    """What this process has seen, in which state, and since when by the monotonic clock."""

    def by_this_clock(self, pipeline: Pipeline, wall: datetime, monotonic: float) -> Pipeline:
        """Return the pipeline with the moments of its status as the wall clock, as it is now, would have shown them.

        So nothing has lasted longer or shorter for a step of the clock, up to TOLERANCE.  What this process finds when
        it begins, or another operator has recorded, has lasted as long as this wall clock says, and since now where
        that is still to come.  The status of a paused pipeline stays as it is.
        """
        moments = self._moments.setdefault(pipeline.key, _Moments())
        (status,) = moments.by_this_clock((pipeline.status,), wall, monotonic)
        return pipeline if is_paused(pipeline) else replace(pipeline, status=status)

    def measured(self, found: Pipeline, pipeline: Pipeline, observation: Observation, monotonic: float) -> Observation:
        """Return the observation with what this process has measured itself; `found` is the pipeline as it was read.

        Kubernetes has the moment of a deletion, and that from which a node is ready, by another machine's clock; the
        status may have that of a request to stop by another operator's.  None of it is recorded: two operators that
        act at once would write over each other's without end.
        """
        key, status = pipeline.key, pipeline.status
        run, left = status.run, self._left.get(key)
        stops = (run.name, run.pod_uid) if run is not None and run.stop_requested_at is not None else None
        node = observation.node_of(run.name) if run is not None else None
        is_own = left is not None and left.committed == found.status.committed
        known = self._since.setdefault(key, {})

        def since(what: Hashable, state: Hashable) -> datetime:
            before = known.pop(what, None)
            at = before[1] if before is not None and before[0] == state else monotonic
            known[what] = (state, at)
            pods = [seen for seen in known if not isinstance(seen, _Seen)]
            for forgotten in pods[:-_REMEMBERED]:
                del known[forgotten]
            return observation.now - timedelta(seconds=monotonic - at)

        if not is_own:
            known.pop(_Seen.STATUS, None)
        if stops is None:
            known.pop(_Seen.STOP, None)
        return replace(
            observation,
            is_first=left is None,
            rewinds=self._rewinds(key, observation, monotonic),
            runs=_with_deletions(observation.runs, since),
            measured_since=since(_Seen.STATUS, None),
            stop_measured_since=since(_Seen.STOP, stops) if stops is not None else None,
            node_measured_since=since(_Seen.NODE, node) if node is not None else None,
            deletion_measured_since=since(_Seen.DELETION, None) if pipeline.deleting_since is not None else None,
        )

    def recorded(
        self, key: ObjectKey, status: Status, rewinds: Iterable[RewindStatus], wall: datetime, monotonic: float
    ) -> None:
        """Note the statuses after a pass, and the clocks by which they were decided."""
        self._left[key] = status
        self._moments.setdefault(key, _Moments()).note((status,), wall, monotonic)
        self._of_rewinds.setdefault(key, _Moments()).note(rewinds, wall, monotonic)

    def forget(self, key: ObjectKey) -> None:
        """Drop a pipeline that is gone."""
        for known in (self._left, self._moments, self._of_rewinds, self._since):
            known.pop(key, None)

    def _rewinds(self, key: ObjectKey, observation: Observation, monotonic: float) -> Fact[tuple[Rewind, ...]]:
        rewinds = observation.rewinds
        if not isinstance(rewinds, Known):
            return rewinds
        moments = self._of_rewinds.setdefault(key, _Moments())
        before = [rewind.status for rewind in rewinds.value]
        after = moments.by_this_clock(before, observation.now, monotonic)
        return Known(tuple(replace(rewind, status=status) for rewind, status in zip(rewinds.value, after, strict=True)))


def _at(recorded: datetime, kind: Moment, wall: datetime, monotonic: float) -> float:
    """Return what a recorded moment was, or will be, by the monotonic clock, if the wall clock has not stepped."""
    at = monotonic + (recorded - wall).total_seconds()
    return min(at, monotonic) if kind is Moment.PAST else at


def _with_deletions(
    runs: Fact[tuple[Run, ...]], since: Callable[[Hashable, Hashable], datetime]
) -> Fact[tuple[Run, ...]]:
    """Return the runs with since when this process has seen that their pods are being deleted."""
    if not isinstance(runs, Known):
        return runs
    return Known(
        tuple(
            replace(run, pod=replace(run.pod, deleting_since=since(run.pod.uid, None)))
            if run.pod is not None and run.pod.deleting_since is not None
            else run
            for run in runs.value
        )
    )
