"""The request for the process that runs a manifest's pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from fencepost.contract import (
    CassandraSink,
    CreateTable,
    DeclaredSink,
    DriverConfig,
    KafkaSink,
    KafkaSource,
    RegistryEndpoint,
    SqliteSink,
    StartingOffsets,
    offset_key,
)
from fencepost.contract.code_check import DeclaredTable
from fencepost.local.request import RecordFile, Request
from fencepost_cli.checking.cql_schema import files_beside, read_tables
from fencepost_cli.checking.manifest import read_manifests
from fencepost_cli.errors import CliError
from fencepost_operator.api import ObjectKey, ReconcileConfig, Spec
from fencepost_operator.desired.jobs.driver_config import driver_config

SUFFIXES: Final = (".jsonl", ".parquet")
"""Of files beside the manifest that are named like a topic."""
SPARK: Final[Mapping[str, str]] = {
    "spark.driver.memory": "1g",
    # C2 pays only in runs that are longer.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    # In local mode the JVM ends with its executor: a laptop that slept must not count as a lost driver.
    "spark.executor.heartbeat.maxFailures": "600",
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline that is in no cluster, and the file that has it."""

    path: Path
    key: ObjectKey
    spec: Spec


def read_pipeline(path: Path) -> Pipeline:
    """Return the only pipeline of a manifest. Raises CliError."""
    found = read_manifests(path)
    if len(found) > 1:
        raise CliError(f"{path} has {len(found)} pipelines", remedy="name a file that has one")
    (manifest,) = found
    if manifest.spec is None:
        wrong = manifest.findings[0]
        raise CliError(f"{path}: {wrong.place} {wrong.problem}", remedy=wrong.remedy)
    return Pipeline(path, ObjectKey(manifest.namespace or "default", manifest.name or "pipeline"), manifest.spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """What the command line says. `keys` are by sink; `kafka` is HOST:PORT of brokers, None for files of records.

    `registry` is an address in place of the manifest's.
    """

    database: Path
    scratch: Path
    code: Path | None = None
    records: Sequence[Path] = ()
    topic: str | None = None
    kafka: str | None = None
    registry: str | None = None
    registry_credentials: Path | None = None
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    real: Sequence[str] = ()
    """Sinks that are opened as they are declared."""
    skipped: Sequence[tuple[str, int, int]] = ()
    """Records that are left out, (topic, partition, offset)."""
    cores: int = 2
    once: bool = False
    debug: bool = False


def request(pipeline: Pipeline, options: LocalOptions) -> Request:
    """Return the request. Raises CliError for what does not fit the pipeline."""
    declared = driver_config(
        key=pipeline.key,
        spec=pipeline.spec,
        references={},
        config=ReconcileConfig(cluster_uid="local", scope="local"),
        epoch=0,
        generation=0,
        code="local",
    )
    _check_names(declared, options)
    if options.skipped and options.kafka:
        raise CliError("--skip leaves out records of files alone", remedy="write a file with `fencepost sample` first")
    files = () if options.kafka else tuple(_files(pipeline, options))
    return Request(
        config=_config(declared, pipeline, options, has_files=bool(files)),
        database=str(options.database.absolute()),
        code=str(_code(pipeline, options)),
        scratch=str(options.scratch),
        log=str(options.scratch / "spark.log"),
        registry_credentials=str(options.registry_credentials.absolute()) if options.registry_credentials else "",
        files=files,
        ends=options.once or not options.kafka,
        left_out=_by_partition(options.skipped),
        debug=options.debug,
    )


def _by_partition(places: Iterable[tuple[str, int, int]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for topic, partition, offset in places:
        key = offset_key(topic, partition)
        found[key] = (*found.get(key, ()), offset)
    return found


def _code(pipeline: Pipeline, options: LocalOptions) -> Path:
    return (options.code or pipeline.path.parent).absolute()


def _config(declared: DriverConfig, pipeline: Pipeline, options: LocalOptions, *, has_files: bool) -> DriverConfig:
    # The spec's own bound alone: the memory of the cluster's workers is not this machine's.
    source = replace(declared.source, max_bytes_per_batch=pipeline.spec.source.kafka.max_bytes_per_batch)
    if has_files:
        # All of a file, in batches without a pause.
        source = replace(source, starting_offsets=StartingOffsets(), mirror_to_group="")
    elif options.kafka:
        source = replace(source, bootstrap_servers=options.kafka, mirror_to_group="")
    return replace(
        declared,
        source=at_registry(source, options.registry),
        sinks=tuple(_tables(declared.sinks, pipeline, options)),
        batch_interval=0.0 if has_files else declared.batch_interval,
        spark_master=f"local[{options.cores}]",
        spark_conf={**declared.spark_conf, **SPARK},
        executors=1,
    )


def at_registry(source: KafkaSource, url: str | None) -> KafkaSource:
    """Return the source with another address of its schema registry, if there is one."""
    return source if url is None else replace(source, schema_registry=RegistryEndpoint(url=url))


def _tables(sinks: Sequence[DeclaredSink], pipeline: Pipeline, options: LocalOptions) -> Iterator[DeclaredSink]:
    """Yield each sink as a table of the file, or as it is declared."""
    known = read_tables(files_beside(pipeline.path))
    path = str(options.database.absolute())
    for sink in sinks:
        key = options.keys.get(sink.name)
        match sink:
            case _ if sink.name in options.real:
                if isinstance(sink, CassandraSink):
                    raise CliError(
                        f"--real-sink {sink.name}: a local run does not connect to Cassandra",
                        remedy="leave it out, and the rows go to a table of the SQLite file",
                    )
                yield sink
            case CassandraSink():
                yield SqliteSink(
                    name=sink.name,
                    path=path,
                    table=sink.table,
                    key=key or _key(sink.create_table or known.get(f"{sink.keyspace}.{sink.table}")),
                    delete_where=sink.delete_where,
                    ttl_column=sink.ttl_column,
                )
            case KafkaSink(topic_column=None):
                yield SqliteSink(name=sink.name, path=path, table=sink.topics[0], key=key)
            case _:
                yield SqliteSink(name=sink.name, path=path, table=sink.name, key=key)


def _key(table: CreateTable | DeclaredTable | None) -> tuple[str, ...] | None:
    return None if table is None else (*table.partition_key, *(each.column for each in table.clustering_key))


def _files(pipeline: Pipeline, options: LocalOptions) -> Iterator[RecordFile]:
    """Yield the files of records: those that are named, or those beside the pipeline. Raises CliError."""
    topics = pipeline.spec.source.kafka.topics
    beside = [pipeline.path.parent / f"{topic}{suffix}" for topic in topics for suffix in SUFFIXES]
    paths = options.records or [path for path in beside if path.is_file()]
    if not paths:
        raise CliError(
            f"no records: {' or '.join(path.name for path in beside)} is not beside {pipeline.path}",
            remedy="name files with --records, or a Kafka with --kafka HOST:PORT",
        )
    for path in paths:
        if not path.is_file():
            raise CliError(f"--records {path} does not exist", remedy="name a file of records")
        named = path.stem if path.stem in topics else None
        topic = options.topic or named or (topics[0] if len(topics) == 1 else None)
        yield RecordFile(path=str(path.absolute()), topic=topic)


def _check_names(declared: DriverConfig, options: LocalOptions) -> None:
    names = [sink.name for sink in declared.sinks]
    for option, given in (("--key", options.keys), ("--real-sink", options.real)):
        for name in given:
            if name not in names:
                raise CliError(
                    f"{option} {name}: the pipeline does not have this sink", remedy=f"choose one of {', '.join(names)}"
                )
    topics = [("--topic", options.topic), *(("--skip", topic) for topic, _, _ in options.skipped)]
    for option, topic in topics:
        if topic is not None and topic not in declared.source.topics:
            raise CliError(
                f"{option} {topic}: the pipeline does not read it",
                remedy=f"choose one of {', '.join(declared.source.topics)}",
            )
