"""What the operator itself is told: who it is, and how patient."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileConfig:
    """Identity and patience of one operator; durations in seconds.

    `scope` is the first part of every fence row's key, so that two Kubernetes clusters may share a Cassandra;
    `cluster_uid` (the uid of the kube-system namespace) is the first part of its owner.
    """

    cluster_uid: str
    scope: str = "default"
    cluster_domain: str = "cluster.local"
    resync: float = 5.0
    """Between two looks at a pipeline where nothing moves."""
    refresh: float = 2.0
    """Between two looks where the status has just changed, as lag and offsets do while records flow."""
    moving: float = 1.0
    """Between two looks while something is expected to happen."""
    stop_margin: float = 30.0
    """How much longer than its grace period a stopped run may take before it counts as lost."""
    start_timeout: float = 180.0
    """How long a driver's container may run without claiming its epoch."""
    stray_grace: float = 60.0
    """How long a run that is not the recorded one may take to end by itself."""
    credentials_grace: float = 60.0
    """How long a deletion waits for the Secret with the checkpoint's credentials to come back."""
    fact_timeout: float = 10.0
    """How long one fact of an observation may take to be seen."""
    history: int = 3
    """How many ended runs are kept to be looked at."""
