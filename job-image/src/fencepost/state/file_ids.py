"""Ids of files, and the index of all files of a pipeline: a record for each RANGE ids, before the first one is used.

A file whose upload is cut is in no tree.  Without the index only a scan of the whole table would find its chunks; a
record per file would cost each batch a write, and later a deletion, per file.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    unreached: Mapping[int, int] = field(default_factory=dict)
    """Since when each of these numbers is known as unreached, in µs of the database's time."""

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers that are not collected."""
        return frozenset(range(RANGE)) if self.left is None else self.left

    def ids(self, numbers: Iterable[int]) -> list[UUID]:
        """Return the ids with these numbers."""
        return [UUID(int=self.first.int + number) for number in numbers]


class FileSet:
    """A set of ids as a bit each, by range: those that many snapshots reach."""

    def __init__(self, ids: Iterable[UUID] = ()) -> None:
        self._bits: dict[int, int] = {}
        self.add(ids)

    def add(self, ids: Iterable[UUID]) -> None:
        """Add ids."""
        for file in ids:
            number, bit = divmod(file.int, RANGE)
            self._bits[number] = self._bits.get(number, 0) | 1 << bit

    def missing(self, found: FileRange) -> frozenset[int]:
        """Return the numbers of a range, as far as they are not collected, whose ids are not in the set."""
        bits = self._bits.get(found.first.int // RANGE, 0)
        return frozenset(number for number in found.numbers if not bits >> number & 1)


class FileIndex(Protocol):
    """The ranges of one pipeline. Every method may raise FenceError, and may then be repeated."""

    def add(self, found: FileRange) -> None:
        """Store a range; it is durable when this returns."""
        ...

    def ranges(self) -> Sequence[FileRange]:
        """Return all ranges, in any order."""
        ...

    def leave(self, found: FileRange) -> None:
        """Store what is left of a range, and what of it is unreached; without anything left it is deleted."""
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
