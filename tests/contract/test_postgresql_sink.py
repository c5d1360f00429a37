"""Rows and offsets in one transaction, on a real PostgreSQL: kills at each step, lost answers, crashes, zombies."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from contract.postgresql import endpoint_of, session_with
from fencepost.contract import PostgresqlSink, Reason
from fencepost.errors import BadSpec, BatchFailed, DependencyDown, PoisonRecord, suspects_record
from fencepost.fence import Fence, Fenced, FenceRow, FenceUnavailable, Starting
from fencepost.fence.postgresql import staging
from fencepost.fence.postgresql.schema import create_schema
from fencepost.fence.postgresql.session import Connection, Session
from fencepost.fence.postgresql.table import PostgresqlFenceTable
from fencepost.sinks import BatchToken, PurgeToken
from fencepost.sinks.postgresql import staging_task
from fencepost.sinks.postgresql.postgresql_sink import TableSink
from fencepost.sinks.postgresql.staging_task import Access
from fencepost.testing.sinks import SinkContract, Subject
from harness.processes import killed
from postgresql_server import USER, Server, free_port, running
from present import present

pytestmark = pytest.mark.integration

SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.string())])
SPARK = from_arrow_schema(SCHEMA)
APPENDED = 'CREATE TABLE {} (topic text, partition int, "offset" bigint, value text NOT NULL, id bigserial)'
"""It has no key: two copies of a row would both be there."""
OFFSETS = "SELECT offsets FROM {}.fence"
LOCKED = "SELECT 1 FROM {}.fence FOR UPDATE"
COUNT, BATCH = 12, 4
"""Records of each of two partitions, and how many of each a batch has."""


@dataclass(slots=True)
class Shop:
    """A schema with the fence of one pipeline and an append-only table."""

    server: Server
    schema: str
    pipeline: str = "cluster/shop/orders"
    sessions: list[Session] = field(default_factory=list)

    def fences(self, connect: Callable[[], Session] | None = None) -> PostgresqlFenceTable:
        """Connect as one process does."""
        session = connect() if connect else session_with(self.server)
        self.sessions.append(session)
        return PostgresqlFenceTable(session, self.schema)

    def sink(self, fences: PostgresqlFenceTable, frame: pa.Schema = SCHEMA, *, patience: float = 5.0) -> TableSink:
        access = Access(endpoint=endpoint_of(self.server), credentials=(USER, ""), tls=None, patience=patience)
        found = TableSink(PostgresqlSink(name="rows", schema=self.schema, table="rows"), fences, self.pipeline, access)
        found.check(from_arrow_schema(frame))
        return found

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.format(f"{self.schema}.rows").encode())
            return cursor.fetchall() if cursor.description else []

    def stored(self) -> list[tuple[int, int, str]]:
        return self.run('SELECT partition, "offset", value FROM {} ORDER BY partition, "offset", value')

    def committed_and_visible(self) -> tuple[int, list[tuple[int, int, str]]]:
        """Return the committed offset and the rows at one moment: a statement of a killed driver may still run."""
        with psycopg.connect(self.server.dsn) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            ((offsets,),) = connection.execute(OFFSETS.format(self.schema).encode()).fetchall()
            select = 'SELECT partition, "offset", value FROM {}.rows ORDER BY partition, "offset", value'
            return offsets.get("t/0", 0), connection.execute(select.format(self.schema).encode()).fetchall()

    def row(self) -> FenceRow:
        with closing(session_with(self.server)) as session:
            return present(PostgresqlFenceTable(session, self.schema).read(self.pipeline))


@pytest.fixture
def shop(server: Server) -> Iterator[Shop]:
    one = Shop(server, f"s{uuid.uuid4().hex[:12]}")
    with closing(session_with(server)) as session:
        create_schema(session, one.schema)
        one.run(APPENDED)
        Fence(PostgresqlFenceTable(session, one.schema), one.pipeline).create("cluster/cr")
    yield one
    for each in one.sessions:
        each.close()
    one.run(f"DROP SCHEMA {one.schema} CASCADE")


def rows(*places: tuple[int, int], value: str = "v{}") -> pa.RecordBatch:
    found = [{"topic": "t", "partition": p, "offset": o, "value": value.format(o)} for p, o in places]
    return pa.RecordBatch.from_pylist(found, SCHEMA)


def every(until: int = COUNT) -> list[tuple[int, int, str]]:
    return [(partition, offset, f"v{offset}") for partition in (0, 1) for offset in range(until)]


@dataclass(slots=True)
class Driver:
    """A driver of its own epoch, batch by batch."""

    shop: Shop
    fences: PostgresqlFenceTable
    row: FenceRow
    sink: TableSink
    fence: Fence

    @classmethod
    def begin(cls, shop: Shop, *, patience: float = 5.0, connect: Callable[[], Session] | None = None) -> Driver:
        """Take over, and claim."""
        fences = shop.fences(connect)
        fence = Fence(fences, shop.pipeline, patience=patience)
        sink = shop.sink(fences)
        taken = fence.take_over(present(fence.read()), owner="cluster/cr")

        def start(row: FenceRow) -> Starting:
            offsets = dict(row.offsets) or {"t/0": 0, "t/1": 0}
            return Starting(offsets=offsets, planned=dict(row.planned) or offsets, topic_ids={"t": "id"})

        row = fence.claim(epoch=taken.epoch, driver=f"pod-{taken.epoch}", code="c", start=start)
        return cls(shop, fences, row, sink, fence)

    def plan(self, size: int = BATCH) -> BatchToken:
        """Record the next batch, unless one is planned."""
        start, ends = self.row.offsets, self.row.planned
        if ends == start:
            ends = {key: min(at + size, COUNT) for key, at in start.items()}
            self.row = self.fence.plan(self.row, offsets=start, planned=ends)
        return self.token({key: (start[key], ends[key]) for key in start})

    def token(self, offsets: Mapping[str, tuple[int, int]]) -> BatchToken:
        row = self.row
        return BatchToken(
            pipeline=row.pipeline, epoch=row.epoch, version=row.version, token=row.write_timestamp, offsets=offsets
        )

    def stage(self, token: BatchToken, *, value: str = "v{}") -> int:
        """Write each partition in a task of its own."""
        self.sink.begin(token)
        return sum(self.stage_task(token, int(key[2:]), value=value) for key in sorted(token.offsets))

    def stage_task(self, token: BatchToken, partition: int, *, value: str = "v{}") -> int:
        start, until = token.offsets[f"t/{partition}"]
        task = numbered(self.sink.task(), partition)
        return sum(task(iter([rows(*((partition, at) for at in range(start, until)), value=value)]), token))

    def finish(self, token: BatchToken, count: int) -> None:
        self.sink.finish(replace(token, rows=count))

    def commit(self, token: BatchToken) -> None:
        ends = {key: until for key, (_, until) in token.offsets.items()}
        self.row = self.fence.commit(self.row, offsets=ends, planned=ends, records=1, duration_ms=1)

    def do(self) -> None:
        """Do one batch."""
        token = self.plan()
        self.finish(token, self.stage(token))
        self.commit(token)

    def drain(self) -> None:
        while min(self.row.offsets.values()) < COUNT:
            self.do()


def numbered(task: Any, number: int) -> Callable[..., Iterator[int]]:
    """Return the task's `write` under another number of a Spark task."""

    def write(batches: Iterator[pa.RecordBatch], token: BatchToken) -> Iterator[int]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(staging_task, "_task_number", lambda: number)
            yield from task.write(batches, token)

    return write


def around_each_request(step: Callable[[], None]) -> None:
    """Have `step` called before and after each request to the server."""
    wait = Connection.wait

    def stepping(self: Connection, *args: Any, **more: Any) -> Any:
        step()
        found = wait(self, *args, **more)
        step()
        return found

    Connection.wait = stepping  # type: ignore[method-assign]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork in a process with threads
def test_each_record_is_stored_once_wherever_the_driver_is_killed(shop: Shop) -> None:
    at = 0
    while killed(lambda: Driver.begin(shop).drain(), around_each_request, at=at):
        committed, visible = shop.committed_and_visible()
        assert visible == every(committed), f"killed at step {at}: what is visible is what is committed"
        successor = Driver.begin(shop)
        successor.drain()
        assert shop.stored() == every(), f"killed at step {at}"
        successor.row = successor.fence.rewind(
            successor.fence.take_over(successor.row, owner="cluster/cr"),
            offsets={"t/0": 0, "t/1": 0}, leader_epochs={}, growth_barrier={},
        )  # fmt: skip
        shop.run("TRUNCATE {}")
        while shop.sessions:
            shop.sessions.pop().close()
        at += 1
    assert at > 60, "the driver was killed at every step"
    assert shop.stored() == every()


@pytest.mark.parametrize("is_applied", [True, False], ids=["applied", "not applied"])
def test_the_answer_of_a_commit_is_lost(shop: Shop, is_applied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, run, lost = Driver.begin(shop), Session.run, [0]

    def losing(self: Session, doing: str, *args: Any, **more: Any) -> Any:
        if doing != "changing the fence row" or lost[0] or driver.row.planned == driver.row.offsets:
            return run(self, doing, *args, **more)
        lost[0] += 1
        if is_applied:
            run(self, doing, *args, **more)
        raise FenceUnavailable("injected")

    token = driver.plan()
    driver.finish(token, driver.stage(token))
    monkeypatch.setattr(Session, "run", losing)
    driver.commit(token)
    assert lost == [1]
    driver.drain()
    assert shop.stored() == every()


def test_a_replaced_driver_stores_nothing(shop: Shop) -> None:
    frozen = Driver.begin(shop)
    late = frozen.plan()
    count = frozen.stage(late, value="late {}")
    successor = Driver.begin(shop)
    successor.do()
    frozen.stage_task(late, 0, value="later {}")
    frozen.finish(late, count + BATCH)
    with pytest.raises(Fenced):
        frozen.commit(late)
    frozen.sink.begin(late)  # it empties nothing of a later epoch
    token = successor.plan()
    staged = successor.stage(token)
    frozen.sink.begin(late)
    successor.finish(token, staged)
    successor.commit(token)
    successor.drain()
    assert shop.stored() == every()


def test_a_takeover_between_staging_and_commit_wins(shop: Shop) -> None:
    """Injected: the operator's takeover holds the row when the commit arrives."""
    driver = Driver.begin(shop)
    token = driver.plan()
    driver.finish(token, driver.stage(token))
    with psycopg.connect(shop.server.dsn) as operator:
        taken = "UPDATE {}.fence SET epoch = epoch + 1, version = version + 1, driver = NULL"
        operator.execute(taken.format(shop.schema).encode())
        outcome = list[BaseException]()

        def commit() -> None:
            try:
                driver.commit(token)
            except Fenced as error:
                outcome.append(error)

        waiting = threading.Thread(target=commit)
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
        operator.commit()
    waiting.join()
    assert len(outcome) == 1
    assert shop.stored() == []


def test_rows_that_are_deleted_while_the_commit_waits_fail_it_as_a_whole(shop: Shop) -> None:
    """Injected: a late statement deletes staged rows after the commit has counted them."""
    driver = Driver.begin(shop)
    token = driver.plan()
    driver.finish(token, driver.stage(token))
    outcome = list[BaseException]()

    def commit() -> None:
        try:
            driver.commit(token)
        except BatchFailed as error:
            outcome.append(error)

    (staged,) = staging.tables_of(driver.fences.session, shop.schema, shop.pipeline)
    with psycopg.connect(shop.server.dsn) as holder:
        holder.execute(LOCKED.format(shop.schema).encode())
        waiting = threading.Thread(target=commit)
        waiting.start()
        waiting.join(1.0)
        assert waiting.is_alive()
        shop.run(f"DELETE FROM {shop.schema}.{staged} WHERE fencepost_task = 0")  # noqa: S608
    waiting.join()
    assert len(outcome) == 1
    assert "were deleted" in str(outcome[0])
    assert (shop.stored(), shop.row().offsets) == ([], {"t/0": 0, "t/1": 0})
    Driver.begin(shop).drain()
    assert shop.stored() == every()


def test_a_run_with_other_columns_that_starts_beside_one_leaves_its_rows(shop: Shop) -> None:
    """Injected: the next run of a Handoff checks its frame while the one that works has staged a batch."""
    driver = Driver.begin(shop)
    token = driver.plan()
    count = driver.stage(token)
    shop.run("ALTER TABLE {} ADD extra text")
    next_one = shop.sink(shop.fences(), SCHEMA.append(pa.field("extra", pa.string())))
    driver.finish(token, count)
    driver.commit(token)
    assert shop.stored() == every(BATCH)
    left = driver.plan()
    driver.stage(left)
    next_one.begin(replace(left, epoch=driver.row.epoch + 1))
    for name in staging.tables_of(driver.fences.session, shop.schema, shop.pipeline):
        assert shop.run(f"SELECT count(*) FROM {shop.schema}.{name}") == [(0,)]  # noqa: S608


def test_attempts_of_a_task_count_once(shop: Shop) -> None:
    """Spark repeats a task whose answer was lost; a third attempt is frozen in its transaction, and ends late."""
    driver = Driver.begin(shop)
    token = driver.plan()
    driver.sink.begin(token)
    frozen = numbered(driver.sink.task(), 0)(iter([rows((0, 0), (0, 1)), rows((0, 2), (0, 3))]), token)
    assert next(frozen) == 2
    counts = [driver.stage_task(token, partition) for partition in (0, 0, 1)]
    driver.finish(token, sum(counts[1:]))
    driver.commit(token)
    assert shop.stored() == every(BATCH)
    assert sum(frozen) == 2  # it is stored under a version that is over
    driver.drain()
    assert shop.stored() == every()


def test_rows_that_no_commit_is_for_do_not_move(shop: Shop) -> None:
    """A witness of a record that fails is written and not committed, and a letter's commit has no output."""
    driver = Driver.begin(shop)
    token = driver.plan()
    driver.finish(token, driver.stage(token))
    part = {"t/0": 1, "t/1": 0}
    driver.row = driver.fence.commit(
        driver.row, offsets=part, planned=part, records=1, duration_ms=1, dead_letter="t/0@0", has_output=False
    )
    assert shop.stored() == []
    driver.drain()
    assert shop.stored() == every()[1:]


def test_a_commit_of_a_batch_that_was_not_finished_is_refused(shop: Shop) -> None:
    driver = Driver.begin(shop)
    token = driver.plan()
    driver.stage(token)
    with pytest.raises(RuntimeError, match="did not finish"):
        driver.commit(token)
    assert shop.row().offsets == {"t/0": 0, "t/1": 0}


RAISING = """
CREATE FUNCTION {0}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused by a trigger'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON {0}.rows FOR EACH ROW EXECUTE FUNCTION {0}.refuse()
"""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("ALTER TABLE {}.rows ADD UNIQUE (value)", "duplicate key"),
        ('ALTER TABLE {}.rows ADD CHECK ("offset" <> 2)', "violates check constraint"),
        (RAISING, "refused by a trigger"),
    ],
    ids=["unique", "check", "trigger"],
)
def test_a_table_that_refuses_a_row_at_the_commit_ends_the_run_and_nothing_is_committed(
    shop: Shop, change: str, why: str
) -> None:
    """No record is looked for: others pass until they are moved, so one that fails alone proves nothing."""
    with psycopg.connect(shop.server.dsn, autocommit=True) as connection:
        connection.execute(change.format(shop.schema).encode())
    driver = Driver.begin(shop)
    token = driver.plan()
    driver.finish(token, driver.stage(token))
    with pytest.raises(BadSpec, match=why) as refused:
        driver.commit(token)
    assert not suspects_record(refused.value)
    assert (shop.stored(), shop.row().offsets) == ([], {"t/0": 0, "t/1": 0})


def test_a_row_that_the_table_refuses_is_a_bad_record(shop: Shop) -> None:
    driver = Driver.begin(shop)
    token = driver.plan()
    driver.sink.begin(token)
    for wrong in (None, "a\x00b"):
        bad = pa.RecordBatch.from_pylist([{"topic": "t", "partition": 0, "offset": 0, "value": wrong}], SCHEMA)
        with pytest.raises(PoisonRecord, match="sink 'rows'"):
            list(driver.sink.task().write(iter([bad]), token))
        rehearsal = replace(token, token=0)
        assert rehearsal.is_rehearsal
        with pytest.raises(PoisonRecord):
            list(driver.sink.task().write(iter([bad]), rehearsal))


def test_an_exception_of_the_transform_stays_what_it_is(shop: Shop) -> None:
    driver = Driver.begin(shop)
    token = driver.plan()

    def failing() -> Iterator[pa.RecordBatch]:
        yield rows((0, 0))
        raise ValueError("the author's")

    with pytest.raises(ValueError, match="the author's"):
        list(driver.sink.task().write(failing(), token))
    assert not staging_task._kept, "the next task does not meet what is left of this one"


def test_a_worker_logs_in_once_and_again_after_its_connection_ended(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected between two batches: the server ends the connection; an hour passes; the worker forks."""
    logins = [0]
    driver = Driver.begin(shop, patience=20.0)
    staging_task._kept.clear()  # of a test before, perhaps of another server
    connect = Session.connect

    def counted(session: Session) -> Connection:
        logins[0] += session is not driver.fences.session
        return connect(session)

    monkeypatch.setattr(Session, "connect", counted)
    driver.do()
    driver.do()
    assert logins == [1]
    (kept,) = staging_task._kept
    shop.run(f"SELECT pg_terminate_backend({kept.connection.info.backend_pid}, 10000)")
    driver.do()
    assert logins == [2]
    (kept,) = staging_task._kept
    staging_task._kept[:] = [replace(kept, since=kept.since - 3600)]
    driver.plan()
    driver.stage_task(driver.token({"t/0": (0, 0)}), 0)
    assert (logins, kept.connection.closed) == ([3], True)
    (kept,) = staging_task._kept
    staging_task._kept[:] = [replace(kept, pid=kept.pid + 1)]
    driver.stage_task(driver.token({"t/0": (0, 0)}), 0)
    assert (logins, kept.connection.closed) == ([4], False)
    kept.connection.close()
    assert shop.stored() == every()


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("crashing") / "log", port=free_port()) as found:
        yield found


def test_a_crash_of_the_server_loses_no_row_of_a_batch(own_server: Server) -> None:
    """Staged rows are gone after a crash; the commit that follows it changes nothing, and the batch is repeated."""
    shop = Shop(own_server, "shop")
    with closing(session_with(own_server)) as session:
        create_schema(session, shop.schema)
        shop.run(APPENDED)
        Fence(PostgresqlFenceTable(session, shop.schema), shop.pipeline).create("cluster/cr")
    driver = Driver.begin(shop)
    driver.do()
    token = driver.plan()
    driver.finish(token, driver.stage(token))
    own_server.control("-m", "immediate", "stop")
    own_server.start()
    with pytest.raises(BatchFailed, match="0 of 8 rows"):
        driver.commit(token)
    assert shop.stored() == every(BATCH)
    Driver.begin(shop).drain()
    assert shop.stored() == every()
    for each in shop.sessions:
        each.close()


def test_a_server_that_is_away_is_an_outage(shop: Shop) -> None:
    driver = Driver.begin(shop)
    token = driver.plan()
    task = driver.sink.task()
    away = replace(task, access=replace(task.access, endpoint=replace(task.access.endpoint, port=1), patience=0.5))
    with pytest.raises(DependencyDown) as down:
        list(away.write(iter([]), token))
    assert down.value.reason is Reason.SINK_UNREACHABLE


def test_an_account_that_may_not_insert_is_named_before_the_first_batch(shop: Shop) -> None:
    user = f"u{shop.schema}"
    shop.run(f"CREATE USER {user}; GRANT ALL ON SCHEMA {shop.schema} TO {user}")
    with (
        closing(session_with(shop.server, user=user)) as session,
        pytest.raises(DependencyDown, match=f"user {user} must not insert") as refused,
    ):
        shop.sink(PostgresqlFenceTable(session, shop.schema))
    assert "GRANT INSERT ON" in refused.value.remedy
    shop.run(f"DROP OWNED BY {user}; DROP USER {user}")


def test_columns_are_checked_and_the_staging_table_follows_the_table(shop: Shop) -> None:
    driver = Driver.begin(shop)
    driver.do()
    shop.run("ALTER TABLE {} ALTER COLUMN value TYPE varchar(100), ADD extra numeric(9, 2)")
    successor = Driver.begin(shop)
    successor.drain()
    assert shop.stored() == every()
    wrong = SCHEMA.append(pa.field("town", pa.string())).append(pa.field("extra", pa.string()))
    shop.run("ALTER TABLE {} ADD own bigint GENERATED ALWAYS AS IDENTITY, ADD many text[]")
    structs = SCHEMA.append(pa.field("many", pa.list_(pa.struct([("a", pa.int32())]))))
    for frame, column in ((SCHEMA.append(pa.field("own", pa.int64())), "own"), (structs, "many")):
        with pytest.raises(BadSpec, match=f"column '{column}'"):
            successor.sink.check(from_arrow_schema(frame))
    with pytest.raises(BadSpec, match=r"no column 'town'; column 'extra': numeric\(9,2\) takes .* not string"):
        successor.sink.check(from_arrow_schema(wrong))
    shop.run("DROP TABLE {}")
    with pytest.raises(BadSpec, match="does not exist") as missing:
        shop.sink(shop.fences())
    assert missing.value.reason is Reason.SINK_NOT_FOUND


def test_values_come_back_as_they_were(shop: Shop) -> None:
    shop.run("DROP TABLE {}")
    shop.run(
        "CREATE TABLE {} (a boolean, b smallint, c bigint, d double precision, e numeric, f text, g bytea, h date,"
        ' i timestamptz, j jsonb, k int[], "a %s ""name""" text)'
    )
    kinds = [pa.bool_(), pa.int16(), pa.int64(), pa.float64(), pa.decimal128(9, 2), pa.string(), pa.binary()]
    kinds += [pa.date32(), pa.timestamp("us", "UTC"), pa.string(), pa.list_(pa.int32()), pa.string()]
    schema = pa.schema([*zip([*"abcdefghijk", 'a %s "name"'], kinds, strict=True)])
    columns = [
        [None, True],
        [None, -1],
        [None, 2**62],
        [None, float("inf")],
        [Decimal("0.10"), None],
        ["a\t\\N\n", None],
    ]
    columns += [[b"\x00\\", None], [0, None], [1, None], ['{"x": 1}', None], [[1, None], []], ["x", None]]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    driver_fences = shop.fences()
    access = Access(endpoint=endpoint_of(shop.server), credentials=(USER, ""), tls=None, patience=5.0)
    sink = TableSink(PostgresqlSink(name="r", schema=shop.schema, table="rows"), driver_fences, shop.pipeline, access)
    sink.check(from_arrow_schema(schema))
    fence = Fence(driver_fences, shop.pipeline)
    taken = fence.take_over(present(fence.read()), owner="cluster/cr")
    row = fence.claim(
        epoch=taken.epoch, driver="d", code="c", start=lambda _: Starting(offsets={}, planned={}, topic_ids={})
    )
    token = BatchToken(pipeline=shop.pipeline, epoch=row.epoch, version=row.version, token=1, offsets={})
    sink.begin(token)
    count = sum(sink.task().write(iter([pa.RecordBatch.from_arrays(arrays, schema=schema)]), token))
    sink.finish(replace(token, rows=count))
    fence.commit(row, offsets={}, planned={}, records=2, duration_ms=1)
    found = shop.run("SELECT a, b, c, d, e::text, f, g, h::text, extract(epoch FROM i)::text, j, k FROM {} ORDER BY b")
    assert found == [
        (True, -1, 2**62, float("inf"), None, None, None, None, None, None, []),
        (None, None, None, None, "0.10", "a\t\\N\n", b"\x00\\", "1970-01-01", "0.000001", {"x": 1}, [1, None]),
    ]


def test_a_purge_deletes_the_rows_of_its_records(shop: Shop) -> None:
    driver = Driver.begin(shop)
    driver.drain()
    beyond = {"t/0": (5, COUNT), "t/1": (0, 3)}
    sink, token = shop.sink(shop.fences()), PurgeToken(pipeline=shop.pipeline, epoch=2, token=1, offsets=beyond)
    assert sink.count(beyond) == COUNT - 5 + 3
    for epoch in (1, 2):  # the epoch of a driver, and one that has not begun
        with pytest.raises(BatchFailed, match=f"epoch {epoch} is over, or has a driver"):
            sink.purge(replace(token, epoch=epoch))
    assert shop.stored() == every()
    driver.fence.take_over(driver.row, owner="cluster/cr")
    for _ in range(2):
        sink.purge(token)
    assert shop.stored() == [*every()[:5], *every()[COUNT + 3 :]]
    shop.run('ALTER TABLE {} RENAME COLUMN "offset" TO place')
    with pytest.raises(BadSpec, match="no column offset"):
        sink.count(beyond)


def test_a_deleted_pipeline_leaves_no_staging_table(shop: Shop) -> None:
    Driver.begin(shop).do()
    fences = shop.fences()
    assert len(staging.tables_of(fences.session, shop.schema, shop.pipeline)) == 1
    fence = Fence(fences, shop.pipeline)
    fence.release(present(fence.read()))
    assert staging.tables_of(fences.session, shop.schema, shop.pipeline) == []
    assert len(shop.stored()) == 2 * BATCH


@dataclass(slots=True)
class Finished:
    """The batch that was finished last, and not committed yet."""

    token: BatchToken | None = None
    sink: LazilyCommitted | None = None


class LazilyCommitted(TableSink):
    """Commits a finished batch when the next one builds on it, or a reader looks."""

    shop: Shop
    last: Finished
    staged: int

    def begin(self, batch: BatchToken) -> None:
        if self.last.token is not None and batch.committed == self.last.token.token:
            commit(self.last)
        super().begin(batch)

    def finish(self, batch: BatchToken) -> None:
        count = self._session.run("counting", self._of_batches.counted, (batch.epoch, batch.version) * 2)[0][0]
        super().finish(replace(batch, rows=count))
        if self.last.token is None or batch.epoch >= self.last.token.epoch:
            self.last.token, self.last.sink = batch, self


def commit(last: Finished) -> None:
    token, sink = present(last.token), present(last.sink)
    fence = f"{sink.shop.schema}.fence"
    sink.shop.run(f"UPDATE {fence} SET epoch = {token.epoch}, version = {token.version}, driver = 'd'")  # noqa: S608
    row = sink.shop.row()
    Fence(sink._fences, sink.shop.pipeline).commit(row, offsets={}, planned={}, records=1, duration_ms=1)
    last.token = None


class TestPostgresqlSink(SinkContract):
    """The sink keeps to the contract, with the commit that each finished batch gets."""

    @pytest.fixture
    def subject(self, shop: Shop) -> Subject:
        last = Finished()
        access = Access(endpoint=endpoint_of(shop.server), credentials=(USER, ""), tls=None, patience=5.0)

        def opened() -> TableSink:
            declared = PostgresqlSink(name="rows", schema=shop.schema, table="rows")
            sink = LazilyCommitted(declared, shop.fences(), shop.pipeline, access)
            sink.shop, sink.last = shop, last
            sink.check(SPARK)
            return sink

        def read() -> Sequence[Mapping[str, Any]]:
            if last.token is not None:
                commit(last)
            found = shop.run('SELECT topic, partition, "offset", value FROM {}')
            return [dict(zip(SCHEMA.names, row, strict=True)) for row in found]

        return Subject(
            open=opened,
            rows=rows((0, 5), (0, 6), (0, 7)),
            changed=rows((0, 5), (0, 6), (0, 7), value="changed {}"),
            read=read,
            misfits={"town": SCHEMA.append(pa.field("town", pa.string()))},
        )
