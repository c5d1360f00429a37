"""Which records of a failing batch fail alone: the strategy, as pure functions over ranges of offsets.

A batch that failed is cut in two by (topic, partition, offset), and each piece is tried; one that fails is cut again.
The pieces follow one another, so that each one that passes can be committed before the next one is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from fencepost.batch import Range, Watermarks

Piece = tuple[Range, ...]
"""What one attempt reads."""

WITNESSES = 8
"""Other records that are tried beside one that fails alone, until one of them passes."""
WINDOW = 100
"""Offsets in which a record is looked for: compaction and transactions leave offsets without one."""


class Bisection:
    """The pieces of one failed batch that are still to be tried, in order.

    Of n records of which k fail alone, at most 2 + 2·k·⌈log2 n⌉ pieces are tried.
    """

    def __init__(self, failed: Piece) -> None:
        self._pieces = list(reversed(halves(failed) if size(failed) > 1 else (failed,)))

    @property
    def piece(self) -> Piece | None:
        """What to try next; None at the end of the batch."""
        return self._pieces[-1] if self._pieces else None

    def done(self) -> None:
        """Continue after the piece: it is committed."""
        self._pieces.pop()

    def failed(self) -> Range | None:
        """Cut the piece in two; return the one offset that it is when it cannot be cut."""
        piece = self._pieces[-1]
        if size(piece) == 1:
            return piece[0]
        self._pieces[-1:] = reversed(halves(piece))
        return None


def size(piece: Piece) -> int:
    """Return the number of offsets."""
    return sum(part.records for part in piece)


def halves(piece: Piece) -> tuple[Piece, Piece]:
    """Cut a piece of two offsets or more: everything in the first half comes before everything in the second."""
    left = size(piece) // 2
    first: list[Range] = []
    second: list[Range] = []
    for part in sorted(piece):
        cut = part.start + min(left, part.records)
        left -= cut - part.start
        if cut > part.start:
            first.append(replace(part, until=cut))
        if cut < part.until:
            second.append(part.after(cut))
    return tuple(first), tuple(second)


def witnesses(suspect: Range, batch: Sequence[Range], log: Watermarks) -> Iterator[Range]:
    """Yield where to look for other records, WITNESSES places at most: in the batch, after it, then before it.

    What is before the batch is committed: it passed, but perhaps with other code.
    """
    return islice(_windows(suspect, batch, log), WITNESSES)


def following(batch: Sequence[Range], log: Watermarks) -> Iterator[Piece]:
    """Yield what comes after a batch, WITNESSES stretches of its size at most."""
    for number in range(WITNESSES):
        found = [
            part.beside(start, min(start + part.records, log.ends.get(part.key, 0)))
            for part in batch
            if (start := part.until + number * part.records) < log.ends.get(part.key, 0)
        ]
        if not found:
            return
        yield tuple(found)


def _windows(suspect: Range, batch: Sequence[Range], log: Watermarks) -> Iterator[Range]:
    for part in sorted(batch, key=lambda part: part.key == suspect.key):
        if part.key != suspect.key:
            yield from _two(part, part.start, part.until)
        else:
            yield from _two(part, part.start, suspect.start)
            yield from _two(part, suspect.until, part.until)
    for part in sorted(batch, key=lambda part: part.key != suspect.key):
        yield from _two(part, max(part.until, suspect.until), log.ends.get(part.key, 0))
        begin = log.begins.get(part.key, part.start)
        yield from _two(part, max(begin, part.start - WINDOW), part.start)


def _two(part: Range, start: int, until: int) -> Iterator[Range]:
    """Yield the window at the start of a stretch of offsets, and the one in its middle."""
    for begin in dict.fromkeys((start, start + max(0, until - start) // 2)):
        if begin < until:
            yield part.beside(begin, min(until, begin + WINDOW))
