"""What this process has measured: the wall clock may step, and another operator's may differ."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from fencepost_operator.api import ObjectKey, Pipeline, Status
from fencepost_operator.api.moments import Moment, with_moments
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
class ClockSteps:
    """What was measured of each pipeline."""

    _left: dict[ObjectKey, Status] = field(default_factory=dict)
    """The status after the last pass that was recorded."""
    _moments: dict[ObjectKey, dict[datetime, float]] = field(default_factory=dict)
    """What the moments in the status were by the monotonic clock."""
    _since: dict[ObjectKey, dict[Hashable, tuple[Hashable, float]]] = field(default_factory=dict)
    """What this process has seen, in which state, and since when by the monotonic clock."""

    def by_this_clock(self, pipeline: Pipeline, wall: datetime, monotonic: float) -> Pipeline:
        """Return the pipeline with the moments of its status as the wall clock, as it is now, would have shown them.

        So nothing has lasted longer or shorter for a step of the clock, up to TOLERANCE.  What this process finds when
        it begins, or another operator has recorded, has lasted as long as this wall clock says, and since now where
        that is still to come.  The status of a paused pipeline stays as it is.
        """
        known = self._moments.get(pipeline.key, {})
        found: dict[datetime, float] = {}

        def moved(recorded: datetime, kind: Moment) -> datetime:
            at = found[recorded] = known.get(recorded, _at(recorded, kind, wall, monotonic))
            now = wall - timedelta(milliseconds=round(1000 * (monotonic - at)))
            if not recorded.microsecond:
                now = now.replace(microsecond=0)
            is_ahead = kind is Moment.PAST and recorded > wall
            if not is_ahead and abs((now - recorded).total_seconds()) <= TOLERANCE:
                return recorded
            found[now] = at
            return now

        status = with_moments(pipeline.status, moved)
        self._moments[pipeline.key] = found
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
            runs=_with_deletions(observation.runs, since),
            measured_since=since(_Seen.STATUS, None),
            stop_measured_since=since(_Seen.STOP, stops) if stops is not None else None,
            node_measured_since=since(_Seen.NODE, node) if node is not None else None,
            deletion_measured_since=since(_Seen.DELETION, None) if pipeline.deleting_since is not None else None,
        )

    def recorded(self, key: ObjectKey, status: Status, wall: datetime, monotonic: float) -> None:
        """Note the status after a pass, and the clocks by which it was decided."""
        self._left[key] = status
        known = self._moments.setdefault(key, {})

        def noted(recorded: datetime, kind: Moment) -> datetime:
            known.setdefault(recorded, _at(recorded, kind, wall, monotonic))
            return recorded

        with_moments(status, noted)

    def forget(self, key: ObjectKey) -> None:
        """Drop a pipeline that is gone."""
        for known in (self._left, self._moments, self._since):
            known.pop(key, None)


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
