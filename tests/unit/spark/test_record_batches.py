"""A transform of record batches runs in the Python workers, between read and write, and fails like any other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fencepost import RecordContext, record_batches
from fencepost.batch import Range, between
from fencepost.contract import Reason
from fencepost.errors import BadSpec, BatchFailed, DependencyDown, OutOfMemory, PoisonRecord, RecordFailed
from fencepost.sinks import BatchToken, SinkTask
from fencepost.spark import engine
from fencepost.spark.engine import SparkEngine
from fencepost.spark.prepared import PreparedQueries
from unit.spark.conftest import CONFIG
from unit.spark.test_engine import BATCH, Counting, eventually, failure, in_background, row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

PER_BATCH = 2
"""Records in each Arrow batch of these tests."""


def reading(
    ranges: Sequence[Range],
    properties: Mapping[str, str],
    *,
    patience: float,
    reached: Callable[[str, int], object],
    seen: Callable[[str, int, int], object],
) -> Iterator[pa.RecordBatch]:
    """One record per offset, and nothing for 7 offsets after a range."""
    from fencepost.testing import record_batch  # noqa: PLC0415

    assert patience == CONFIG.task_patience
    assert dict(properties) == {}
    for one in ranges:
        for start in range(one.start, one.until, PER_BATCH):
            yield record_batch(
                [
                    {"partition": one.partition, "offset": offset, "value": str(offset).encode()}
                    for offset in range(start, min(one.until, start + PER_BATCH))
                ]
            )
        reached(one.key, one.until + 7)
        seen(one.key, one.until - 1, 3)


@pytest.fixture
def make(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SparkEngine]:
    from pyspark import cloudpickle  # noqa: PLC0415

    # The workers do not find the tests on their path.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    monkeypatch.setattr(engine, "read", reading)

    def build(transform: Any, *sinks: Sink) -> SparkEngine:
        named = {sink.name: sink for sink in sinks or (Sink(),)}
        return SparkEngine(spark=spark, config=CONFIG, transform=transform, sinks=named, properties={})

    return build


class Sink(Counting):
    """A sink that counts the rows, and appends what it gets to a file."""

    def __init__(self, name: str = "rows", path: Any = None) -> None:
        super().__init__()
        self.name = name
        self.schemas: list[StructType] = []
        self._path = None if path is None else str(path)

    def check(self, schema: StructType) -> None:
        self.schemas.append(schema)

    def task(self) -> SinkTask:
        return Appending(self._path)


class Appending:
    """Appends the token and the offset of each row to a file."""

    def __init__(self, path: str | None) -> None:
        self._path = path

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        for rows in batches:
            if self._path is not None:
                with open(self._path, "a", encoding="utf-8") as file:  # noqa: PTH123
                    file.writelines(f"{batch.token} {one['offset']}\n" for one in rows.to_pylist())
            yield rows.num_rows


class Repeats(Sink):
    """A sink that makes a file for what its tasks and its rows say of a repetition."""

    def task(self) -> SinkTask:
        return Noting(str(self._path))


class Noting:
    """The task of Repeats."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        for rows in batches:
            for said in set(rows.column("is_repeated").to_pylist()) if not batch.is_warm_up else ():
                Path(self._folder, f"sink {batch.is_repeated} transform {said}").touch()
            yield rows.num_rows


def offsets(path: Any) -> list[int]:
    return sorted(int(line.split()[1]) for line in path.read_text().splitlines())


@record_batches
def same(batch: pa.RecordBatch, context: RecordContext) -> pa.RecordBatch:
    assert context.pipeline
    return batch.select(["offset", "value"])


def test_each_record_is_written_once(make: Callable[..., SparkEngine], tmp_path: Any) -> None:
    sink = Sink(path=tmp_path / "rows")
    made = make(same, sink)
    made.warm()
    assert [schema.simpleString() for schema in sink.schemas] == ["struct<offset:bigint,value:binary>"]
    assert made.write(BATCH, row()).rows == {"rows": 5}
    assert offsets(tmp_path / "rows") == [7, 8, 100, 101, 102]
    made.keep_warm()
    assert len(sink.schemas) == 1


def test_what_follows_a_batch_without_a_record_reaches_the_driver(make: Callable[..., SparkEngine]) -> None:
    written = make(same).write(BATCH, row())
    assert written.reached == {key: end + 7 for key, end in BATCH.until.items()}
    assert {key: seen[-1] for key, seen in written.epochs.items()} == {
        key: (end - 1, 3) for key, end in BATCH.until.items()
    }


def test_each_batch_has_its_own_ranges_and_token(make: Callable[..., SparkEngine], tmp_path: Any) -> None:
    sink = Sink(path=tmp_path / "rows")
    made = make(same, sink)
    written = set()
    for number in range(3):
        batch = between({"t/0": number * 10}, {"t/0": number * 10 + number + 1})
        now = replace(row(), version=9 + number, clock=row().clock + number)
        assert made.write(batch, now).rows == {"rows": number + 1}
        written |= {f"{now.write_timestamp} {number * 10 + place}" for place in range(number + 1)}
    lines = (tmp_path / "rows").read_text().splitlines()
    assert sorted(lines) == sorted(written)


def test_a_batch_that_fails_leaves_the_next_one_whole(make: Callable[..., SparkEngine], tmp_path: Any) -> None:
    sink = Sink(path=tmp_path / "rows")

    @record_batches
    def refusing(batch: pa.RecordBatch, context: RecordContext) -> pa.RecordBatch:
        if "t/0" in context.offsets:
            raise PoisonRecord("a record of t/0")
        return batch.select(["offset"])

    made = make(refusing, sink)
    failure(lambda: made.write(BATCH, row()))
    (tmp_path / "rows").unlink(missing_ok=True)
    assert made.write(between({"t/1": 100}, {"t/1": 103}), row()).rows == {"rows": 3}
    assert offsets(tmp_path / "rows") == [100, 101, 102]


def test_a_task_that_changes_between_two_batches_is_sent_as_it_is_then(
    make: Callable[..., SparkEngine], tmp_path: Any
) -> None:
    sink = Sink(path=tmp_path / "one")
    made = make(same, sink)
    made.write(BATCH, row())
    sink._path = str(tmp_path / "two")
    made.write(BATCH, row())
    assert offsets(tmp_path / "one") == offsets(tmp_path / "two") == [7, 8, 100, 101, 102]


def test_a_query_is_planned_once_while_its_function_stays_the_same(spark: SparkSession) -> None:
    queries = PreparedQueries(spark, "id long", returned=("id",))
    first = queries.of(reverse, 2)
    assert queries.of(reverse, 2) is first
    assert queries.of(reverse, 1) is not first
    assert queries.of(same_rows, 2) is not first
    for _ in range(2):
        assert sorted(one["id"] for one in first.collect()) == [-1, 0]


def reverse(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        yield pa.RecordBatch.from_pydict({"id": [-one for one in batch.column(0).to_pylist()]})


def same_rows(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from rows


def test_progress_grows_within_the_only_task_of_each_batch(make: Callable[..., SparkEngine], tmp_path: Any) -> None:
    made = make(same, Slow(tmp_path))
    for version in range(2):
        before = made.progress()
        thread = in_background(partial(made.write, BATCH, replace(row(), version=version)))
        try:
            eventually(partial(grows, made, before), "progress within the task")
            assert thread.is_alive()
        finally:
            (tmp_path / str(version)).touch()
            thread.join(60)


def grows(made: SparkEngine, before: int) -> bool:
    return made.progress() > before


class Slow(Sink):
    """A sink whose tasks report rows, and end once there is a file with the batch's version."""

    def __init__(self, folder: Any) -> None:
        super().__init__()
        self._folder = str(folder)

    def task(self) -> SinkTask:
        return Waiting(self._folder)


class Waiting:
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        import os  # noqa: PLC0415
        import time  # noqa: PLC0415

        from fencepost.sinks import task_half  # noqa: PLC0415

        task_half.REPORT_INTERVAL = 0.1  # type: ignore[misc]
        for rows in batches:
            yield rows.num_rows
        while not os.path.exists(f"{self._folder}/{batch.version}"):  # noqa: PTH110
            yield 0
            time.sleep(0.2)


def test_several_sinks_read_once(make: Callable[..., SparkEngine], tmp_path: Any) -> None:
    calls = str(tmp_path / "calls")

    @record_batches
    def split(batch: pa.RecordBatch, context: RecordContext) -> Mapping[str, pa.RecordBatch]:
        if context.offsets:
            with open(calls, "a", encoding="utf-8") as file:  # noqa: PTH123
                file.write("x" * batch.num_rows)
        return {"one": batch.select(["offset"]), "two": batch.select(["offset"]).slice(1)}

    made = make(split, Sink("one", tmp_path / "one"), Sink("two", tmp_path / "two"))
    made.warm()
    assert made.write(BATCH, row()).rows == {"one": 5, "two": 2}
    assert offsets(tmp_path / "one") == [7, 8, 100, 101, 102]
    assert offsets(tmp_path / "two") == [8, 101]
    assert len((tmp_path / "calls").read_text()) == 5


class Streams(Sink):
    """A sink that notes the offsets of each call of its task's half, once that call has got all its rows."""

    def task(self) -> SinkTask:
        return OneLineACall(self._path or "")


class OneLineACall:
    """Writes a line for each complete stream of rows; raises at `poison`."""

    def __init__(self, path: str, poison: int | None = None) -> None:
        self._path = path
        self._poison = poison

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        found: list[int] = []
        for rows in batches:
            found += rows.column("offset").to_pylist()
            if self._poison in found:
                raise PoisonRecord(f"offset {self._poison}")
            yield rows.num_rows
        with open(self._path, "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(f"{batch.token} {' '.join(map(str, found))}\n")


class Refusing(Streams):
    """Refuses offset 102, which is in the second Arrow batch."""

    def task(self) -> SinkTask:
        return OneLineACall(self._path or "", poison=102)


@record_batches
def to_both(batch: pa.RecordBatch, context: RecordContext) -> Mapping[str, pa.RecordBatch]:
    assert context.pipeline
    return {"one": batch.select(["offset"]), "two": batch.select(["offset"])}


def test_each_of_several_sinks_gets_all_rows_of_a_task_in_one_call(
    make: Callable[..., SparkEngine], tmp_path: Any
) -> None:
    made = make(to_both, Streams("one", tmp_path / "one"), Streams("two", tmp_path / "two"))
    assert made.write(BATCH, row()).rows == {"one": 5, "two": 5}
    token = row().write_timestamp
    assert (tmp_path / "one").read_text() == f"{token} 100 101 102 7 8\n"
    assert (tmp_path / "two").read_text() == f"{token} 100 101 102 7 8\n"


def test_where_one_of_several_sinks_fails_no_other_takes_a_part_for_the_whole(
    make: Callable[..., SparkEngine], tmp_path: Any
) -> None:
    made = make(to_both, Streams("one", tmp_path / "one"), Refusing("two", tmp_path / "two"))
    found = failure(lambda: made.write(BATCH, row()))
    assert isinstance(found, PoisonRecord)
    assert found.message.startswith("offset 102")
    one = tmp_path / "one"  # done before the other one failed, it has them all
    assert not one.exists() or one.read_text() == f"{row().write_timestamp} 100 101 102 7 8\n"


def test_where_the_transform_fails_no_sink_takes_a_part_for_the_whole(
    make: Callable[..., SparkEngine], tmp_path: Any
) -> None:
    @record_batches
    def failing(batch: pa.RecordBatch, context: RecordContext) -> Mapping[str, pa.RecordBatch]:
        if batch.num_rows and batch.column("offset")[0].as_py() == 7:
            raise ArithmeticError("no")
        return to_both(batch, context)

    made = make(failing, Streams("one", tmp_path / "one"), Streams("two", tmp_path / "two"))
    assert isinstance(failure(lambda: made.write(BATCH, row())), RecordFailed)
    assert not (tmp_path / "one").exists()
    assert not (tmp_path / "two").exists()


def test_the_worker_knows_the_batch(make: Callable[..., SparkEngine]) -> None:
    @record_batches
    def checking(batch: pa.RecordBatch, context: RecordContext) -> pa.RecordBatch:
        assert type(context).__name__ == "RecordContext"
        if context.offsets:
            assert dict(context.offsets) == {"t/0": (100, 103), "t/1": (7, 9)}
            assert (context.epoch, context.token > 1_000) == (4, True)
        return batch

    assert make(checking).write(BATCH, row()).rows == {"rows": 5}


@record_batches
def repeating(batch: pa.RecordBatch, context: RecordContext) -> pa.RecordBatch:
    return batch.select(["offset"]).append_column("is_repeated", pa.repeat(context.is_repeated, batch.num_rows))


def test_transform_and_sink_know_that_a_batch_is_repeated(make: Callable[..., SparkEngine], tmp_path: Path) -> None:
    made = make(repeating, Repeats("rows", tmp_path))
    made.write(BATCH, row())
    made.write(replace(BATCH, is_repeated=True), row())
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "sink False transform False",
        "sink True transform True",
    ]


def raising(error: Callable[[], Exception], *, on_empty: bool) -> Any:
    @record_batches
    def transform(batch: pa.RecordBatch, context: RecordContext) -> pa.RecordBatch:
        assert context.pipeline
        if on_empty or batch.num_rows:
            raise error()
        return batch

    return transform


def test_what_it_raises_on_the_empty_batch_is_a_bad_spec(make: Callable[..., SparkEngine]) -> None:
    found = failure(make(raising(lambda: KeyError("model"), on_empty=True)).warm)
    assert isinstance(found, BadSpec)
    assert "on the empty batch of the warm-up: the transform raised KeyError: 'model'" in found.message


def test_a_service_that_does_not_answer_in_the_warm_up_is_not_a_bad_spec(make: Callable[..., SparkEngine]) -> None:
    found = failure(make(raising(lambda: TimeoutError("slow"), on_empty=True)).warm)
    assert isinstance(found, BatchFailed)


def test_what_it_raises_on_records_names_its_line_and_the_ranges(make: Callable[..., SparkEngine]) -> None:
    found = failure(lambda: make(raising(lambda: ArithmeticError("no"), on_empty=False)).write(BATCH, row()))
    assert isinstance(found, RecordFailed)
    assert found.reason == Reason.TRANSFORM_FAILED
    assert "the transform raised ArithmeticError: no (" in found.message
    assert "test_record_batches.py:" in found.message
    assert found.message.endswith("the batch is t/0 [100, 103), t/1 [7, 9)")


def test_a_service_that_does_not_answer_is_not_the_records_fault(make: Callable[..., SparkEngine]) -> None:
    found = failure(lambda: make(raising(lambda: TimeoutError("slow"), on_empty=False)).write(BATCH, row()))
    assert type(found) is BatchFailed


def test_a_rehearsal_transforms_the_records_and_writes_nothing(make: Callable[..., SparkEngine]) -> None:
    assert isinstance(
        failure(lambda: make(raising(lambda: ArithmeticError("no"), on_empty=False)).rehearse(BATCH)), RecordFailed
    )
    make(same).rehearse(BATCH)


@pytest.mark.parametrize("kind", [PoisonRecord, DependencyDown, BadSpec])
def test_the_authors_own_errors_keep_their_kind_and_remedy(make: Callable[..., SparkEngine], kind: Any) -> None:
    found = failure(
        lambda: make(raising(lambda: kind("record 7", remedy="Drop it."), on_empty=False)).write(BATCH, row())
    )
    assert type(found) is kind
    assert found.message.startswith("record 7")
    assert found.remedy == "Drop it."


def test_a_worker_without_memory_is_named_as_such(make: Callable[..., SparkEngine]) -> None:
    @record_batches
    def greedy(batch: pa.RecordBatch, context: RecordContext) -> pa.RecordBatch:
        assert context.pipeline
        if batch.num_rows:
            bytearray(1 << 60)
        return batch

    assert isinstance(failure(lambda: make(greedy).write(BATCH, row())), OutOfMemory)


def test_columns_that_change_from_batch_to_batch_are_refused(make: Callable[..., SparkEngine]) -> None:
    @record_batches
    def changing(batch: pa.RecordBatch, context: RecordContext) -> pa.RecordBatch:
        assert context.pipeline
        return batch.select(["offset"]) if batch.num_rows else batch.select(["offset", "value"])

    found = failure(lambda: make(changing).write(BATCH, row()))
    assert isinstance(found, RecordFailed)
    assert found.reason == Reason.TRANSFORM_INVALID
    assert "returned the columns offset int64, and for the empty batch offset int64, value binary" in found.message


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "returned NoneType, not a RecordBatch or a mapping of RecordBatches"),
        ({"other": pa.RecordBatch.from_pydict({"a": [1]})}, r"returned RecordBatches for \['other'\]"),
        (pa.RecordBatch.from_arrays([pa.array([1], pa.uint64())], ["a"]), "a column that Spark does not have"),
        (pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), "two columns of one name: a, a"),
    ],
    ids=["nothing", "another sink", "a type of no table", "a name twice"],
)
def test_a_result_that_no_sink_can_take_is_a_bad_spec(
    make: Callable[..., SparkEngine], result: Any, words: str
) -> None:
    @record_batches
    def transform(batch: pa.RecordBatch, context: RecordContext) -> Any:
        assert context.pipeline
        assert batch.num_rows == 0
        return result

    with pytest.raises(BadSpec, match=words):
        make(transform).warm()
