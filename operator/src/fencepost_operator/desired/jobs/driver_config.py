"""The configuration of a run, as the contract defines it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fencepost.contract import (
    DATA_SERVICE_PORT,
    CassandraSink,
    ClusteringColumn,
    CreateTable,
    DeclaredSink,
    DriverConfig,
    FilesSink,
    FunctionSink,
    HttpSink,
    KafkaSink,
    KafkaSource,
    Observability,
    OpenLineageEndpoint,
    OpenTelemetryEndpoint,
    PinnedState,
    PluginSink,
    PostgresqlSink,
    RecordFormat,
    RegistryEndpoint,
    StartingOffsets,
    StateConfig,
    task_attempts,
)
from fencepost_operator.api import (
    ObjectKey,
    PoisonAction,
    ReconcileConfig,
    SinkSpec,
    Spec,
    Standby,
    StateSpec,
    UpgradeStrategy,
)
from fencepost_operator.api.quantities import MEBIBYTE, jvm_memory
from fencepost_operator.api.spec.observability import ObservabilitySpec
from fencepost_operator.api.spec.sinks import CreateTableSpec
from fencepost_operator.api.spec.source import PinnedStateSpec, RecordFormatSpec
from fencepost_operator.desired import names
from fencepost_operator.desired.identity.code import code_text
from fencepost_operator.desired.resources import LOCAL_STATE, executor_heap, state_memory

MIN_RECORDS: Final = 1_000
"""Records to which a batch that takes too long may shrink, unless the spec says: fewer take as long (see dev/bench)."""
HEARTBEAT: Final = 1.0
"""Seconds between two heartbeats: see `decision.run.heartbeats`."""
IDLE_HEARTBEAT: Final = 8.0
"""The same of a run that finds nothing to read: with the operator's look, less than its patience."""
IDLE_HEARTBEAT_BESIDE_STANDBY: Final = 3.0
HEAP_SHARE: Final = 4
"""Of the executors' heaps together, the part that the bytes of one batch may have, unless the spec says."""
SMALL_JVM: Final = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Without workers: C1 alone. At 300 records/s the driver's JVM had 387 MiB with it and 453 without (PSS)."""
DRIVER_SHARE: Final = 2
"""Of a driver's heap without workers, the part that its tasks have: Spark itself takes up to 200 MiB of it."""


def driver_config(
    *,
    key: ObjectKey,
    spec: Spec,
    references: Mapping[str, str | None],
    config: ReconcileConfig,
    epoch: int,
    generation: int,
    owner: str = "",
    first_batch_limit: int | None = None,
    isolate: bool = False,
    code: str = "",
    finish_until: Mapping[str, int] | None = None,
    awaits_epoch: bool = False,
    stands_by: bool = False,
) -> DriverConfig:
    """Return the configuration of the run of an epoch on a generation of the cluster.

    `owner` is the fence row's; `first_batch_limit` is in records, None for the spec's limit; `isolate` makes the run
    cut a failing batch down to the record that fails.  `code` names it in the fence row, and `finish_until` is where
    the run ends on its own, if it does; `awaits_epoch` says that the epoch has not begun, and `stands_by` that it may
    never begin.
    """
    checkpoint = spec.checkpoint
    sinks = sinks_of(spec)
    return DriverConfig(
        pipeline=names.fence_key(config.scope, key),
        epoch=epoch,
        entrypoint=spec.job.entrypoint,
        args=spec.job.args,
        code=code or code_text(spec, references),
        source=_source(spec),
        sinks=sinks,
        cassandra=checkpoint.cassandra.endpoint if checkpoint.cassandra else None,
        postgresql=checkpoint.postgresql.endpoint if checkpoint.postgresql else None,
        fence_keyspace=checkpoint.place,
        consistency=checkpoint.cassandra.consistency if checkpoint.cassandra else "",
        batch_interval=spec.batch_interval,
        spark_master=names.master_url(
            key.name, generation, namespace=key.namespace, cluster_domain=config.cluster_domain
        )
        if spec.cluster.exists
        else _local_master(spec),
        spark_conf=_spark_conf(spec),
        executors=max(1, spec.cluster.most_workers),
        termination_grace=float(spec.job.termination_grace_period_seconds),
        stall_timeout=spec.restart.stall_timeout,
        start_timeout=spec.restart.start_timeout,
        owner=owner,
        first_batch_limit=first_batch_limit,
        isolate=isolate,
        finish_until=dict(finish_until or {}),
        awaits_epoch=awaits_epoch,
        stands_by=stands_by,
        heartbeat=HEARTBEAT,
        idle_heartbeat=IDLE_HEARTBEAT_BESIDE_STANDBY if spec.restart.standby is Standby.WARM else IDLE_HEARTBEAT,
        hands_over=_hands_over(spec) and not finish_until,  # it ends unasked
        dead_letter_retention=(spec.on_poison.retention if spec.on_poison.action is PoisonAction.DEAD_LETTER else None),
        state=_state(spec.stateful) if spec.stateful else None,
        observability=_observability(spec.observability),
        pinned_states=tuple(_pinned_state(pin, key, config.scope) for pin in spec.source.pinned_states),
    )


def _hands_over(spec: Spec) -> bool:
    """Return whether a run that stops ends its epoch itself; not beside a standby, which would begin the next one."""
    return spec.upgrade.strategy is UpgradeStrategy.HANDOFF and spec.restart.standby is not Standby.WARM


def sinks_of(spec: Spec) -> tuple[DeclaredSink, ...]:
    """Return the sinks as a run's configuration has them."""
    return tuple(_sink(sink) for sink in spec.sinks)


def _state(state: StateSpec) -> StateConfig:
    return StateConfig(
        partitions=state.partitions,
        max_bytes=state.max_bytes,
        data_port=DATA_SERVICE_PORT,
        output_mode=state.output_mode,
    )


def _observability(declared: ObservabilitySpec) -> Observability:
    traces, lineage = declared.open_telemetry, declared.open_lineage
    return Observability(
        open_telemetry=OpenTelemetryEndpoint(endpoint=traces.endpoint) if traces else None,
        open_lineage=OpenLineageEndpoint(url=lineage.url, namespace=lineage.namespace) if lineage else None,
    )


def _pinned_state(pin: PinnedStateSpec, key: ObjectKey, scope: str) -> PinnedState:
    """Return a pinned state: always one of the pipeline's own namespace."""
    return PinnedState(
        name=pin.name,
        pipeline=names.fence_key(scope, ObjectKey(key.namespace, pin.pipeline)),
        snapshot=pin.snapshot,
        operator=pin.operator,
        store=pin.store,
    )


def _source(spec: Spec) -> KafkaSource:
    source = spec.source.kafka
    least, most = source.min_records_per_batch or MIN_RECORDS, source.max_records_per_batch
    return KafkaSource(
        bootstrap_servers=source.bootstrap_servers,
        topics=source.topics,
        starting_offsets=StartingOffsets(
            position=source.starting_offsets.position, partitions=dict(source.starting_offsets.partitions)
        ),
        max_records_per_batch=most,
        min_records_per_batch=min(least, most),
        target_batch_duration=source.target_batch_duration,
        max_bytes_per_batch=batch_bytes(spec),
        split_partitions=source.split_partitions,
        mirror_to_group=source.mirror_to_group or "",
        schema_registry=RegistryEndpoint(url=source.schema_registry.url) if source.schema_registry else None,
        key=_format(source.key) if source.key else None,
        value=_format(source.value) if source.value else None,
        properties=dict(source.properties),
    )


def _format(declared: RecordFormatSpec) -> RecordFormat:
    return RecordFormat(
        format=declared.format, subject=declared.subject, version=declared.version, message=declared.message or ""
    )


def batch_bytes(spec: Spec) -> int:
    """Return the most bytes that a batch may read: by default what fits, as rows and shuffles take more.

    A run keeps the figure for its life: it is changed with `cluster.workers` by the next run.  Where the number of
    workers changes meanwhile, a batch has to fit into the fewest.
    """
    if spec.source.kafka.max_bytes_per_batch:
        return spec.source.kafka.max_bytes_per_batch
    if not spec.cluster.exists:
        return spec.job.memory // DRIVER_SHARE // HEAP_SHARE
    return spec.cluster.fewest_workers * _heap(spec) // HEAP_SHARE


def _heap(spec: Spec) -> int:
    return executor_heap(spec.cluster.worker.memory, is_stateful=spec.stateful is not None)


def _local_master(spec: Spec) -> str:
    """Return the master of a driver that runs the tasks itself; the attempts of a task count only here."""
    return f"local[{spec.cluster.worker.cores},{task_attempts(spec.cluster.spark_conf)}]"


def _sink(sink: SinkSpec) -> DeclaredSink:  # noqa: PLR0911 - one for each kind
    if sink.postgresql:
        return PostgresqlSink(name=sink.name, schema=sink.postgresql.schema, table=sink.postgresql.table)
    if sink.kafka:
        return KafkaSink(
            name=sink.name,
            topics=sink.kafka.destinations,
            topic_column=sink.kafka.topic_column,
            bootstrap_servers=sink.kafka.bootstrap_servers,
            properties=dict(sink.kafka.properties),
        )
    if sink.files:
        return FilesSink(
            name=sink.name,
            path=sink.files.path,
            format=sink.files.format,
            folders=sink.files.folders,
            endpoint=sink.files.endpoint,
            region=sink.files.region,
        )
    if sink.http:
        return HttpSink(
            name=sink.name,
            url=sink.http.url,
            method=sink.http.method,
            content_type=sink.http.content_type,
            parallelism=sink.http.parallelism,
            timeout=sink.http.timeout,
        )
    if sink.function:
        return FunctionSink(name=sink.name, entrypoint=sink.function.entrypoint, options=dict(sink.function.options))
    if sink.plugin:
        return PluginSink(name=sink.name, plugin=sink.plugin.kind, options=dict(sink.plugin.options))
    if sink.cassandra:
        return CassandraSink(
            name=sink.name,
            keyspace=sink.cassandra.keyspace,
            table=sink.cassandra.table,
            ttl=sink.cassandra.ttl,
            ttl_column=sink.cassandra.ttl_column,
            delete_where=sink.cassandra.delete_where,
            create_table=_create_table(sink.cassandra.create_table),
            purge_retention=sink.cassandra.purge_index.retention if sink.cassandra.purge_index else None,
        )
    raise ValueError(f"sink {sink.name!r} has no kind")  # `parse` refuses such a spec


def _create_table(table: CreateTableSpec | None) -> CreateTable | None:
    if table is None:
        return None
    return CreateTable(
        partition_key=table.partition_key,
        clustering_key=tuple(ClusteringColumn(column=part.column, order=part.order) for part in table.clustering_key),
        default_time_to_live=table.default_time_to_live,
        compaction=dict(table.compaction),
    )


def _spark_conf(spec: Spec) -> dict[str, str]:
    """Return the author's settings over those that follow from the sizes of pods."""
    worker = spec.cluster.worker
    executors = {"spark.executor.cores": str(worker.cores), "spark.executor.memory": jvm_memory(_heap(spec))}
    memory = state_memory(worker.memory) if spec.cluster.exists else LOCAL_STATE
    return {
        "spark.driver.memory": jvm_memory(spec.job.memory),
        **(executors if spec.cluster.exists else SMALL_JVM),
        **spec.cluster.spark_conf,
        **(_state_settings(spec.stateful, memory) if spec.stateful else {}),
    }


def _state_settings(state: StateSpec, memory: int) -> dict[str, str]:
    """Return how often Spark copies a partition as a whole, and how many bytes its state stores may take of a pod."""
    store = "spark.sql.streaming.stateStore"
    return {
        f"{store}.maintenanceInterval": f"{state.snapshot_every:.0f}s",
        f"{store}.rocksdb.boundedMemoryUsage": "true",
        f"{store}.rocksdb.maxMemoryUsageMB": str(memory // MEBIBYTE),
    }
