"""Opens the declared sinks of a run, each by its kind."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

from fencepost.contract import (
    CassandraSink,
    DriverConfig,
    FilesSink,
    FunctionSink,
    HttpSink,
    KafkaEndpoint,
    KafkaSink,
    PluginSink,
    PostgresqlSink,
    Reason,
    SqliteSink,
)
from fencepost.entrypoint import load
from fencepost.errors import BadSpec, BatchFailed, DriverError
from fencepost.kafka.log import client_properties
from fencepost.sinks import function, sqlite
from fencepost.sinks.cassandra import cassandra_sink
from fencepost.sinks.files import files_sink
from fencepost.sinks.http import http_sink
from fencepost.sinks.interface import Sink, SinkContext
from fencepost.sinks.kafka import kafka_sink

if TYPE_CHECKING:
    from cassandra.cluster import Session

    from fencepost.contract import DeclaredSink
    from fencepost.fence.postgresql.table import PostgresqlFenceTable
    from fencepost.fence.tls import TlsMaterial

GROUP: Final = "fencepost.sinks"
"""The entry-point group of sinks of other packages."""


def open_sinks(
    config: DriverConfig,
    *,
    session: Session | None,
    fences: PostgresqlFenceTable | None = None,
    credentials: tuple[str, str] | None,
    tls: TlsMaterial | None = None,
    kafka_properties: Mapping[str, str],
    code_dir: Path | None = None,
    options_dir: Path | None = None,
) -> dict[str, Sink]:
    """Return every declared sink by its name.

    `session` is None where no sink is Cassandra's, `fences` where the fence is not in PostgreSQL. `tls` is the fence's.
    `kafka_properties` are the source's, with those of its Secret.
    `code_dir` holds the author's code.  `options_dir` has a folder per sink with a Secret, and in it one file per
    option or property.  Raises BadSpec for what does not exist or does not fit, DependencyDown, BatchFailed.
    """

    def one(sink: DeclaredSink) -> Sink:
        match sink:
            case CassandraSink() | PostgresqlSink():
                return _table(config, sink, session or fences, credentials, tls)
            case KafkaSink():
                properties = kafka_properties if sink.bootstrap_servers is None else _own_kafka(sink, options_dir)
                return kafka_sink.bind(sink, properties, patience=config.task_patience)
            case FunctionSink():
                field = f"function.entrypoint of sink {sink.name!r} in spec.sinks"
                write = load(sink.entrypoint, code_dir, field=field)
                return function.FunctionSink(sink.name, write, _options(sink, options_dir))
            case PluginSink() | FilesSink():
                return open_declared(config, sink, options_dir)
            case HttpSink():
                headers = _mounted(sink.name, options_dir)
                return http_sink.bind(sink, headers, pipeline=config.pipeline, patience=config.task_patience)
            case SqliteSink():
                return sqlite.TableSink(sink)
            case _:
                assert_never(sink)

    return {sink.name: one(sink) for sink in config.sinks}


def _table(
    config: DriverConfig,
    sink: CassandraSink | PostgresqlSink,
    database: Session | PostgresqlFenceTable | None,
    credentials: tuple[str, str] | None,
    tls: TlsMaterial | None,
) -> Sink:
    """Return a sink in the database of the fence."""
    if isinstance(sink, PostgresqlSink):
        from fencepost.sinks.postgresql.postgresql_sink import open_beside  # noqa: PLC0415 - a run has one of the clients

        return open_beside(sink, config, database, credentials, tls)
    if database is None:
        raise ValueError(f"sink {sink.name!r} needs a session with Cassandra")
    return cassandra_sink.bind(config, sink, database, credentials, tls)


def open_declared(config: DriverConfig, sink: PluginSink | FilesSink, options_dir: Path | None) -> Sink:
    """Return a declared sink that needs no session. Raises as `open_plugin` does."""
    context = SinkContext(name=sink.name, pipeline=config.pipeline, epoch=config.epoch, patience=config.task_patience)
    if isinstance(sink, FilesSink):
        return files_sink.bind(sink, _mounted(sink.name, options_dir), context)
    return open_plugin(sink.plugin, _options(sink, options_dir), context)


def open_plugin(plugin: str, options: Mapping[str, str], context: SinkContext) -> Sink:
    """Return a sink of another package. Raises BadSpec when none has that name, or it is not a sink."""
    found = find_plugin(plugin, context.name)
    try:
        made = _loaded(found, context)(options, context)
    except DriverError:
        raise
    except Exception as error:
        raise BatchFailed(
            f"sink {context.name!r}: {plugin!r} did not open: {type(error).__name__}: {error}",
            reason=Reason.SINK_FAILED,
            remedy="See the driver's log; a sink names what is wrong with its options by BadSpec.",
        ) from error
    if not isinstance(made, Sink):
        raise BadSpec(
            f"sink {context.name!r}: {plugin!r} made a {type(made).__name__}, which is not a fencepost.sinks.Sink",
            reason=Reason.SINK_INVALID,
        )
    return made


def find_plugin(plugin: str, sink: str) -> EntryPoint:
    """Return the entry point of a plugin for the sink of this name. Raises BadSpec when no package has it."""
    found = entry_points(group=GROUP, name=plugin)
    if not found:
        known = sorted(entry_points(group=GROUP).names)
        raise BadSpec(
            f"sink {sink!r}: no installed package has a sink {plugin!r}; found: {', '.join(known) or 'none'}",
            reason=Reason.SINK_NOT_FOUND,
            remedy="Install the package into the image of spec.job.image (docs/authors.md), or correct spec.sinks.",
        )
    return next(iter(found))


def _loaded(entry_point: EntryPoint, context: SinkContext) -> Any:  # noqa: ANN401 - code of another package
    try:
        return entry_point.load()
    except Exception as error:
        raise BadSpec(
            f"sink {context.name!r}: importing {entry_point.value!r} failed: {type(error).__name__}: {error}",
            reason=Reason.SINK_INVALID,
            remedy="Install what the package needs into the image of spec.job.image.",
        ) from error


def _own_kafka(sink: KafkaSink, options_dir: Path | None) -> dict[str, str]:
    """Return the properties of a sink with a cluster of its own."""
    address = KafkaEndpoint(bootstrap_servers=sink.bootstrap_servers or "", properties=sink.properties)
    place = f"kafka of sink {sink.name!r} in spec.sinks"
    return client_properties(address, (options_dir or Path()) / sink.name, place=place)


def _options(sink: FunctionSink | PluginSink, options_dir: Path | None) -> dict[str, str]:
    """Return the options of the spec, and over them those of the Secret."""
    return {**sink.options, **_mounted(sink.name, options_dir)}


def _mounted(sink: str, options_dir: Path | None) -> dict[str, str]:
    """Return the keys of a sink's Secret."""
    mounted = options_dir / sink if options_dir else None
    if mounted is None or not mounted.is_dir():
        return {}
    # Kubernetes' own files in the volume begin with two dots.
    files = [path for path in mounted.iterdir() if path.is_file() and not path.name.startswith("..")]
    try:
        return {path.name: path.read_text(encoding="utf-8").rstrip("\n") for path in files}
    except UnicodeDecodeError as error:
        raise BadSpec(
            f"sink {sink!r}: a value of its Secret is not text in UTF-8", reason=Reason.SINK_INVALID
        ) from error
