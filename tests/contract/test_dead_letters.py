"""Dead letters on a real Cassandra: whole, at their place, and removed with all that a replaced driver writes late."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from cassandra.cluster import Session

from fencepost.fence import Fence
from fencepost.fence.cassandra.dead_letters import CHUNK, CHUNKS_OUTLIVE, DeadLetters
from fencepost.fence.cassandra.table import CassandraFenceTable, create_schema
from fencepost.fence.letters import LONGEST_TEXT, DeadLetter, letter
from present import present

pytestmark = pytest.mark.integration

PIPELINE = "test/shop/orders"
HEADERS = (("trace", b"\x00\xff"), ("trace", None))


@pytest.fixture(scope="module")
def keyspace(session: Session) -> Iterator[str]:
    name = f"fencepost_letters_{uuid.uuid4().hex[:12]}"
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}", timeout=60
    )
    create_schema(session, name, {"class": "SimpleStrategy", "replication_factor": 1})
    yield name
    session.execute(f"DROP KEYSPACE IF EXISTS {name}", timeout=60)


def made(offset: int, *, value: bytes | None = b"{", epoch: int = 4, topic_id: str = "id") -> DeadLetter:
    found = letter(
        topic="orders", partition=3, topic_id=topic_id, offset=offset, epoch=epoch, code="job:1",
        reason="TransformFailed", error="it is not JSON", traceback="Traceback …",
        timestamp=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), key=b"k", value=value, headers=HEADERS,
    )  # fmt: skip
    return replace(found, at=datetime(2026, 1, 3, tzinfo=UTC))


def write(letters: DeadLetters, one: DeadLetter, *, timestamp: int = 1_000_000, retention: float = 3600.0) -> None:
    letters.write(one, write_timestamp=timestamp, retention=retention, consistency="ONE", patience=60.0)


def remove(letters: DeadLetters, offsets: dict[str, int], *, timestamp: int, topic_id: str = "id") -> None:
    letters.remove_from(offsets, {"orders": topic_id}, write_timestamp=timestamp, consistency="ONE", patience=60.0)


def offsets_of(letters: DeadLetters) -> list[tuple[int, str]]:
    return [(one.offset, one.topic_id) for one in letters.of_partition("orders", 3)]


def test_a_letter_is_listed_in_short_and_read_whole(session: Session, keyspace: str) -> None:
    letters = DeadLetters(session, keyspace, PIPELINE)
    assert list(letters.of_partition("orders", 3)) == []
    write(letters, made(7))
    write(letters, made(8))
    found = letters.read(made(8))
    assert found == made(8)
    assert found is not None
    assert json.loads(found.headers or "") == [["trace", base64.b64encode(b"\x00\xff").decode()], ["trace", None]]
    assert (found.value_size, found.value_sha256) == (1, hashlib.sha256(b"{").hexdigest())
    listed = list(letters.of_partition("orders", 3))
    assert [one.offset for one in listed] == [7, 8]
    assert {one.key or one.value or one.headers or one.traceback for one in listed} == {None}
    assert [one.offset for one in letters.of_partition("orders", 3, start=8)] == [8]
    assert [one.offset for one in letters.of_partition("orders", 3, until=8)] == [7]
    assert [one.offset for one in letters.of_partition("orders", 3, limit=1)] == [7]
    assert list(letters.of_partition("orders", 0)) == []

    # The same place again is the same letter; an older writer's loses, and it expires.
    write(letters, replace(made(8), error="again"), timestamp=2_000_000)
    write(letters, replace(made(8), error="a zombie's"), timestamp=1_500_000)
    again = present(letters.read(made(8)))
    assert again.error == "again"
    select = f"SELECT TTL(error) AS left FROM {keyspace}.dead_letters"  # noqa: S608
    assert all(0 < row.left <= 3600 for row in session.execute(select))
    write(letters, made(10, value=None))
    tombstone = present(letters.read(made(10)))
    assert (tombstone.value, tombstone.value_size, tombstone.is_whole) == (None, None, True)


def test_a_record_of_any_size_is_kept_whole(session: Session, keyspace: str) -> None:
    """Found: a value of 2 MiB was cut, and could not be retried."""
    letters = DeadLetters(session, keyspace, f"{PIPELINE}-large")
    large = letter(
        topic="orders", partition=3, topic_id="id", offset=9, epoch=4, code="c", reason="r", error="e" * 50_000,
        traceback="t" * 50_000, timestamp=None, key=bytes(range(256)) * 400, value=bytes(range(251)) * 20_000,
        headers=[("h", b"x" * 70_000)],
    )  # fmt: skip
    large = replace(large, at=datetime(2026, 1, 3, tzinfo=UTC))
    write(letters, large)
    assert letters.read(large) == large
    assert len(large.error or "") < LONGEST_TEXT
    (listed,) = letters.of_partition("orders", 3)
    assert (listed.value, listed.value_size, listed.is_whole) == (None, 251 * 20_000, True)
    left = session.execute(f"SELECT TTL(content) AS left FROM {keyspace}.dead_letter_chunks").all()  # noqa: S608
    assert len(left) == math.ceil(251 * 20_000 / CHUNK) + 2
    assert all(3600 < row.left <= 3600 + CHUNKS_OUTLIVE for row in left)

    # Injected: one chunk is missing.
    place = f"pipeline = '{PIPELINE}-large' AND topic = 'orders' AND partition = 3 AND topic_id = 'id' AND offset = 9"
    session.execute(f"DELETE FROM {keyspace}.dead_letter_chunks WHERE {place} AND part = 'value' AND number = 2")  # noqa: S608
    cut = present(letters.read(large))
    assert (cut.is_whole, cut.key, cut.value) == (False, large.key, None)


def test_letters_of_what_is_read_again_are_removed_for_good(session: Session, keyspace: str) -> None:
    letters = DeadLetters(session, keyspace, f"{PIPELINE}-removed")
    for offset in (7, 8, 9):
        write(letters, made(offset))
    write(letters, made(9, topic_id="deleted"))
    letters.mark_retried(made(9), by="ann", at=datetime.now(UTC), to="orders/3@20")
    remove(letters, {"orders/3": 8, "orders/4": 0}, timestamp=1_000_002)
    assert offsets_of(letters) == [(7, "id"), (9, "deleted")]
    # Injected: the driver that was replaced writes late.
    write(letters, made(8), timestamp=1_000_001)
    write(letters, made(11), timestamp=1_000_001)
    assert offsets_of(letters) == [(7, "id"), (9, "deleted")]
    # The run that removed them finds that one fails with its code too: the letter is new, and not retried.
    write(letters, made(9, epoch=5), timestamp=1_000_004)
    assert letters.read(made(9)) == made(9, epoch=5)


def test_topics_of_one_name_keep_letters_of_their_own(session: Session, keyspace: str) -> None:
    letters = DeadLetters(session, keyspace, f"{PIPELINE}-recreated")
    for topic_id, offsets in (("", (4,)), ("b", (1, 5)), ("a", (5, 6))):
        for offset in offsets:
            write(letters, made(offset, topic_id=topic_id))
    assert offsets_of(letters) == [(1, "b"), (4, ""), (5, "a"), (5, "b"), (6, "a")]
    found = present(letters.read(made(5, topic_id="a")))
    assert found.topic_id == "a"


def test_the_fence_row_counts_letters_and_a_takeover_keeps_the_count(session: Session, keyspace: str) -> None:
    fence = Fence(CassandraFenceTable.over(session, keyspace), PIPELINE, patience=60.0)
    row = fence.take_over(fence.create("me"), owner="me")
    moved = fence.commit(
        row, offsets={"orders/3": 9}, planned={"orders/3": 9}, records=1, duration_ms=1, dead_letter="orders/3@8"
    )
    assert (moved.dead_letters, moved.last_dead_letter) == (1, "orders/3@8")
    read = present(fence.read())
    after = fence.take_over(read, owner="me")
    assert (after.dead_letters, after.last_dead_letter) == (1, "orders/3@8")


def test_a_retry_is_marked_for_as_long_as_the_letter_lives(session: Session, keyspace: str) -> None:
    letters = DeadLetters(session, keyspace, f"{PIPELINE}-retried")
    ahead = int(datetime.now(UTC).timestamp() + 60) * 1_000_000  # a pipeline's clock may be ahead of this machine's
    write(letters, made(8), timestamp=ahead)
    moment = datetime(2026, 1, 4, tzinfo=UTC)
    letters.mark_retried(made(8), by="zoe", at=moment, to="orders/3@20")
    letters.mark_retried(made(8), by="ann", at=moment, to="orders/3@21")
    assert letters.read(made(8)) == replace(made(8), retried_at=moment, retried_by="ann", retried_to="orders/3@21")
    select = f"SELECT TTL(retried_by) AS left FROM {keyspace}.dead_letters WHERE pipeline = %s AND topic = %s"  # noqa: S608
    place = (f"{PIPELINE}-retried", "orders", 3)
    (row,) = session.execute(f"{select} AND partition = %s", place)
    assert 0 < row.left <= 3600

    # After a rewind the record fails again: that letter is a new one, although this machine's clock may be ahead.
    write(letters, made(8, epoch=5), timestamp=ahead + 10)
    assert letters.read(made(8)) == made(8, epoch=5)
    # The letter has expired: nothing is left of it, no mark either.
    letters.mark_retried(made(9), by="ann", at=moment, to="orders/3@20")
    assert letters.read(made(9)) is None
