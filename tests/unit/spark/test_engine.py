"""Batches on a real Spark session; records and sink are made here, so that neither Kafka nor Cassandra is needed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fencepost.batch import Batch, Range
from fencepost.errors import BadSpec, BatchFailed, DriverError, OutOfMemory, PoisonRecord, suspects_record
from fencepost.fence import FenceRow
from fencepost.sinks import BatchToken, Sink, SinkTask
from fencepost.spark import source
from fencepost.spark.engine import SparkEngine
from fencepost.spark.interpreting import MOST_RECORDS, SETTINGS, Interpreting
from unit.spark.conftest import CONFIG

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from fencepost.context import BatchContext
    from fencepost.contract import DriverConfig

Writing = Callable[[Iterable["pa.RecordBatch"]], Iterator[int]]
BATCH = Batch(ranges=(Range("t", 0, 100, 103), Range("t", 1, 7, 9)), until={"t/0": 103, "t/1": 9})


def row() -> FenceRow:
    """A claimed row whose clock is far above the token of a warm-up."""
    from fencepost.fence import Fence  # noqa: PLC0415
    from fencepost.fence.memory import MemoryFenceTable  # noqa: PLC0415

    return replace(Fence(MemoryFenceTable(), "s/ns/n").create("s/ns"), clock=1_000)


class Task:
    """Calls a function of the test, which is pickled with it."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        assert batch.token >= 0
        return self._writing(batches)


class Counting(Sink):
    """A sink that counts its rows, or does what `writing` says with them; it keeps what it receives."""

    def __init__(self, writing: Writing | None = None, failing: Callable[[str], None] = lambda _call: None) -> None:
        self._writing = writing or counting()
        self._failing = failing
        self.calls: list[tuple[str, int]] = []

    def check(self, schema: StructType) -> None:
        self._failing("check")
        self.calls.append(("check", len(schema.fields)))

    def task(self) -> SinkTask:
        return Task(self._writing)

    def begin(self, batch: BatchToken) -> None:
        self._failing("begin")
        self.calls.append(("begin", batch.token))

    def finish(self, batch: BatchToken) -> None:
        self._failing("finish")
        self.calls.append(("finish", batch.token))


def counting() -> Writing:
    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
        for batch in batches:
            yield batch.num_rows

    return count


@pytest.fixture
def make(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SparkEngine]:
    """Make engines whose batches hold one record per offset."""

    def records(spark: SparkSession, parts: Any, _read: Any, _counter: Any, _decoding: Any) -> DataFrame:
        from fencepost.testing import frame  # noqa: PLC0415

        made = [
            {"partition": one.partition, "offset": offset, "value": b"v"}
            for part in parts
            for one in part
            for offset in range(one.start, one.until)
        ]
        return frame(spark, made)

    monkeypatch.setattr(source, "frame", records)

    def build(transform: Any, sink: Counting | None = None, config: DriverConfig = CONFIG) -> SparkEngine:
        return SparkEngine(
            spark=spark, config=config, transform=transform, sinks={"rows": sink or Counting()}, properties={}
        )

    return build


def same(batch: DataFrame, context: BatchContext) -> DataFrame:
    assert context.pipeline
    return batch


def failure(act: Callable[[], object]) -> DriverError:
    with pytest.raises(DriverError) as caught:
        act()
    return caught.value


def paths_to_delete(spark: SparkSession) -> int:
    """How many paths the JVM holds for deletion at its end."""
    hook = spark._jvm.java.lang.Class.forName("java.io.DeleteOnExitHook")  # type: ignore[union-attr]
    files = hook.getDeclaredField("files")
    files.setAccessible(True)
    return int(files.get(None).size())


def test_batches_leave_no_path_in_the_jvm(spark: SparkSession, make: Callable[..., SparkEngine]) -> None:
    engine = make(same)
    written = engine.write(BATCH, row())
    assert written.rows == {"rows": 5}
    assert written.cores >= 1
    assert min(written.memory.python, written.memory.jvm) > 2**20, "what a task saw of itself and of its executor"
    before = paths_to_delete(spark)
    for _ in range(5):
        engine.write(BATCH, row())
    assert paths_to_delete(spark) == before


def test_a_sink_gets_each_batch_and_no_warm_up(make: Callable[..., SparkEngine]) -> None:
    sink = Counting()
    engine = make(same, sink)
    engine.warm()
    engine.keep_warm()
    assert sink.calls == [("check", 7)]
    claimed = row()
    engine.write(BATCH, claimed)
    assert sink.calls[1:] == [("begin", claimed.write_timestamp), ("finish", claimed.write_timestamp)]


def test_idle_exercises_plan_what_an_empty_batch_does_once(make: Callable[..., SparkEngine]) -> None:
    calls: list[DataFrame] = []

    def counted(batch: DataFrame, _context: object) -> DataFrame:
        calls.append(batch)
        return batch

    engine = make(counted)
    engine.warm()
    before = len(calls)
    for _ in range(3):
        engine.keep_warm()
    assert len(calls) == before + 1
    assert engine.write(BATCH, row()).rows == {"rows": 5}
    engine.keep_warm()
    assert len(calls) == before + 2, "that of the batch"


LARGE = Batch(ranges=(Range("t", 0, 0, MOST_RECORDS + 1),), until={"t/0": MOST_RECORDS + 1})


@pytest.fixture
def choice(spark: SparkSession) -> Iterator[None]:
    """Give the tests' session its own settings back."""
    yield
    for name, value in CONFIG.spark_conf.items():
        if name in SETTINGS:
            spark.conf.set(name, value)


@pytest.mark.usefixtures("choice")
@pytest.mark.parametrize(("batch", "first"), [(BATCH, "false"), (LARGE, "true")])
def test_expressions_are_interpreted_until_the_first_batch_is_written_or_a_large_one_comes(
    spark: SparkSession, make: Callable[..., SparkEngine], batch: Batch, first: str
) -> None:
    seen: list[str] = []

    def looking(frame: DataFrame, _context: BatchContext) -> DataFrame:
        seen.append(str(spark.conf.get("spark.sql.codegen.wholeStage")))
        return frame

    engine = make(looking, config=replace(CONFIG, spark_conf={}))
    engine.warm()
    engine.write(batch, row())
    engine.write(BATCH, row())
    assert seen == ["false", first, "true"]
    assert spark.conf.get("spark.sql.codegen.factoryMode") == "FALLBACK"


def test_an_authors_choice_of_compiling_stays(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.codegen.factoryMode")
    interpreting = Interpreting(spark, {"spark.sql.codegen.wholeStage": "true"})
    assert not interpreting.is_on
    assert not interpreting.end()
    assert spark.conf.get("spark.sql.codegen.factoryMode") == before


@pytest.mark.parametrize("call", ["begin", "finish"])
def test_a_batch_fails_with_a_driver_half_of_its_sink(make: Callable[..., SparkEngine], call: str) -> None:
    def fail(now: str) -> None:
        if now == call:
            raise RuntimeError("the store is gone")

    engine = make(same, Counting(failing=fail))
    found = failure(lambda: engine.write(BATCH, row()))
    assert isinstance(found, BatchFailed)
    assert (found.reason, found.message) == ("SinkFailed", "sink 'rows' raised RuntimeError: the store is gone")


def test_a_transform_that_raises_on_the_empty_batch_is_a_bad_spec(make: Callable[..., SparkEngine]) -> None:
    def first(batch: DataFrame, context: BatchContext) -> DataFrame:
        return batch.where(f"offset >= {min(start for start, _ in context.offsets.values())}")

    found = failure(make(first).warm)
    assert isinstance(found, BadSpec)
    assert found.reason == "TransformFailed"
    assert "on the empty batch of the warm-up: the transform raised ValueError" in found.message


def test_a_check_plans_and_compares_columns_and_runs_nothing(make: Callable[..., SparkEngine]) -> None:
    def refuse(call: str) -> None:
        raise BadSpec(f"{call}: no column of that name")

    assert isinstance(failure(make(same, Counting(failing=refuse)).check), BadSpec)
    assert isinstance(failure(make(lambda batch, _context: batch.select("nothing")).check), BadSpec)
    failing = make(same, Counting(writing=refusing))
    failing.check()
    assert isinstance(failure(failing.warm), DriverError)


def refusing(_batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    yield from ()
    raise RuntimeError("run")


def test_a_python_function_that_raises_on_the_empty_batch_is_a_bad_spec(make: Callable[..., SparkEngine]) -> None:
    def lazily(batch: DataFrame, context: BatchContext) -> DataFrame:
        assert context.pipeline

        def fail(_: Any) -> Iterator[Any]:
            raise KeyError("model")

        return batch.mapInArrow(fail, batch.schema)

    found = failure(make(lazily).warm)
    assert isinstance(found, BadSpec)
    assert "KeyError: 'model'" in found.message


@pytest.mark.parametrize("error", [ConnectionRefusedError("the model's server"), TimeoutError("slow")])
@pytest.mark.parametrize("in_a_worker", [False, True])
def test_a_service_that_does_not_answer_in_the_warm_up_is_not_a_bad_spec(
    make: Callable[..., SparkEngine], error: Exception, in_a_worker: bool
) -> None:
    """It is DependencyDown as in a batch: that counts for no restart budget, so an outage stalls nothing."""

    def fail(*_: Any) -> Iterator[Any]:
        raise error

    def remote(batch: DataFrame, context: BatchContext) -> DataFrame:
        assert context.pipeline
        if in_a_worker:
            return batch.mapInArrow(fail, batch.schema)
        raise error

    found = failure(make(remote).warm)
    assert isinstance(found, BatchFailed)
    assert found.reason == "DependencyDown"
    assert f"{type(error).__name__}: {error}" in found.message, "it names what failed"
    assert "empty batch" not in found.message


class Later:
    """A transform whose first empty batch passes, and that does `then` afterwards."""

    def __init__(self, then: Callable[[DataFrame], DataFrame]) -> None:
        self._then = then
        self._calls = 0

    def __call__(self, batch: DataFrame, context: BatchContext) -> DataFrame:
        assert context.pipeline
        self._calls += 1
        return batch if self._calls == 1 else self._then(batch)


def raises(_: DataFrame) -> DataFrame:
    raise ValueError("503: the model's server is starting")


def raises_in_a_worker(batch: DataFrame) -> DataFrame:
    def fail(_: Any) -> Iterator[Any]:
        raise ValueError("503: the model's server is starting")

    return batch.mapInArrow(fail, batch.schema)


def lacks_a_table(batch: DataFrame) -> DataFrame:
    return batch.sparkSession.table("reference_that_is_being_replaced")


@pytest.mark.parametrize("then", [raises, raises_in_a_worker, lacks_a_table])
def test_an_idle_exercise_that_fails_after_the_warm_up_passed_is_not_a_bad_spec(
    make: Callable[..., SparkEngine], then: Callable[[DataFrame], DataFrame]
) -> None:
    engine = make(Later(then))
    engine.warm()
    found = failure(engine.keep_warm)
    assert isinstance(found, BatchFailed)
    assert "warm-up" not in found.message


def test_a_transform_that_raises_on_records_is_tried_again_and_names_the_ranges(
    make: Callable[..., SparkEngine],
) -> None:
    def fail(*_: Any) -> DataFrame:
        raise ArithmeticError("no")

    found = failure(lambda: make(fail).write(BATCH, row()))
    assert isinstance(found, BatchFailed)
    assert found.message.endswith("the batch is t/0 [100, 103), t/1 [7, 9)")


def test_poison_of_the_authors_own_names_the_ranges(make: Callable[..., SparkEngine]) -> None:
    refuse = in_workers(raising(PoisonRecord("record 7 is not JSON")))
    found = failure(lambda: make(refuse).write(BATCH, row()))
    assert isinstance(found, PoisonRecord)
    assert found.message == "record 7 is not JSON; the batch is t/0 [100, 103), t/1 [7, 9)"


def in_workers(act: Callable[[], object]) -> Callable[..., DataFrame]:
    """A transform whose Python workers do this for each part of a batch with records."""

    def transform(batch: DataFrame, context: BatchContext) -> DataFrame:
        assert context.pipeline

        def run(parts: Any) -> Iterator[Any]:
            for part in parts:
                act()
                yield part

        return batch.mapInArrow(run, batch.schema)

    return transform


def expression(text: str) -> Callable[..., DataFrame]:
    def transform(batch: DataFrame, context: BatchContext) -> DataFrame:
        assert context.pipeline
        return batch.selectExpr(f"{text} AS found")

    return transform


def raising(error: Exception) -> Callable[[], object]:
    def act() -> object:
        raise error

    return act


def dies() -> object:
    import os  # noqa: PLC0415

    os._exit(9)


def in_the_driver(error: Exception) -> Callable[..., DataFrame]:
    def transform(*_: Any) -> DataFrame:
        raise error

    return transform


@pytest.mark.parametrize(
    ("transform", "suspects"),
    [
        pytest.param(expression("CAST(concat('x', offset) AS LONG)"), True, id="cast"),
        pytest.param(
            expression("from_json(concat('{', offset), 'a INT', map('mode', 'FAILFAST')).a"), True, id="failfast"
        ),
        pytest.param(in_workers(raising(ValueError("no JSON"))), True, id="worker"),
        pytest.param(in_workers(raising(PoisonRecord("no JSON"))), True, id="poison"),
        pytest.param(in_the_driver(KeyError("city")), True, id="driver"),
        pytest.param(in_workers(raising(ConnectionResetError("the service hung up"))), False, id="worker-outage"),
        pytest.param(in_workers(dies), False, id="worker-killed"),
        pytest.param(in_the_driver(ConnectionRefusedError("no service")), False, id="driver-outage"),
    ],
)
def test_a_record_is_suspected_only_for_what_is_in_it(
    make: Callable[..., SparkEngine], transform: Callable[..., DataFrame], suspects: bool
) -> None:
    assert suspects_record(failure(lambda: make(transform).write(BATCH, row()))) is suspects


def test_a_rehearsal_has_the_offsets_and_a_token_under_which_nothing_is_written(
    make: Callable[..., SparkEngine],
) -> None:
    seen: list[tuple[object, int]] = []

    def look(batch: DataFrame, context: BatchContext) -> DataFrame:
        seen.append((context.offsets, context.token))
        return batch

    make(look).rehearse(BATCH)
    assert seen == [({"t/0": (100, 103), "t/1": (7, 9)}, 0)]


def test_a_python_worker_without_memory_is_named_as_such(make: Callable[..., SparkEngine]) -> None:
    greedy = in_workers(lambda: bytearray(1 << 60))
    assert isinstance(failure(lambda: make(greedy).write(BATCH, row())), OutOfMemory)


class Gate:
    """Files through which a test lets the Python workers continue."""

    def __init__(self, folder: Any) -> None:
        self.path = str(folder / "open")

    def open(self) -> None:
        with open(self.path, "w", encoding="utf-8"):  # noqa: PTH123
            pass


def eventually(condition: Callable[[], bool], what: str, timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.2)


def in_background(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def test_progress_grows_while_one_task_writes_slowly(make: Callable[..., SparkEngine], tmp_path: Any) -> None:
    gate = Gate(tmp_path)
    path = gate.path

    def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
        import os  # noqa: PLC0415
        import time  # noqa: PLC0415

        from fencepost.sinks import task_half  # noqa: PLC0415

        task_half.REPORT_INTERVAL = 0.1  # type: ignore[misc]
        for batch in batches:
            yield batch.num_rows
            while not os.path.exists(path):  # noqa: PTH110
                yield 0
                time.sleep(0.2)

    engine = make(same, Counting(slowly))
    thread = in_background(lambda: engine.write(BATCH, row()))
    try:
        seen = [0]
        for _ in range(3):
            eventually(lambda: engine.progress() > seen[-1], "progress within the task")
            seen.append(engine.progress())
        assert thread.is_alive()
    finally:
        gate.open()
        thread.join(60)
    assert engine.progress() >= seen[-1]


def test_progress_stands_still_while_the_transform_hangs(make: Callable[..., SparkEngine], tmp_path: Any) -> None:
    gate = Gate(tmp_path)
    path = gate.path

    def hanging(batch: DataFrame, context: BatchContext) -> DataFrame:
        assert context.pipeline

        def wait(batches: Any) -> Iterator[Any]:
            import os  # noqa: PLC0415
            import time  # noqa: PLC0415

            for one in batches:
                with open(f"{path}.reached", "w", encoding="utf-8"):  # noqa: PTH123
                    pass
                while not os.path.exists(path):  # noqa: PTH110
                    time.sleep(0.1)
                yield one

        return batch.mapInArrow(wait, batch.schema)

    engine = make(hanging)
    engine.warm()  # the first tasks of an executor count as progress
    thread = in_background(lambda: engine.write(BATCH, row()))
    try:
        import os  # noqa: PLC0415

        eventually(lambda: os.path.exists(f"{path}.reached"), "the transform to hang")  # noqa: PTH110
        # What was done before it hung is reported by the next heartbeats, one per second here.
        time.sleep(5)
        before = engine.progress()
        time.sleep(5)
        assert engine.progress() == before
        assert thread.is_alive()
    finally:
        gate.open()
        thread.join(60)
    assert engine.progress() > before


def straggling(place: Path) -> Writing:
    """Fail in partition 0; in partition 1, write on as often as possible, for half a minute.

    The daemon that is to kill the worker is stopped: as on a busy machine, it does so later.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
        for batch in batches:
            if batch.column("partition")[0].as_py() == 0:
                while "late" not in place.read_text():
                    time.sleep(0.01)
                place.with_suffix(".daemon").write_text(str(os.getppid()))
                os.kill(os.getppid(), signal.SIGSTOP)
                raise ValueError("no")
            for _ in range(3_000):
                with place.open("a") as file:
                    file.write("late\n")
                time.sleep(0.01)
            yield batch.num_rows

    return write


def test_no_task_of_a_failed_attempt_writes_once_the_next_attempt_begins(
    make: Callable[..., SparkEngine], tmp_path: Path
) -> None:
    """A sink that ignores its token cannot distinguish them.

    Found: Spark counts a task as ended once it has asked for the end of its worker, which wrote on meanwhile.
    """
    place = tmp_path / "rows"

    def begins(call: str) -> None:
        if call == "begin":
            with place.open("a") as file:
                file.write("begin\n")

    sink = Counting(straggling(place), begins)
    engine = make(lambda batch, _context: batch.repartitionByRange(2, "partition"), sink)
    with pytest.raises(DriverError):
        engine.write(BATCH, row())
    sink._writing = counting()
    second = in_background(lambda: engine.write(BATCH, row()))
    second.join(6)  # Spark takes up to four seconds to ask for the end of the worker
    os.kill(int(place.with_suffix(".daemon").read_text()), signal.SIGCONT)
    second.join(60)
    time.sleep(0.5)
    _, before, after = place.read_text().split("begin\n")
    assert "late" in before
    assert not after
