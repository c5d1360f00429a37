"""Files of records: what a line may be, and at which offsets its record is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from fencepost.batch import Range
from fencepost.fence.sqlite import left_out
from fencepost.fence.sqlite.database import Database
from fencepost.local.record_files import RecordsInvalid, copy_to_parquet, read_file
from fencepost.local.record_lines import EPOCH, FileRecord, line_of
from fencepost.local.record_log import SCHEMA, RecordLog, read
from fencepost.testing import read_records, record_batch


def file_of(path: Path, *lines: Any) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def test_lines_that_are_no_records_are_values(tmp_path: Path) -> None:
    path = file_of(tmp_path / "a.jsonl", '{"id": 1, "value": 2}', "", "not JSON", '{"value": 3}')
    values = [record.value for record in read_file(path)]
    assert values == [b'{"id": 1, "value": 2}', b"not JSON", b'{"value": 3}']


def test_records_have_the_fields_of_kafka(tmp_path: Path) -> None:
    path = file_of(
        tmp_path / "a.jsonl",
        {"topic": "t", "partition": 3, "offset": 7, "timestamp": "2026-01-02T03:04:05Z", "key": "k", "value": "v",
         "headers": [["h", "x"], ["none", None]]},
        {"value": {"id": 1}, "timestamp": 1_000, "key": {"base64": "AAE="}, "headers": {"h": "x"}},
        {"value": None},
        {"value": 1, "timestamp": None},
    )  # fmt: skip
    assert list(read_file(path)) == [
        FileRecord(
            topic="t", partition=3, offset=7, timestamp=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), key=b"k",
            value=b"v", headers=(("h", b"x"), ("none", None)),
        ),
        FileRecord(
            value=b'{"id":1}', timestamp=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), key=b"\0\1",
            headers=(("h", b"x"),),
        ),
        FileRecord(timestamp=EPOCH),
        FileRecord(value=b"1", timestamp=None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 2"),
        ({"value": 1, "vaule": 2}, "'vaule'"),
        ({"key": "k"}, "'value'"),
        ({"value": 1, "timestamp": "noon"}, "noon"),
        ({"value": 1, "timestamp": 1e18}, "not of the years"),
        ({"value": {"base64": "?"}}, "base64"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: Any, problem: str) -> None:
    path = file_of(tmp_path / "a.jsonl", {"value": 1}, line)
    with pytest.raises(RecordsInvalid, match=rf"a\.jsonl, line 2.*{problem}|a\.jsonl, {problem}"):
        list(read_file(path))


def test_parquet_has_the_same_fields(tmp_path: Path) -> None:
    path, at = tmp_path / "a.parquet", datetime(2026, 1, 2, tzinfo=UTC)
    parquet.write_table(pa.table({"key": [b"k", None], "value": ["v", "w"], "timestamp": [at, None]}), path)
    none = FileRecord(value=b"w", timestamp=None)
    assert list(read_file(path)) == [FileRecord(key=b"k", value=b"v", timestamp=at), none]
    parquet.write_table(pa.table({"id": [1]}), path)
    with pytest.raises(RecordsInvalid, match="columns are id"):
        list(read_file(path))


CONTENTS = (
    st.none()
    | st.binary()
    | st.text().map(str.encode)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("base64"), inner),
    ).map(lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass"))
)
RECORDS = st.builds(
    FileRecord,
    topic=st.sampled_from(["t", "orders.v1"]),
    partition=st.integers(0, 9),
    offset=st.integers(0, 2**62),
    timestamp=st.none() | st.datetimes(timezones=st.just(UTC)),
    key=CONTENTS,
    value=CONTENTS,
    headers=st.lists(st.tuples(st.text(), CONTENTS), max_size=3).map(tuple),
)


@given(st.lists(RECORDS, min_size=1, max_size=5))
def test_what_is_written_is_read_as_the_same_bytes(records: list[FileRecord]) -> None:
    with TemporaryDirectory() as folder:
        lines, other = Path(folder, "a.jsonl"), Path(folder, "a.parquet")
        lines.write_text("".join(f"{line_of(record)}\n" for record in records), newline="")
        assert list(read_file(lines)) == records
        copy_to_parquet(lines, other)
        assert list(read_file(other)) == records


def test_json_is_written_for_people_where_it_is_compact() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    one = FileRecord(topic="t", offset=7, timestamp=at, key=b"k", value=b'{"id":"1"}', headers=(("h", b"\xff"),))
    assert line_of(one) == (
        '{"topic":"t","partition":0,"offset":7,"timestamp":"2026-01-02T03:04:05.678000Z","key":"k",'
        '"value":{"id":"1"},"headers":[["h",{"base64":"/w=="}]]}'
    )
    assert '"value":"{\\"id\\": 1}"' in line_of(FileRecord(value=b'{"id": 1}'))
    assert '"value":"[NaN]"' in line_of(FileRecord(value=b"[NaN]"))


def test_tests_read_the_same_records(tmp_path: Path) -> None:
    path = file_of(tmp_path / "a.jsonl", {"value": "a", "key": "k", "timestamp": None}, {"value": "b", "topic": "t"})
    first, second = read_records(path)
    assert first == {"partition": 0, "timestamp": None, "key": b"k", "value": b"a", "headers": None}
    assert (second["topic"], second["timestamp"]) == ("t", EPOCH)
    assert record_batch([first, second]).column("value").to_pylist() == [b"a", b"b"]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(tmp_path / "local.sqlite", SCHEMA + left_out.SCHEMA)) as found:
        yield found


def offsets(tmp_path: Path, part: Range) -> list[tuple[int, bytes]]:
    batches = read(str(tmp_path / "local.sqlite"), [part], reached=_ignored, seen=_ignored)
    return [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]


def _ignored(*_: object) -> None:
    pass


def test_records_get_the_next_offsets_of_their_partition_unless_they_have_one(
    database: Database, tmp_path: Path
) -> None:
    log = RecordLog(database, ["t", "empty"])
    first = file_of(tmp_path / "a.jsonl", {"value": "a"}, {"value": "b", "partition": 1, "offset": 5}, {"value": "c"})
    second = file_of(tmp_path / "b.jsonl", {"value": "d"}, {"value": "e", "partition": 1})
    assert [log.load(path, "t") for path in (first, second, first)] == [3, 2, 0]
    state = log.state()
    assert state.begins == {"t/0": 0, "t/1": 5, "empty/0": 0}
    assert state.ends == {"t/0": 3, "t/1": 7, "empty/0": 0}
    assert offsets(tmp_path, Range("t", 0, 1, 9)) == [(1, b"c"), (2, b"d")]
    assert offsets(tmp_path, Range("t", 1, 0, 6)) == [(5, b"b")]


def test_the_first_record_of_a_time_is_found(database: Database, tmp_path: Path) -> None:
    """A record that is out of order is not the first one: an earlier one is as new."""
    times = [1, 3, 2, 3, 5, None]
    lines = [{"value": "a", "timestamp": at and f"2026-01-01T00:00:0{at}Z"} for at in times]
    log = RecordLog(database, ["t", "empty"])
    log.load(file_of(tmp_path / "a.jsonl", *lines, {"value": "b", "partition": 1, "offset": 7}), "t")
    begin = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    firsts = {at: log.offsets_at(begin + 1000 * at, ["t/0"])["t/0"] for at in range(7)}
    assert firsts == {0: 0, 1: 0, 2: 1, 3: 1, 4: 4, 5: 4, 6: None}
    assert log.offsets_at(begin + 3001, ["t/0", "t/1", "empty/0"]) == {"t/0": 4, "t/1": None, "empty/0": None}
    assert log.offsets_at(0, ["t/1"]) == {"t/1": 7}  # a line without a timestamp is of 1970


def test_records_that_are_left_out_are_not_read(database: Database, tmp_path: Path) -> None:
    RecordLog(database, ["t"]).load(file_of(tmp_path / "a.jsonl", *({"value": str(n)} for n in range(4))), "t")
    left_out.LeftOutRecords(database).add({"t/0": (1,), "t/1": (2,)})
    assert [offset for offset, _ in offsets(tmp_path, Range("t", 0, 0, 4))] == [0, 2, 3]


def test_headers_come_back(database: Database, tmp_path: Path) -> None:
    path = file_of(tmp_path / "a.jsonl", {"value": "a", "headers": [["h", "x"], ["n", None]]}, {"value": "b"})
    RecordLog(database, ["t"]).load(path, "t")
    (batch,) = read(str(tmp_path / "local.sqlite"), [Range("t", 0, 0, 2)], reached=_ignored, seen=_ignored)
    pairs = [{"key": "h", "value": b"x"}, {"key": "n", "value": None}]
    assert batch.column("headers").to_pylist() == [pairs, None]


def test_a_record_without_a_timestamp_has_none(database: Database, tmp_path: Path) -> None:
    RecordLog(database, ["t"]).load(file_of(tmp_path / "a.jsonl", {"value": "a", "timestamp": None}), "t")
    (batch,) = read(str(tmp_path / "local.sqlite"), [Range("t", 0, 0, 1)], reached=_ignored, seen=_ignored)
    assert batch.column("timestamp").to_pylist() == [None]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([{"value": 1, "topic": "other"}], "has records of topic 'other'"),
        ([{"value": 1, "offset": 3}, {"value": 1, "offset": 3}], "offset 3 of t/0 is not after"),
    ],
)
def test_records_that_do_not_fit_leave_nothing_behind(
    database: Database, tmp_path: Path, lines: list[Any], problem: str
) -> None:
    log, path = RecordLog(database, ["t"]), file_of(tmp_path / "a.jsonl", {"value": 0}, *lines)
    with pytest.raises(RecordsInvalid, match=problem):
        log.load(path, "t")
    assert log.state().ends == {"t/0": 0}


def test_a_file_that_has_changed_is_refused(database: Database, tmp_path: Path) -> None:
    log = RecordLog(database, ["t"])
    log.load(file_of(tmp_path / "a.jsonl", "a"), "t")
    with pytest.raises(RecordsInvalid, match="has changed"):
        log.load(file_of(tmp_path / "a.jsonl", "b"), "t")
    with pytest.raises(RecordsInvalid, match="name no topic"):
        log.load(file_of(tmp_path / "b.jsonl", "b"), None)
