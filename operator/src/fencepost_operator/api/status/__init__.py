"""What the operator says about a pipeline; `codec` turns it into the object's status and back.

The docstring below a field is its description in the CRD, for users; comments are for developers.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from fencepost_operator.api.checks import keyed_by
from fencepost_operator.api.model import Model
from fencepost_operator.api.moments import MaybeSince, Times
from fencepost_operator.api.status.durability import DurabilityStatus
from fencepost_operator.api.status.losses import AcceptedLossStatus, DeadLettersStatus, LossStatus, MixedOutput
from fencepost_operator.api.status.pages import PageStatus
from fencepost_operator.api.status.progress import (
    CommittedStatus,
    DataRisk,
    EventTimeStatus,
    OfflinePartition,
    OpenTransaction,
    StoredStateStatus,
    ThroughputStatus,
)
from fencepost_operator.api.status.runs import (
    AutoscaleStatus,
    ClusterStatus,
    FailoverStatus,
    FailureStatus,
    FinishingStatus,
    HandoffStatus,
    RollbackStatus,
    RunStatus,
    StableStatus,
    StandbyStatus,
    UpgradeTrialStatus,
)
from fencepost_operator.api.status.snapshots import SnapshotsStatus
from fencepost_operator.api.vocabulary import Condition, State

KEPT_SPECS: Final = ("run", "stable", "finishing", "rolled_back", "upgrade_trial", "handoff")
"""Fields of a status whose `revision` names a kept spec that may run, beside that of its object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(Model):
    """Observed state of the pipeline. Only the operator writes it."""

    observed_generation: int = -1
    """metadata.generation of the spec that this status describes; -1 before the first reconciliation."""
    # None where an operator wrote it that does not know the field.
    observed_since: datetime | None = None
    """Since when this status describes observedGeneration. A new generation starts it again."""
    state: State = State.PENDING
    """Current state of the pipeline: Pending, Provisioning, Starting, Running, CatchingUp, Restarting, Upgrading,
    Rewinding, Suspended, Standby, Stalled or Deleting. For people; programs should read conditions."""
    message: str = ""
    """Description of the current state."""
    conditions: Annotated[tuple[Condition, ...], keyed_by("type")] = ()
    """Ready is always present. Reconciling and Stalled are present only while they are True, and never both. Streaming
    is whether records are being committed."""
    epoch: int | None = None
    """Epoch of the fence. Only the run of this epoch can commit."""
    restarts: int = 0
    """Number of runs started to replace a failed one, since the pipeline was created."""
    lag: int | None = None
    """Number of records after the committed offsets, over all partitions."""
    throughput: ThroughputStatus | None = None
    run: RunStatus | None = None
    cluster: ClusterStatus | None = None
    autoscale: AutoscaleStatus | None = None
    committed: CommittedStatus | None = None
    event_time: EventTimeStatus | None = None
    stored_state: StoredStateStatus | None = None
    failure: FailureStatus | None = None
    dead_letters: DeadLettersStatus | None = None
    rewind: str | None = None
    """The PipelineRewind that keeps the pipeline from running."""
    open_transactions: tuple[OpenTransaction, ...] = ()
    """Transactions that keep records from being read, the 100 that are open for longest; see the condition
    TransactionStalled."""
    offline_partitions: tuple[OfflinePartition, ...] = ()
    """Partitions for which no leader answers, 100 at most; lag does not count them. See the condition
    PartitionsOffline."""
    data_risk: DataRisk | None = None
    loss: LossStatus | None = None
    accepted_losses: tuple[AcceptedLossStatus, ...] = ()
    """The last ten acceptances of a loss. Table accepted_losses of the fence's keyspace has all."""
    durability: DurabilityStatus | None = None
    snapshots: SnapshotsStatus | None = None
    finishing: FinishingStatus | None = None
    mixed_output: tuple[MixedOutput, ...] = ()
    """The last five ranges of records of which two codes may have written rows, because the code that began a batch
    could not finish it. A PipelineRewind with deleteOutput purges them."""
    stable: StableStatus | None = None
    rolled_back: RollbackStatus | None = None
    upgrade_trial: UpgradeTrialStatus | None = None
    handoff: HandoffStatus | None = None
    standby: StandbyStatus | None = None
    failover: FailoverStatus | None = None
    # A refusal is an answer as well.
    fence_unreachable_since: MaybeSince = None
    """Since when Cassandra has not answered the operator about the checkpoint of a deleted pipeline; absent after any
    answer. In a namespace that is being deleted, the checkpoint is given up five minutes later."""
    not_ready_since: MaybeSince = None
    """Since when the pipeline is neither ready nor stalled, apart from planned steps; a page is sent after a while."""
    unobserved_since: MaybeSince = None
    """Since when the operator has not seen all that Ready is about (the Jobs, the checkpoint, Kafka's offsets); after
    pages.notReadyFor Ready is False."""
    restarted_at: Times = ()
    """When the last four runs replaced one that had failed, drained ones left out; four within 30 minutes are paged."""
    # Written together with the conditions that cause them.
    pages: tuple[PageStatus, ...] = ()
    """Incidents, at most one open per reason. An incident stays until it is resolved and every receiver has the
    resolution. It is written before the first page is sent."""
    # Until the successor streams.
    planned_restart_since: MaybeSince = None
    """Since when a healthy run is being replaced because its spec, something that the spec names, or the operator
    changed. Only so many pipelines are at the same time (maxConcurrentRestarts of the operator's chart)."""

    @property
    def kept_revisions(self) -> frozenset[str]:
        """The revisions of the kept specs that may run."""
        parts = (getattr(self, name) for name in KEPT_SPECS)
        return frozenset(part.revision for part in parts if part is not None) - {""}

    @property
    def held_trial(self) -> UpgradeTrialStatus | None:
        """The trial that new code waits for, None where none is held back."""
        tried = self.upgrade_trial
        return tried if tried is not None and not tried.may_run else None
