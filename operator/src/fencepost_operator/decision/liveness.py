"""Whether a run's driver is alive, dead, or neither for certain.

A false 'dead' would let two drivers share one Spark cluster; a false 'alive' costs waiting time.  Neither can commit
twice: that is the fence's part.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from fencepost_operator.api import RunStatus
from fencepost_operator.observation import DriverPod, Fact, Known, Liveness, NodeState, Run


def liveness_of(
    run: RunStatus, job: Run | None, node: Fact[NodeState | None], *, now: datetime, stop_timeout: timedelta
) -> Liveness | None:
    """Return what is known of the driver, or None when that cannot be told now.

    `stop_timeout` is how long a driver may take to stop after it was asked to.
    """
    if job is not None and job.pod is not None:
        liveness = _by_pod(run, job.pod, now=now, stop_timeout=stop_timeout)
        return Liveness.UNKNOWN if job.orphaned and liveness is Liveness.ALIVE else liveness
    if job is not None and run.pod_uid is None and not job.finished and not job.deleting:
        return Liveness.ALIVE
    return _without_pod(run, node)


def _by_pod(run: RunStatus, pod: DriverPod, *, now: datetime, stop_timeout: timedelta) -> Liveness:
    if pod.exit_code is not None or pod.phase == "Succeeded":
        return Liveness.DEAD
    if pod.phase == "Failed":
        never_placed = pod.node is None and pod.started_at is None
        return Liveness.DEAD if never_placed or pod.node_ready else Liveness.UNKNOWN
    asked = run.stop_requested_at or pod.deleting_since
    if asked is None:
        return Liveness.ALIVE
    node_lost = pod.deleting_since is not None and pod.node_ready is False
    return Liveness.UNKNOWN if node_lost or now - asked > stop_timeout else Liveness.ALIVE


def _without_pod(run: RunStatus, node: Fact[NodeState | None]) -> Liveness | None:
    """Judge a run whose pod is gone: a Ready node with the same uid has ended what it no longer should run."""
    if run.pod_uid is None:
        return Liveness.UNKNOWN if run.claimed_at else Liveness.DEAD
    if run.node_name is None:
        return Liveness.DEAD
    if not isinstance(node, Known):
        return None
    seen = node.value
    same = seen is not None and seen.uid is not None and seen.uid == run.node_uid
    return Liveness.DEAD if same and seen is not None and seen.ready else Liveness.UNKNOWN


def has_ended(run: Run) -> bool:
    """Return whether a run's process has ended; its Job's own condition comes seconds after its pod's."""
    return run.finished or (run.pod is not None and run.pod.exit_code is not None)
