"""Which sinks of a run are compared, and what is reported of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

from msgspec import structs

from fencepost.contract import (
    CassandraSink,
    DeclaredSink,
    DriverConfig,
    FilesSink,
    FunctionSink,
    HttpSink,
    KafkaSink,
    PluginSink,
    PostgresqlSink,
    SqliteSink,
)
from fencepost.contract.trial import Kind, Sample, SinkFindings, TrialRequest
from fencepost.errors import BadSpec
from fencepost.fence.patience import Patience
from fencepost.sinks.cassandra import cassandra_sink, purge_index
from fencepost.sinks.cassandra.queries import Queries
from fencepost.sinks.comparison.compared_sink import ComparedSink, Comparison
from fencepost.sinks.comparison.findings import Findings, Outcome
from fencepost.sinks.comparison.missing_rows import CANNOT, Missing, MissingRows, Ranges
from fencepost.sinks.comparison.stored_rows import TableShape
from fencepost.sinks.purge.cassandra_output import purgeable

if TYPE_CHECKING:
    from cassandra.cluster import Session

    from fencepost.fence.tls import TlsMaterial

_COLLECTIONS: Final = ("list<", "set<", "map<")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """How the sinks of one trial are compared. `cores` are the tasks that run at the same time."""

    config: DriverConfig
    request: TrialRequest
    session: Session
    raw: Session
    """A session that returns CQL's bytes."""
    credentials: tuple[str, str] | None
    tls: TlsMaterial | None
    folder: Path
    cores: int

    def sinks(self) -> dict[str, ComparedSink | str]:
        """Return each sink by its name; the reason for one that is not compared and was to be."""
        return {sink.name: self._opened(sink) for sink in self.config.sinks}

    def _opened(self, sink: DeclaredSink) -> ComparedSink | str:
        if sink.name not in self.request.sinks:
            return "compare.sinks does not name it" if isinstance(sink, CassandraSink) else _unreadable(sink)
        if not isinstance(sink, CassandraSink):
            return _unreadable(sink)
        try:
            bound = cassandra_sink.bind(
                self.config, structs.replace(sink, create_table=None), self.session, self.credentials, self.tls
            )
        except BadSpec as error:
            return error.message
        return ComparedSink(bound, self._comparison(sink))

    def _comparison(self, sink: CassandraSink) -> Comparison:
        table, request = self._table(sink), self.request
        return Comparison(
            sink=sink.name,
            folder=str(self.folder),
            columns=self._columns(sink),
            written_after=request.written_after,
            written_until=request.written_until,
            rows_per_second=max(1.0, request.rows_per_second / max(1, len(request.sinks)) / self.cores),
            default_ttl=int(table.options.get("default_time_to_live") or 0),
            show_values=request.show_values,
            is_written_once=purge_index.needs_no_index(table),
        )

    def _columns(self, sink: CassandraSink) -> dict[str, bool]:
        """Return the columns to compare, and whether each is stored as one cell.

        Not the key, and no static column: that is not of a row.
        """
        table = self._table(sink)
        types = self.session.cluster.metadata.keyspaces[sink.keyspace].user_types
        key = {column.name for column in table.primary_key}
        return {
            name: not column.cql_type.startswith(_COLLECTIONS) and column.cql_type not in types
            for name, column in table.columns.items()
            if name not in key and name not in self.request.ignored and not column.is_static
        }

    def _table(self, sink: CassandraSink) -> Any:  # noqa: ANN401 - the library is untyped
        return self.session.cluster.metadata.keyspaces[sink.keyspace].tables[sink.table]

    def found(
        self, sink: CassandraSink, compared: ComparedSink, findings: Findings, ranges: Ranges, *, has_moved: bool
    ) -> tuple[SinkFindings, list[Sample]]:
        """Return what was found in one sink; `has_moved`: the pipeline has committed more since the trial began."""
        rows, missing = findings.of(sink.name), self._missing(sink, findings, ranges)
        added, undecided = rows.of(Outcome.ADDED), rows.of(Outcome.UNDECIDED)
        notes = [missing.reason, compared.unwritten(self._columns(sink))]
        kinds: Mapping[Kind, list[str]] = {
            "Changed": findings.samples(sink.name, Outcome.CHANGED),
            "Missing": missing.samples,
            "Added": findings.samples(sink.name, Outcome.ADDED),
        }
        if sink.delete_where is not None and has_moved and added:
            notes.append("rows that the table does not have may have been deleted since: they are not compared")
            added, undecided, kinds = 0, undecided + added, {**kinds, "Added": []}
        samples = [_sample(sink.name, kind, text) for kind, texts in kinds.items() for text in texts]
        return SinkFindings(
            name=sink.name,
            equal=rows.of(Outcome.EQUAL),
            changed=rows.of(Outcome.CHANGED),
            added=added,
            missing=None if missing.reason else missing.count,
            overwritten=rows.of(Outcome.OVERWRITTEN),
            undecided=undecided,
            message="; ".join(filter(None, notes))[:1000],
        ), samples

    def _missing(self, sink: CassandraSink, findings: Findings, ranges: Ranges) -> Missing:
        try:
            output = purgeable(self.session, sink, self.config)
        except BadSpec:
            return Missing(reason=CANNOT)
        table = self._table(sink)
        shape = TableShape(
            keyspace=sink.keyspace,
            table=sink.table,
            partition_key=tuple(column.name for column in table.partition_key),
            clustering_key=tuple(column.name for column in table.clustering_key),
            columns=(),
            timed=tuple(name for name, is_one_cell in self._columns(sink).items() if is_one_cell),
        )
        patience = Patience(self.config.patience, longest=2 * self.config.task_patience)
        return MissingRows(
            output=output,
            raw=Queries(self.raw, sink.name, sink.keyspace, patience),
            shape=shape,
            written_until=self.request.written_until,
            rows_per_second=self.request.rows_per_second,
        ).look(findings, sink.name, ranges)


def _sample(sink: str, kind: Kind, text: str) -> Sample:
    key, _, columns = text.partition("\n")
    return Sample(sink=sink, kind=kind, key=key, columns=columns)


def _unreadable(sink: DeclaredSink) -> str:
    match sink:
        case KafkaSink():
            return "a Kafka topic is not read back"
        case FilesSink() | FunctionSink() | HttpSink() | PluginSink() | PostgresqlSink():
            return "its rows cannot be read back"
        case CassandraSink() | SqliteSink():
            return "it is not compared"
        case _:
            assert_never(sink)
