"""What the user says: the spec of a StreamingPipeline, with every default in its place.

A field says its type, its bounds, its default, its description and what a change of it does (`api.effects`). The CRD
(`make reference`), the reference and the hashes follow from that. Durations are in seconds, memory in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from fencepost.contract import LOCAL_SERIAL, SERIAL, spark_conf
from fencepost.contract.tables import OWN_TABLES
from fencepost_operator.api.checks import DurationRange, Rule, keyed_by
from fencepost_operator.api.effects import Effect
from fencepost_operator.api.fields import Seconds
from fencepost_operator.api.model import Model
from fencepost_operator.api.spec.checkpoint import SURVIVING, CheckpointSpec
from fencepost_operator.api.spec.cluster import ClusterSpec
from fencepost_operator.api.spec.failures import FailoverSpec, OnPoisonSpec, RestartSpec, UnprovenDeath, UpgradeSpec
from fencepost_operator.api.spec.job import JobMode, JobSpec
from fencepost_operator.api.spec.observability import ObservabilitySpec
from fencepost_operator.api.spec.sinks import SinkSpec
from fencepost_operator.api.spec.snapshots import SnapshotsSpec
from fencepost_operator.api.spec.source import SourceSpec
from fencepost_operator.api.spec.state import PARTITIONS, StateSpec

_TABLES: Final = sorted(OWN_TABLES)
_STATELESS: Final = f"self.job.mode != '{JobMode.STATEFUL}'"
_OF_STATE: Final = spark_conf.RESERVED_WITH_STATE


class DeletionPolicy(StrEnum):
    """Whether the fence row outlives the pipeline."""

    RETAIN = "Retain"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Spec(Model):
    """Desired state of the pipeline."""

    MARKS = (
        Rule(
            "!has(self.checkpoint.cassandra) || !self.sinks.exists(s, has(s.cassandra) &&"
            f" s.cassandra.keyspace == self.checkpoint.cassandra.keyspace && s.cassandra.table in {_TABLES})",
            f"a sink must not write to Fencepost's own tables ({', '.join(_TABLES)}) in checkpoint.cassandra.keyspace;"
            " name another table or keyspace",
            field_path=".sinks",
        ),
        Rule(
            "has(self.checkpoint.cassandra) || !self.sinks.exists(s, has(s.cassandra))",
            "must have no cassandra sink with checkpoint.postgresql, because such a sink writes to the cluster of"
            " checkpoint.cassandra; name another kind of sink, or checkpoint.cassandra",
            field_path=".sinks",
        ),
        Rule(
            "has(self.checkpoint.postgresql) || !self.sinks.exists(s, has(s.postgresql))",
            "must have no postgresql sink with checkpoint.cassandra, because its rows are committed in the database of"
            " checkpoint.postgresql; name another kind of sink, or checkpoint.postgresql",
            field_path=".sinks",
        ),
        Rule(
            "!has(self.checkpoint.postgresql) || !self.sinks.exists(s, has(s.postgresql) &&"
            " s.postgresql.schema == self.checkpoint.postgresql.schema)",
            "a sink must not write to the schema of Fencepost's own tables, checkpoint.postgresql.schema; name another"
            " schema",
            field_path=".sinks",
        ),
        Rule(
            f"has(self.checkpoint.cassandra) || {_STATELESS}",
            f"must not be {JobMode.STATEFUL} with checkpoint.postgresql, because the state is stored in Cassandra;"
            f" set it to {JobMode.STATELESS}, or name checkpoint.cassandra",
            field_path=".job.mode",
        ),
        Rule(
            "has(self.checkpoint.cassandra) || !has(self.source.pinnedStates) || self.source.pinnedStates.size() == 0",
            "must be empty with checkpoint.postgresql, because states are stored in Cassandra; remove it, or name"
            " checkpoint.cassandra",
            field_path=".source.pinnedStates",
        ),
        Rule(
            f"self.job.mode == '{JobMode.STATEFUL}' || !has(self.state)",
            f"must not be there without job.mode {JobMode.STATEFUL}; remove it, or create a pipeline with that mode",
            field_path=".state",
        ),
        Rule(
            f"(has(self.state) ? self.state.partitions : {PARTITIONS}) =="
            f" (has(oldSelf.state) ? oldSelf.state.partitions : {PARTITIONS})",
            "is immutable, because the state is stored by partition; set it back, or create a pipeline under another"
            " name",
            field_path=".state.partitions",
        ),
        Rule(
            f"{_STATELESS} || !has(self.onPoison) || self.onPoison.action != 'deadLetter'",
            f"must not be deadLetter with job.mode {JobMode.STATEFUL}, because a batch that has changed the state is"
            " not cut down to one record; remove it",
            field_path=".onPoison.action",
        ),
        Rule(
            f"{_STATELESS} || !has(self.upgrade) || self.upgrade.rollback != 'enabled'",
            f"must not be enabled with job.mode {JobMode.STATEFUL}, because earlier code may not read the state that"
            " the new code has written; remove it",
            field_path=".upgrade.rollback",
        ),
        Rule(
            f"{_STATELESS} || !has(self.upgrade) || self.upgrade.strategy != 'Handoff'",
            f"must not be Handoff with job.mode {JobMode.STATEFUL}, because its state is served by the run that has it;"
            " remove it",
            field_path=".upgrade.strategy",
        ),
        Rule(
            f"{_STATELESS} || !has(self.restart) || self.restart.standby != 'Warm'",
            f"must not be Warm with job.mode {JobMode.STATEFUL}, because its state is served by the run that has it;"
            " remove it",
            field_path=".restart.standby",
        ),
        Rule(
            f"{_STATELESS} || !has(self.cluster) || !has(self.cluster.sparkConf) ||"
            f" self.cluster.sparkConf.all(k, {' && '.join(f'!k.startsWith({prefix!r})' for prefix in _OF_STATE)})",
            f"must not have {', '.join(_OF_STATE)} with job.mode {JobMode.STATEFUL}, because Fencepost sets what begins"
            " so; remove the key",
            field_path=".cluster.sparkConf",
        ),
        Rule(
            "!has(self.failover) || !has(self.checkpoint.cassandra) ||"
            f" self.checkpoint.cassandra.serialConsistency == '{SERIAL}'",
            f"must not be there with checkpoint.cassandra.serialConsistency {LOCAL_SERIAL}, because the transactions of"
            " two datacenters do not see each other; remove it, or follow docs/operations.md#serial-or-local_serial",
            field_path=".failover",
        ),
        Rule(
            "!has(self.failover) || !has(self.checkpoint.cassandra) ||"
            f" self.checkpoint.cassandra.consistency in {list(SURVIVING)}",
            f"must be {' or '.join(SURVIVING)} with failover, because rows that one datacenter alone has are lost with"
            " it; set it",
            field_path=".checkpoint.cassandra.consistency",
        ),
        Rule(
            f"!has(self.failover) || !has(self.restart) || self.restart.onUnprovenDeath != '{UnprovenDeath.WAIT}'",
            f"must not be {UnprovenDeath.WAIT} with failover, because one Kubernetes cluster has no proof of a driver's"
            " death in another one; remove one of the two",
            field_path=".restart.onUnprovenDeath",
        ),
    )

    suspend: Annotated[bool, Effect.SUSPENDS] = False
    """Stop the run and the Spark cluster after the batch in progress. The fence row is kept; setting this back to false
    resumes from the last commit."""
    job: Annotated[JobSpec, Effect.NEW_RUN]
    cluster: Annotated[ClusterSpec, Effect.NEW_CLUSTER] = field(default_factory=ClusterSpec)
    source: Annotated[SourceSpec, Effect.NEW_RUN]
    sinks: Annotated[
        tuple[SinkSpec, ...],
        Field(min_length=1, max_length=20),
        keyed_by("name"),
        Rule(
            "self.all(s, !has(s.cassandra) || self.exists_one(t, has(t.cassandra) &&"
            " t.cassandra.keyspace == s.cassandra.keyspace && t.cassandra.table == s.cassandra.table))",
            "two sinks write to the same keyspace and table; give each its own table",
        ),
        Rule(
            "self.all(s, !has(s.postgresql) || self.exists_one(t, has(t.postgresql) &&"
            " t.postgresql.schema == s.postgresql.schema && t.postgresql.table == s.postgresql.table))",
            "two sinks write to the same schema and table; give each its own table",
        ),
        Effect.NEW_RUN,
    ]
    """Outputs of the pipeline. The transform returns a mapping from sink name to DataFrame, or one DataFrame for one
    sink."""
    checkpoint: Annotated[CheckpointSpec, Effect.NEW_RUN]
    state: Annotated[StateSpec | None, Effect.NEW_CLUSTER] = None
    batch_interval: Annotated[Seconds, DurationRange("0s", "1h", "500ms, 5s or 1m30s"), Effect.NEW_RUN] = 5.0
    """Time from the start of one batch to the start of the next, such as 500ms, 5s or 1m30s. If a batch takes longer,
    the next one starts at once. At most 1h."""
    snapshots: Annotated[SnapshotsSpec, Effect.AT_ONCE] = field(default_factory=SnapshotsSpec)
    restart: Annotated[RestartSpec, Effect.AT_ONCE] = field(default_factory=RestartSpec)
    upgrade: Annotated[UpgradeSpec, Effect.AT_ONCE] = field(default_factory=UpgradeSpec)
    failover: Annotated[FailoverSpec | None, Effect.AT_ONCE] = None
    on_poison: Annotated[OnPoisonSpec, Effect.NEW_RUN] = field(default_factory=OnPoisonSpec)
    observability: Annotated[ObservabilitySpec, Effect.NEW_RUN] = field(default_factory=ObservabilitySpec)
    deletion_policy: Annotated[DeletionPolicy, Effect.AT_ONCE] = DeletionPolicy.RETAIN
    """What happens to the committed offsets when the pipeline is deleted. Retain: a pipeline created again under the
    same name resumes at the last commit. Delete: it begins at source.kafka.startingOffsets."""

    @property
    def stateful(self) -> StateSpec | None:
        """The settings of a stateful pipeline's state, None of a stateless one."""
        return (self.state or StateSpec()) if self.job.mode is JobMode.STATEFUL else None


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong in a spec: the field's path, what is wrong, what to do."""

    field: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}; {self.remedy}"
