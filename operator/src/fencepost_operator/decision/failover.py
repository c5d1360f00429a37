"""Which Kubernetes cluster a fence row belongs to, and how often the clusters that share it look at each other."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from fencepost.fence import FenceRow
from fencepost_operator.api import ADOPT_ANNOTATION, FAIL_OVER_ANNOTATION, FailoverStatus, Pipeline, Spec, Status
from fencepost_operator.desired.names import fence_owner

SIGN_INTERVAL: Final = 5.0
"""Seconds between two signs of life: whatever takeOverAfter the other cluster has, there are six of them in it."""
_MOVE: Final = re.compile(r"(?P<cluster>[A-Za-z0-9.-]{1,63})@(?P<epoch>[0-9]{1,18})")
MISSED: Final = 3 * SIGN_INTERVAL
"""Seconds without a sign after which nothing is moved to a cluster: the least takeOverAfter has two of these."""
CALM: Final = timedelta(hours=1)
"""After a takeover without another one by the same cluster: takeovers are counted from 0 again."""
LONGEST_PAUSE: Final = timedelta(minutes=30)
"""Between two takeovers by the same cluster."""
LOOKS: Final = 10
"""Looks of a waiting cluster in failover.takeOverAfter."""


def cluster_of(row: FenceRow) -> str:
    """Return the uid of the Kubernetes cluster that owns a row."""
    return row.owner.partition("/")[0]


def is_waited_for(pipeline: Pipeline) -> bool:
    """Return whether other Kubernetes clusters may wait to take over."""
    return isinstance(pipeline.spec, Spec) and pipeline.spec.failover is not None and pipeline.deleting_since is None


def sign_interval(spec: Spec) -> float:
    """Return the seconds between two signs of life."""
    return SIGN_INTERVAL if spec.failover is not None else float("inf")


def look_interval(spec: Spec) -> float:
    """Return the seconds between two looks of a cluster that waits."""
    return spec.failover.take_over_after / LOOKS if spec.failover is not None else float("inf")


def asked_move(pipeline: Pipeline, row: FenceRow) -> tuple[str, int] | None:
    """Return to which cluster the row is to be moved, and from which epoch, also where that is over."""
    asked = _MOVE.fullmatch(pipeline.annotations.get(FAIL_OVER_ANNOTATION, ""))
    if asked is None or not is_waited_for(pipeline) or asked["cluster"] == cluster_of(row):
        return None
    return asked["cluster"], int(asked["epoch"])


def asked_target(pipeline: Pipeline, row: FenceRow) -> str | None:
    """Return to which cluster the row is to be moved from its epoch, None where that is not asked for.

    A driver that hands over has ended that epoch itself when it stopped.
    """
    asked, run = asked_move(pipeline, row), pipeline.status.run
    if asked is None:
        return None
    target, epoch = asked
    has_ended = run is not None and run.epoch == epoch and run.stop_requested_at is not None and row.driver is None
    return target if row.epoch == epoch or (has_ended and row.epoch == epoch + 1) else None


def failover_status(pipeline: Pipeline, row: FenceRow | None, here: str, now: datetime) -> FailoverStatus | None:
    """Return whose the row is, and count what this cluster has taken over from one that was lost.

    A row that was moved here has no object, and one that is taken back from where it was moved was never run there.
    """
    before = pipeline.status.failover
    if isinstance(pipeline.spec, Spec) and pipeline.spec.failover is None:
        return None
    if row is None or not is_waited_for(pipeline):
        return before
    owner = cluster_of(row)
    if before is not None and owner != here and row.owner == fence_owner(owner, ""):
        return before
    is_adopted = before is not None and pipeline.annotations.get(ADOPT_ANNOTATION) == f"{before.owner}@{row.epoch - 1}"
    if before is None or owner == before.owner or row.owner != fence_owner(here, pipeline.uid) or is_adopted:
        return replace(before or FailoverStatus(owner=owner), owner=owner)
    last = before.taken_over_at
    is_calm = last is None or now - last >= CALM
    return FailoverStatus(owner=owner, takeovers=1 if is_calm else before.takeovers + 1, taken_over_at=now)


def may_take_over_at(status: Status, take_over_after: float) -> datetime | None:
    """Return when this cluster may take over again, None where it may at any time.

    Each of several takeovers that follow each other waits for twice as long after the one before, by the same cluster:
    two clusters whose operators lose the store in turn would pass the pipeline to and fro with each outage.
    """
    failover = status.failover
    if failover is None or failover.taken_over_at is None:
        return None
    pause = timedelta(seconds=take_over_after) * (1 << min(failover.takeovers, 10))
    return failover.taken_over_at + min(pause, LONGEST_PAUSE)
