"""Ids of files, and the index of all files of a pipeline: a record for each RANGE ids, before the first one is used.

A file whose upload is cut is in no tree.  Without the index only a scan of the whole table would find its chunks; a
record per file would cost each batch a write, and later a deletion, per file.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from fencepost.fence.patience import Patience

RANGE: Final = 1024
"""Ids of one range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRange:
    """The ids from `first`; `left` are the numbers that are not collected yet."""

    first: UUID
    left: frozenset[int] | None = None
    """None: all of them."""

    @property
    def ids(self) -> dict[UUID, int]:
        """The number of each id that is not collected."""
        numbers = range(RANGE) if self.left is None else sorted(self.left)
        return {UUID(int=self.first.int + number): number for number in numbers}


class FileIndex(Protocol):
    """The ranges of one pipeline. Every method may raise FenceError, and may then be repeated."""

    def add(self, found: FileRange) -> None:
        """Store a range; it is durable when this returns."""
        ...

    def ranges(self) -> Sequence[FileRange]:
        """Return all ranges, in any order."""
        ...

    def leave(self, found: FileRange) -> None:
        """Store what is left of a range; without anything left it is deleted."""
        ...


class FileIds:
    """New ids for one process. From any thread.

    The first id of a range is random in 118 bits, so that two processes never use the same one.
    """

    def __init__(self, index: FileIndex, patience: Patience, *, random: Callable[[], UUID] = uuid.uuid4) -> None:
        self._index = index
        self._patience = patience
        self._random = random
        self._next: UUID | None = None
        self._lock = threading.Lock()

    @property
    def unused(self) -> frozenset[UUID]:
        """The ids of stored ranges that are still to be given out."""
        with self._lock:
            first = self._next
        return frozenset() if first is None else frozenset(map(_id, range(first.int, _end(first))))

    def next(self) -> UUID:
        """Return an id that no file has or had. Raises FenceError when a new range cannot be stored."""
        return self._patience.ask(self._following)

    def _following(self) -> UUID:
        # The lock is free during a pause: each thread has a patience of its own.
        with self._lock:
            following = self._next or self._new_range()
            after = following.int + 1
            self._next = UUID(int=after) if after < _end(following) else None
            return following

    def _new_range(self) -> UUID:
        first = UUID(int=self._random().int // RANGE * RANGE)
        self._index.add(FileRange(first=first))
        return first


def _id(number: int) -> UUID:
    return UUID(int=number)


def _end(id: UUID) -> int:  # noqa: A002 - what it is
    """Return the number after the last id of a range."""
    return (id.int // RANGE + 1) * RANGE
