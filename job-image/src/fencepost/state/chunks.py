"""The bytes of files: immutable chunks of CHUNK bytes, the last one shorter."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Protocol
from uuid import UUID

from fencepost.fence.patience import Patience
from fencepost.state.errors import CheckpointDamaged, CheckpointFull

CHUNK: Final = 512 * 1024
"""Bytes."""
LARGEST_FILE: Final = 4 * 1024**3
"""Bytes."""
WINDOW: Final = 8
"""Chunks that one file reads or writes at the same time. It holds two windows in memory: one is sent or received while
the other is read or written."""


class ChunkStore(Protocol):
    """The chunks of one pipeline. Any method may raise FenceError; a write or deletion may be repeated then."""

    def write(self, file: UUID, parts: Mapping[int, bytes]) -> None:
        """Store these parts of a file; they are durable when this returns."""
        ...

    def read(self, file: UUID, parts: range) -> Sequence[bytes]:
        """Return these parts, in their order. Raises ChunkMissing where one is not there."""
        ...

    def incomplete(self, files: Mapping[UUID, int]) -> frozenset[UUID]:
        """Return the files, of these with their numbers of parts, that lack a part. Reads no content."""
        ...

    def delete(self, files: Collection[UUID]) -> None:
        """Delete all parts of these files. A write that was sent before stays without effect, whenever it arrives."""
        ...


class Readable(Protocol):
    """What a file is read from."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many of the next bytes, and none at the end."""
        ...


@dataclass(frozen=True, slots=True)
class PatientChunks:
    """A store that is asked again while it is unavailable: what a chunk store does may be repeated."""

    store: ChunkStore
    patience: Patience

    def write(self, file: UUID, parts: Mapping[int, bytes]) -> None:
        """Store these parts of a file."""
        self.patience.ask(lambda: self.store.write(file, parts))

    def read(self, file: UUID, parts: range) -> Sequence[bytes]:
        """Return these parts, in their order."""
        return self.patience.ask(lambda: self.store.read(file, parts))

    def incomplete(self, files: Mapping[UUID, int]) -> frozenset[UUID]:
        """Return the files that lack a part."""
        return self.patience.ask(lambda: self.store.incomplete(files))

    def delete(self, files: Collection[UUID]) -> None:
        """Delete all parts of these files."""
        self.patience.ask(lambda: self.store.delete(files))


def write_file(store: ChunkStore, file: UUID, content: Readable, *, limit: int) -> int:
    """Store what `content` has, and return its length in bytes: all of it is durable then.

    Raises CheckpointFull for more than `limit` bytes, FenceError.
    """
    length, part = 0, 0
    with ThreadPoolExecutor(1, "chunks") as beside:
        written: Future[None] | None = None
        while window := _window(content):
            length += sum(map(len, window))
            if length > limit:
                raise CheckpointFull(f"a file of the checkpoint has more than {limit} bytes")
            parts = dict(enumerate(window, start=part))
            part += len(window)
            if written is not None:
                written.result()
            if len(window) < WINDOW:  # the last one, and of most files the only one
                store.write(file, parts)
                return length
            written = beside.submit(store.write, file, parts)
        if written is not None:
            written.result()
    return length


def read_file(
    store: ChunkStore, file: UUID, length: int, *, start: int = 0, stop: int | None = None
) -> Iterator[bytes]:
    """Yield the bytes [start, stop) of a file of this length; no `stop` is its end.

    Raises CheckpointDamaged where a chunk is missing or not as long as the file's length says, FenceError.
    """
    stop = length if stop is None else min(stop, length)
    if start >= stop:
        return
    last = (stop - 1) // CHUNK
    windows = [range(first, min(first + WINDOW, last + 1)) for first in range(start // CHUNK, last + 1, WINDOW)]
    with ThreadPoolExecutor(1, "chunks") as beside:
        found = store.read(file, windows[0])
        for parts, following in zip_longest(windows, windows[1:]):
            ahead = None if following is None else beside.submit(store.read, file, following)
            for part, content in zip(parts, found, strict=True):
                if len(content) != min(CHUNK, length - part * CHUNK):
                    raise CheckpointDamaged(
                        f"part {part} of file {file} has {len(content)} bytes: it was not written so"
                    )
                yield content[max(start - part * CHUNK, 0) : stop - part * CHUNK]
            found = () if ahead is None else ahead.result()


def _window(content: Readable) -> list[bytes]:
    """Return the next chunks, at most WINDOW; a socket may return fewer bytes than it is asked for."""
    window: list[bytes] = []
    while len(window) < WINDOW and (chunk := _chunk(content)):
        window.append(chunk)
        if len(chunk) < CHUNK:
            break
    return window


def _chunk(content: Readable) -> bytes:
    found = content.read(CHUNK)
    while found and len(found) < CHUNK and (more := content.read(CHUNK - len(found))):
        found += more
    return found
