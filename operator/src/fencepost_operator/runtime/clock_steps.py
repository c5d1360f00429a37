"""What this process has measured: the wall clock may step, and another operator's may differ."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from fencepost_operator.api import ObjectKey, Pipeline, RunStatus, Status
from fencepost_operator.api.moments import Moment, with_moments
from fencepost_operator.decision.pausing import is_paused
from fencepost_operator.observation import NodeState

T = TypeVar("T")

TOLERANCE: Final = 2.0
"""Seconds by which the two may differ between two passes: far more than a slew, far less than any timeout of a run."""


@dataclass(slots=True)
class ClockSteps:
    """Both clocks as they were at the last pass over each pipeline that was recorded."""

    _seen: dict[ObjectKey, tuple[datetime, float]] = field(default_factory=dict)
    _left: dict[ObjectKey, Status] = field(default_factory=dict)
    """The status after that pass."""
    _moments: dict[ObjectKey, dict[datetime, float]] = field(default_factory=dict)
    """What the moments in the status were by the monotonic clock."""
    _measured: dict[ObjectKey, datetime] = field(default_factory=dict)
    _stopping: dict[ObjectKey, tuple[tuple[str, str | None], float]] = field(default_factory=dict)
    """The run and the pod that were asked to stop, and when the monotonic clock first showed that."""
    _nodes: dict[ObjectKey, tuple[NodeState, float]] = field(default_factory=dict)
    """The node of the run, and since when by the monotonic clock it has been in this state."""

    def is_steady(self, key: ObjectKey, wall: datetime, monotonic: float) -> bool:
        """Return whether the wall clock has moved like the monotonic one since the last recorded pass.

        False until this process has recorded a pass: what passed before it was not measured.  A pass that could not
        be recorded does not count: the status still has moments by the clock before the step.
        """
        before = self._seen.get(key)
        if before is None:
            return False
        return abs((wall - before[0]).total_seconds() - (monotonic - before[1])) <= TOLERANCE

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

    def measured_since(self, key: ObjectKey, status: Status, now: datetime) -> datetime:
        """Return since when the moments in the status are of this process's clock: no other operator has written any.

        It is not recorded: two operators that act at once would write over each other's without end.
        """
        left = self._left.get(key)
        is_own = left is not None and left.committed == status.committed
        self._measured[key] = min(self._measured.get(key, now), now) if is_own else now
        return self._measured[key]

    def stop_measured_since(
        self, key: ObjectKey, run: RunStatus | None, wall: datetime, monotonic: float
    ) -> datetime | None:
        """Return since when this process has known that a run was asked to stop, None where it was not asked.

        The status has that moment by a wall clock that may have stepped since, or that is another operator's.
        """
        if run is None or run.stop_requested_at is None:
            self._stopping.pop(key, None)
            return None
        return _noted(self._stopping, key, (run.name, run.pod_uid), wall, monotonic)

    def node_measured_since(
        self, key: ObjectKey, node: NodeState | None, wall: datetime, monotonic: float
    ) -> datetime | None:
        """Return since when this process has seen the node of a run in its state, None where it is not seen now.

        Kubernetes has that moment by the clock of another machine, and this one's may have stepped since.
        """
        return _noted(self._nodes, key, node, wall, monotonic) if node is not None else None

    def recorded(self, key: ObjectKey, status: Status, wall: datetime, monotonic: float) -> None:
        """Note the status after a pass, and the clocks by which it was decided."""
        self._left[key] = status
        self._seen[key] = (wall, monotonic)
        known = self._moments.setdefault(key, {})

        def noted(recorded: datetime, kind: Moment) -> datetime:
            known.setdefault(recorded, _at(recorded, kind, wall, monotonic))
            return recorded

        with_moments(status, noted)

    def forget(self, key: ObjectKey) -> None:
        """Drop a pipeline that is gone."""
        for known in (self._seen, self._left, self._moments, self._measured, self._stopping, self._nodes):
            known.pop(key, None)


def _at(recorded: datetime, kind: Moment, wall: datetime, monotonic: float) -> float:
    """Return what a recorded moment was, or will be, by the monotonic clock, if the wall clock has not stepped."""
    at = monotonic + (recorded - wall).total_seconds()
    return min(at, monotonic) if kind is Moment.PAST else at


def _noted(
    known: dict[ObjectKey, tuple[T, float]], key: ObjectKey, seen: T, wall: datetime, monotonic: float
) -> datetime:
    """Return since when the same has been seen, as the wall clock would have shown it without its steps; notes it."""
    before = known.get(key)
    since = before[1] if before is not None and before[0] == seen else monotonic
    known[key] = (seen, since)
    return wall - timedelta(seconds=monotonic - since)
