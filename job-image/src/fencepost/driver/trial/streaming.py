"""A trial of a stateful pipeline: the new query continues from a snapshot, on a fence and files of its own.

Fence and files are in a SQLite file of the scratch volume.  What the snapshot reaches is read where the pipeline
stores it, and nothing is written there.  The run ends where the trial does, as one that finishes a batch.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from fencepost.contract import DriverConfig
from fencepost.driver.ports import Records, TimedLog
from fencepost.driver.reporting.commit_report import Report
from fencepost.driver.stateful import checkpoint_service
from fencepost.driver.stateful.run import Query, StatefulRun
from fencepost.driver.trial.trying import Poison
from fencepost.errors import BadSpec
from fencepost.fence import Fence, FenceRow
from fencepost.fence.sqlite import table
from fencepost.fence.sqlite.database import Database
from fencepost.state import sqlite as state_tables
from fencepost.state.chunks import ChunkStore
from fencepost.state.errors import ChunkMissing

if TYPE_CHECKING:
    from fencepost.fence.snapshots import Snapshot
    from fencepost.sinks.comparison.findings import Findings
    from fencepost.state.webhdfs.authentication import Keys

OWNER: Final = "trial"


@dataclass(frozen=True, slots=True)
class LayeredChunks:
    """Chunks of the trial's own, and below them those of the pipeline, which are only read."""

    own: ChunkStore
    below: ChunkStore

    def write(self, file: UUID, parts: Mapping[int, bytes]) -> None:
        """Store these parts in the trial's own store."""
        self.own.write(file, parts)

    def read(self, file: UUID, parts: range) -> Sequence[bytes]:
        """Return these parts, in their order. Raises ChunkMissing."""
        with suppress(ChunkMissing):
            return self.own.read(file, parts)
        return self.below.read(file, parts)

    def incomplete(self, files: Mapping[UUID, int]) -> frozenset[UUID]:
        """Return the files that lack a part in both."""
        lacking = self.own.incomplete(files)
        return self.below.incomplete({file: files[file] for file in lacking}) if lacking else lacking

    def delete(self, files: Collection[UUID]) -> None:
        """Delete files of the trial."""
        self.own.delete(files)


@dataclass(slots=True, kw_only=True)
class Streaming:
    """One trial. It shows what `Trying` and `Reading` show: `note` is why it ended early, '' where it read everything.

    `start` and `until` map 'topic/partition' to offsets; `seconds` is the time that is left.
    """

    config: DriverConfig
    snapshot: Snapshot
    start: Mapping[str, int]
    until: Mapping[str, int]
    query: Query
    source: TimedLog
    records: Records
    chunks: ChunkStore
    keys: Keys
    findings: Findings
    folder: Path
    scratch: Path
    seconds: float
    report: Callable[[int], None]
    note: str = ""
    poison: Poison = field(default_factory=Poison)
    _batches: int = 0
    _failure: BaseException | None = None
    _offsets: Mapping[str, int] = field(default_factory=dict)

    def run(self) -> None:
        """Try everything that there is. Raises DriverError where the code, its state or a dependency fails."""
        if self.snapshot.checkpoint is None:
            raise BadSpec(
                f"snapshot {self.snapshot.id} has no state",
                remedy="Name another one that `fencepost snapshots list` has.",
            )
        database = Database(str(self.scratch / "trial.db"), table.SCHEMA + state_tables.SCHEMA)
        rows = table.SqliteFenceTable(database)
        fence = Fence(rows, self.config.pipeline, patience=self.config.patience)
        created = fence.create(OWNER)
        row = self._beginning(created)
        rows.swap(created, row)
        stop = threading.Event()
        run = StatefulRun(
            config=replace(self.config, epoch=row.epoch, owner=OWNER, finish_until=self.until),
            driver=OWNER,
            fence=fence,
            source=self.source,
            records=self.records,
            query=self.query,
            serve=partial(checkpoint_service.serve, self.config, self.keys, host=None),
            chunks=LayeredChunks(state_tables.SqliteChunks(database, self.config.pipeline), self.chunks),
            index=state_tables.SqliteFileIndex(database, self.config.pipeline),
            snapshots=lambda: (),
            stop=stop,
            report=partial(self._committed, fence),
            end=self._ended,
        )
        timer = threading.Timer(self.seconds, stop.set)
        timer.daemon = True
        timer.start()
        try:
            run.run()
        finally:
            timer.cancel()
        if self._failure is not None:
            raise self._failure
        for batch in range(1, self._batches + 1):
            self.findings.take(self._kept / str(batch), batch)
            shutil.rmtree(self._kept / str(batch), ignore_errors=True)
        self._note_offsets(fence)
        if self.done < sum(end - self.start.get(key, 0) for key, end in self.until.items()):
            self.note = "the trial reached limits.maxDuration"

    def _beginning(self, created: FenceRow) -> FenceRow:
        """Return the row of a pipeline that is where the snapshot is: unclaimed, with its state."""
        found = self.snapshot
        return replace(
            created,
            epoch=created.epoch + 1,
            version=created.version + 1,
            offsets=dict(self.start),
            planned=dict(self.start),
            topic_ids=found.topic_ids,
            leader_epochs={key: at for key, at in found.leader_epochs.items() if key in self.start},
            growth_barrier=found.growth_barrier,
            checkpoint=found.checkpoint,
        )

    @property
    def _kept(self) -> Path:
        return self.scratch / "batches"

    @property
    def done(self) -> int:
        """How many offsets are read."""
        return sum(at - first for _, (first, at) in self.ranges())

    def ranges(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield what is read, 'topic/partition' and [start, until)."""
        for key, at in sorted(self._offsets.items()):
            first = self.start.get(key, 0)
            if key in self.until and at > first:
                yield key, (first, at)

    def _committed(self, fence: Fence, _report: Report) -> None:
        """Set aside what the tasks of the batch found, which nothing repeats any more; another thread takes it."""
        self._batches += 1
        for found in self.folder.iterdir() if self.folder.is_dir() else ():
            self._kept.mkdir(exist_ok=True)
            found.rename(self._kept / str(self._batches))
        self._note_offsets(fence)
        self.report(self.done)

    def _note_offsets(self, fence: Fence) -> None:
        row = fence.read()
        self._offsets = dict(row.offsets) if row is not None else {}

    def _ended(self, error: BaseException) -> None:
        self._failure = self._failure or error
