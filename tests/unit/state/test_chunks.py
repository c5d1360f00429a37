"""Files in chunks: any part of a file reads as it was written, and a chunk that is missing is never silence."""

from __future__ import annotations

import io
import itertools
import random
import threading
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

import pytest

from fencepost.fence import FenceUnavailable
from fencepost.state import chunks
from fencepost.state.chunks import read_file, write_file
from fencepost.state.errors import CheckpointDamaged, CheckpointFull
from fencepost.state.memory import MemoryChunks
from harness.waiting import eventually

FILE = UUID(int=7)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 4)
    monkeypatch.setattr(chunks, "WINDOW", 3)


class Dripping(io.BytesIO):
    """A socket that returns a byte or two at a time."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(2, size or 0))


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 11, 12, 13, 40])
def test_any_part_of_a_file_reads_as_it_was_written(length: int) -> None:
    content = random.Random(length).randbytes(length)
    store = MemoryChunks()
    assert write_file(store, FILE, Dripping(content), limit=length) == length
    for start in range(length + 2):
        for stop in [*range(start, length + 2), None]:
            found = b"".join(read_file(store, FILE, length, start=start, stop=stop))
            assert found == content[start:stop], (start, stop)


def test_a_file_beyond_the_limit_is_refused() -> None:
    with pytest.raises(CheckpointFull):
        write_file(MemoryChunks(), FILE, io.BytesIO(b"12345"), limit=4)


def test_a_missing_or_a_short_chunk_is_damage() -> None:
    store = MemoryChunks()
    write_file(store, FILE, io.BytesIO(b"123456789"), limit=9)
    store.chunks[FILE, 1] = b"567"
    assert b"".join(read_file(store, FILE, 9, stop=4)) == b"1234"
    with pytest.raises(CheckpointDamaged):
        list(read_file(store, FILE, 9))
    del store.chunks[FILE, 1]
    with pytest.raises(CheckpointDamaged):
        list(read_file(store, FILE, 9, start=5, stop=6))


class Counting:
    """A store that notes how many chunks each request has."""

    def __init__(self) -> None:
        self.inside = MemoryChunks()
        self.sizes: list[int] = []

    def write(self, file: UUID, parts: Mapping[int, bytes]) -> None:
        self.sizes.append(len(parts))
        self.inside.write(file, parts)

    def read(self, file: UUID, parts: range) -> Sequence[bytes]:
        self.sizes.append(len(parts))
        return self.inside.read(file, parts)

    def incomplete(self, files: Mapping[UUID, int]) -> frozenset[UUID]:
        return self.inside.incomplete(files)

    def delete(self, files: Collection[UUID]) -> None:
        self.inside.delete(files)


def test_a_request_has_a_window_of_chunks() -> None:
    store = Counting()
    write_file(store, FILE, io.BytesIO(bytes(41)), limit=41)
    assert sum(map(len, read_file(store, FILE, 41))) == 41
    assert store.sizes == [3, 3, 3, 2] * 2


def test_one_window_is_received_while_another_is_stored() -> None:
    store, content, windows = MemoryChunks(), io.BytesIO(bytes(36)), itertools.count(2)

    def wait(_: str) -> None:
        most = min(36, 12 * next(windows))
        eventually("the next window is received", lambda: content.tell() == most, seconds=10, pause=0.001)

    store.before = wait
    assert write_file(store, FILE, content, limit=36) == 36


def test_one_window_is_read_while_another_is_sent() -> None:
    """And no more than one: what a slow client has not taken stays in the store."""
    store, begun = MemoryChunks(), threading.Semaphore(0)
    write_file(store, FILE, io.BytesIO(bytes(36)), limit=36)
    store.before = lambda _: begun.release()
    blocks = read_file(store, FILE, 36)
    assert next(blocks) == bytes(4)
    assert begun.acquire(timeout=10)
    assert begun.acquire(timeout=10)
    assert not begun.acquire(timeout=0.05)
    assert sum(map(len, blocks)) == 32


@pytest.mark.parametrize("failing", range(4))
def test_a_window_that_cannot_be_stored_or_read_fails_the_file(failing: int) -> None:
    asked: list[str] = []

    def away(method: str) -> None:
        asked.append(method)
        if len(asked) == failing + 1:
            raise FenceUnavailable("no replica answers")

    store = MemoryChunks(before=away)
    with pytest.raises(FenceUnavailable):
        write_file(store, FILE, io.BytesIO(bytes(41)), limit=41)
    assert asked == ["write"] * (failing + 1), "nothing is stored after it"
    store.before = lambda _: None
    write_file(store, FILE, io.BytesIO(bytes(41)), limit=41)
    asked.clear()
    store.before = away
    found: list[bytes] = []
    with pytest.raises(FenceUnavailable):
        found.extend(read_file(store, FILE, 41))
    assert failing == 0 or len(b"".join(found)) == 12 * failing
