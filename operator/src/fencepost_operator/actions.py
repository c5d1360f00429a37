"""What a decision can ask for: a closed union of idempotent actions, each with all its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from fencepost_operator.observation import ClusterObject

Manifest: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFinalizer:
    """Make the API server wait for our cleanup before it forgets the pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFinalizer:
    """Cleanup is done: let the API server forget the pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallCluster:
    """`helm upgrade --install` with these values; also scales in place. Recovers a release left pending."""

    values: Manifest
    keep: int | None = None
    """An older generation whose objects stay, because a run works on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreCluster:
    """Apply the release's objects again; `damage` names those that were deleted or changed."""

    damage: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UninstallCluster:
    """`helm uninstall`; nothing to do when the release is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneCluster:
    """Delete objects of generations that are no longer wanted, each on condition of its uid."""

    objects: tuple[ClusterObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFence:
    """Insert the pipeline's fence row at epoch 0 unless one is there; makes the schema when the spec allows it."""

    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOverFence:
    """Take the fence over: epoch + 1, no driver. Dangerous: the run of `epoch` can commit no more.

    Conditional on the epoch, and on the version unless that is None: a driver that commits while it is taken over stops
    only a takeover that is due because it does not commit.
    """

    epoch: int
    version: int | None
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptLoss:
    """Record that a user accepts a loss, before the run is started that continues without the records.

    `committed_ms` and `loss` name it; `choice` says where to continue in a replaced topic.
    """

    committed_ms: int
    loss: str
    by: str
    choice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRun:
    """Create the driver Job of an epoch. Dangerous; nothing to do when this very Job exists."""

    epoch: int
    job: Manifest
    config_map: Manifest
    revision: Manifest
    """The spec that it runs with, stored before the Job exists."""
    keep: tuple[str, ...] = ()
    """Names of other revisions that are needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRevision:
    """Store a spec that the run already runs with, as after a change that needs no other run."""

    revision: Manifest
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TryCode:
    """Create the PipelineTrial that an upgrade waits for; nothing to do when it exists."""

    trial: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRun:
    """Delete a run's Job in the foreground: SIGTERM to the driver, the Job goes after its pod."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRun:
    """Delete a finished run that history does not keep."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSnapshot:
    """Copy what the fence row has committed into a snapshot; nothing to do when one with this id is there.

    The row is read when it is copied, so that an action that is tried again stays the same action.
    `of` is the id of a snapshot that is copied instead.
    """

    id: str
    trigger: str
    name: str
    owner: str
    of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSnapshots:
    """Delete snapshots that retention does not keep."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPurge:
    """Create the Job that counts or deletes output for a rewind; nothing to do when this very Job exists."""

    job: Manifest
    config_map: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindFence:
    """Set an unclaimed row's offsets back, on condition of epoch and version. Dangerous: batches are repeated.

    Maps are of 'topic/partition'; `leader_epochs` are of the partitions that move.  `keeps_output`: a batch stays begun
    in the partitions that do not move.  `snapshot` is the id of the one whose state is set with the offsets; a stateful
    pipeline starts with empty state without one.
    """

    epoch: int
    version: int
    offsets: Mapping[str, int]
    leader_epochs: Mapping[str, int]
    growth_barrier: Mapping[str, int]
    keeps_output: bool
    snapshot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFence:
    """Release the row (deletionPolicy: Delete), on condition of epoch and version: no owner, no progress.

    Epoch and clock stay, so that neither a driver nor output of the deleted pipeline gets in the way of a new one.
    """

    epoch: int
    version: int


Action: TypeAlias = (
    AddFinalizer
    | RemoveFinalizer
    | InstallCluster
    | RestoreCluster
    | UninstallCluster
    | PruneCluster
    | CreateFence
    | TakeOverFence
    | AcceptLoss
    | StartRun
    | KeepRevision
    | TryCode
    | StopRun
    | DeleteRun
    | TakeSnapshot
    | DropSnapshots
    | StartPurge
    | RewindFence
    | ReleaseFence
)
