"""How rows become requests: one partition each, bounded, stamped."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from cassandra import InvalidRequest, OperationTimedOut, Unauthorized, Unavailable, WriteFailure, WriteTimeout
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionShutdown
from cassandra.cqltypes import SetType, TupleType, UserType, lookup_casstype
from cassandra.protocol import ErrorMessage, IsBootstrappingErrorMessage, OverloadedErrorMessage, ServerError
from cassandra.query import BoundStatement, PreparedStatement

from fakes.cassandra_refusals import DISK_FULL, QUOTING, refused
from fakes.clock import Clock
from fencepost.context import WARM_TOKEN
from fencepost.contract import CassandraEndpoint
from fencepost.errors import BadSpec, DependencyDown, DriverError, PoisonRecord, WorkerError
from fencepost.sinks import BatchToken, task_half
from fencepost.sinks.cassandra import writer
from fencepost.sinks.cassandra.cassandra_sink import TableTask
from fencepost.sinks.cassandra.encoding import requests
from fencepost.sinks.cassandra.encoding.columns import encoder
from fencepost.sinks.cassandra.encoding.requests import BATCH_ROWS as ROWS
from fencepost.sinks.cassandra.encoding.requests import STEP_BYTES, Change
from fencepost.sinks.cassandra.encoding.rows import values_of

COLUMNS = ("p", "o", "v")
KINDS = [lookup_casstype(name) for name in ("Int32Type", "LongType", "UTF8Type")]
PREPARING, EXECUTING = "preparing", "executing"

TARGET = writer.Target(
    cassandra=CassandraEndpoint(contact_points=("c",)),
    credentials=None,
    consistency="ONE",
    keyspace="k",
    table="t",
    primary_key=("p", "o"),
    partition_key=("p",),
    patience=30.0,
)


@dataclass
class Session:
    """Stands where the Cassandra driver's would; what `preparing` and `executing` raise is the answer."""

    preparing: Callable[[], None] = lambda: None
    executing: Callable[[], None] = lambda: None
    prepared: list[str] = field(default_factory=list)
    executed: list[Any] = field(default_factory=list)

    @property
    def cluster(self) -> Any:
        return SimpleNamespace(protocol_version=5)

    def prepare(self, text: str) -> PreparedStatement:
        self.prepared.append(text)
        self.preparing()
        columns = [
            SimpleNamespace(keyspace_name="k", name=name, type=kind) for name, kind in zip(COLUMNS, KINDS, strict=True)
        ]
        return PreparedStatement(columns, b"id", None, text, "k", 5, columns, b"")

    def execute_async(self, request: Any) -> Any:
        self.executed.append(request)
        return SimpleNamespace(result=self.executing)


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(writer, "time", made)
    monkeypatch.setattr(task_half, "time", made)
    return made


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    made = Session()
    monkeypatch.setattr(writer, "_session", lambda _target: made)
    monkeypatch.setattr(writer, "_statements", {})
    return made


def write(batch: pa.RecordBatch, timestamp: int = 7) -> int:
    """Write a batch; return the rows that the sink reports."""
    return sum(writer.write(TARGET, timestamp, iter([batch])))


def failure(session: Session, error: Exception, kind: type[DriverError], text: str = "a", step: str = EXECUTING) -> Any:
    """Write a row while a step raises the error; return the failure of this kind that the driver learns of."""
    setattr(session, step, always(error))
    with pytest.raises(DriverError) as caught:
        write(batch([1], [text]))
    assert isinstance(caught.value, kind)
    return caught.value


def answers(*errors: Exception) -> Callable[[], None]:
    """Raise these in turn, then succeed."""
    left = list(errors)

    def answer() -> None:
        if left:
            raise left.pop(0)

    return answer


def always(error: Exception) -> Callable[[], None]:
    """Raise this every time."""

    def answer() -> None:
        raise error

    return answer


def insert() -> Change:
    prepared = PreparedStatement([], b"id", None, "INSERT", "k", 5, [], b"")
    return Change(
        prepared=prepared,
        keyspace="k",
        columns=COLUMNS,
        key=(0,),
        primary=("p", "o"),
        encoders=tuple(encoder(kind, 5) for kind in KINDS),
        table="k.t",
        patience=TARGET.patience,
    )


def rows_of(statement: Any) -> list[list[bytes | None]]:
    """The rows in the statement that Cassandra gets."""
    if isinstance(statement, BoundStatement):
        return [list(statement.values)]
    rest = bytes(statement.rows)
    rows = []
    while rest:
        rows.append(values_of(memoryview(rest)))
        rest = rest[5 + len(b"id") + sum(4 + len(value or b"") for value in rows[-1]) :]
    assert len(rows) == statement.count
    return rows


def batch(partitions: list[int], values: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(partitions, pa.int32()), pa.array(range(len(partitions)), pa.int64()), pa.array(values, pa.string())],
        names=list(COLUMNS),
    )


def test_rows_are_grouped_by_partition_and_carry_the_timestamp() -> None:
    requests = list(insert().requests(batch([1, 2, 1], ["a", None, "c"]), 77))
    assert [[row[2] for row in rows_of(request.statement)] for request in requests] == [[b"a", b"c"], [None]]
    assert {row[3] for request in requests for row in rows_of(request.statement)} == {(77).to_bytes(8, "big")}


def test_requests_are_bounded_in_rows_and_in_bytes() -> None:
    many = list(insert().requests(batch([1] * (2 * ROWS + 1), ["x"] * (2 * ROWS + 1)), 1))
    assert [len(rows_of(request.statement)) for request in many] == [ROWS, ROWS, 1]
    big = list(insert().requests(batch([1] * 3, ["x" * 40_000] * 3), 1))
    assert [len(rows_of(request.statement)) for request in big] == [1, 1, 1]


def test_a_column_that_repeats_a_long_value_is_encoded_in_steps() -> None:
    """A dictionary of one value is small, and its rows are not: all at once they would pass Arrow's 2 GiB."""
    rows = batch([1] * 1_000, [""] * 1_000)
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000, pa.int32()), pa.array(["x" * 128 * 1024]))
    in_lists = pa.ListArray.from_arrays(pa.array([0, 1_000], pa.int32()), long)
    assert requests._decoded_bytes(
        pa.RecordBatch.from_arrays([pa.StructArray.from_arrays([in_lists], ["a"])], ["v"])
    ) > (1_000 * 128 * 1024)
    repeated = pa.RecordBatch.from_arrays([*rows.columns[:2], long], list(COLUMNS))
    written = 0
    for request in insert().requests(repeated, 1):
        assert request.rows.encoded.nbytes < 2 * STEP_BYTES
        written += request.count
    assert written == 1_000


def test_a_null_key_is_poison_and_names_the_column() -> None:
    broken = pa.RecordBatch.from_arrays(
        [pa.array([None, 1], pa.int32()), pa.array([1, 2], pa.int64()), pa.array(["a", "b"])], names=list(COLUMNS)
    )
    with pytest.raises(PoisonRecord, match=r"k\.t\.p is part of the primary key, and null in 1 of 2 rows"):
        list(insert().requests(broken, 1))


def test_a_partition_key_longer_than_cassandra_takes_is_poison_and_names_the_column() -> None:
    """The driver cannot even route it: it packs the length of a key's part in two bytes."""
    text = lookup_casstype("UTF8Type")
    wide = replace(insert(), key=(0, 2), primary=COLUMNS, encoders=(encoder(text, 5), *insert().encoders[1:]))
    rows = pa.RecordBatch.from_arrays(
        [pa.array(["я" * 40_000, "b"]), pa.array([1, 2], pa.int64()), pa.array(["a", "b"])], names=list(COLUMNS)
    )
    with pytest.raises(PoisonRecord, match=r"k\.t\.p is part of the partition key, and takes 80000 bytes in a row"):
        list(wide.requests(rows, 1))
    fits = rows.set_column(0, "p", pa.array(["x" * 65_535, "b"]))
    assert len(list(wide.requests(fits, 1))) == 2


def test_a_value_that_does_not_fit_is_poison_and_names_the_column() -> None:
    broken = pa.RecordBatch.from_arrays(
        [pa.array([2**40], pa.int64()), pa.array([1], pa.int64()), pa.array(["a"])], names=list(COLUMNS)
    )
    with pytest.raises(PoisonRecord, match=r"k\.t\.p: a value of type int64 does not fit"):
        list(insert().requests(broken, 1))


def test_sinks_that_share_a_task_share_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of several sinks of record batches writes in a thread of its own."""
    both, made = Barrier(2), []

    def connect(*_: Any, **__: Any) -> Any:
        with suppress(BrokenBarrierError):
            both.wait(0.5)  # for a second thread that connects too
        made.append(SimpleNamespace(add_request_init_listener=lambda _listener: None))
        return made[-1]

    monkeypatch.setattr(writer, "connect", connect)
    monkeypatch.setattr(writer, "_sessions", {})
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(writer._session, [TARGET, replace(TARGET, table="other")]))
    assert found[0] is found[1]
    assert len(made) == 1


def test_a_warm_up_prepares_and_writes_nothing(session: Session) -> None:
    assert write(batch([1], ["a"]), WARM_TOKEN) == 0
    assert len(session.prepared) == 1
    assert session.executed == []
    assert write(batch([1], ["a"])) == 1
    assert len(session.prepared) == 1
    assert len(session.executed) == 1


def test_a_warm_up_takes_the_row_of_nulls_that_an_aggregate_makes_of_an_empty_batch(session: Session) -> None:
    nulls = pa.RecordBatch.from_arrays(
        [pa.array([None], pa.int32()), pa.array([None], pa.int64()), pa.array([None], pa.string())], names=list(COLUMNS)
    )
    assert write(nulls, WARM_TOKEN) == 0
    assert session.executed == []


def test_a_rehearsal_finds_a_row_that_cannot_be_written_and_writes_nothing(session: Session) -> None:
    def rehearse(rows: pa.RecordBatch) -> int:
        token = BatchToken(pipeline="p", epoch=1, version=0, token=WARM_TOKEN, offsets={"t/0": (0, 2)})
        return sum(TableTask(TARGET).write(iter([rows]), token))

    assert rehearse(batch([1, 2], ["a", "b"])) == 0
    nulls = pa.RecordBatch.from_arrays([pa.array([None], pa.int32()), *batch([1], ["a"]).columns[1:]], list(COLUMNS))
    with pytest.raises(PoisonRecord, match=r"k\.t\.p is part of the primary key, and null"):
        rehearse(nulls)
    assert session.executed == []


SILENT = [
    ConnectionShutdown("the connection is closed"),
    ErrorMessage(code=0x1700, message="unknown", info=None),
    OverloadedErrorMessage(code=0x1001, message="overloaded", info=None),
    IsBootstrappingErrorMessage(code=0x1002, message="bootstrapping", info=None),
    ServerError(code=0, message="java.lang.NullPointerException", info=None),
    OperationTimedOut(),
    WriteTimeout("late", write_type=0),
    NoHostAvailable("no host", {}),
]
FAILED = WriteFailure("failed", write_type=0, failures=1)
UNAUTHORIZED = Unauthorized(
    "Unable to perform authorization of permissions: Unable to perform authorization of super-user"
)


@pytest.mark.parametrize("error", [*SILENT, UNAUTHORIZED], ids=lambda error: type(error).__name__)
def test_what_may_pass_is_tried_again(session: Session, error: Exception) -> None:
    session.preparing = answers(error, error)
    session.executing = answers(error, error)
    assert write(batch([1], ["a"])) == 1
    assert len(session.prepared) == 3
    assert len(session.executed) == 3


def test_what_is_tried_again_is_reported_with_the_rows(session: Session) -> None:
    """Once: the next task of this worker begins at 0, also after one that failed."""
    task, token = TableTask(TARGET), BatchToken(pipeline="s/ns/n", epoch=1, version=1, token=7, offsets={})

    def retries() -> int:
        reports = list(task_half.write(task, token, "s", iter([batch([1], ["a"])])))
        return sum(report.column("retries").to_pylist()[0] for report in reports)

    session.executing = answers(OperationTimedOut(), OverloadedErrorMessage(code=0, message="", info={}))
    assert retries() == 2
    assert retries() == 0
    session.executing = always(OperationTimedOut())
    with pytest.raises(WorkerError):
        retries()
    session.executing = answers(OperationTimedOut())
    assert retries() == 1


@pytest.mark.parametrize("step", [PREPARING, EXECUTING])
@pytest.mark.parametrize("error", SILENT, ids=lambda error: type(error).__name__)
def test_a_silent_cassandra_is_a_dependency_that_is_down(
    session: Session, time: Clock, error: Exception, step: str
) -> None:
    found = failure(session, error, DependencyDown, step=step)
    assert found.reason == "SinkUnreachable"
    assert "k.t took no" in found.message
    assert TARGET.patience - 2 < time.seconds <= TARGET.patience


@pytest.mark.parametrize("step", [PREPARING, EXECUTING])
def test_a_refused_write_names_the_grant_once_patience_ends(session: Session, time: Clock, step: str) -> None:
    found = failure(session, UNAUTHORIZED, DependencyDown, step=step)
    assert found.reason == "CassandraCredentialsRejected"
    assert "GRANT MODIFY ON k.t" in found.remedy
    assert time.seconds > TARGET.patience - 2


def test_a_statement_that_does_not_fit_the_table_is_a_bad_spec(session: Session, time: Clock) -> None:
    error = InvalidRequest("Undefined column name v in table k.t")
    assert failure(session, error, BadSpec, step=PREPARING).reason == "SinkInvalid"
    assert time.seconds == 0


def test_a_row_that_cassandra_refuses_is_poison(session: Session, time: Clock) -> None:
    found = failure(session, InvalidRequest("Key may not be empty"), PoisonRecord)
    assert "k.t" in found.message
    assert "Key may not be empty" in found.message
    assert time.seconds == 0


def not_utf8() -> pa.Array:
    """A column of strings as Spark's cast of a binary gives it: the bytes as they are."""
    kept = pa.array([b"\xff\xfe"])
    return pa.StringArray.from_buffers(1, kept.buffers()[1], kept.buffers()[2])


def test_a_text_key_that_is_not_utf8_is_poison(session: Session) -> None:
    """The run ended with a UnicodeDecodeError, which suspects no record."""
    session.executing = always(InvalidRequest("String didn't validate."))
    rows = batch([1], ["a"]).set_column(2, "v", not_utf8())
    with pytest.raises(PoisonRecord, match=r"String didn't validate\.; row p=1, v=<UnicodeDecodeError>$"):
        list(writer.write(replace(TARGET, primary_key=("p", "v")), 7, iter([rows])))


@pytest.mark.parametrize(
    "column",
    [
        not_utf8(),
        pa.array([2**62], pa.timestamp("us", tz="UTC")),
        pa.array([2**31 - 1], pa.date32()),
        pa.array([2**62], pa.duration("s")),
    ],
    ids=lambda column: str(column.type),
)
def test_a_row_can_be_named_whatever_its_key_holds(column: pa.Array) -> None:
    rows = batch([1], ["a"]).set_column(2, "v", column)
    assert replace(insert(), primary=("v",)).describe(rows, 0).startswith("row v=<")


LARGE = "x" * (17 * 1024 * 1024)


@pytest.mark.parametrize("error", SILENT, ids=lambda error: type(error).__name__)
def test_a_row_of_the_size_that_cassandra_refuses_suspects_a_record(
    session: Session, time: Clock, error: Exception
) -> None:
    """Found: nodes that do not say why they took no mutation of 16 MiB were an outage without end."""
    found = failure(session, error, PoisonRecord, LARGE)
    assert "row of 17 MiB" in found.message
    assert "p=1, o=0" in found.message
    assert TARGET.patience - 2 < time.seconds <= TARGET.patience, "an outage that passes suspects nothing"


def test_a_row_of_megabytes_that_a_replica_fails_to_apply_suspects_a_record(session: Session) -> None:
    """Mutations have a lower limit where the commit log has smaller segments, and lists grow in a mutation."""
    failure(session, FAILED, PoisonRecord, "x" * 2 * 1024 * 1024)
    failure(session, FAILED, DependencyDown, "x" * 1024)
    failure(session, OperationTimedOut(), DependencyDown, "x" * 2 * 1024 * 1024)


@pytest.mark.parametrize("error", [UNAUTHORIZED, Unavailable("no replica", required_replicas=2, alive_replicas=1)])
def test_an_outage_that_explains_itself_suspects_no_row_whatever_its_size(session: Session, error: Exception) -> None:
    failure(session, error, DependencyDown, LARGE)


def test_rows_that_are_large_together_are_an_outage(session: Session) -> None:
    """Requests of several rows have 64 KiB; the large row has one of its own."""
    session.executing = always(FAILED)
    with pytest.raises(DependencyDown):
        write(batch([1] * 2_000, ["x" * 1024] * 2_000))
    session.executing = answers(OperationTimedOut())
    assert write(batch([1], [LARGE])) == 1


def test_a_full_disk_is_an_outage_and_no_poison(session: Session, time: Clock) -> None:
    """Cassandra's guardrail says it as a wrong request, for every row."""
    assert "disk usage" in failure(session, refused(DISK_FULL), DependencyDown).message
    assert time.seconds > 0


@pytest.mark.parametrize("text", QUOTING)
def test_a_refusal_that_quotes_the_words_of_a_full_disk_is_not_an_outage(
    session: Session, time: Clock, text: str
) -> None:
    """Found: a column `disk_usage` made each refusal of a row an outage without end."""
    failure(session, refused(text), PoisonRecord)
    failure(session, refused(text), BadSpec, step=PREPARING)
    assert time.seconds == 0


def test_a_table_that_was_dropped_meanwhile_is_a_bad_spec_not_a_poison_record(session: Session) -> None:
    assert write(batch([1], ["a"])) == 1
    error = InvalidRequest("unconfigured table t")
    session.preparing = always(error)
    assert failure(session, error, BadSpec).reason == "SinkInvalid"


SOURCE = ("topic", "partition", "offset", "tags")
TAGS = [lookup_casstype(name) for name in ("UTF8Type", "Int32Type", "LongType", "SetType(UTF8Type)")]


def of_source(tags: list[Any], offsets: list[int | None]) -> tuple[Change, pa.RecordBatch]:
    """An INSERT of a frame that keeps the record's coordinates, and rows for it."""
    made = replace(
        insert(), columns=SOURCE, key=(0, 1), primary=SOURCE[:3], encoders=tuple(encoder(kind, 5) for kind in TAGS)
    )
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(["a"] * len(tags)),
            pa.array([3] * len(tags), pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array(tags, pa.list_(pa.string())),
        ],
        names=list(SOURCE),
    )
    return made, rows


def test_a_null_inside_a_collection_is_poison_and_names_column_and_record() -> None:
    made, rows = of_source([["x"], ["y", None]], [7, 8])
    with pytest.raises(
        PoisonRecord, match=r"k\.t\.tags: null is an element .* topic=a, partition=3, offset=8"
    ) as caught:
        list(made.requests(rows, 1))
    assert "array_compact" in caught.value.remedy


def test_what_does_not_fit_inside_a_struct_is_named_by_its_field() -> None:
    made, rows = of_source([None, None], [7, 8])
    text, number = lookup_casstype("UTF8Type"), lookup_casstype("Int32Type")
    inner = UserType.make_udt_class("k", "inner", ("n", "names"), (number, SetType.apply_parameters([text])))
    one = replace(made, encoders=(*made.encoders[:3], encoder(TupleType.apply_parameters([inner]), 5)))
    for last, words in (
        ({"n": 2**40}, "field a: field n: .*1099511627776"),
        ({"names": [None]}, "field a: field names: null is an element of a set"),
    ):
        values = [{"a": {"n": 1, "names": ["x"]}}, {"a": {"n": 1, "names": ["x"], **last}}]
        column = pa.array(values, pa.struct([("a", pa.struct([("n", pa.int64()), ("names", pa.list_(pa.string()))]))]))
        with pytest.raises(PoisonRecord, match=words) as caught:
            list(one.requests(rows.set_column(3, "tags", column), 1))
        assert caught.value.message.endswith("row topic=a, partition=3, offset=8")


def test_a_null_key_names_the_record_as_far_as_the_row_has_it() -> None:
    made, rows = of_source([["x"], ["y"]], [7, None])
    with pytest.raises(PoisonRecord, match=r"the first is row topic=a, partition=3, offset=None"):
        list(made.requests(rows, 1))


def test_poison_in_a_frame_without_the_records_coordinates_names_the_rows_key() -> None:
    broken = pa.RecordBatch.from_arrays(
        [pa.array([1, 2], pa.int32()), pa.array([1, 2], pa.int64()), pa.array([b"a", b"\xff"])], names=list(COLUMNS)
    )
    with pytest.raises(PoisonRecord, match=r"k\.t\.v: a value of type binary does not fit: .*; row p=2, o=2$"):
        list(insert().requests(broken, 1))


def test_of_a_request_that_cassandra_refuses_the_row_is_named_and_the_others_are_written(session: Session) -> None:
    def refuse(request: Any) -> Any:
        session.executed.append(request)

        def result() -> None:
            if any(row[2] == b"bad" for row in rows_of(request)):
                raise InvalidRequest("no")

        return SimpleNamespace(result=result)

    session.execute_async = refuse  # type: ignore[method-assign]
    with pytest.raises(PoisonRecord, match=r"row p=1, o=1$"):
        write(batch([1, 1, 1], ["a", "bad", "c"]))
    assert len(session.executed) == 3


def test_a_slow_task_reports_its_rows_while_it_writes(session: Session, time: Clock) -> None:
    """Spark shows the driver what leaves the Python worker, and nothing else of a task that runs."""
    session.executing = lambda: time.sleep(3)
    many = writer.IN_FLIGHT + 3
    task, token = TableTask(TARGET), BatchToken(pipeline="s/ns/n", epoch=1, version=1, token=7, offsets={})
    reports = list(task_half.write(task, token, "s", iter([batch(list(range(many)), ["v"] * many)])))
    rows = [report.column("rows").to_pylist()[0] for report in reports]
    assert sum(rows) == many
    assert len(rows) == 4  # three waits for the oldest of the requests under way, and the end
    assert {len(report.column("filler").to_pylist()[0]) for report in reports[:-1]} == {len(task_half.FILLER)}
