"""The purge index on a real Cassandra: which rows it finds, what it is complete for, and what a crash leaves."""

from __future__ import annotations

import multiprocessing
import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cassandra.cluster import Session

from contract.dying import purge_until, records, write_until
from contract.purging import run
from contract.test_purge import KEYSPACE, config_of
from fencepost.contract import CassandraSink, DriverConfig, Verdict
from fencepost.contract.purge_request import PurgeReport
from fencepost.errors import BadSpec
from fencepost.sinks import BatchToken
from fencepost.sinks.cassandra.cassandra_sink import TableSink, bind
from fencepost.sinks.cassandra.purge_index import create_statement
from present import present
from testbed.environment import Environment, load

pytestmark = pytest.mark.integration

RETENTION = 7 * 24 * 3600.0


@pytest.fixture(scope="module")
def environment() -> Environment:
    return load()


@dataclass
class Shop:
    """A table by business key beside its index, and what writes and purges it."""

    session: Session
    environment: Environment
    folder: Path
    table: str
    clock: int

    def config(self, *, retention: float | None = RETENTION, delete_where: str | None = None) -> DriverConfig:
        config = config_of(self.environment, self.table)
        sink = CassandraSink(
            name="out", keyspace=KEYSPACE, table=self.table, purge_retention=retention, delete_where=delete_where
        )
        return replace(config, sinks=(sink,))

    def sink(self, **options: Any) -> TableSink:
        config = self.config(**options)
        (declared,) = config.sinks
        assert isinstance(declared, CassandraSink)
        self.session.cluster.refresh_keyspace_metadata(KEYSPACE)
        return bind(config, declared, self.session, self.credentials)

    @property
    def credentials(self) -> tuple[str, str]:
        return self.environment.cassandra_username, self.environment.cassandra_password

    def token(self, start: int, until: int, *, is_repeated: bool = False) -> BatchToken:
        """Return the next batch's, later than all before."""
        self.clock += 10
        return BatchToken(
            pipeline="default/shop/orders",
            epoch=1,
            version=1,
            token=self.clock,
            offsets={"t/0": (start, until)},
            is_repeated=is_repeated,
        )

    def write(self, sink: TableSink, start: int, until: int, *, is_repeated: bool = False) -> None:
        token = self.token(start, until, is_repeated=is_repeated)
        sink.begin(token)
        rows = records(start, until)
        if sink.task().target.index is None:
            rows = rows.drop_columns(["topic", "partition"])
        assert sum(sink.task().write([rows.slice(0, 7), rows.slice(7)], token)) == rows.num_rows

    def purge(self, start: int, until: int, *, at: int | None) -> tuple[int, str]:
        self.folder.mkdir(exist_ok=True)
        return run(self.folder, self.config(), {"t/0": (start, until)}, at)

    def offsets(self) -> list[int]:
        """The offsets that wrote the rows that are there."""
        return sorted(row.offset for row in self.session.execute(f"SELECT offset FROM {KEYSPACE}.{self.table}"))  # noqa: S608


@pytest.fixture
def shop(session: Session, environment: Environment, tmp_path: Path) -> Iterator[Shop]:
    session.execute(
        f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE}"
        " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    table = f"o{uuid.uuid4().hex[:8]}"
    session.execute(
        f"CREATE TABLE {KEYSPACE}.{table} (carrier text, id text, offset bigint, PRIMARY KEY (carrier, id))", timeout=60
    )
    session.execute(create_statement(KEYSPACE, table), timeout=60)
    yield Shop(session, environment, tmp_path / "purge", table, time.time_ns() // 1000)
    for name in (table, f"{table}_by_offset"):
        session.execute(f"DROP TABLE {KEYSPACE}.{name}", timeout=60)


def report(words: str) -> PurgeReport:
    found = PurgeReport.from_json(words)
    assert found is not None, words
    return found


def refusal(answer: tuple[int, str]) -> str:
    code, words = answer
    verdict = present(Verdict.from_json(words))
    assert code == 51, words
    return verdict.message


def test_exactly_the_rows_beyond_the_target_go_and_stay_away(shop: Shop) -> None:
    sink = shop.sink()
    shop.write(sink, 9_500, 10_500)  # two buckets of the index
    late = shop.token(9_900, 10_500)
    code, words = shop.purge(9_900, 10_500, at=None)
    assert (code, report(words).rows, report(words).left) == (0, 600, 600)
    assert shop.offsets() == list(range(9_500, 10_500))
    code, words = shop.purge(9_900, 10_500, at=shop.clock + 5)
    assert (code, report(words).rows, report(words).left) == (0, 600, 0)
    assert shop.offsets() == list(range(9_500, 9_900))
    shop.clock += 5
    list(sink.task().write([records(9_900, 10_000)], late))  # a zombie's
    assert shop.offsets() == list(range(9_500, 9_900))
    shop.write(sink, 9_900, 10_100)
    assert shop.offsets() == list(range(9_500, 10_100))
    code, words = shop.purge(9_950, 10_100, at=shop.clock + 5)
    assert (code, report(words).rows, report(words).left) == (0, 150, 0)
    assert shop.offsets() == list(range(9_500, 9_950))


def test_rows_that_delete_need_no_entry(shop: Shop) -> None:
    sink = shop.sink(delete_where="gone")
    token = shop.token(0, 10)
    sink.begin(token)
    rows = records(0, 10)
    list(sink.task().write([rows.append_column("gone", pa.array([offset > 7 for offset in range(10)]))], token))
    code, words = shop.purge(5, 10, at=shop.clock + 5)
    assert (code, report(words).rows, report(words).left) == (0, 3, 0)
    assert shop.offsets() == list(range(5))


def test_what_was_written_before_the_index_is_refused_by_its_offset(shop: Shop) -> None:
    shop.write(shop.sink(retention=None), 0, 10)
    assert "is complete for t/0 for no offset, and the target is 5" in refusal(shop.purge(5, 10, at=shop.clock + 5))
    sink = shop.sink()
    shop.write(sink, 10, 20)
    assert "from offset 10 on, and the target is 5" in refusal(shop.purge(5, 20, at=shop.clock + 5))
    assert shop.offsets() == list(range(20))
    code, _ = shop.purge(10, 20, at=shop.clock + 5)
    assert code == 0
    assert shop.offsets() == list(range(10))


def test_a_batch_that_an_earlier_run_may_have_begun_without_the_index_is_not_complete(shop: Shop) -> None:
    sink = shop.sink()
    shop.write(sink, 0, 10, is_repeated=True)
    assert "for no offset" in refusal(shop.purge(5, 10, at=None))
    shop.write(sink, 10, 20)
    assert "from offset 10 on" in refusal(shop.purge(5, 20, at=None))


def test_a_run_without_the_index_ends_what_it_is_complete_for(shop: Shop) -> None:
    shop.write(shop.sink(), 0, 10)
    shop.write(shop.sink(retention=None), 10, 20)
    shop.write(shop.sink(), 20, 30)
    assert "from offset 20 on" in refusal(shop.purge(5, 30, at=None))


def test_a_successor_of_the_same_kind_continues(shop: Shop) -> None:
    shop.write(shop.sink(), 0, 10)
    shop.write(shop.sink(), 5, 15, is_repeated=True)
    code, words = shop.purge(3, 15, at=None)
    assert (code, report(words).rows) == (0, 12)


def test_entries_that_have_expired_are_refused(shop: Shop) -> None:
    shop.clock -= 8 * 24 * 3600 * 1_000_000
    sink = shop.sink()
    shop.write(sink, 0, 10)
    assert "for no offset" in refusal(shop.purge(5, 10, at=None))
    shop.clock += 6 * 24 * 3600 * 1_000_000
    shop.write(sink, 10, 20)
    assert "from offset 10 on" in refusal(shop.purge(5, 20, at=None))


def test_a_shorter_retention_begins_again(shop: Shop) -> None:
    shop.write(shop.sink(), 0, 10)
    shop.write(shop.sink(retention=3600.0), 10, 20)
    assert "from offset 10 on" in refusal(shop.purge(5, 20, at=None))


def test_a_missing_index_is_reported_with_the_statement_that_creates_it(shop: Shop) -> None:
    shop.session.execute(f"ALTER TABLE {KEYSPACE}.{shop.table}_by_offset ADD other int")
    with pytest.raises(BadSpec, match="has other columns or another key") as caught:
        shop.sink()
    assert "CREATE TABLE" in caught.value.remedy


def test_killed_at_each_request_no_row_is_without_its_entry(shop: Shop) -> None:
    """The process that writes is killed before each of its requests."""
    wanted: list[int] = []
    sink = shop.sink()
    context = multiprocessing.get_context("spawn")
    for requests in (1, 3, 6):
        token = shop.token(0, 40)
        sink.begin(token)
        child = context.Process(target=write_until, args=(sink.task(), token, requests))
        child.start()
        child.join(60)
        wanted.append(len(shop.offsets()))
        entries = shop.session.execute(f"SELECT offset FROM {KEYSPACE}.{shop.table}_by_offset")  # noqa: S608
        assert set(shop.offsets()) <= {row.offset for row in entries}
        code, words = shop.purge(0, 40, at=shop.clock + 5)
        assert (code, report(words).left) == (0, 0)
        assert shop.offsets() == []
        assert child.exitcode == -signal.SIGKILL
    assert wanted[0] == 0 < wanted[1] < wanted[2] < 40, "it was killed with some of the rows written"


def test_a_purge_killed_in_between_is_completed_by_the_next(shop: Shop) -> None:
    shop.write(shop.sink(), 0, 6_000)
    context = multiprocessing.get_context("spawn")
    left = []
    for deletes in (2_000, 6_000):
        child = context.Process(target=purge_until, args=(shop.config(), shop.credentials, shop.clock + 5, deletes))
        child.start()
        child.join(120)
        assert child.exitcode == -signal.SIGKILL
        left.append(len(shop.offsets()))
    assert 6_000 > left[0] > left[1] > 0
    code, words = shop.purge(0, 6_000, at=shop.clock + 5)
    assert (code, report(words).left) == (0, 0)
    assert shop.offsets() == []
