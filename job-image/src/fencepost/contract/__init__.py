"""What the operator and the driver agree on: environment, configuration, exit codes, verdict.

The operator writes a `DriverConfig` into the Job as one JSON variable and the driver reads it back; the driver ends
with an `ExitCode` and a `Verdict` in the termination log, and the operator reads that.  Both sides import this module,
so neither can drift.  It needs the standard library alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, Final, Self

TERMINATION_LOG: Final = "/dev/termination-log"
"""Where Kubernetes reads the container's last words (its default terminationMessagePath; 4096 bytes at most)."""

DRIVER_PORT: Final = 7078
"""Fixed port of the driver's RPC, so that a NetworkPolicy can name it."""

BLOCK_MANAGER_PORT: Final = 7079
"""Fixed port of the driver's block manager."""

KAFKA_PROPERTIES_DIR: Final = "/etc/fencepost/kafka"
"""Where `source.kafka.propertiesFrom` is mounted: one file a property, its name librdkafka's."""

CODE_DIR: Final = "/opt/fencepost/code"
"""Where `job.codeFrom` is mounted, in the driver and in every worker; it is on PYTHONPATH."""


class Variable:
    """Names of the driver's environment variables."""

    CONFIG: Final = "FENCEPOST_CONFIG"
    """JSON of `DriverConfig`."""
    POD_UID: Final = "FENCEPOST_POD_UID"
    """The pod's uid, by the downward API: the driver's identity at the fence."""
    POD_IP: Final = "FENCEPOST_POD_IP"
    """Where executors reach the driver, by the downward API."""
    SPARK_AUTH_SECRET: Final = "FENCEPOST_SPARK_AUTH_SECRET"  # noqa: S105 - a variable's name
    """The cluster generation's shared secret."""
    CASSANDRA_USERNAME: Final = "FENCEPOST_CASSANDRA_USERNAME"
    CASSANDRA_PASSWORD: Final = "FENCEPOST_CASSANDRA_PASSWORD"  # noqa: S105 - a variable's name


class ExitCode(IntEnum):
    """How a driver ends; the operator decides by it."""

    STOPPED = 0
    """Asked to stop; the batch in hand was committed."""
    FAILED = 1
    """An exception that has no code of its own: restarted with backoff."""
    FENCED = 50
    """Another run or another pod holds the fence: nothing was committed after that."""
    BAD_SPEC = 51
    """The spec or the author's code cannot work as it is: a restart would not help."""
    DATA_LOSS = 52
    """Kafka no longer has what the fence row points at."""
    POISON_RECORD = 53
    """A record fails each time it is tried."""
    DEPENDENCY_DOWN = 54
    """Kafka or Cassandra did not answer for longer than the driver waits."""
    NO_EXECUTORS = 55
    """The Spark cluster gave no executor in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cassandra:
    """How to reach a Cassandra cluster; credentials travel by environment, never here."""

    contact_points: tuple[str, ...]
    port: int = 9042
    local_datacenter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingOffsets:
    """Where a topic that the fence row does not know begins.

    `position` is 'earliest' or 'latest'; `partitions`, {'topic/partition': next offset to read}, goes before it.
    """

    position: str = "earliest"
    partitions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSource:
    """What to read, and at most how many records a batch."""

    bootstrap_servers: str
    topics: tuple[str, ...]
    starting_offsets: StartingOffsets = field(default_factory=StartingOffsets)
    max_records_per_batch: int = 100_000
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraSink:
    """One declared output: rows of the author's frame named `name` go to keyspace.table, column by column name."""

    name: str
    keyspace: str
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverConfig:
    """Everything a run is told, fixed for its life. Units: seconds.

    `pipeline` is the fence row's key, `<scope>/<namespace>/<name>`; `epoch` the one this run may commit under.
    """

    pipeline: str
    epoch: int
    entrypoint: str
    args: tuple[str, ...]
    code: str
    """Identity of the code for the fence row: image and entrypoint (and the ConfigMap's hash)."""
    source: KafkaSource
    sinks: tuple[CassandraSink, ...]
    cassandra: Cassandra
    fence_keyspace: str
    consistency: str
    """Of the sinks' writes and of the fence's learn phase: a Cassandra level, e.g. LOCAL_QUORUM."""
    batch_interval: float
    spark_master: str
    spark_conf: Mapping[str, str]
    executors: int
    """Workers of the cluster: the first batch waits for at least one executor."""
    termination_grace: float
    owner: str = ""
    """The owner that the fence row must name for a claim; empty skips that check (an operator before contract 1.0)."""
    first_batch_limit: int | None = None
    """Maximum number of records of the first batch, when that is less than `source.max_records_per_batch`."""
    stall_timeout: float = 60.0
    """Seconds without progress after which the operator replaces the run."""

    @property
    def patience(self) -> float:
        """Seconds that the driver waits for a dependency: short enough that its verdict precedes the operator's."""
        return self.stall_timeout / 2

    def to_json(self) -> str:
        """Return the one-line JSON for `Variable.CONFIG`, keys sorted so that equal configs are equal text."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote.

        Raises ContractError naming the field when the text is not a DriverConfig (operator and image disagree).
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            source = dict(raw.pop("source"))
            cassandra = dict(raw.pop("cassandra"))
            return cls(
                source=KafkaSource(
                    **{
                        **source,
                        "topics": tuple(source["topics"]),
                        "starting_offsets": StartingOffsets(**source["starting_offsets"]),
                    }
                ),
                sinks=tuple(CassandraSink(**sink) for sink in raw.pop("sinks")),
                cassandra=Cassandra(**{**cassandra, "contact_points": tuple(cassandra["contact_points"])}),
                args=tuple(raw.pop("args")),
                **raw,
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ContractError(f"{Variable.CONFIG} is not a driver configuration: {error}") from error


class ContractError(ValueError):
    """The operator and the job image disagree about the contract; use images of one release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The driver's last words, JSON in the termination log.

    `reason` is a CamelCase word, `message` what happened, `remedy` what to do; `batch` holds the offsets of the
    batch that was in hand, {'topic/partition': [from, until)}, when there was one.
    """

    exit_code: int
    reason: str
    message: str
    remedy: str
    epoch: int | None = None
    version: int | None = None
    batch: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    LIMIT = 4096

    def to_json(self) -> str:
        """Return JSON of at most LIMIT bytes in UTF-8 (the kubelet's limit).

        The batch gives way first, then the end of the message, then the remedy's.
        """
        record = asdict(self)
        if _excess(record) > 0:
            record["batch"] = {}
        for name in ("message", "remedy"):
            record[name] = record[name][: self.LIMIT]
            while record[name] and (excess := _excess(record)) > 0:
                # A character takes six bytes at most, so this never cuts more than it must.
                record[name] = record[name][: -max(1, excess // 6)]
        return _json(record)

    @classmethod
    def from_json(cls, text: str) -> Verdict | None:
        """Return the verdict in a termination message, or None when it is not one (a crash left other text)."""
        try:
            raw = json.loads(text)
            batch = {key: (int(low), int(high)) for key, (low, high) in raw.pop("batch", {}).items()}
            return cls(**raw, batch=batch)
        except (ValueError, TypeError, AttributeError):
            return None


def _excess(record: Mapping[str, object]) -> int:
    """Return by how many bytes a verdict's JSON is too long; not above zero when it fits."""
    return len(_json(record).encode()) - Verdict.LIMIT


def _json(record: Mapping[str, object]) -> str:
    """Return JSON with every character as it is; half a surrogate pair, which UTF-8 does not have, becomes a '?'."""
    return json.dumps(record, sort_keys=True, ensure_ascii=False).encode(errors="replace").decode()


def offset_key(topic: str, partition: int) -> str:
    """Return the key of a partition in offsets maps: 'topic/partition'."""
    return f"{topic}/{partition}"


def split_offset_key(key: str) -> tuple[str, int]:
    """Return (topic, partition) of an offsets key. Raises ValueError when it is not one."""
    topic, _, partition = key.rpartition("/")
    if not topic:
        raise ValueError(f"not a 'topic/partition' key: {key!r}")
    return topic, int(partition)
