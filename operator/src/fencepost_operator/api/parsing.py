"""From the body of a StreamingPipeline to a Spec, or to everything that is wrong with it.

The CRD's schema refuses most of this already.  An object may be older than the schema, though, and a schema may be
loosened by hand, so nothing here trusts it: a missing default is filled in, a wrong value is a violation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from fencepost.contract import kafka_properties, spark_conf
from fencepost.contract.tables import OWN_TABLES
from fencepost_operator.api.quantities import parse_bytes, parse_duration, parse_quantity
from fencepost_operator.api.spec import (
    CheckpointSpec,
    ClusterSpec,
    DeletionPolicy,
    JobSpec,
    KafkaSpec,
    MasterSpec,
    RestartSpec,
    SinkSpec,
    Spec,
    Violation,
    WorkerSpec,
)
from fencepost_operator.api.text import forbidden_text

T = TypeVar("T")

ENTRYPOINT: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
IDENTIFIER: Final = re.compile(r"[a-z][a-z0-9_]*")
POSITION: Final = re.compile("earliest|latest")
PARTITION: Final = re.compile(r"[A-Za-z0-9._-]+/[0-9]+")
SMALLEST_WORKER: Final = 1024 * 1024 * 1024


def parse(body: Mapping[str, Any]) -> Spec | tuple[Violation, ...]:
    """Return the spec in a body, or every violation in it, in the order of the fields."""
    violations = list(forbidden_text(body.get("spec")))
    root = _Node("spec", body.get("spec") or {}, violations)
    spec = Spec(
        suspend=root.take("suspend", bool, False),
        job=_job(root.child("job")),
        cluster=_cluster(root.child("cluster")),
        source=_kafka(root.child("source").child("kafka")),
        sinks=_sinks(root),
        checkpoint=_checkpoint(root.child("checkpoint").child("cassandra")),
        batch_interval=root.take("batchInterval", parse_duration, 5.0),
        restart=_restart(root.child("restart")),
        deletion_policy=root.take("deletionPolicy", DeletionPolicy, DeletionPolicy.RETAIN),
    )
    if not violations:
        violations.extend(_contradictions(spec))
    return tuple(violations) if violations else spec


class _Node:
    """A JSON object at a path; what it cannot give becomes a violation, so that all are reported at once."""

    def __init__(self, path: str, raw: object, violations: list[Violation]) -> None:
        self.path = path
        self.violations = violations
        self.raw: Mapping[str, Any] = _object_or_empty(raw)
        if not isinstance(raw, Mapping):
            self.refuse("", f"{raw!r} is not an object", "write it as an object, as in the examples")

    def refuse(self, name: str, problem: str, remedy: str) -> None:
        self.violations.append(Violation(f"{self.path}.{name}" if name else self.path, problem, remedy))

    def child(self, name: str) -> _Node:
        return _Node(f"{self.path}.{name}", self.raw.get(name) or {}, self.violations)

    def children(self, name: str) -> Iterator[_Node]:
        found: tuple[Mapping[str, Any], ...] = self.take(name, mappings, ())
        for index, raw in enumerate(found):
            yield _Node(f"{self.path}.{name}[{index}]", raw, self.violations)

    def take(self, name: str, read: Callable[[Any], T], default: T) -> T:
        """Return the field as `read` reads it, the default when it is absent or wrong."""
        raw = self.raw.get(name)
        if raw is None:
            return default
        try:
            return read(raw)
        except (ValueError, TypeError, ArithmeticError) as error:
            self.refuse(name, str(error) or f"{raw!r} is of the wrong type", "correct it")
            return default

    def need(self, name: str, read: Callable[[Any], T], default: T) -> T:
        """Return the field as `read` reads it; that it is absent is a violation."""
        if self.raw.get(name) in (None, "", []):
            self.refuse(name, "is missing", "add it")
            return default
        return self.take(name, read, default)


def _object_or_empty(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}


def text(raw: object) -> str:
    """Read a string. Raises TypeError for anything else."""
    if not isinstance(raw, str):
        raise TypeError(f"{raw!r} is not a string")
    return raw


def texts(raw: object) -> tuple[str, ...]:
    """Read a list of strings."""
    if not isinstance(raw, list):
        raise TypeError(f"{raw!r} is not a list")
    return tuple(text(part) for part in raw)


def mapping(raw: object) -> Mapping[str, Any]:
    """Read an object."""
    if not isinstance(raw, Mapping):
        raise TypeError(f"{raw!r} is not an object")
    return dict(raw)


def mappings(raw: object) -> tuple[Mapping[str, Any], ...]:
    """Read a list of objects."""
    if not isinstance(raw, list):
        raise TypeError(f"{raw!r} is not a list")
    return tuple(mapping(part) for part in raw)


def string_map(raw: object) -> Mapping[str, str]:
    """Read an object whose values are strings."""
    return {key: text(value) for key, value in mapping(raw).items()}


def matching(pattern: re.Pattern[str], meaning: str) -> Callable[[Any], str]:
    """Return a reader of strings of one form; `meaning` says the form to a person."""

    def read(raw: object) -> str:
        if not pattern.fullmatch(text(raw)):
            raise ValueError(f"{raw!r} is not {meaning}")
        return text(raw)

    return read


def at_least(least: int) -> Callable[[Any], int]:
    """Return a reader of whole numbers from `least` on."""

    def read(raw: object) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or raw < least:
            raise ValueError(f"{raw!r} is not a whole number of at least {least}")
        return raw

    return read


def quantity_text(raw: str | float) -> str:
    """Read a quantity and return it as it was written. Raises ValueError when it is not one."""
    parse_quantity(raw)
    return str(raw)


def named(raw: object) -> tuple[str, ...]:
    """Read a list of objects that hold a name each."""
    return tuple(text(part.get("name")) for part in mappings(raw))


def _job(node: _Node) -> JobSpec:
    return JobSpec(
        image=node.need("image", text, ""),
        entrypoint=node.need("entrypoint", matching(ENTRYPOINT, "module:function"), ""),
        image_pull_policy=node.take("imagePullPolicy", text, None),
        image_pull_secrets=node.take("imagePullSecrets", named, ()),
        code_config_map=node.child("codeFrom").take("configMapName", text, None),
        args=node.take("args", texts, ()),
        env=node.take("env", mappings, ()),
        env_from=node.take("envFrom", mappings, ()),
        resources=node.take("resources", mapping, {}),
        memory=node.take("memory", parse_bytes, 512 * 1024 * 1024),
        termination_grace=node.take("terminationGracePeriodSeconds", at_least(1), 60),
    )


def _cluster(node: _Node) -> ClusterSpec:
    worker, master = node.child("worker"), node.child("master")
    storage = master.child("storage")
    return ClusterSpec(
        workers=node.take("workers", at_least(1), 1),
        worker=WorkerSpec(
            cores=worker.take("cores", at_least(1), 1),
            memory=worker.take("memory", parse_bytes, SMALLEST_WORKER),
            resources=worker.take("resources", mapping, {}),
        ),
        master=MasterSpec(
            resources=master.take("resources", mapping, {}),
            storage_size=storage.take("size", quantity_text, "64Mi"),
            storage_class=storage.take("storageClassName", text, None),
        ),
        image=node.take("image", text, None),
        spark_conf=node.take("sparkConf", string_map, {}),
        node_selector=node.take("nodeSelector", string_map, {}),
        tolerations=node.take("tolerations", mappings, ()),
        affinity=node.take("affinity", mapping, {}),
        priority_class=node.take("priorityClassName", text, None),
    )


def _kafka(node: _Node) -> KafkaSpec:
    starting = node.child("startingOffsets")
    partitions: Mapping[str, Any] = starting.take("partitions", mapping, {})
    return KafkaSpec(
        bootstrap_servers=node.need("bootstrapServers", text, ""),
        topics=node.need("topics", texts, ()),
        starting_position=starting.take(
            "position", matching(re.compile("earliest|latest"), "earliest or latest"), "earliest"
        ),
        starting_partitions={key: starting.child("partitions").take(key, at_least(0), 0) for key in partitions},
        max_records_per_batch=node.take("maxRecordsPerBatch", at_least(1), 100_000),
        properties=node.take("properties", string_map, {}),
        properties_secret=node.child("propertiesFrom").take("secretName", text, None),
    )


def _sinks(root: _Node) -> tuple[SinkSpec, ...]:
    name = matching(IDENTIFIER, "a Cassandra name in lower case")
    if not root.raw.get("sinks"):
        root.refuse("sinks", "is missing", "name at least one output table")
    return tuple(
        SinkSpec(
            name=sink.need("name", text, ""),
            keyspace=sink.child("cassandra").need("keyspace", name, ""),
            table=sink.child("cassandra").need("table", name, ""),
        )
        for sink in root.children("sinks")
    )


def _checkpoint(node: _Node) -> CheckpointSpec:
    replication = node.child("replication")
    return CheckpointSpec(
        contact_points=node.need("contactPoints", texts, ()),
        port=node.take("port", at_least(1), 9042),
        local_datacenter=node.take("localDatacenter", text, "datacenter1"),
        keyspace=node.take("keyspace", matching(IDENTIFIER, "a Cassandra name in lower case"), "fencepost"),
        consistency=node.take("consistency", text, "LOCAL_QUORUM"),
        create_schema=node.take("createSchema", bool, True),
        replication_class=replication.take("class", text, "SimpleStrategy"),
        replication_factor=replication.take("replicationFactor", at_least(1), 1),
        credentials_secret=node.child("credentialsFrom").take("secretName", text, None),
    )


def _restart(node: _Node) -> RestartSpec:
    return RestartSpec(
        max_backoff=node.take("maxBackoff", parse_duration, 300.0),
        stall_timeout=node.take("stallTimeout", parse_duration, 60.0),
        max_attempts=node.take("maxAttempts", at_least(0), 0),
    )


def _contradictions(spec: Spec) -> Iterator[Violation]:
    """Yield what is wrong between fields that are right each by itself."""
    for refused in spark_conf.problems(spec.cluster.spark_conf):
        yield Violation(f"spec.cluster.sparkConf.{refused.key}", refused.problem, refused.remedy)
    for found in kafka_properties.problems(spec.source.properties):
        yield Violation(f"spec.source.kafka.properties.{found.key}", found.problem, found.remedy)
    for key in sorted(kafka_properties.SECRETS & spec.source.properties.keys()):
        yield Violation(
            f"spec.source.kafka.properties.{key}",
            "is a password or a private key, which a manifest must not hold",
            "move it to the Secret that spec.source.kafka.propertiesFrom names",
        )
    for key in spec.source.starting_partitions:
        if not PARTITION.fullmatch(key) or key.rpartition("/")[0] not in spec.source.topics:
            yield Violation(
                f"spec.source.kafka.startingOffsets.partitions.{key}",
                "does not name a partition of spec.source.kafka.topics",
                "write it as topic/partition, and add the topic",
            )
    if spec.cluster.worker.memory < SMALLEST_WORKER:
        yield Violation("spec.cluster.worker.memory", "is less than 1Gi", "give a worker at least 1Gi")
    yield from _sink_contradictions(spec)


def _sink_contradictions(spec: Spec) -> Iterator[Violation]:
    names, tables = set[str](), set[tuple[str, str]]()
    for index, sink in enumerate(spec.sinks):
        place = f"spec.sinks[{index}]"
        if sink.name in names:
            yield Violation(f"{place}.name", f"{sink.name!r} is there twice", "give each sink its own name")
        if (sink.keyspace, sink.table) in tables:
            yield Violation(
                f"{place}.cassandra.table", "another sink writes to this table", "give each sink its own table"
            )
        if sink.keyspace == spec.checkpoint.keyspace and sink.table in OWN_TABLES:
            yield Violation(f"{place}.cassandra.table", "is Fencepost's own table", "name another table")
        names.add(sink.name)
        tables.add((sink.keyspace, sink.table))
