"""`fencepost purge` for sinks of packages, and for sinks that nothing can be deleted from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from fencepost.contract import CassandraSink, DeclaredSink, DriverConfig, FunctionSink, KafkaSink, PluginSink
from fencepost.contract.purge_request import PurgeReport, PurgeRequest
from fencepost.driver.environment import Environment
from fencepost.driver.purge_command import purge
from fencepost.errors import BadSpec, BatchFailed
from fencepost.fence import FenceUnavailable
from fencepost.sinks import Sink, opening
from fencepost.testing.sinks import token_of, write_batch
from unit.sinks.sqlite_sink import SqliteSink
from unit.sinks.test_contract import CONTEXT, WithTask, batch, read

CONFIG = json.loads((Path(__file__).parents[1] / "contract" / "configs" / "plain.json").read_text())
RANGES = {"t/0": (8, 10)}


def done(*sinks: DeclaredSink, timestamp: int | None) -> PurgeReport:
    config = replace(DriverConfig.from_json(json.dumps({**CONFIG, "sinks": []})), sinks=sinks)
    environment = Environment.read({}, termination_log=Path("/nowhere"))
    return purge(config, PurgeRequest(ranges=RANGES, timestamp=timestamp), environment)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "rows.db"
    rows = batch("a", "b", "c")
    write_batch(SqliteSink({"path": str(path)}, CONTEXT), token_of(rows), [rows])
    return path


def install(monkeypatch: pytest.MonkeyPatch, sink: Sink) -> None:
    monkeypatch.setattr(opening, "open_plugin", lambda *_: sink)


def test_a_plugin_counts_and_purges(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, SqliteSink({"path": str(store)}, CONTEXT))
    plugin = PluginSink(name="rows", plugin="sqlite")
    counted = done(plugin, timestamp=None)
    assert (counted.rows, counted.left, len(read(store))) == (2, 2, 3)
    purged = done(plugin, timestamp=2**60)
    assert (purged.rows, purged.left) == (2, 0)
    assert [row["offset"] for row in read(store)] == [7]


def test_a_plugin_that_cannot_is_refused_by_name(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, WithTask(SqliteSink({"path": str(store)}, CONTEXT), lambda task: task))
    with pytest.raises(BadSpec, match="'rows': its output cannot be deleted: WithTask is not a") as caught:
        done(PluginSink(name="rows", plugin="sqlite"), timestamp=1)
    assert "deleteOutput" in caught.value.remedy


@pytest.mark.parametrize(
    "other", [KafkaSink(name="other", topics=("out",)), FunctionSink(name="other", entrypoint="out:write")]
)
def test_nothing_is_deleted_where_one_sink_cannot_be_purged(
    store: Path, monkeypatch: pytest.MonkeyPatch, other: DeclaredSink
) -> None:
    install(monkeypatch, SqliteSink({"path": str(store)}, CONTEXT))
    with pytest.raises(BadSpec, match="'other': its output cannot be deleted"):
        done(PluginSink(name="rows", plugin="sqlite"), other, timestamp=2**60)
    assert len(read(store)) == 3


def test_nothing_is_deleted_where_a_later_sink_cannot_count(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(SqliteSink):
        def count(self, offsets: object) -> int:
            raise RuntimeError(f"no rows of {offsets}")

    sinks = iter([SqliteSink({"path": str(store)}, CONTEXT), Broken({"path": str(store)}, CONTEXT)])
    monkeypatch.setattr(opening, "open_plugin", lambda *_: next(sinks))
    two = (PluginSink(name="rows", plugin="sqlite"), PluginSink(name="broken", plugin="sqlite"))
    with pytest.raises(BatchFailed, match="sink 'broken' could not be purged: RuntimeError"):
        done(*two, timestamp=2**60)
    assert len(read(store)) == 3


def test_the_entries_of_an_index_have_the_keys_bytes() -> None:
    from fencepost.sinks.cassandra.index_entries import entries  # noqa: PLC0415
    from fencepost.sinks.cassandra.purge_index import Index, split_key  # noqa: PLC0415

    rows = pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(["t", "t"]),
            "partition": pa.array([3, 3], pa.int32()),
            "offset": pa.array([9_999, 10_000], pa.int64()),
        }
    )
    key = [pa.array([b"", b"ab"], pa.binary()), pa.array([b"1234", b"5678"], pa.binary(4))]
    found = entries(Index(pipeline="s/n/p", retention=60), rows, key).to_pylist()
    assert [list(split_key(row["key"], columns=2)) for row in found] == [[b"", b"1234"], [b"ab", b"5678"]]
    assert [(row["pipeline"], row["bucket"], row["offset"]) for row in found] == [
        ("s/n/p", 0, 9_999),
        ("s/n/p", 1, 10_000),
    ]
    with pytest.raises(BadSpec, match="has 2 key columns, and the table 3"):
        split_key(found[0]["key"], columns=3)


def test_a_slow_request_of_a_purge_is_not_a_frozen_process() -> None:
    """A purge with a long stallTimeout waits minutes for one answer; its patience began once more after each."""
    from cassandra.metadata import ColumnMetadata, KeyspaceMetadata, TableMetadata  # noqa: PLC0415

    from fencepost.sinks.purge.cassandra_output import purgeable  # noqa: PLC0415

    table = TableMetadata("shop", "orders")
    kinds = {"topic": "text", "partition": "int", "offset": "bigint"}
    columns = [ColumnMetadata(table, name, kind) for name, kind in kinds.items()]
    table.partition_key, table.clustering_key = columns[:2], columns[2:]
    keyspace = KeyspaceMetadata("shop", True, "SimpleStrategy", {"replication_factor": "1"})
    keyspace.tables["orders"] = table
    session = SimpleNamespace(cluster=SimpleNamespace(metadata=SimpleNamespace(keyspaces={"shop": keyspace})))
    config = replace(DriverConfig.from_json(json.dumps({**CONFIG, "sinks": []})), stall_timeout=600.0)
    found = purgeable(cast(Any, session), CassandraSink(name="rows", keyspace="shop", table="orders"), config)
    clock = iter([0.0, 2 * config.task_patience])
    patience = replace(found.queries.patience, monotonic=lambda: next(clock), sleep=lambda _seconds: None)
    asked = 0

    def unanswered() -> None:
        nonlocal asked
        asked += 1
        raise FenceUnavailable("no answer")

    with pytest.raises(FenceUnavailable):
        patience.ask(unanswered)
    assert asked == 1, "the patience is over"
