"""Whether a run's driver is alive, dead, or neither for certain.

A false 'dead' would let two drivers share one Spark cluster; a false 'alive' costs waiting time.  Neither can commit
twice: that is the fence's part.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from fencepost_operator.api import RunStatus
from fencepost_operator.observation import Death, DriverPod, Fact, Known, Nodes, Run


def death_of(
    run: RunStatus, job: Run | None, node: Fact[Nodes | None], *, now: datetime, patience: timedelta
) -> Death | None:
    """Return what is known of the driver, or None when that cannot be told now.

    `patience` is how long a driver may take to stop after it was asked to.
    """
    if job is not None and job.pod is not None:
        death = _by_pod(run, job.pod, now=now, patience=patience)
        return Death.UNPROVEN if job.orphaned and death is Death.ALIVE else death
    if job is not None and run.pod_uid is None and not job.finished and not job.deleting:
        return Death.ALIVE
    return _without_pod(run, node)


def _by_pod(run: RunStatus, pod: DriverPod, *, now: datetime, patience: timedelta) -> Death:
    if pod.exit_code is not None or pod.phase == "Succeeded":
        return Death.PROVEN
    if pod.phase == "Failed":
        never_placed = pod.node is None and pod.started_at is None
        return Death.PROVEN if never_placed or pod.node_ready else Death.UNPROVEN
    asked = run.stop_requested_at or pod.deleting_since
    if asked is None:
        return Death.ALIVE
    node_lost = pod.deleting_since is not None and pod.node_ready is False
    return Death.UNPROVEN if node_lost or now - asked > patience else Death.ALIVE


def _without_pod(run: RunStatus, node: Fact[Nodes | None]) -> Death | None:
    """Judge a run whose pod is gone: a Ready node with the same uid has ended what it no longer should run."""
    if run.pod_uid is None:
        return Death.UNPROVEN if run.claimed_at else Death.PROVEN
    if run.node_name is None:
        return Death.PROVEN
    if not isinstance(node, Known):
        return None
    seen = node.value
    same = seen is not None and seen.uid is not None and seen.uid == run.node_uid
    return Death.PROVEN if same and seen is not None and seen.ready else Death.UNPROVEN


def is_over(run: Run) -> bool:
    """Return whether a run's process has ended; its Job's own condition comes seconds after its pod's."""
    return run.finished or (run.pod is not None and run.pod.exit_code is not None)
