"""The rows of the sink's table by the code that wrote them: another code has other keys, and replaces none of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from fencepost.contract import split_offset_key
from fencepost_operator.api import MixedOutput

NO_END: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Written:
    """Rows of offsets [start, until), as a batch wrote or committed them."""

    start: int
    until: int
    timestamp: int
    epoch: int
    driver: str
    code: str
    """With the revision of its spec, which does not decide what a row looks like."""

    @property
    def shape(self) -> str:
        """Return what decides which keys the rows have."""
        return self.code.rpartition(" ")[0]


@dataclass(frozen=True, slots=True)
class Deletion:
    """Rows of offsets [start, until) up to a timestamp do not count, also those that a zombie writes later."""

    start: int
    until: int
    timestamp: int


@dataclass(slots=True)
class RowsByCode:
    """What is in the table by partition, and of which ranges a status has said that two codes may have written them."""

    pieces: dict[str, list[Written]] = field(default_factory=dict)
    deletions: dict[str, list[Deletion]] = field(default_factory=dict)
    recorded: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    begins_at: dict[str | None, int] = field(default_factory=dict)
    """By topic, None for all of them: rows up to that timestamp are of a table that was given up."""
    mixed: int = 0
    """How often rows came to those of another code."""

    def write(self, key: str, piece: Written) -> Iterator[str]:
        """Write rows; yield what now has rows of two codes without a record of it."""
        for rows in self._left(key, piece):
            for other in self.pieces.get(key, ()):
                start, until = max(rows.start, other.start), min(rows.until, other.until)
                if other.shape != rows.shape and start < until:
                    self.mixed += 1
                    if not self._is_recorded(key, start, until):
                        yield f"{key} [{start}, {until}) has rows of {other.shape} and of {rows.shape}"
            self._put(key, rows)

    def record(self, entries: Iterable[MixedOutput]) -> None:
        """Note what a status names."""
        for entry in entries:
            for each in entry.ranges:
                known, named = self.recorded.setdefault(each.partition, []), (each.from_offset, each.until_offset)
                if named not in known:
                    known.append(named)

    def delete(self, ranges: Mapping[str, tuple[int, int]], timestamp: int) -> None:
        """Take out of account what was written up to a timestamp: a purge, or a rewind that keeps its rows."""
        for key, (start, until) in ranges.items():
            deletion = Deletion(start, until, timestamp)
            self.deletions.setdefault(key, []).append(deletion)
            left = [part for piece in self.pieces.get(key, ()) for part in _without(piece, deletion)]
            self.pieces[key] = left

    def begin_again(self, timestamp: int, topic: str | None = None) -> None:
        """Forget what was written up to a timestamp of a topic that was recreated, or of a pipeline that is gone."""
        self.begins_at[topic] = timestamp
        for found in (self.pieces, self.deletions, self.recorded):
            for key in [key for key in found if topic in {None, split_offset_key(key)[0]}]:
                del found[key]

    def _left(self, key: str, piece: Written) -> list[Written]:
        """Return what a reader sees of rows that are written now."""
        since = max(self.begins_at.get(None, 0), self.begins_at.get(split_offset_key(key)[0], 0))
        left = [piece] if piece.timestamp > since else []
        for deletion in self.deletions.get(key, ()):
            left = [part for rows in left for part in _without(rows, deletion)]
        return left

    def _put(self, key: str, rows: Written) -> None:
        """Add rows; those that continue the last ones of the same driver are one piece with them."""
        pieces = self.pieces.setdefault(key, [])
        last = pieces[-1] if pieces else None
        if last is not None and last.driver == rows.driver and last.start <= rows.start <= last.until:
            pieces[-1] = replace(last, until=max(last.until, rows.until), timestamp=rows.timestamp)
        else:
            pieces.append(rows)

    def _is_recorded(self, key: str, start: int, until: int) -> bool:
        return any(first <= start and until <= end for first, end in self.recorded.get(key, ()))


def _without(piece: Written, deletion: Deletion) -> Iterator[Written]:
    """Yield what a deletion leaves of a piece."""
    if piece.timestamp > deletion.timestamp or deletion.until <= piece.start or piece.until <= deletion.start:
        yield piece
        return
    if piece.start < deletion.start:
        yield replace(piece, until=deletion.start)
    if deletion.until < piece.until:
        yield replace(piece, start=deletion.until)
