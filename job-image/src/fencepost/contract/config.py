"""The configuration of a run: the operator writes it, the driver reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Self

import msgspec

from fencepost.contract.codec import ContractError, decode, encode
from fencepost.contract.endpoints import CassandraEndpoint, KafkaEndpoint, PostgresqlEndpoint
from fencepost.contract.formats import RecordFormat, RegistryEndpoint
from fencepost.contract.pod import DATA_SERVICE_FILE, Variable
from fencepost.contract.sinks import DeclaredSink
from fencepost.contract.telemetry import Observability

CONTRACT_VERSION: Final = "1.0"
"""MAJOR.MINOR of the configuration. A new optional field is a new minor version, which older drivers read without the
field; a change that an older driver would misunderstand is a new major version, which they refuse.
"""

LONGEST_REQUEST: Final = 12.0
"""Seconds of the longest request that a task makes: it may begin just before the task's patience ends."""
SHORTEST_PATIENCE: Final = 15.0
"""Seconds of three requests of the driver, 5 s each: less patience would take one slow answer for an outage."""
SHORTEST_TASK_PATIENCE: Final = 5.0
"""Seconds in which a consumer or a session connects, also on a busy node."""
TASK_ATTEMPTS: Final = 2
"""Attempts of each Spark task; the author may set `TASK_ATTEMPTS_SETTING`."""
TASK_ATTEMPTS_SETTING: Final = "spark.task.maxFailures"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingOffsets:
    """Where a topic that the fence row does not know begins.

    `position` is 'earliest' or 'latest'; `partitions`, {'topic/partition': next offset to read}, takes precedence.
    """

    position: str = "earliest"
    partitions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSource(KafkaEndpoint):
    """What to read, where, and how much of it per batch."""

    topics: tuple[str, ...]
    starting_offsets: StartingOffsets = field(default_factory=StartingOffsets)
    max_records_per_batch: int = 100_000
    min_records_per_batch: int = 1_000
    """Records to which a batch that takes too long may shrink; less where memory asks for it."""
    target_batch_duration: float | None = None
    """Seconds that a batch should take; None does not bound it."""
    max_bytes_per_batch: int | None = None
    """Bytes of keys, values and headers; None does not bound them."""
    split_partitions: bool = True
    """Whether several Spark tasks may share the records that a batch has of one Kafka partition."""
    mirror_to_group: str = ""
    """Consumer group that shows the committed offsets to Kafka's tools; '' for none."""
    schema_registry: RegistryEndpoint | None = None
    key: RecordFormat | None = None
    """How the keys are decoded; None leaves them bytes."""
    value: RecordFormat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateConfig:
    """The state of a stateful pipeline."""

    partitions: int
    """Partitions of every stateful operator. The state is stored by them, so the number is fixed for its life."""
    max_bytes: int
    """Bytes that the files of the state may have together."""
    data_port: int
    """Port of the data service beside each worker, 0 without one."""
    output_mode: str = "update"
    """The rows that a batch gives to the sinks, in Spark's words: 'update' or 'append'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedState:
    """Rows of a store of the state that a snapshot has, for the author's function.

    `pipeline` is the key of the snapshot's fence row.  `operator` and `store` may be None where there is only one.
    """

    name: str
    pipeline: str
    snapshot: str
    operator: int | None = None
    store: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataServiceConfig:
    """What the data service beside a worker is given: a file beside Spark's configuration, without any secret."""

    pipeline: str
    """The fence row's key."""
    cassandra: CassandraEndpoint
    keyspace: str
    consistency: str
    """As of the sinks' writes; the state's files have at least that of a majority."""
    port: int
    cache_bytes: int
    """Bytes of stored files that it keeps on the scratch volume."""

    def to_json(self) -> str:
        """Return the JSON on one line, keys sorted."""
        return encode(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote. Raises ContractError naming the field that is missing or of another type."""
        return decode(cls, text, DATA_SERVICE_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverConfig:
    """Everything that a run is given, fixed for its life. Units: seconds.

    `pipeline` is the fence row's key, `<scope>/<namespace>/<name>`; `epoch` the one this run may commit under.
    """

    pipeline: str
    epoch: int
    entrypoint: str
    args: tuple[str, ...]
    code: str
    """Identity of the code for the fence row: image and entrypoint (and the ConfigMap's hash)."""
    source: KafkaSource
    sinks: tuple[DeclaredSink, ...]
    fence_keyspace: str
    """The keyspace of the fence's tables; in PostgreSQL their schema."""
    consistency: str
    """Of the sinks' writes and of the fence's learn phase: a Cassandra level, e.g. LOCAL_QUORUM."""
    batch_interval: float
    spark_master: str
    spark_conf: Mapping[str, str]
    executors: int
    """Workers of the cluster: the first batch waits for at least one executor."""
    termination_grace: float
    cassandra: CassandraEndpoint | None = None
    """The cluster of the fence, of the Cassandra sinks and of the state; None where the fence is elsewhere."""
    postgresql: PostgresqlEndpoint | None = None
    """The database of the fence, where that is in PostgreSQL."""
    owner: str = ""
    """The owner that the fence row must name for a claim; empty skips that check."""
    first_batch_limit: int | None = None
    """Maximum number of records of the run's first batches, when that is less than `source.max_records_per_batch`: half
    of a batch that failed.  It doubles every ten minutes.  A later run has none, unless a batch fails again."""
    stall_timeout: float = 60.0
    """Seconds without progress after which the operator replaces the run (spec.restart.stallTimeout)."""
    start_timeout: float = 180.0
    """Seconds for which the first tasks of an executor count as progress, because it imports the author's code: as long
    as a run may take to its claim (spec.restart.startTimeout)."""
    isolate: bool = False
    """Whether a batch that fails for what may be a record is cut down to that record; of a stateful run, whether that
    record is looked for."""
    dead_letter_retention: float | None = None
    """Seconds for which the dead letter of a record that fails alone is kept; None ends the run there."""
    finish_until: Mapping[str, int] = field(default_factory=dict)
    """Where a run ends that only finishes what its code began, {'topic/partition': next offset to read}; empty for a
    run without an end."""
    awaits_epoch: bool = False
    """Whether the run starts before its epoch has begun, and waits for that when it is warm."""
    stands_by: bool = False
    """Whether the epoch that it awaits begins only when the run of the epoch before fails, if ever."""
    heartbeat: float = 0.0
    """Seconds between two heartbeats of a run that holds the fence, by which the operator finds one that is frozen or
    cut off; 0 for none."""
    idle_heartbeat: float = 8.0
    """The same of a run that finds nothing to read, and most seconds between two of any run."""
    hands_over: bool = False
    """Whether a run that is asked to stop ends its epoch as its last change of the fence row."""
    state: StateConfig | None = None
    """None for a stateless pipeline."""
    pinned_states: tuple[PinnedState, ...] = ()
    """Read once, before the claim."""
    observability: Observability = field(default_factory=Observability)
    contract_version: str = CONTRACT_VERSION

    @property
    def cluster(self) -> CassandraEndpoint:
        """The Cassandra cluster. Raises ContractError for a run whose configuration has none."""
        if self.cassandra is None:
            raise ContractError(f"{Variable.CONFIG}: a sink, a state or a trial needs `cassandra`")
        return self.cassandra

    @property
    def patience(self) -> float:
        """Seconds that the driver waits for a dependency: half of `stall_timeout`, at least SHORTEST_PATIENCE.

        All waiting is to end before the operator replaces the run as unresponsive, because the driver's verdict names
        the cause. With a `stall_timeout` of 60 s:

        - the driver itself: 60 / 2 = 30 s, and one request more;
        - a lost executor: 0.8 x 60 = 48 s (`executor_patience`);
        - a task: two attempts within 48 s, each 24 s, of which the last request takes up to 12 (`task_patience`: 12 s).

        Below 43 s the lower bounds take precedence, and the operator may be first.
        """
        return max(self.stall_timeout / 2, SHORTEST_PATIENCE)

    @property
    def executor_patience(self) -> float:
        """Seconds that a run waits for an executor after it lost all: 0.8 x `stall_timeout`, at least `patience`.

        A worker whose pod is evicted, or restarted by the kubelet, needs tens of seconds.
        """
        return max(0.8 * self.stall_timeout, self.patience)

    @property
    def task_patience(self) -> float:
        """Seconds that one attempt of a task waits for Kafka or Cassandra: its share of `executor_patience`.

        Each ticket for a file of a state carries it to the data service that waits for Cassandra instead of the task.

        Spark repeats a task that fails, and that attempt waits again. LONGEST_REQUEST is kept for the last request of
        each attempt. At least SHORTEST_TASK_PATIENCE.
        """
        attempts = task_attempts(self.spark_conf)
        return max(self.executor_patience / attempts - LONGEST_REQUEST, SHORTEST_TASK_PATIENCE)

    def to_json(self) -> str:
        """Return the one-line JSON for the driver, keys sorted so that equal configs are equal text."""
        return encode(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what the `to_json` of any release with the same major version wrote.

        Unknown fields are ignored; absent optional fields have their defaults. Raises NotJsonError, and ContractError
        naming the field that is missing or of another type, or the major version that is newer than this driver's.
        """
        _check_version(decode(_Versioned, text, Variable.CONFIG).contract_version)
        found = decode(cls, text, Variable.CONFIG)
        if (found.cassandra is None) is (found.postgresql is None):
            raise ContractError(f"{Variable.CONFIG}: the fence must be in one of `cassandra` and `postgresql`")
        return found


def task_attempts(spark_conf: Mapping[str, str]) -> int:
    """Return how often Spark tries a task with an author's settings."""
    authors = spark_conf.get(TASK_ATTEMPTS_SETTING, "")
    return (int(authors) if authors.isdecimal() else 0) or TASK_ATTEMPTS  # Spark refuses the others


class _Versioned(msgspec.Struct):
    contract_version: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}\.[0-9]")] = CONTRACT_VERSION


def _check_version(version: str) -> None:
    if int(version.partition(".")[0]) > int(CONTRACT_VERSION.partition(".")[0]):
        raise ContractError(
            f"{Variable.CONFIG} has contract version {version}, and this image understands up to {CONTRACT_VERSION}:"
            " set spec.job.image to an image of the operator's release or newer"
        )
