"""What the commands ask of the world; the adapters answer with the Kubernetes API, Cassandra and Kafka."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from fencepost.batch import Range, Watermarks
from fencepost.contract import CassandraEndpoint, KafkaEndpoint, PostgresqlEndpoint, Verdict
from fencepost.contract.code_check import CodeProblem, CodeRequest
from fencepost.fence import FenceRow
from fencepost.fence.history import NO_CHANGE, Change
from fencepost.fence.left_out import LeftOut
from fencepost.fence.letters import DeadLetter
from fencepost.fence.snapshots import Snapshot
from fencepost.fence.tls import TlsMaterial
from fencepost.local.record_lines import FileRecord
from fencepost.local.request import Event, Request
from fencepost.state.chunks import ChunkStore
from fencepost.state.progress import Committed
from fencepost.state.questions import Answer, OperatorsQuestion, RowsQuestion
from fencepost_cli.accepted_loss import AcceptedLoss
from fencepost_cli.retention import Change as Retention
from fencepost_cli.retention import TopicSettings
from fencepost_operator.api import ObjectKey, RewindSpec, RewindStatus, SnapshotsStatus, Spec, Trial, TrialSpec

Json: TypeAlias = Mapping[str, Any]
"""An object of the API server."""

Dial: TypeAlias = Callable[[str, int], tuple[str, int]]
"""Returns the host and port at which this machine reaches a host and port. Raises CliError."""


def directly(host: str, port: int) -> tuple[str, int]:
    """Return the same: the network of this machine reaches it."""
    return host, port


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A pipeline as the API server has it, and what its spec refers to.

    `scope` is the operator's, from the newest run's configuration; None without a run.
    """

    key: ObjectKey
    spec: Spec
    scope: str | None
    fence_secret: Mapping[str, str] | None = field(default=None, repr=False)
    """What `credentialsFrom` of the checkpoint names."""
    tls_secret: Mapping[str, str] | None = field(default=None, repr=False)
    kafka_secret: Mapping[str, str] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraAccess:
    """How to read the fence and the sinks of one pipeline; `pipeline` is the fence row's key."""

    pipeline: str
    keyspace: str
    endpoint: CassandraEndpoint
    consistency: str
    credentials: tuple[str, str] | None = field(repr=False)
    tls: TlsMaterial | None = None
    dial: Dial = field(default=directly, compare=False)

    @property
    def place(self) -> str:
        """What the fence's tables are in, for a message."""
        return f"keyspace {self.keyspace}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresqlAccess:
    """How to read the fence of one pipeline in PostgreSQL; `pipeline` is the fence row's key."""

    pipeline: str
    schema: str
    endpoint: PostgresqlEndpoint
    credentials: tuple[str, str] = field(repr=False)
    tls: TlsMaterial | None = None
    dial: Dial = field(default=directly, compare=False)

    @property
    def place(self) -> str:
        """What the fence's tables are in, for a message."""
        return f"schema {self.schema}"


FenceAccess: TypeAlias = CassandraAccess | PostgresqlAccess
"""How to read the fence of one pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAccess:
    """How to ask for the log's offsets. `properties` are librdkafka's, those of the Secret included."""

    endpoint: KafkaEndpoint
    topics: tuple[str, ...]
    properties: Mapping[str, str] = field(repr=False)
    dial: Dial = field(default=directly, compare=False)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: `kind` is 'partition_key', 'clustering', 'regular' or 'static'."""

    name: str
    kind: str
    position: int
    type: str


@dataclass(frozen=True, slots=True)
class Annotation:
    """The value of an annotation, and the version of the object that has it."""

    value: str | None
    version: str


@dataclass(frozen=True, slots=True)
class Unread:
    """What the operator says of uncommitted records: how many, and since when Kafka has the one that it deletes first.

    None is what it does not say.
    """

    lag: int | None
    topic: str | None
    oldest: datetime | None


class Forwards(Protocol):
    """Ways into the cluster through the API server, for names that this machine cannot look up."""

    def dial(self, place: str, option: str) -> Dial:
        """Return how to reach the names of a field of the spec; `option` is what the command line has in its place."""
        ...


class Cluster(Protocol):
    """The Kubernetes API server. Raises CliError."""

    def config_map(self, key: ObjectKey, name: str) -> Mapping[str, str]:
        """Return the data of a ConfigMap of the pipeline's namespace, none where it does not exist."""
        ...

    def forwards(self, namespace: str, notify: Callable[[str], None]) -> AbstractContextManager[Forwards]:
        """Return the ways of a block; short names are those of the namespace. `notify` gets what is forwarded."""
        ...

    def find(self, name: str, namespace: str | None) -> Found:
        """Return a pipeline; without a namespace, in the context's."""
        ...

    def referenced(self, spec: Spec, name: str, namespace: str | None) -> tuple[Found, Sequence[str]]:
        """Return a pipeline that need not exist, with its Secrets, and the 'Kind/name' of each object it lacks."""
        ...

    def annotate(self, key: ObjectKey, annotation: str, value: str) -> None:
        """Set an annotation of a pipeline."""
        ...

    def annotation(self, key: ObjectKey, annotation: str) -> Annotation:
        """Return an annotation of a pipeline."""
        ...

    def replace_annotation(self, key: ObjectKey, annotation: str, value: str | None, version: str) -> bool:
        """Set an annotation of the pipeline as it was at this version, None removes it; False: it has changed since."""
        ...

    def unread(self, key: ObjectKey) -> Unread:
        """Return what the operator says of the pipeline's uncommitted records."""
        ...

    def create_rewind(self, pipeline: ObjectKey, spec: RewindSpec, name: str | None) -> ObjectKey:
        """Create a PipelineRewind, without a name under one that is made up; return its place."""
        ...

    def rewind(self, key: ObjectKey) -> RewindStatus | None:
        """Return the progress of a rewind, None when it does not exist."""
        ...

    def snapshots(self, key: ObjectKey) -> SnapshotsStatus:
        """Return what the operator says of a pipeline's snapshots now."""
        ...


@dataclass(frozen=True, slots=True)
class Listing:
    """StreamingPipelines as the API server has them; `namespace` is the only one that the account may list, or ''."""

    bodies: Sequence[Json]
    namespace: str


class Related(StrEnum):
    """Kinds of what belongs to a pipeline."""

    EVENTS = "events"
    JOBS = "jobs"
    PODS = "pods"
    REWINDS = "rewinds"
    TRIALS = "trials"


class Objects(Protocol):
    """Pipelines, their trials and what belongs to them, as the API server has them. Raises CliError."""

    def locate(self, name: str, namespace: str | None) -> ObjectKey:
        """Return a pipeline's place; without a namespace, in the context's. The API server is not asked."""
        ...

    def pipelines(self, namespace: str | None) -> Listing:
        """Return the pipelines of a namespace; without one all, or those of the context's if only these are allowed."""
        ...

    def pipeline(self, key: ObjectKey) -> Json:
        """Return one pipeline."""
        ...

    def related(self, key: ObjectKey, kind: Related) -> Sequence[Json]:
        """Return what belongs to a pipeline, in any order; at most 1000 objects."""
        ...

    def merge(self, key: ObjectKey, body: Json) -> None:
        """Merge into a pipeline."""
        ...

    def create_trial(self, pipeline: ObjectKey, spec: TrialSpec, name: str | None) -> ObjectKey:
        """Create a PipelineTrial, without a name under one that is made up; return its place."""
        ...

    def trial(self, key: ObjectKey) -> Trial | None:
        """Return a trial, None when it does not exist."""
        ...

    def delete_trial(self, trial: Trial) -> None:
        """Delete a trial with its Job; nothing to do when it is gone."""
        ...

    def container_log(
        self, pod: ObjectKey, show: Callable[[str], object], *, container: str, tail: int | None, follow: bool = False
    ) -> None:
        """Pass on the last lines of a container's log, None are all, and with `follow` what comes until it ends."""
        ...

    def driver_metrics(self, pod: ObjectKey) -> str:
        """Return the metrics of a driver, in Prometheus' text."""
        ...

    def end_run(self, pod: ObjectKey) -> None:
        """Delete a driver's pod: it finishes its batch within the grace period."""
        ...

    def secret_values(self, body: Json) -> Collection[str]:
        """Return the values of the Secrets that a pipeline names, of those that the account may read."""
        ...

    def operators(self) -> Sequence[Json]:
        """Return the Deployments of operators."""
        ...


class Store(Protocol):
    """The database of the fence, read only but for marks of dead letters and left-out records. Raises CliError.

    The tables of sinks are in it where it is Cassandra.
    """

    def row(self) -> FenceRow | None:
        """Return the fence row by a linearizable read."""
        ...

    def changes(self, hour: datetime, *, after: tuple[int, int] = NO_CHANGE) -> Sequence[Change]:
        """Return what the history has of an hour that came after this epoch and version, in any order."""
        ...

    def first_change(self, hour: datetime, *, epoch: int = 0) -> Change | None:
        """Return the first change that the history has of an hour, of this epoch or a later one."""
        ...

    def accepted(self) -> Sequence[AcceptedLoss]:
        """Return the ranges that people accepted as lost."""
        ...

    def snapshots(self) -> Sequence[Snapshot]:
        """Return the pipeline's snapshots with their offsets, the newest first."""
        ...

    def snapshot(self, found: Snapshot) -> Snapshot | None:
        """Return one of them with all that it holds; None when it is gone."""
        ...

    def chunks(self) -> ChunkStore:
        """Return the files of the pipeline's state, which are read while this store is open. They raise FenceError."""
        ...

    def columns(self, keyspace: str, table: str) -> Sequence[Column]:
        """Return the columns of a table, none when it does not exist."""
        ...

    def positions(self, keyspace: str, table: str, partition_key: Sequence[str]) -> Iterator[tuple[str, int, int]]:
        """Yield (topic, partition, offset) of every row of a table, in any order."""
        ...

    def rows(
        self,
        keyspace: str,
        table: str,
        *,
        key: Sequence[str],
        columns: Sequence[str],
        timed: str | None,
        keys: Iterable[Sequence[Any]],
    ) -> Iterator[tuple[int | None, Sequence[Any]] | None]:
        """Yield for each key the write timestamp of the column `timed`, and the columns; None for an absent row."""
        ...

    def letters(self, topic: str, partition: int, *, start: int, until: int) -> Iterator[DeadLetter]:
        """Yield the dead letters of offsets [start, until), without key, value, headers and traceback."""
        ...

    def letter(self, listed: DeadLetter) -> DeadLetter | None:
        """Return one with all that it holds, None when it is gone."""
        ...

    def mark_retried(self, letter: DeadLetter, *, by: str, at: datetime, to: str) -> None:
        """Record who sent its record to Kafka again, when, and to which 'topic/partition@offset'."""
        ...

    def leave_out(self, record: LeftOut) -> None:
        """Let the pipeline's next runs leave out a record."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """What goes to Kafka; `partition` None leaves it to the key."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Producer(Protocol):
    """A way to write to topics. Raises CliError."""

    def send(self, record: NewRecord) -> str:
        """Store a record, and return its 'topic/partition@offset' once every replica in sync has it."""
        ...


class TopicConfigs(Protocol):
    """The settings of topics. Raises CliError."""

    def read(self, topic: str) -> TopicSettings:
        """Return when Kafka deletes the topic's records."""
        ...

    def check(self, change: Retention) -> None:
        """Ask Kafka whether it would take a change."""
        ...

    def write(self, change: Retention) -> None:
        """Change a topic, and return when Kafka says so."""
        ...


ReadRecords: TypeAlias = Callable[[KafkaAccess, Sequence[Range]], Generator[FileRecord]]
"""Yields the records of ranges of different partitions, in order within a partition. Raises CliError."""
WriteParquet: TypeAlias = Callable[[Path, Path], None]
"""Writes the records of a file of JSON lines to a Parquet file. Raises CliError."""
AskState: TypeAlias = Callable[
    [Committed, ChunkStore, OperatorsQuestion | RowsQuestion], tuple[Answer, Mapping[int, int]]
]
"""Returns the answer about committed state, and the bytes of each operator's files. Raises CliError."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong: the field or the file, the problem, and what to do; the texts are of one line each."""

    place: str
    problem: str
    remedy: str


CheckCode: TypeAlias = Callable[[CodeRequest, str | None], Sequence[CodeProblem]]
"""Returns what is wrong with the code on this machine, or in an image of this name. Raises CliError."""
InspectImage: TypeAlias = Callable[[str], Mapping[str, Any]]
"""Returns what `checking.inspection` finds in an image, and its configuration. Raises CliError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEnd:
    """How a local run ended; `verdict` is None for one that was killed because it was stale."""

    verdict: Verdict | None
    is_interrupted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreToCertify:
    """A store that speaks Cassandra's protocol, or a PostgreSQL, and the account that may create the place for a trial.

    Exactly one endpoint is set.  `replicas` is the replication factor of the scratch keyspace; None means three, or as
    many as there are nodes.
    """

    cassandra: CassandraEndpoint | None = None
    postgresql: PostgresqlEndpoint | None = None
    credentials: tuple[str, str] | None = field(repr=False)
    tls: TlsMaterial | None = None
    replicas: int | None = None

    @property
    def address(self) -> str:
        """The address for a message."""
        endpoint = self.cassandra or self.postgresql
        return endpoint.address if endpoint else ""

    @property
    def place(self) -> str:
        """What it creates and drops."""
        return "keyspace" if self.cassandra else "schema"

    @property
    def removal(self) -> str:
        """The last promise."""
        return f"the {self.place} is dropped"

    @property
    def least_right(self) -> str:
        """What the account needs to begin with."""
        return "grant the account " + ("SELECT ON KEYSPACE system" if self.cassandra else "CONNECT on the database")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """How one promise ended; `kept` is None where it was not tried. `detail` is a figure, or what came instead."""

    promise: str
    needed_by: str
    kept: bool | None
    detail: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What a store kept of all promises, the removal at last; `version` and `protocol` are what it says of itself.

    `protocol` is Cassandra's.  `scratch` is the keyspace or the schema that was created.
    """

    version: str
    protocol: int | None
    scratch: str
    promises: Sequence[Certified]


Certify: TypeAlias = Callable[[StoreToCertify, Callable[[str], object]], Certificate]
"""Tries each promise in a place that it creates and drops, and passes on which one. Raises CliError."""

RunLocal: TypeAlias = Callable[[Request, Callable[[Event], object], Callable[[], bool]], LocalEnd]
"""Runs one pipeline on this machine, passes on its events, and kills it once it is stale. Raises CliError."""


Serve: TypeAlias = Callable[[Callable[[int], Any], int, Callable[[int], None]], None]
"""Serves the ASGI application that is made for a port of 127.0.0.1, until the user ends it; 0 is any port.

Calls the last argument once it listens. Raises CliError.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """How to get at each; `cluster` and `objects` by the name of a kubeconfig context, None for the current one."""

    cluster: Callable[[str | None], Cluster]
    objects: Callable[[str | None], Objects]
    store: Callable[[FenceAccess], AbstractContextManager[Store]]
    log: Callable[[KafkaAccess], Watermarks]
    leader_epoch: Callable[[KafkaAccess, str, int, int], int]
    """Returns that of the record at an offset of a topic and partition; see `fencepost_cli.stores.kafka.epochs`."""
    configs: Callable[[KafkaAccess], AbstractContextManager[TopicConfigs]]
    producer: Callable[[KafkaAccess], AbstractContextManager[Producer]]
    records: ReadRecords
    parquet: WriteParquet
    state: AskState
    code: CheckCode
    image: InspectImage
    local: RunLocal
    serve: Serve
    certify: Certify
