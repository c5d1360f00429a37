"""What the operator itself is configured with: its identity, its intervals and its timeouts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileConfig:
    """Identity, intervals and timeouts of one operator; durations in seconds.

    `scope` is the first part of every fence row's key, so that two Kubernetes clusters may share a Cassandra;
    `cluster_uid` (the uid of the kube-system namespace) is the first part of its owner.
    """

    cluster_uid: str
    scope: str = "default"
    cluster_domain: str = "cluster.local"
    runbook_url: str = ""
    """Where the runbooks are; '' where messages name none."""
    chart: str = ""
    """Digest of what the Spark cluster's chart renders; '' where it is not known."""
    resync_interval: float = 5.0
    """Between two passes over a pipeline where nothing changes."""
    refresh_interval: float = 2.0
    """Between two passes where the status has just changed, as lag and offsets do while records flow."""
    standby_interval: float = 1.0
    """The same of a pipeline whose standby is warm, to find a frozen driver; with many pipelines, `looks_per_second`
    counts."""
    figures_interval: float = 15.0
    """Least time between two writes of a status in which nothing but figures has changed."""
    figures_per_second: float = 40.0
    """Such writes for all pipelines together: with many pipelines, the time between two of one is longer."""
    slowest_figures: float = 60.0
    """Between two such writes of a pipeline, however many there are."""
    look_interval: float = 600.0
    """For how long what Kubernetes has shown of a pipeline at rest is used, as long as neither an event nor a census
    shows a change."""
    start_look_interval: float = 5.0
    """The same while a driver starts: that its node is silent or its probe fails, time alone may show, and no event."""
    looks_per_second: float = 100.0
    """At the figures of all pipelines at rest together: with many pipelines, each is looked at less often."""
    slowest_look: float = 9.0
    """Between two looks at the figures of a pipeline, however many there are.

    With its jitter less than the time after which `Kubelets` forget since when a node is silent."""
    census_holds: float = 180.0
    """For how long a census that showed no change stands for looks at each pipeline."""
    references_interval: float = 60.0
    """For how long the ConfigMaps and Secrets that a pipeline at rest names count as unchanged."""
    poll_interval: float = 1.0
    """Between two passes while a change is expected."""
    stop_margin: float = 30.0
    """How much longer than its grace period a stopped run may take before it counts as lost."""
    transaction_timeout: float = 120.0
    """How long an open transaction may hold a partition before it is reported; a producer's own default is 60 s."""
    stale_run_timeout: float = 60.0
    """How long a run that is not the recorded one may take to end on its own."""
    credentials_timeout: float = 60.0
    """How long a deletion waits for a deleted Secret with the checkpoint's credentials to come back."""
    abandon_timeout: float = 300.0
    """How long a pipeline in a namespace that is being deleted waits for a Cassandra that does not answer."""
    observation_timeout: float = 10.0
    """How long reading one fact of an observation may take."""
    durability_interval: float = 24 * 3600.0
    """Between two checks of the durability settings."""
    durability_retry: float = 600.0
    """Between two checks when Kafka or Cassandra did not answer one."""
    max_concurrent_restarts: int = 5
    """How many pipelines may be restarted by plan at the same time; 0 is any number."""
    restart_timeout: float = 600.0
    """How long a pipeline that does not come up counts for that."""
    run_history_limit: int = 3
    """How many ended runs are kept for inspection."""
    page_not_ready_after: float = 600.0
    """How long a pipeline may be not Ready, apart from planned steps, before the operator pages."""
    page_resolve_after: float = 300.0
    """For how long the cause of an incident must be gone until the incident is over."""
