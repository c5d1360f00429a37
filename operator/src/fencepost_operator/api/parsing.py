"""From the body of a StreamingPipeline to a Spec, or to everything that is wrong with it.

The CRD's schema refuses most of this already.  An object may be older than the schema, though, and a schema may be
loosened by hand, so nothing here trusts it: a missing default is filled in, a wrong value is a violation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from pydantic import ValidationError

from fencepost.contract import RECORD_COLUMNS, SERIAL, Format, kafka_properties, spark_conf
from fencepost.contract.sinks import LONGEST_INDEXED_TABLE, finds_records, index_name, is_of_records_alone
from fencepost.contract.tables import OWN_TABLES
from fencepost_operator.api.codec import decode
from fencepost_operator.api.forbidden_text import forbidden_text, printable
from fencepost_operator.api.size import size_violations
from fencepost_operator.api.spec import DeletionPolicy, Spec, Violation
from fencepost_operator.api.spec.checkpoint import SURVIVING, CheckpointSpec
from fencepost_operator.api.spec.cluster import ClusterSpec
from fencepost_operator.api.spec.failures import PoisonAction, Rollback, UnprovenDeath
from fencepost_operator.api.spec.job import JobMode
from fencepost_operator.api.spec.sinks import (
    SINK_KINDS,
    CassandraSinkSpec,
    CreateTableSpec,
    FilesSinkSpec,
    KafkaSinkSpec,
    PostgresqlSinkSpec,
)
from fencepost_operator.api.spec.source import KafkaSpec

KEPT: Final = 256
"""Specs that stay parsed; a pass over one that does not costs about a millisecond more."""
KEPT_LENGTH: Final = 8_192
"""Characters of the longest spec that stays parsed: a tenant's large ones may not fill the operator's memory."""


def parse(body: Mapping[str, Any]) -> Spec | tuple[Violation, ...]:
    """Return the spec in a body, or every violation in it."""
    raw = body.get("spec") or {}
    try:
        text = json.dumps(raw)
    except (TypeError, ValueError, RecursionError):
        return _parse(raw)
    return _parse_text(text) if len(text) <= KEPT_LENGTH else _parse(raw)


@lru_cache(maxsize=KEPT)
def _parse_text(text: str) -> Spec | tuple[Violation, ...]:
    """Parse a spec once, not in every pass over its pipeline."""
    return _parse(json.loads(text))


def _parse(raw: Any) -> Spec | tuple[Violation, ...]:  # noqa: ANN401 - JSON
    violations = [*forbidden_text(raw)]
    try:
        spec = decode(Spec, _without_nulls(raw))
    except ValidationError as error:
        violations += violations_of(error)
    except (ValueError, ArithmeticError, RecursionError):
        violations.append(Violation("spec", "is not JSON of a reasonable depth and size", "correct it"))
    else:
        violations += _contradictions(spec)
        if not violations:
            return spec
    return tuple(violations)


def parse_checkpoint(written: Mapping[str, Any]) -> CheckpointSpec | None:
    """Return where the fence row is, as far as a spec says so whose other fields are invalid."""
    found = parse({"spec": {**_REST, "checkpoint": written.get("checkpoint")}})
    return found.checkpoint if isinstance(found, Spec) else None


def parse_deletion_policy(written: Mapping[str, Any]) -> DeletionPolicy | None:
    """Return what a spec says whose other fields are invalid; None where it does not say it, or says it wrongly."""
    text = written.get("deletionPolicy")
    return DeletionPolicy(text) if isinstance(text, str) and text in set(DeletionPolicy) else None


_REST: Final = {
    "job": {"image": "unused", "entrypoint": "unused:unused"},
    "source": {"kafka": {"bootstrapServers": "unused:9092", "topics": ["unused"]}},
    "sinks": [{"name": "unused", "plugin": {"kind": "unused"}}],
}
"""The least that makes a spec valid beside a checkpoint, so that this passes each check that a spec passes."""


def violations_of(error: ValidationError) -> Iterator[Violation]:
    """Yield what pydantic found wrong, in the words of a manifest."""
    for found in error.errors(include_url=False, include_context=False, include_input=False):
        path = _path([step for step in found["loc"] if step != _OF_A_KEY])
        if found["type"] == "missing":
            yield Violation(path, "is missing", "add it")
        else:
            problem = printable(_PYTHONS_WORDS.sub("", found["msg"])[:_LONGEST])
            yield Violation(path, problem, f"correct it; kubectl explain {_explained(path)} shows what it may be")


_LONGEST: Final = 300
_OF_A_KEY: Final = "[key]"
"""pydantic's step from a map's entry to its key."""
_PYTHONS_WORDS: Final = re.compile("^Value error, |^(Input|List|Tuple|Dictionary|String) (?=should)| after validation")


def _path(steps: Sequence[int | str]) -> str:
    return "spec" + "".join(f"[{step}]" if isinstance(step, int) else f".{printable(step)}" for step in steps)


def _explained(path: str) -> str:
    return "spl." + re.sub(r"\[\d+\]", "", path)


def _without_nulls(raw: Any) -> Any:  # noqa: ANN401 - JSON
    """Return JSON in which a null counts as absent, as for the API server."""
    if isinstance(raw, Mapping):
        return {key: _without_nulls(part) for key, part in raw.items() if part is not None}
    return raw


def _contradictions(spec: Spec) -> Iterator[Violation]:
    """Yield the contradictions between fields that are each valid alone."""
    if (spec.checkpoint.cassandra is None) is (spec.checkpoint.postgresql is None):
        yield Violation("spec.checkpoint", "has cassandra and postgresql, or neither", "set exactly one of them")
        return
    for refused in spark_conf.problems(spec.cluster.spark_conf, has_state=spec.stateful is not None):
        yield Violation(f"spec.cluster.sparkConf.{refused.key}", refused.problem, refused.remedy)
    for found in kafka_properties.problems(spec.source.kafka.properties):
        yield Violation(f"spec.source.kafka.properties.{found.key}", found.problem, found.remedy)
    for key in sorted(kafka_properties.SECRETS & spec.source.kafka.properties.keys()):
        yield Violation(
            f"spec.source.kafka.properties.{key}",
            "is a password or a private key, which a manifest must not hold",
            "move it to the Secret that spec.source.kafka.propertiesFrom names",
        )
    for key in spec.source.kafka.starting_offsets.partitions:
        if key.rpartition("/")[0] not in spec.source.kafka.topics:
            yield Violation(
                f"spec.source.kafka.startingOffsets.partitions.{key}",
                "does not name a partition of spec.source.kafka.topics",
                "write it as topic/partition, and add the topic",
            )
    yield from _worker_contradictions(spec.cluster)
    if spec.checkpoint.cassandra is None:
        yield from _needs_of_cassandra(spec)
    yield from _failover_contradictions(spec)
    yield from _pinned_contradictions(spec)
    yield from _state_contradictions(spec)
    yield from _batch_contradictions(spec.source.kafka)
    yield from _format_contradictions(spec.source.kafka)
    yield from _sink_contradictions(spec)
    yield from size_violations(spec)


def _worker_contradictions(cluster: ClusterSpec) -> Iterator[Violation]:
    limits = cluster.autoscale
    if limits is None:
        return
    if cluster.workers != 1:
        yield Violation(
            "spec.cluster.workers",
            f"is {cluster.workers} beside autoscale, which chooses the number of workers",
            "remove it; where another autoscaler sets it, remove one of the two",
        )
    if limits.min_workers > limits.max_workers:
        place = "spec.cluster.autoscale.minWorkers"
        yield Violation(place, f"is more than maxWorkers, {limits.max_workers}", "lower it")


def _needs_of_cassandra(spec: Spec) -> Iterator[Violation]:
    """Yield what only a fence in Cassandra may have beside it."""
    why, remedy = "and spec.checkpoint has no cassandra", "or name spec.checkpoint.cassandra"
    for index, sink in enumerate(spec.sinks):
        if sink.cassandra:
            place = f"spec.sinks[{index}].cassandra"
            yield Violation(place, f"is a table in the cluster of the fence, {why}", f"name another kind, {remedy}")
    if spec.job.mode is JobMode.STATEFUL:
        stateless = f"set it to {JobMode.STATELESS}, {remedy}"
        yield Violation("spec.job.mode", f"is {JobMode.STATEFUL}, whose state is in Cassandra, {why}", stateless)
    if spec.source.pinned_states:
        problem = f"names states, which are in Cassandra, {why}"
        yield Violation("spec.source.pinnedStates", problem, f"remove it, {remedy}")


def _failover_contradictions(spec: Spec) -> Iterator[Violation]:
    if spec.failover is None:
        return
    fence = spec.checkpoint.cassandra
    if fence is not None and fence.serial_consistency != SERIAL:
        problem = f"is there with serialConsistency {fence.serial_consistency}: two datacenters do not see each other"
        yield Violation("spec.failover", problem, "remove it, or follow docs/operations.md#serial-or-local_serial")
    if fence is not None and fence.consistency not in SURVIVING:
        place = "spec.checkpoint.cassandra.consistency"
        problem = f"is {fence.consistency} with failover: rows that one datacenter alone has are lost with it"
        yield Violation(place, problem, f"set it to {SURVIVING[0]}")
    if spec.restart.on_unproven_death is UnprovenDeath.WAIT:
        problem = f"is {UnprovenDeath.WAIT} with failover, and one cluster has no proof of a death in another one"
        yield Violation("spec.restart.onUnprovenDeath", problem, "remove one of the two")


def _pinned_contradictions(spec: Spec) -> Iterator[Violation]:
    names = set[str]()
    for index, pin in enumerate(spec.source.pinned_states):
        if pin.name in names:
            place = f"spec.source.pinnedStates[{index}].name"
            yield Violation(place, f"{pin.name!r} is there twice", "give each entry its own name")
        names.add(pin.name)


def _state_contradictions(spec: Spec) -> Iterator[Violation]:
    if spec.stateful is None:
        if spec.state is not None:
            remedy = f"remove it, or create a pipeline with spec.job.mode {JobMode.STATEFUL}"
            yield Violation("spec.state", f"is there with spec.job.mode {JobMode.STATELESS}", remedy)
        return
    if spec.on_poison.action is PoisonAction.DEAD_LETTER:
        yield Violation(
            "spec.onPoison.action",
            f"is {PoisonAction.DEAD_LETTER}, and a batch that has changed the state is not cut down to one record",
            f"set it to {PoisonAction.STOP}",
        )
    if spec.upgrade.rollback is Rollback.ENABLED:
        yield Violation(
            "spec.upgrade.rollback",
            f"is {Rollback.ENABLED}, and earlier code may not read the state that the new code has written",
            f"set it to {Rollback.DISABLED}",
        )


def _format_contradictions(source: KafkaSpec) -> Iterator[Violation]:
    for name, declared in (("key", source.key), ("value", source.value)):
        place = f"spec.source.kafka.{name}"
        if declared is not None and source.schema_registry is None:
            yield Violation(place, "is there without schemaRegistry", "add schemaRegistry beside it, or remove it")
        if declared is not None and declared.message is not None and declared.format is not Format.PROTOBUF:
            yield Violation(f"{place}.message", f"is there with format {declared.format}", "remove it")


def _batch_contradictions(source: KafkaSpec) -> Iterator[Violation]:
    least, most = source.min_records_per_batch, source.max_records_per_batch
    if least is not None and least > most:
        yield Violation(
            "spec.source.kafka.minRecordsPerBatch", f"is more than maxRecordsPerBatch, {most}", "lower it, or remove it"
        )


def _sink_contradictions(spec: Spec) -> Iterator[Violation]:
    names, targets = set[str](), set[tuple[str, str]]()
    for index, sink in enumerate(spec.sinks):
        place = f"spec.sinks[{index}]"
        if len(sink.kinds) != 1:
            found = " and ".join(sink.kinds) or "none of them"
            yield Violation(place, f"has {found}", f"set exactly one of {', '.join(SINK_KINDS)}")
        if sink.name in names:
            yield Violation(f"{place}.name", f"{sink.name!r} is there twice", "give each sink its own name")
        names.add(sink.name)
        if sink.cassandra:
            yield from _table_contradictions(spec, sink.cassandra, f"{place}.cassandra", targets)
        if sink.postgresql:
            yield from _rows_contradictions(spec, sink.postgresql, f"{place}.postgresql", targets)
        if sink.kafka:
            yield from _topic_contradictions(spec, sink.kafka, f"{place}.kafka", targets)
        if sink.files:
            yield from _path_contradictions(sink.files, f"{place}.files", targets)


def _table_contradictions(
    spec: Spec, sink: CassandraSinkSpec, place: str, others: set[tuple[str, str]]
) -> Iterator[Violation]:
    target = (sink.keyspace, sink.table)
    if target in others:
        yield Violation(f"{place}.table", "another sink writes to this table", "give each sink its own table")
    fence = spec.checkpoint.cassandra
    if fence is not None and sink.keyspace == fence.keyspace and sink.table in OWN_TABLES:
        yield Violation(f"{place}.table", "is Fencepost's own table", "name another table")
    if sink.ttl is not None and sink.ttl_column is not None:
        yield Violation(f"{place}.ttl", "is there beside ttlColumn", "remove one of them")
    if sink.delete_where is not None and sink.delete_where == sink.ttl_column:
        yield Violation(f"{place}.deleteWhere", "names the column of ttlColumn", "name a boolean column")
    if sink.create_table is not None:
        yield from _key_contradictions(sink, sink.create_table, f"{place}.createTable")
    others.add(target)
    if sink.purge_index is not None:
        yield from _index_contradictions(sink, f"{place}.purgeIndex", others)


def _rows_contradictions(
    spec: Spec, sink: PostgresqlSinkSpec, place: str, others: set[tuple[str, str]]
) -> Iterator[Violation]:
    fence = spec.checkpoint.postgresql
    if fence is None:
        why = "is a table in the database of the fence, and spec.checkpoint has no postgresql"
        yield Violation(place, why, "name another kind, or name spec.checkpoint.postgresql")
    elif sink.schema == fence.schema:
        why = "is spec.checkpoint.postgresql.schema, the schema of Fencepost's own tables"
        yield Violation(f"{place}.schema", why, "name another schema")
    target = (f"postgresql {sink.schema}", sink.table)
    if target in others:
        yield Violation(f"{place}.table", "another sink writes to this table", "give each sink its own table")
    others.add(target)


def _index_contradictions(sink: CassandraSinkSpec, place: str, others: set[tuple[str, str]]) -> Iterator[Violation]:
    if len(sink.table) > LONGEST_INDEXED_TABLE:
        longest = LONGEST_INDEXED_TABLE
        yield Violation(place, f"is beside a table whose name has more than {longest} characters", "remove it")
    made = sink.create_table
    if (
        made is not None
        and finds_records(made.partition_key, [part.column for part in made.clustering_key])
        and is_of_records_alone(made.partition_key)
    ):
        yield Violation(place, "is beside a table whose key has the record's coordinates", "remove it")
    target = (sink.keyspace, index_name(sink.table))
    if target in others:
        yield Violation(place, f"is the table {target[1]}, to which another sink writes", "name another table there")
    others.add(target)


def _key_contradictions(sink: CassandraSinkSpec, table: CreateTableSpec, place: str) -> Iterator[Violation]:
    key = [(f"{place}.partitionKey[{i}]", name) for i, name in enumerate(table.partition_key)]
    key += [(f"{place}.clusteringKey[{i}].column", part.column) for i, part in enumerate(table.clustering_key)]
    seen = set[str]()
    for field, name in key:
        if name in seen:
            yield Violation(field, f"names {name!r}, which is part of the key already", "name each column once")
        if name in {sink.ttl_column, sink.delete_where}:
            yield Violation(field, f"names {name!r}, which is not stored", "name a column that the table has")
        seen.add(name)
    if table.compaction and "class" not in table.compaction:
        yield Violation(f"{place}.compaction", "has no class", "add one, such as class: TimeWindowCompactionStrategy")


def _path_contradictions(sink: FilesSinkSpec, place: str, others: set[tuple[str, str]]) -> Iterator[Violation]:
    target = (f"files {sink.endpoint}", sink.path)
    if target in others:
        yield Violation(f"{place}.path", "another sink writes to this path", "give each sink its own path")
    others.add(target)


def _topic_contradictions(
    spec: Spec, sink: KafkaSinkSpec, place: str, others: set[tuple[str, str]]
) -> Iterator[Violation]:
    if (sink.topic is None) is (sink.topic_column is None) or (sink.topic_column is None) is bool(sink.topics):
        yield Violation(place, "has topic and topicColumn, or neither", "set topic, or topicColumn and topics")
    if sink.topic_column in RECORD_COLUMNS:
        yield Violation(f"{place}.topicColumn", "names a column with another meaning", "name another column")
    for topic in sink.destinations:
        field = f"{place}.topic{'s' if sink.topic is None else ''}"
        target = (f"kafka {sink.bootstrap_servers or spec.source.kafka.bootstrap_servers}", topic)
        if target in others:
            yield Violation(field, f"another sink writes to topic {topic}", "give each sink its own topics")
        others.add(target)
        is_of_source = sink.bootstrap_servers in {None, spec.source.kafka.bootstrap_servers}
        if is_of_source and topic in spec.source.kafka.topics:
            yield Violation(field, f"topic {topic} is read by this pipeline", "name another topic")
    if sink.bootstrap_servers is None and (sink.properties or sink.properties_from):
        yield Violation(
            f"{place}.bootstrapServers",
            "is missing, and there are properties",
            "add it; without it the sink connects as spec.source.kafka does, with its properties and Secret",
        )
    for found in kafka_properties.problems(sink.properties):
        yield Violation(f"{place}.properties.{found.key}", found.problem, found.remedy)
    for key in sorted(kafka_properties.SECRETS & sink.properties.keys()):
        yield Violation(
            f"{place}.properties.{key}",
            "is a password or a private key, which a manifest must not hold",
            f"move it to the Secret that {place}.propertiesFrom names",
        )
