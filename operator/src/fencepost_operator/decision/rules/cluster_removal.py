"""Uninstalling a Spark cluster that should not exist: the pipeline is suspended, or has no workers."""

from __future__ import annotations

from dataclasses import replace

from fencepost_operator.actions import UninstallCluster
from fencepost_operator.api import ClusterStatus, Reason, State
from fencepost_operator.decision.context import Context, RunContext
from fencepost_operator.decision.outcome import KUBERNETES_REASONS, Outcome, reconciling
from fencepost_operator.observation import Known, Unknown


def uninstall(context: Context, *, why: str, reason: Reason, state: State | None = None) -> Outcome | None:
    """Uninstall the release, None without one; that the cluster goes is recorded first."""
    release = context.observation.release
    if isinstance(release, Known) and release.value is None:
        return None
    message = f"{why}: uninstalling the Spark cluster"
    if isinstance(release, Unknown):
        return reconciling(
            context,
            KUBERNETES_REASONS[release.reason],
            f"{message}: {release.message}",
            remedy=release.remedy,
            state=state,
            warning=True,
        )
    return reconciling(
        context,
        reason,
        message,
        state=state,
        action=UninstallCluster(),
        status=replace(context.status, cluster=forgotten(context.status.cluster)),
    )


def forgotten(cluster: ClusterStatus | None) -> ClusterStatus | None:
    """Return the record of a cluster that goes.

    No hash matches: the next cluster gets names of its own, and does not wait for this one's to be free.
    """
    return replace(cluster, config_hash="", ready_at=None, workers=0, ready_workers=0) if cluster else None


def cluster_is_superfluous(context: RunContext, state: State | None = None) -> Outcome | None:
    """Uninstall the cluster of a pipeline without workers, whose driver's pod runs the tasks.

    Also one that appears later, as by an installation that timed out.  Where nothing is recorded, a release that cannot
    be read stands in the way of no run.
    """
    recorded = context.status.cluster
    if isinstance(context.observation.release, Unknown) and (recorded is None or not recorded.config_hash):
        return None
    return uninstall(context, why="Scaling to 0 workers", reason=Reason.SCALED, state=state)
