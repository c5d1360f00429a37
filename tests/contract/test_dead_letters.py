"""Dead letters on a real Cassandra: whole, bounded, at their place, and in a table of an earlier release too."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from cassandra.cluster import Session

from fencepost.fence import Fence
from fencepost.fence.cassandra import CassandraFenceTable, create_schema
from fencepost.fence.dead_letters import LONGEST_KEY, LONGEST_TEXT, LONGEST_VALUE, DeadLetter, DeadLetters, letter

pytestmark = pytest.mark.integration

PIPELINE = "test/shop/orders"
FIRST_RELEASE = (
    "CREATE TABLE {keyspace}.dead_letters (pipeline text, topic text, partition int, offset bigint, epoch bigint,"
    " error text, key blob, value blob, at timestamp, PRIMARY KEY ((pipeline, topic, partition), offset))"
)
HEADERS = (("trace", b"\x00\xff"), ("trace", None))


@pytest.fixture(scope="module")
def keyspace(session: Session) -> Iterator[str]:
    name = f"fencepost_letters_{uuid.uuid4().hex[:12]}"
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}", timeout=60
    )
    session.execute(FIRST_RELEASE.format(keyspace=name), timeout=60)
    yield name
    session.execute(f"DROP KEYSPACE IF EXISTS {name}", timeout=60)


def made(offset: int, *, value: bytes | None = b"{", epoch: int = 4) -> DeadLetter:
    found = letter(
        topic="orders", partition=3, offset=offset, epoch=epoch, code="job:1", reason="TransformFailed",
        error="it is no JSON", traceback="Traceback …", timestamp=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        key=b"k", value=value, headers=HEADERS,
    )  # fmt: skip
    return replace(found, at=datetime(2026, 1, 3, tzinfo=UTC))


def write(letters: DeadLetters, one: DeadLetter, *, timestamp: int = 1_000_000, retention: float = 3600.0) -> None:
    letters.write(one, write_timestamp=timestamp, retention=retention, consistency="ONE", patience=60.0)


def test_letters_are_kept_in_an_older_table_and_in_one_of_this_release(session: Session, keyspace: str) -> None:
    letters = DeadLetters(session, keyspace, PIPELINE)
    assert not letters.keeps_retries()
    write(letters, made(7))
    old = letters.read("orders", 3, 7)
    assert old is not None
    assert (old.error, old.key, old.value, old.epoch, old.traceback) == ("it is no JSON", b"k", b"{", 4, None)
    create_schema(session, keyspace, {"class": "SimpleStrategy", "replication_factor": 1})
    write(letters, made(8))
    found = letters.read("orders", 3, 8)
    assert found == made(8)
    assert found is not None
    assert json.loads(found.headers or "") == [["trace", base64.b64encode(b"\x00\xff").decode()], ["trace", None]]
    assert (found.value_size, found.value_sha256) == (1, hashlib.sha256(b"{").hexdigest())
    listed = list(letters.of_partition("orders", 3))
    assert [one.offset for one in listed] == [7, 8]
    assert all(one.value is None and one.headers is None and one.traceback is None for one in listed)
    assert [one.offset for one in letters.of_partition("orders", 3, start=8)] == [8]
    assert [one.offset for one in letters.of_partition("orders", 3, until=8)] == [7]
    assert [one.offset for one in letters.of_partition("orders", 3, limit=1)] == [7]
    assert list(letters.of_partition("orders", 0)) == []

    # The same place again is the same letter; an older writer's loses, and it expires.
    write(letters, replace(made(8), error="again"), timestamp=2_000_000)
    write(letters, replace(made(8), error="a zombie's"), timestamp=1_500_000)
    again = letters.read("orders", 3, 8)
    assert again is not None
    assert again.error == "again"
    select = f"SELECT TTL(error) AS left FROM {keyspace}.dead_letters"  # noqa: S608
    assert all(0 < row.left <= 3600 for row in session.execute(select))

    # What is too large is cut, and says so.
    large = letter(
        topic="orders", partition=3, offset=9, epoch=4, code="c", reason="r", error="e" * 50_000,
        traceback="t" * 50_000, timestamp=None, key=b"k" * 100_000, value=b"v" * 2_000_000,
        headers=[("h", b"x" * 70_000)],
    )  # fmt: skip
    write(letters, large)
    cut = letters.read("orders", 3, 9)
    assert cut is not None
    assert (len(cut.value or b""), len(cut.key or b""), cut.headers) == (LONGEST_VALUE, LONGEST_KEY, "[]")
    assert (cut.value_size, cut.truncated) == (2_000_000, True)
    assert cut.value_sha256 == hashlib.sha256(b"v" * 2_000_000).hexdigest()
    assert len(cut.error or "") < LONGEST_TEXT
    write(letters, made(10, value=None))
    tombstone = letters.read("orders", 3, 10)
    assert tombstone is not None
    assert (tombstone.value, tombstone.value_size, tombstone.truncated) == (None, None, False)

    # The fence row counts them, and a takeover keeps the count.
    fence = Fence(CassandraFenceTable.over(session, keyspace), PIPELINE, patience=60.0)
    row = fence.take_over(fence.create("me"), owner="me")
    moved = fence.commit(
        row, offsets={"orders/3": 9}, planned={"orders/3": 9}, records=1, duration_ms=1, dead_letter="orders/3@8"
    )
    assert (moved.dead_letters, moved.last_dead_letter) == (1, "orders/3@8")
    read = fence.read()
    assert read is not None
    after = fence.take_over(read, owner="me")
    assert (after.dead_letters, after.last_dead_letter) == (1, "orders/3@8")


def test_a_retry_is_marked_for_as_long_as_the_letter_lives(session: Session, keyspace: str) -> None:
    letters = DeadLetters(session, keyspace, f"{PIPELINE}-retried")
    create_schema(session, keyspace, {"class": "SimpleStrategy", "replication_factor": 1})
    assert letters.keeps_retries()
    ahead = int(datetime.now(UTC).timestamp() + 60) * 1_000_000  # a pipeline's clock may be ahead of this machine's
    write(letters, made(8), timestamp=ahead)
    moment = datetime(2026, 1, 4, tzinfo=UTC)
    letters.mark_retried(made(8), by="ann", at=moment, to="orders/3@20")
    found = letters.read("orders", 3, 8)
    assert found == replace(made(8), retried_at=moment, retried_by="ann", retried_to="orders/3@20")
    select = f"SELECT TTL(retried_by) AS left FROM {keyspace}.dead_letters WHERE pipeline = %s AND topic = %s"  # noqa: S608
    place = (f"{PIPELINE}-retried", "orders", 3)
    (row,) = session.execute(f"{select} AND partition = %s", place)
    assert 0 < row.left <= 3600

    # After a rewind the record fails again: that letter is a new one.
    write(letters, made(8, epoch=5), timestamp=ahead + 1_000_000)
    assert letters.read("orders", 3, 8) == made(8, epoch=5)
    # The letter has expired: nothing is left of it, no mark either.
    letters.mark_retried(made(9), by="ann", at=moment, to="orders/3@20")
    assert letters.read("orders", 3, 9) is None
