"""The comparison of a trial on a real Cassandra: what the writer stored is equal, and each other value is found."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cassandra.cluster import Session

from fencepost.sinks.cassandra.row_changes import Rules
from fencepost.sinks.cassandra.writer import Target, write
from fencepost.sinks.comparison.compared_sink import ComparingTask, Comparison
from fencepost.sinks.comparison.findings import Findings, Outcome
from fencepost.sinks.interface import BatchToken
from harness.sink_targets import target_of
from integration.driver.test_sink import SCALARS
from testbed.environment import Environment

pytestmark = pytest.mark.integration

AT = 1_000
"""The write timestamp of the pipeline's rows, in µs."""
COLLECTIONS: dict[str, tuple[str, pa.DataType, Any, Any]] = {
    "names": ("set<text>", pa.list_(pa.string()), ["b", "a", "b"], ["a"]),
    "sizes": ("map<text, int>", pa.map_(pa.string(), pa.int32()), [("x", 1), ("a", 2)], [("x", 1), ("a", 3)]),
    "steps": ("frozen<list<int>>", pa.list_(pa.int32()), [2, 1], [1, 2]),
    "none": ("set<text>", pa.list_(pa.string()), [], ["a"]),
}
"""By a column's name: its type, the frame's, a value, and another one."""
OTHERS: dict[str, Any] = {
    "a_text": "u", "an_ascii": "b", "an_inet": "10.0.0.2", "a_blob": b"", "a_boolean": False, "a_double": float("nan"),
    "a_timestamp": SCALARS["a_timestamp"][2].replace(microsecond=0), "a_date": SCALARS["a_date"][2].replace(day=2),
    "a_uuid": SCALARS["a_uuid"][2].replace("5", "6"), "a_timeuuid": SCALARS["a_timeuuid"][2].replace("5132", "6132"),
    "a_decimal": SCALARS["a_decimal"][2] * 2,
}  # fmt: skip
"""Another value of a column; of the others, numbers, one more."""
KINDS = {name: kind for name, (_, kind, *_) in (SCALARS | COLLECTIONS).items()}


@dataclass
class World:
    """A table, and what a trial finds in it."""

    session: Session
    target: Target
    folder: Path
    batches: int = 0

    def frame(self, offsets: Sequence[int], **changed: Any) -> pa.RecordBatch:
        """Rows of these offsets: those that are even have a value in each column, the others nulls."""
        columns: dict[str, pa.Array] = {
            "topic": pa.array(["t"] * len(offsets)),
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
        }
        for name, (_, kind, value, _) in (SCALARS | COLLECTIONS).items():
            given = changed.get(name, value)
            columns[name] = pa.array([None if at % 2 else given for at in offsets], kind)
        return pa.RecordBatch.from_pydict(columns)

    def write(self, *frames: pa.RecordBatch, at: int = AT) -> None:
        list(write(self.target, at, iter(frames)))

    def compare(self, findings: Findings, *frames: pa.RecordBatch, **given: Any) -> None:
        """Compare one batch."""
        self.batches += 1
        usual = {name: not kind.startswith(("set<", "map<")) for name, (kind, *_) in (SCALARS | COLLECTIONS).items()}
        fixed = {"written_after": 0, "columns": usual, "show_values": True}
        comparison = Comparison(
            sink="rows", folder=str(self.folder), written_until=AT, rows_per_second=1e6, **{**fixed, **given}
        )
        token = BatchToken(pipeline="p", epoch=0, version=0, token=1 + self.batches, offsets={"t/0": (0, 1)})
        rows = sum(ComparingTask(self.target, comparison).write(iter(frames), token))
        assert rows == sum(frame.num_rows for frame in frames)
        findings.take(self.folder / str(token.token), self.batches)


@pytest.fixture(scope="module")
def table(session: Session) -> Iterator[str]:
    name = f"t{uuid.uuid4().hex[:10]}"
    columns = ", ".join(f"{field} {kind}" for field, (kind, *_) in (SCALARS | COLLECTIONS).items())
    session.execute(
        f"CREATE TABLE driver_tests.{name} (topic text, partition int, offset bigint, {columns},"
        " PRIMARY KEY ((topic, partition), offset))"
    )
    yield name
    session.execute(f"DROP TABLE driver_tests.{name}", timeout=30)


@pytest.fixture
def world(environment: Environment, session: Session, table: str, tmp_path: Path) -> World:
    session.execute(f"TRUNCATE driver_tests.{table}", timeout=60)
    return World(session, target_of(environment, keyspace="driver_tests", table=table), tmp_path)


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    return Findings(tmp_path / "findings.db")


def counts(findings: Findings) -> dict[str, int]:
    return {outcome.name: count for outcome, count in findings.of("rows").counts.items()}


def test_what_the_writer_stored_is_equal_in_each_type_and_with_nulls(world: World, findings: Findings) -> None:
    world.write(world.frame(range(250)))
    world.compare(findings, world.frame(range(130)), world.frame(range(130, 250)))
    assert counts(findings) == {"EQUAL": 250}


@pytest.mark.parametrize("column", [*SCALARS, *COLLECTIONS])
def test_another_value_of_one_column_in_one_row_is_found(world: World, findings: Findings, column: str) -> None:
    value = (SCALARS | COLLECTIONS)[column][2]
    other = COLLECTIONS[column][3] if column in COLLECTIONS else OTHERS.get(column)
    other = value + 1 if other is None else other
    world.write(world.frame(range(120)))
    world.compare(findings, world.frame(range(60)), world.frame([60], **{column: other}), world.frame(range(61, 120)))
    assert counts(findings) == {"EQUAL": 119, "CHANGED": 1}
    (sample,) = findings.samples("rows", Outcome.CHANGED)
    key, _, words = sample.partition("\n")
    assert key == "topic=t, partition=0, offset=60"
    assert words.startswith(f"{column}: ")
    assert "→" in words


def test_null_is_another_value(world: World, findings: Findings) -> None:
    world.write(world.frame(range(10)))
    world.compare(findings, world.frame([2], an_int=None), world.frame([4], names=None))
    assert counts(findings) == {"CHANGED": 2}


def test_a_row_that_the_table_does_not_have_is_added_and_a_column_may_be_ignored(
    world: World, findings: Findings
) -> None:
    world.write(world.frame(range(10)))
    world.compare(findings, world.frame(range(12), an_int=5), columns={"a_text": True})
    assert counts(findings) == {"EQUAL": 10, "ADDED": 2}


def test_a_row_that_was_written_again_after_the_end_is_not_compared(world: World, findings: Findings) -> None:
    world.write(world.frame(range(10)))
    world.write(world.frame([0, 2], a_text="later"), at=AT + 1)
    world.compare(findings, world.frame(range(10)))
    assert counts(findings) == {"EQUAL": 8, "OVERWRITTEN": 2}
    world.compare(findings, world.frame([0], a_text="later"))
    assert counts(findings) == {"EQUAL": 9, "OVERWRITTEN": 1}


def test_a_row_that_may_have_expired_is_not_called_added(world: World, findings: Findings) -> None:
    world.compare(findings, world.frame(range(4)), default_ttl=3600)
    assert counts(findings) == {"UNDECIDED": 4}
    world.compare(findings, world.frame(range(4)), default_ttl=3600, written_after=2**62)
    assert counts(findings) == {"ADDED": 4}


def test_what_the_new_code_deletes_is_to_be_absent(world: World, findings: Findings) -> None:
    world.target = replace(world.target, rules=Rules(delete_where="gone"))
    world.write(world.frame(range(4)).append_column("gone", pa.array([False] * 4)))
    rows = world.frame(range(2, 6))
    world.compare(findings, rows.append_column("gone", pa.array([True] * 4)))
    # Row 3 has nulls alone, so Cassandra knows no time at which it was written.
    assert counts(findings) == {"EQUAL": 2, "CHANGED": 1, "UNDECIDED": 1}
    key = rows.select(["topic", "partition", "offset"]).slice(0, 1)
    ranged = pa.RecordBatch.from_pydict(
        {**{name: key.column(name) for name in key.schema.names}, "offset": pa.nulls(1, pa.int64()), "gone": [True]}
    )
    world.compare(findings, ranged)
    assert counts(findings) == {"UNDECIDED": 4}


def test_a_comparison_writes_nothing(world: World, findings: Findings) -> None:
    world.write(world.frame(range(20)))
    select = f"SELECT JSON topic, offset, a_text, writetime(a_text) FROM driver_tests.{world.target.table}"  # noqa: S608
    before = [row[0] for row in world.session.execute(select)]
    world.compare(findings, world.frame(range(10, 30), a_text="new"))
    assert [row[0] for row in world.session.execute(select)] == before
