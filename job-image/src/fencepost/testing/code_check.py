"""Import a pipeline's code, and compare the columns of its frames with its tables, as the start of a run does.

`python -m fencepost.testing.code_check` reads a request of `fencepost check` on its standard input, on the author's
machine or in the pipeline's image. Neither Kafka nor Cassandra is asked; the schema registry is, for the columns.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from fencepost.context import takes_record_batches
from fencepost.contract import CassandraSink, DeclaredSink, FunctionSink, PluginSink, Reason
from fencepost.contract.code_check import CodeAnswer, CodeProblem, CodeRequest, DeclaredTable
from fencepost.entrypoint import load
from fencepost.errors import BadSpec, DependencyDown, DriverError
from fencepost.sinks import Sink, SinkTask
from fencepost.sinks.cassandra.purge_index import COORDINATES
from fencepost.sinks.cassandra.table_metadata import Table
from fencepost.sinks.cassandra.type_fit import misnamed
from fencepost.sinks.opening import find_plugin
from fencepost.testing.sessions import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from fencepost.formats.decoding import Decoding

    OpenSession = Callable[[Mapping[str, str]], AbstractContextManager[SparkSession]]

_ARGUMENTS: Final = 2
_PATIENCE: Final = 2.0
"""Seconds for the schema registry."""
_ENTRYPOINT: Final = "spec.job.entrypoint"
_REGISTRY: Final = "spec.source.kafka.schemaRegistry"


def main() -> None:
    """Answer the request."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the author's code and Spark may print
    request = CodeRequest.from_json(sys.stdin.read())
    answers.write(answer(request).to_json())
    answers.close()


def answer(request: CodeRequest, session: OpenSession = local_session) -> CodeAnswer:
    """Return what is wrong with the code: the first thing that ends a run. `session` opens one for a block."""
    place = _ENTRYPOINT
    try:
        function = load(request.config.entrypoint, Path(request.code_dir))
        _check_kind(function, request)
        _check_sinks(request)
        place = _REGISTRY
        decoding = _decoding(request)
        place = _ENTRYPOINT
        with session(_settings(request.config.spark_conf)) as spark:
            _check_frames(spark, function, request, decoding)
    except DriverError as error:
        return CodeAnswer(problems=(CodeProblem(message=error.message, remedy=error.remedy, place=place),))
    return CodeAnswer()


def _decoding(request: CodeRequest) -> Decoding:
    """Ask the schema registry for the columns of keys and values, if the spec has any. Raises DriverError."""
    from fencepost.formats.opening import open_decoding  # noqa: PLC0415 - few pipelines need it

    folder = Path(request.registry_credentials or os.devnull)
    try:
        return open_decoding(request.config.source, folder, patience=_PATIENCE, task_patience=_PATIENCE)
    except DependencyDown as error:
        remedy = "Name an address that answers from here with --registry, and an account with --registry-credentials."
        raise DependencyDown(error.message, reason=error.reason, remedy=remedy) from error


def _settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the author's settings of queries; those of processes are for a cluster."""
    return {name: value for name, value in conf.items() if name.startswith("spark.sql.")}


def _check_kind(function: Callable[..., Any], request: CodeRequest) -> None:
    """Raise BadSpec for a function that takes other arguments, or is of the other mode."""
    name, is_stateful = request.config.entrypoint, request.config.state is not None
    if is_stateful and takes_record_batches(function):
        raise BadSpec(
            f"{name} takes record batches, and spec.job.mode is Stateful",
            reason=Reason.TRANSFORM_INVALID,
            remedy="Name a function of a streaming DataFrame, or remove spec.job.mode.",
        )
    try:
        inspect.signature(function).bind(*[None] * _ARGUMENTS)
    except TypeError as error:
        wanted = "(events, context)" if is_stateful else "(batch, context)"
        raise BadSpec(
            f"{name}{inspect.signature(function)} cannot be called with {wanted}: {error}",
            reason=Reason.TRANSFORM_INVALID,
            remedy=f"Define it as def {name.rpartition(':')[2]}{wanted}.",
        ) from error
    except ValueError:
        return  # a callable that shows no signature


def _check_sinks(request: CodeRequest) -> None:
    """Raise BadSpec for a sink whose function or package is not there."""
    for sink in request.config.sinks:
        if isinstance(sink, FunctionSink):
            field = f"function.entrypoint of sink {sink.name!r} in spec.sinks"
            load(sink.entrypoint, Path(request.code_dir), field=field)
        elif isinstance(sink, PluginSink):
            find_plugin(sink.plugin, sink.name)


def _check_frames(spark: SparkSession, function: Callable[..., Any], request: CodeRequest, decoding: Decoding) -> None:
    """Plan an empty batch, as a run does before its first one. Raises DriverError."""
    from fencepost.spark.runner import runner  # noqa: PLC0415 - Spark's imports take a second

    config = replace(request.config, spark_master="local", spark_conf={})
    sinks = {sink.name: _CheckedSink(sink, _table(sink, request.tables)) for sink in config.sinks}
    runner(function, spark=spark, config=config, sinks=sinks, properties={}, decoding=decoding).check()


def _table(sink: DeclaredSink, tables: Mapping[str, DeclaredTable]) -> Table | None:
    declared = tables.get(f"{sink.keyspace}.{sink.table}") if isinstance(sink, CassandraSink) else None
    if declared is None:
        return None
    return Table(**{**asdict(declared), "clustering_key": declared.clustering_key})


class _CheckedSink(Sink):
    """Compares a frame's columns with the table, where it is known, and writes nothing."""

    def __init__(self, sink: DeclaredSink, table: Table | None) -> None:
        self._sink = sink
        self._table = table

    def check(self, schema: StructType) -> None:
        """Raise BadSpec naming every column that does not fit."""
        from pyspark.sql.types import StructType  # noqa: PLC0415 - Spark's imports take a second

        sink, table = self._sink, self._table
        if not isinstance(sink, CassandraSink) or table is None:
            return
        unstored = {sink.delete_where, sink.ttl_column}
        if sink.purge_retention is not None:
            unstored |= frozenset(COORDINATES) - table.columns.keys()
        stored = StructType([field for field in schema.fields if field.name not in unstored])
        problems = [
            *misnamed(schema, sink.delete_where, "deleteWhere names", "boolean"),
            *misnamed(schema, sink.ttl_column, "ttlColumn names", "int"),
            *(table.differences(sink.create_table) if sink.create_table is not None else ()),
            *table.problems(stored),
        ]
        if problems:
            raise BadSpec(
                f"sink {sink.name!r} ({sink.keyspace}.{sink.table}): {'; '.join(problems)}",
                reason=Reason.SINK_MISMATCH,
                remedy="Make the transform's columns and the table agree.",
            )

    def task(self) -> SinkTask:
        """Return the task's half, which is pickled and never runs."""
        return cast("SinkTask", _NoTask())


class _NoTask:
    """Writes nothing."""


if __name__ == "__main__":
    main()
