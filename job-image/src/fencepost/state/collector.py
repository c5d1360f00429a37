"""Deletes the chunks of files that nothing reaches any more.

A file is reached by the fence row, by a snapshot, or by the process that serves the newest epoch: its directory, its
uploads, and a commit whose outcome is open.  A file that stays unreached for `grace` seconds is never reached again:

- the index is read first and the fence row last, and this driver still holds the row.  So a successor takes its ids
  from ranges that were not in the index, and starts from what this row reaches or from a snapshot;
- a snapshot is a copy of a row that was read less than `grace` seconds before; the ones in flight are settled by the
  read of the snapshots.

So a collector that is frozen, and deletes hours after its driver was replaced, deletes nothing that is reached.

Since when a file is unreached is in the index: where runs are shorter than the grace period, the next one continues.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from fencepost.fence import Fence, Fenced, FenceRow
from fencepost.fence.snapshots import WRITTEN_WITHIN
from fencepost.state.chunks import ChunkStore
from fencepost.state.errors import ChunkMissing
from fencepost.state.fence_committer import reached_by
from fencepost.state.file_ids import FileIndex, FileRange, FileSet

log = logging.getLogger(__name__)

GRACE: Final = 3 * WRITTEN_WITHIN
"""Seconds that a file is unreached before it is deleted: a snapshot takes a third from its read to its write, and the
clocks of Cassandra's nodes differ by less than the rest."""
AT_ONCE: Final = 256
"""Files of one deletion."""
KEPT_OF_GONE: Final = 8
"""One snapshot in so many may be gone and its files still kept: to forget them, the lists of all others are read."""


class Collector:
    """Collects for the driver of `row`. One thread at a time.

    `serving` returns the files that this process and its row reach, and ids that are not given out yet, `snapshots` the
    checkpoints of all snapshots.  `grace` is in seconds of the database's time.  Nothing has left the directory yet.
    """

    def __init__(
        self,
        fence: Fence,
        row: FenceRow,
        *,
        chunks: ChunkStore,
        index: FileIndex,
        serving: Callable[[], Collection[UUID]],
        snapshots: Callable[[], Iterable[bytes]],
        grace: float = GRACE,
    ) -> None:
        self._fence = fence
        self._epoch, self._driver = row.epoch, row.driver
        self._chunks = chunks
        self._index = index
        self._serving = serving
        self._snapshots = snapshots
        self._grace = round(grace * 1e6)
        self._known: set[bytes] = set()
        self._of_snapshots = FileSet()
        self._inherited = FileSet(serving())

    def collect(self) -> int:
        """Delete what has been unreached for long enough, and return how many files that were at most.

        Raises Fenced once the epoch is over, FenceError, CheckpointDamaged for a snapshot that cannot be understood:
        then nothing is deleted before all is read.
        """
        began = self._fence.server_time()
        ranges = self._index.ranges()
        serving = FileSet(self._serving())
        self._read_snapshots()
        self._check_held()
        seen = self._fence.server_time()
        count = 0
        for found in ranges:
            unreached = serving.missing(found) & self._of_snapshots.missing(found)
            # What this driver has started with was reached at its claim, whatever the index says: after a rewind.
            before = self._inherited.missing(found)
            since = {number: found.unreached.get(number, seen) if number in before else seen for number in unreached}
            due = [number for number in unreached if began - since[number] >= self._grace]
            if due or since != found.unreached:
                _leave(replace(found, unreached=since), due, self._chunks, self._index)
            count += len(due)
        self._inherited = FileSet()
        return count

    def _read_snapshots(self) -> None:
        """Know what every snapshot reaches."""
        there = self._learn()
        if (len(self._known) - len(there)) * KEPT_OF_GONE >= max(len(self._known), 1):
            self._known, self._of_snapshots = set(), FileSet()
            self._learn()

    def _learn(self) -> set[bytes]:
        """Read the lists of new snapshots, and return the digests of all that are there."""
        there = set()
        for checkpoint in self._snapshots():
            digest = hashlib.sha256(checkpoint).digest()
            there.add(digest)
            if digest not in self._known:
                self._of_snapshots.add(self._reached_by(checkpoint))
                self._known.add(digest)
        return there

    def _check_held(self) -> None:
        """Read the fence row, after everything else. Raises Fenced."""
        row = self._fence.read()
        if row is None or (row.epoch, row.driver) != (self._epoch, self._driver):
            raise Fenced(f"epoch {self._epoch} is over: its files are collected by a later one", seen=row)

    def _reached_by(self, checkpoint: bytes) -> frozenset[UUID]:
        """Return what a snapshot reaches; nothing where its list of files is gone, and so its state.

        To keep all files for as long as that snapshot is there would save nothing, and grow the state without bound.
        """
        try:
            return reached_by(checkpoint, self._chunks)
        except ChunkMissing as error:
            log.warning("the state of a snapshot is lost, so its files are not kept; delete the snapshot: %s", error)
            return frozenset()


def forget(chunks: ChunkStore, index: FileIndex) -> None:
    """Delete all files of a pipeline that is deleted; done again, it continues. Raises FenceError."""
    for found in index.ranges():
        _leave(found, sorted(found.numbers), chunks, index)


def _leave(found: FileRange, due: Sequence[int], chunks: ChunkStore, index: FileIndex) -> None:
    """Delete the due files of a range; the index forgets them once they are gone."""
    ids = found.ids(due)
    for start in range(0, len(ids), AT_ONCE):
        chunks.delete(ids[start : start + AT_ONCE])
    gone = frozenset(due)
    since = {number: at for number, at in found.unreached.items() if number not in gone}
    index.leave(replace(found, left=found.numbers - gone if gone else found.left, unreached=since))
