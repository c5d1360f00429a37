"""Chunks and file index in memory: the test doubles of `fencepost.state.cassandra`, held to the same contract suite.

Faults are injected per call, as in `fencepost.fence.memory`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from fencepost.fence.memory import no_fault
from fencepost.state.errors import ChunkMissing
from fencepost.state.file_ids import FileRange


@dataclass(slots=True)
class MemoryChunks:
    """Chunks in a dict. `before` and `after` see each call's name and may raise."""

    chunks: dict[tuple[UUID, int], bytes] = field(default_factory=dict)
    deleted: set[UUID] = field(default_factory=set)
    before: Callable[[str], None] = no_fault
    after: Callable[[str], None] = no_fault
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def files(self) -> frozenset[UUID]:
        """The files that have chunks."""
        with self._lock:
            return frozenset(file for file, _ in self.chunks)

    def write(self, file: UUID, parts: Mapping[int, bytes]) -> None:
        """Store parts, unless the file was deleted."""
        self.before("write")
        with self._lock:
            if file not in self.deleted:
                self.chunks |= {(file, part): bytes(content) for part, content in parts.items()}
        self.after("write")

    def read(self, file: UUID, parts: range) -> Sequence[bytes]:
        """Return parts in their order."""
        self.before("read_chunks")
        with self._lock:
            found = [self.chunks.get((file, part)) for part in parts]
        self.after("read_chunks")
        there = [content for content in found if content is not None]
        if len(there) < len(parts):
            raise ChunkMissing(f"file {file} lacks some of the parts {parts.start} to {parts.stop - 1}")
        return there

    def incomplete(self, files: Mapping[UUID, int]) -> frozenset[UUID]:
        """Return the files that lack a part."""
        self.before("incomplete")
        with self._lock:
            parts = set(self.chunks)
        self.after("incomplete")
        return frozenset(file for file, count in files.items() if not parts.issuperset((file, n) for n in range(count)))

    def delete(self, files: Collection[UUID]) -> None:
        """Delete files for good."""
        self.before("delete")
        with self._lock:
            self.deleted |= set(files)
            self.chunks = {key: content for key, content in self.chunks.items() if key[0] not in files}
        self.after("delete")


@dataclass(slots=True)
class MemoryFileIndex:
    """Ranges in a dict. `before` and `after` see each call's name and may raise."""

    rows: dict[UUID, FileRange] = field(default_factory=dict)
    before: Callable[[str], None] = no_fault
    after: Callable[[str], None] = no_fault
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, found: FileRange) -> None:
        """Store a range."""
        self.before("add_range")
        with self._lock:
            self.rows[found.first] = found
        self.after("add_range")

    def ranges(self) -> Sequence[FileRange]:
        """Return all ranges."""
        self.before("ranges")
        with self._lock:
            found = list(self.rows.values())
        self.after("ranges")
        return found

    def leave(self, found: FileRange) -> None:
        """Store what is left of a range, or delete it."""
        self.before("leave_range")
        with self._lock:
            if found.numbers:
                self.rows[found.first] = found
            else:
                self.rows.pop(found.first, None)
        self.after("leave_range")
