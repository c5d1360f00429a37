"""Deletes the chunks of files that nothing reaches any more.

A file is reached by the fence row, by a snapshot, or by the process that serves the newest epoch: its directory, its
uploads, and a commit whose outcome is open.  A file that stays unreached for `grace` seconds is never reached again:

- the index is read first and the fence row last, and this driver still holds the row.  So a successor takes its ids
  from ranges that were not in the index, and starts from what this row reaches or from a snapshot;
- a snapshot is a copy of a row that was read less than `grace` seconds before; the ones in flight are settled by the
  read of the snapshots.

So a collector that is frozen, and deletes hours after its driver was replaced, deletes nothing that is reached.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from fencepost.fence import Fence, Fenced, FenceRow
from fencepost.fence.snapshots import WRITTEN_WITHIN
from fencepost.state.chunks import ChunkStore
from fencepost.state.errors import ChunkMissing
from fencepost.state.fence_committer import reached_by
from fencepost.state.file_ids import FileIndex, FileRange

log = logging.getLogger(__name__)

GRACE: Final = 3 * WRITTEN_WITHIN
"""Seconds that a file is unreached before it is deleted; a snapshot takes less from its read to its write."""
AT_ONCE: Final = 256
"""Files of one deletion."""


class Collector:
    """Collects for the driver of `row`. One thread at a time.

    `serving` returns the files that this process and its row reach, and ids that are not given out yet, `snapshots` the
    checkpoints of all snapshots.  `grace` is in seconds of `monotonic`; the process must see a file unreached for that
    long.
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
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fence = fence
        self._epoch, self._driver = row.epoch, row.driver
        self._chunks = chunks
        self._index = index
        self._serving = serving
        self._snapshots = snapshots
        self._grace = grace
        self._monotonic = monotonic
        self._unreached_since: dict[UUID, float] = {}
        self._known: dict[bytes, frozenset[UUID]] = {}

    def collect(self) -> int:
        """Delete what has been unreached for long enough, and return how many files that were at most.

        Raises Fenced once the epoch is over, FenceError, CheckpointDamaged for a snapshot that cannot be understood:
        then nothing is deleted before all is read.
        """
        ranges = self._index.ranges()
        began = self._monotonic()
        unreached = {file for found in ranges for file in found.ids} - self._reached()
        seen = self._monotonic()
        self._unreached_since = {file: self._unreached_since.get(file, seen) for file in unreached}
        due = {file for file, since in self._unreached_since.items() if began - since >= self._grace}
        for found in ranges:
            for file in _delete(found, due, self._chunks, self._index):
                del self._unreached_since[file]
        return len(due)

    def _reached(self) -> set[UUID]:
        """Return all that is reached; the fence row is read after everything else. Raises Fenced."""
        serving = self._serving()
        checkpoints = set(self._snapshots())
        self._known = {each: self._known.get(each) or self._reached_by(each) for each in checkpoints}
        row = self._fence.read()
        if row is None or (row.epoch, row.driver) != (self._epoch, self._driver):
            raise Fenced(f"epoch {self._epoch} is over: its files are collected by a later one", seen=row)
        return set(serving).union(*self._known.values())

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
        _delete(found, found.ids, chunks, index)


def _delete(found: FileRange, due: Container[UUID], chunks: ChunkStore, index: FileIndex) -> Sequence[UUID]:
    """Delete the due files of a range, and return them; the index forgets them once they are gone."""
    ids = found.ids
    going = [file for file in ids if file in due]
    for start in range(0, len(going), AT_ONCE):
        chunks.delete(going[start : start + AT_ONCE])
    if going:
        index.leave(replace(found, left=frozenset(ids.values()) - {ids[file] for file in going}))
    return going
