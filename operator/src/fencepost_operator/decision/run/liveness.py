"""Whether a run's driver is alive, dead, or neither for certain.

A false 'dead' would let two drivers share one Spark cluster; a false 'alive' costs waiting time.  Neither can commit
twice: the fence prevents that.
"""

from __future__ import annotations

from datetime import timedelta

from fencepost.fence import FenceRow
from fencepost_operator.api import RunStatus
from fencepost_operator.observation import DriverPod, Fact, Known, Liveness, Observation, Run


def liveness_of(run: RunStatus, job: Run | None, observation: Observation, *, stop_margin: float) -> Liveness | None:
    """Return what is known of the driver, or None when that cannot be decided now.

    `stop_margin` is how many seconds longer than its grace period a run may take to stop.
    """
    if job is not None and job.pod is not None:
        liveness: Liveness | None = _by_pod(run, job, job.pod, observation, stop_margin=stop_margin)
    elif job is not None and run.pod_uid is None and not job.finished and not job.deleting:
        liveness = Liveness.ALIVE
    elif run.pod_uid is None:
        liveness = _never_seen(run, job)
    else:
        liveness = _vanished(run, observation)
    if liveness is Liveness.DEAD and _may_have_a_twin(run, observation.fence):
        return Liveness.UNKNOWN
    return liveness


def stop_timeout(job: Run, stop_margin: float) -> timedelta:
    """Return how long a run may take to stop: by its own grace period, which the spec may have changed since."""
    return timedelta(seconds=job.termination_grace + stop_margin)


def has_ended(run: Run) -> bool:
    """Return whether a run's process has ended; its Job's own condition comes seconds after its pod's."""
    return run.finished or (run.pod is not None and run.pod.exit_code is not None)


def may_have_a_driver(run: Run) -> bool:
    """Return whether a Job's pod has not ended, or is yet to come: a Job gets one pod, and none once it is deleted."""
    if has_ended(run):
        return False
    return run.pod is not None or not (run.had_pod or run.deleting)


def _by_pod(run: RunStatus, job: Run, pod: DriverPod, observation: Observation, *, stop_margin: float) -> Liveness:
    if pod.exit_code is not None or pod.phase == "Succeeded":
        return Liveness.DEAD
    if pod.phase == "Failed":
        never_placed = pod.node is None and pod.started_at is None
        return Liveness.DEAD if never_placed or (pod.node_ready and not pod.force_deleted) else Liveness.UNKNOWN
    requested = observation.stop_measured_since if run.stop_requested_at is not None else pod.deleting_since
    if requested is None:
        return Liveness.UNKNOWN if job.orphaned else Liveness.ALIVE
    node_lost = pod.deleting_since is not None and pod.node_ready is False
    overdue = observation.now - requested > stop_timeout(job, stop_margin)
    return Liveness.UNKNOWN if node_lost or overdue or job.orphaned else Liveness.ALIVE


def _never_seen(run: RunStatus, job: Run | None) -> Liveness:
    """Judge a run whose pod was never seen: only a Job that was deleted after its pods, as we ask, proves anything."""
    if job is not None:
        return Liveness.UNKNOWN if job.had_pod else Liveness.DEAD
    return Liveness.DEAD if run.stop_requested_at is not None else Liveness.UNKNOWN


def _vanished(run: RunStatus, observation: Observation) -> Liveness | None:
    """Judge a run whose pod is gone: its node, still the same and Ready, has ended it unless it was deleted by force.

    A pod that is deleted by force after its Job leaves no trace of that, except that it vanishes before its grace
    period is over, without an event that its container terminated.  A node that was unreachable learns of it when it
    is back: the grace period begins then.
    """
    node = observation.run_node
    if observation.run_terminated:
        return Liveness.DEAD
    if run.node_name is None:
        return Liveness.DEAD if _never_started(run, observation.fence) else Liveness.UNKNOWN
    if not isinstance(node, Known):
        return None
    same = node.value.uid is not None and node.value.uid == run.node_uid
    if not same or not node.value.ready or run.force_deleted:
        return Liveness.UNKNOWN
    return Liveness.DEAD if _had_its_grace(run, observation) else Liveness.UNKNOWN


def _never_started(run: RunStatus, fence: Fact[FenceRow | None]) -> bool:
    """Return whether nothing says that a pod that was seen without a node got one afterwards, and started there."""
    if run.started_at is not None or run.claimed_at is not None or not isinstance(fence, Known):
        return False
    return fence.value is None or fence.value.driver != run.pod_uid


def _had_its_grace(run: RunStatus, observation: Observation) -> bool:
    """Return whether the grace period is over, as far as this process has measured it.

    The recorded moment of the request is by a clock that may have stepped since, or by another operator's; that from
    which the node is ready is by another machine's.
    """
    requested, ready = observation.stop_measured_since, observation.node_measured_since
    if run.stop_requested_at is None or requested is None or ready is None or run.termination_grace is None:
        return False
    return (observation.now - max(requested, ready)).total_seconds() >= run.termination_grace


def _may_have_a_twin(run: RunStatus, fence: Fact[FenceRow | None]) -> bool:
    """Return whether the fence row may name a driver of this run that is not the pod that was seen."""
    if not isinstance(fence, Known):
        return run.pod_uid is None
    row = fence.value
    return row is not None and row.epoch == run.epoch and row.driver not in {None, run.pod_uid}
