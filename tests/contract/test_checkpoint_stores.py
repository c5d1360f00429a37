"""One suite for the stores of checkpoints, in memory, in SQLite and in Cassandra."""

from __future__ import annotations

import io
import random
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from cassandra.cluster import Session

from fakes.relay import relay_to
from fencepost.contract import CassandraEndpoint
from fencepost.fence import EMPTY
from fencepost.fence.cassandra.session import connect
from fencepost.fence.cassandra.table import create_schema
from fencepost.fence.patience import Patience
from fencepost.fence.sqlite.database import Database
from fencepost.state.cassandra import CassandraChunks, CassandraFileIndex
from fencepost.state.chunks import CHUNK, WINDOW, ChunkStore, read_file, write_file
from fencepost.state.collector import forget
from fencepost.state.errors import CheckpointDamaged
from fencepost.state.file_ids import RANGE, FileIds, FileIndex, FileRange
from fencepost.state.memory import MemoryChunks, MemoryFileIndex
from fencepost.state.progress import Committed
from fencepost.state.sqlite import SCHEMA, SqliteChunks, SqliteFileIndex
from fencepost.state.state_check import StateCheck, check_files
from fencepost.state.tree import StoredFile, Tree
from testbed import environment

KEYSPACE: Final = "fencepost_contract"


@dataclass(frozen=True, slots=True)
class Stores:
    """Those of one pipeline, and the chunks of another one in the same place."""

    chunks: ChunkStore
    index: FileIndex
    others: ChunkStore


@pytest.fixture(params=["memory", "sqlite", pytest.param("cassandra", marks=pytest.mark.integration)])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    if request.param == "memory":
        yield Stores(MemoryChunks(), MemoryFileIndex(), MemoryChunks())
        return
    if request.param == "sqlite":
        with closing(Database(tmp_path / "state.sqlite", SCHEMA)) as database:
            yield Stores(
                SqliteChunks(database, "mine"), SqliteFileIndex(database, "mine"), SqliteChunks(database, "other")
            )
        return
    session: Session = request.getfixturevalue("session")
    create_schema(session, KEYSPACE, {"class": "SimpleStrategy", "replication_factor": 1})
    names = [f"contract/{uuid.uuid4()}/p" for _ in range(2)]
    chunks, others = (CassandraChunks(session, KEYSPACE, name) for name in names)
    yield Stores(chunks, CassandraFileIndex(session, KEYSPACE, names[0]), others)


@pytest.mark.parametrize("length", [0, 1, CHUNK, CHUNK + 1, (WINDOW + 1) * CHUNK + 7])
def test_a_file_is_read_as_it_was_written(stores: Stores, length: int) -> None:
    content, file = random.Random(length).randbytes(length), uuid.uuid4()
    assert write_file(stores.chunks, file, io.BytesIO(content), limit=length) == length
    write_file(stores.chunks, file, io.BytesIO(content), limit=length)  # a write without an answer is sent again
    assert b"".join(read_file(stores.chunks, file, length)) == content
    middle = length // 3, length // 2
    found = b"".join(read_file(stores.chunks, file, length, start=middle[0], stop=middle[1]))
    assert found == content[middle[0] : middle[1]]


@pytest.mark.integration
def test_chunks_wait_for_a_connection_that_takes_no_more_bytes(session: Session) -> None:
    """Injected: nothing is read from the connection for two seconds.

    History of the defect: the library refused what was to be sent meanwhile, a commit of the fence as well.
    """
    create_schema(session, KEYSPACE, {"class": "SimpleStrategy", "replication_factor": 1})
    place, file = environment.load(), uuid.uuid4()
    windows = [{number: random.randbytes(CHUNK) for number in range(at, at + WINDOW)} for at in range(0, 48, WINDOW)]
    with relay_to(place.cassandra_host, place.cassandra_port) as relay, ThreadPoolExecutor() as beside:
        endpoint = CassandraEndpoint(contact_points=("127.0.0.1",), port=relay.port)
        account = place.cassandra_username, place.cassandra_password
        slow = connect(endpoint, credentials=account, request_timeout=30.0)
        try:
            chunks = CassandraChunks(slow, KEYSPACE, f"contract/{uuid.uuid4()}/p")
            chunks.write(file, {0: b""})
            relay.be_silent()
            first = [beside.submit(chunks.write, file, window) for window in windows[1:]]
            time.sleep(1.0)
            threading.Timer(1.0, relay.speak).start()
            chunks.write(file, windows[0])
            for written in first:
                written.result()
            parts = {part: content for window in windows for part, content in window.items()}
            assert chunks.read(file, range(len(parts))) == list(parts.values())
        finally:
            slow.cluster.shutdown()


def test_a_checkpoint_is_checked_for_each_of_its_chunks(stores: Stores) -> None:
    """What the operator's port `check_state` says before a rewind stops anything."""
    files = {f"state/0/0/{number}.zip": StoredFile(uuid.uuid4(), CHUNK + number) for number in range(3)}
    listing, packed = uuid.uuid4(), Tree(files=files).pack()
    for file in files.values():
        write_file(stores.chunks, file.id, io.BytesIO(bytes(file.length)), limit=file.length)
    write_file(stores.chunks, listing, io.BytesIO(packed), limit=len(packed))
    tree = StoredFile(listing, len(packed))
    checkpoint = Committed(batch=0, metadata="", offset_logs={0: ""}, commit_log="", tree=tree).pack()
    assert check_files(checkpoint, stores.chunks) == StateCheck(files=3, checked=3)
    assert check_files(checkpoint, stores.chunks, start=2) == StateCheck(files=3, checked=3)
    assert check_files(EMPTY, stores.chunks).is_done
    stores.chunks.delete([files["state/0/0/1.zip"].id])
    assert check_files(checkpoint, stores.chunks).missing == "chunks of state/0/0/1.zip"
    stores.chunks.delete([listing])
    assert "the list of its files" in check_files(checkpoint, stores.chunks).missing


def test_a_missing_part_is_damage(stores: Stores) -> None:
    file = uuid.uuid4()
    with pytest.raises(CheckpointDamaged):
        stores.chunks.read(file, range(1))
    stores.chunks.write(file, {0: b"a", 2: b"c"})
    assert stores.chunks.read(file, range(1)) == [b"a"]
    with pytest.raises(CheckpointDamaged):
        stores.chunks.read(file, range(3))


def test_files_without_all_their_parts_are_named(stores: Stores) -> None:
    whole, cut, holed, gone, empty = (uuid.uuid4() for _ in range(5))
    stores.chunks.write(whole, {0: b"a", 1: b"b"})
    stores.chunks.write(cut, {0: b"a"})
    stores.chunks.write(holed, {0: b"a", 2: b"c"})
    assert stores.chunks.incomplete({whole: 2, cut: 2, holed: 3, gone: 1, empty: 0}) == {cut, holed, gone}
    assert stores.chunks.incomplete({}) == frozenset()
    assert stores.others.incomplete({whole: 2}) == {whole}


def test_a_deleted_file_stays_deleted_whenever_a_write_arrives(stores: Stores) -> None:
    gone, kept = uuid.uuid4(), uuid.uuid4()
    for file in (gone, kept):
        stores.chunks.write(file, {0: b"a", 1: b"b"})
    stores.chunks.delete([gone, uuid.uuid4()])
    stores.chunks.write(gone, {0: b"late"})
    with pytest.raises(CheckpointDamaged):
        stores.chunks.read(gone, range(1))
    assert stores.chunks.read(kept, range(2)) == [b"a", b"b"]
    stores.chunks.delete([])


def test_a_pipeline_does_not_reach_the_chunks_of_another_one(stores: Stores) -> None:
    file = uuid.uuid4()
    stores.chunks.write(file, {0: b"mine"})
    with pytest.raises(CheckpointDamaged):
        stores.others.read(file, range(1))
    stores.others.delete([file])
    assert stores.chunks.read(file, range(1)) == [b"mine"]


def test_ranges_are_kept_until_nothing_is_left_of_them(stores: Stores) -> None:
    assert list(stores.index.ranges()) == []
    ids = [FileRange(first=UUID(int=number * RANGE)) for number in (2**100, 2**90)]
    for found in ids:
        stores.index.add(found)
    assert sorted(stores.index.ranges(), key=lambda found: -found.first.int) == ids
    marked = replace(ids[0], unreached={3: 2**50, 7: 5})
    stores.index.leave(marked)
    assert marked in stores.index.ranges()
    left = replace(ids[0], left=frozenset({0, 7, RANGE - 1}), unreached={7: 5})
    stores.index.leave(left)
    stores.index.leave(replace(ids[1], left=frozenset()))
    assert list(stores.index.ranges()) == [left]


def test_a_deleted_pipeline_leaves_no_file_behind(stores: Stores) -> None:
    ids = FileIds(stores.index, Patience(0))
    files = [ids.next() for _ in range(3)]
    for file in files:
        stores.chunks.write(file, {0: b"a"})
    forget(stores.chunks, stores.index)
    assert list(stores.index.ranges()) == []
    for file in files:
        with pytest.raises(CheckpointDamaged):
            stores.chunks.read(file, range(1))
    forget(stores.chunks, stores.index)
