"""When two cells are the same, what is kept of each key, and how fast a trial reads."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from cassandra.cqltypes import lookup_casstype

from fencepost.sinks.comparison.cells import ColumnType
from fencepost.sinks.comparison.findings import Findings, Outcome, TaskFindings
from fencepost.sinks.comparison.pace import Pace
from fencepost.sinks.comparison.stored_rows import TableShape

NAN, OTHER_NAN = struct.pack(">d", float("nan")), b"\xff\xf8\0\0\0\0\0\1"
ONE, TWO = struct.pack(">i", 1), struct.pack(">i", 2)


def collection(*values: bytes) -> bytes:
    return struct.pack(">i", len(values)) + b"".join(struct.pack(">i", len(value)) + value for value in values)


def pairs(*items: tuple[bytes, bytes]) -> bytes:
    body = b"".join(struct.pack(">i", len(part)) + part for item in items for part in item)
    return struct.pack(">i", len(items)) + body


@pytest.mark.parametrize(
    ("kind", "frozen", "stored", "produced", "same"),
    [
        ("Int32Type", True, ONE, ONE, True),
        ("Int32Type", True, ONE, TWO, False),
        ("Int32Type", True, None, None, True),
        ("Int32Type", True, None, ONE, False),
        ("Int32Type", True, ONE, None, False),
        ("UTF8Type", True, b"", None, False),
        ("UTF8Type", True, b"a", b"a ", False),
        ("DoubleType", True, NAN, OTHER_NAN, True),
        ("DoubleType", True, struct.pack(">d", 0.0), struct.pack(">d", -0.0), False),
        ("FloatType", True, struct.pack(">f", 0.1), struct.pack(">f", 0.1), True),
        ("DecimalType", True, b"\0\0\0\1\x0a", b"\0\0\0\2\x64", False),  # 1.0 and 1.00
        ("SetType(Int32Type)", False, collection(ONE, TWO), collection(TWO, ONE, TWO), True),
        ("SetType(Int32Type)", False, collection(ONE), collection(ONE, TWO), False),
        ("SetType(Int32Type)", False, None, collection(), True),
        ("SetType(Int32Type)", True, None, collection(), False),
        ("ListType(Int32Type)", True, collection(ONE, TWO), collection(TWO, ONE), False),
        ("MapType(Int32Type,Int32Type)", False, pairs((ONE, TWO), (TWO, ONE)), pairs((TWO, ONE), (ONE, TWO)), True),
        ("MapType(Int32Type,Int32Type)", False, pairs((ONE, TWO)), pairs((ONE, ONE)), False),
    ],
)  # fmt: skip
def test_two_cells_are_the_same_where_cassandra_stores_them_alike(
    kind: str, frozen: bool, stored: bytes | None, produced: bytes | None, same: bool
) -> None:
    found = ColumnType(lookup_casstype(kind), 5, frozen)
    assert found.are_same(stored, produced) is same


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    return Findings(tmp_path / "findings.db")


def batch(findings: Findings, folder: Path, number: int, **outcomes: Outcome) -> None:
    """Let a task find these outcomes by key."""
    task = TaskFindings(folder / str(number), "rows")
    for key, outcome in outcomes.items():
        if task.add(key.encode(), outcome):
            task.show(f"{key} of {number}")
    task.write()
    findings.take(folder / str(number), number)


def counts(findings: Findings) -> dict[str, int]:
    return {outcome.name: count for outcome, count in findings.of("rows").counts.items()}


def test_of_a_key_the_last_batch_counts(findings: Findings, tmp_path: Path) -> None:
    """An aggregate by key differs from the table in each batch but the last."""
    batch(findings, tmp_path, 1, a=Outcome.CHANGED, b=Outcome.EQUAL, c=Outcome.ADDED)
    batch(findings, tmp_path, 2, a=Outcome.EQUAL, b=Outcome.CHANGED)
    assert counts(findings) == {"EQUAL": 1, "CHANGED": 1, "ADDED": 1}
    assert findings.samples("rows", Outcome.CHANGED) == ["b of 2"]
    assert findings.samples("rows", Outcome.ADDED) == ["c of 1"]


def test_of_one_batch_a_row_that_is_equal_counts(findings: Findings, tmp_path: Path) -> None:
    task = TaskFindings(tmp_path / "1", "rows")
    for outcome in (Outcome.CHANGED, Outcome.EQUAL, Outcome.CHANGED):
        task.add(b"a", outcome)
    task.write()
    findings.take(tmp_path / "1", 1)
    assert counts(findings) == {"EQUAL": 1}


def test_a_deleted_range_makes_its_keys_undecided(findings: Findings, tmp_path: Path) -> None:
    batch(findings, tmp_path, 1, aa=Outcome.CHANGED, ab=Outcome.ADDED, b=Outcome.CHANGED)
    batch(findings, tmp_path, 2, a=Outcome.RANGE_DELETED)
    assert counts(findings) == {"UNDECIDED": 2, "CHANGED": 1}


def test_a_file_that_was_not_finished_does_not_count(findings: Findings, tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "rows.x.part").write_bytes(b"half")
    findings.take(tmp_path / "1", 1)
    findings.take(tmp_path / "absent", 2)
    assert counts(findings) == {}


def test_few_samples_of_many_rows_are_kept(findings: Findings, tmp_path: Path) -> None:
    batch(findings, tmp_path, 1, **{f"k{number:03}": Outcome.CHANGED for number in range(300)})
    assert counts(findings) == {"CHANGED": 300}
    assert len(findings.samples("rows", Outcome.CHANGED)) == 10
    assert findings.has("rows", b"k299")
    assert not findings.has("rows", b"k300")
    assert not findings.has("other", b"k299")


def test_a_task_reads_no_faster_than_its_share() -> None:
    now = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(100.0, now=lambda: now[0], sleep=sleep)
    for _ in range(50):
        pace.take(100)
    assert 49 <= now[0] <= 51
    now[0] += 1000  # idleness saves up a second, not more
    before = now[0]
    for _ in range(10):
        pace.take(100)
    assert now[0] - before >= 8


def shape(**given: Any) -> TableShape:
    usual = {"keyspace": "k", "table": "t", "partition_key": ("p",), "clustering_key": ()}
    return TableShape(**{**usual, "columns": ("x",), "timed": ("x",), **given})


def test_the_statement_asks_for_keys_cells_and_write_times() -> None:
    head = 'SELECT "p", "x", WRITETIME("x") FROM "k"."t" WHERE "p" = ?'
    assert shape().by_key() == head
    one, two = shape(clustering_key=("c",)), shape(clustering_key=("c", "d"), timed=())
    assert one.by_key().endswith('WHERE "p" = ? AND "c" IN ?')
    assert two.by_key() == 'SELECT "p", "c", "d", "x" FROM "k"."t" WHERE "p" = ? AND ("c", "d") IN ?'


def test_a_row_has_its_key_and_the_latest_write_time() -> None:
    time = struct.pack(">q", 7)
    key, row = shape(columns=("x", "y"), timed=("x", "y")).row([b"ab", ONE, None, time, None])
    assert key == b"\0\0\0\2ab"
    assert (row.cells, row.written) == ((ONE, None), 7)
    assert shape().row([b"ab", None, None])[1].written is None
