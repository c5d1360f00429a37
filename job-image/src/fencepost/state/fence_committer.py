"""The checkpoint's plans and commits as changes of the fence row, and a checkpoint that is rebuilt from the row."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol
from uuid import UUID

from fencepost.batch import EventTime
from fencepost.fence import Fence, FenceRow
from fencepost.fence.figures import Figure
from fencepost.state.checkpoint import METADATA, Checkpoint
from fencepost.state.chunks import ChunkStore, read_file, write_file
from fencepost.state.directory import Directory, LogFile
from fencepost.state.errors import CheckpointDamaged, PathInvalid
from fencepost.state.file_ids import FileIds
from fencepost.state.progress import Committed, Planned, committed, unpack_committed, unpack_planned
from fencepost.state.tree import LARGEST, StoredFile, Tree, unpack

_TEMPORARY: Final = re.compile(r"(?:.*/)?\.[^/]+\.tmp")
"""How Spark names a file that it renames once it is complete: CheckpointFileManager.generateTempPath."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """What a plan records of the offsets; see `Fence.plan`."""

    offsets: Mapping[str, int]
    planned: Mapping[str, int]
    growth_barrier: Mapping[str, int] | None = None
    log_ends: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBatch:
    """What a commit records of the batch; see `Fence.commit`."""

    records: int
    duration_ms: int
    leader_epochs: Mapping[str, int] | None = None
    epoch_starts: Mapping[str, int] | None = None
    log_ends: Mapping[str, int] | None = None
    event_time: EventTime | None = None
    record_times: Mapping[str, int] | None = None
    figures: Mapping[str, int] = field(default_factory=dict)


class BatchFacts(Protocol):
    """What the driver knows of a batch and Spark's logs do not say."""

    def planned(self, offset_log: str, row: FenceRow) -> PlannedBatch:
        """Return the ranges of the batch that this offset log describes, planned on this row."""
        ...

    def written(self, batch: int) -> WrittenBatch:
        """Return what is known of the batch, which is written."""
        ...

    def committed(self, row: FenceRow) -> None:
        """The batch is committed; `row` is the fence row after that. Returns at once."""
        ...

    def logged(self, offset_log: str, offsets: Mapping[str, int]) -> str:
        """Return the offset log with these offsets as the end of its batch: 'topic/partition' to the next offset."""
        ...


class FenceCommitter:
    """The fence of one epoch, from the row that its driver claimed. One plan or commit at a time.

    `chunks` are patient: a store that does not answer has been asked for long enough.
    """

    def __init__(
        self,
        fence: Fence,
        row: FenceRow,
        tree: Tree,
        *,
        facts: BatchFacts,
        chunks: ChunkStore,
        ids: FileIds,
    ) -> None:
        self._fence = fence
        self._facts = facts
        self._chunks = chunks
        self._ids = ids
        self._row = row
        self._committed = unpack_committed(row.checkpoint)
        self._planned = unpack_planned(row.planned_log)
        self._due: tuple[PlannedBatch, bytes] | None = None
        """What `begin` records of the batch whose offsets have appeared."""
        self._fits = self._committed is None
        """Whether Spark has compared its query with the state; an empty state fits every query."""
        self._check_order()
        self._reached = _reached(self._committed, tree)
        self._reaching: frozenset[UUID] = frozenset()
        self.size = tree.size
        """Bytes of the files of the committed state."""

    @property
    def row(self) -> FenceRow:
        """The fence row as last changed by this process."""
        return self._row

    @property
    def coming(self) -> FenceRow:
        """The row once the batch whose offsets have appeared is planned."""
        if self._due is None:
            return self._row
        facts, log = self._due
        barrier = self._row.growth_barrier if facts.growth_barrier is None else facts.growth_barrier
        return replace(self._row, offsets=facts.offsets, planned=facts.planned, growth_barrier=barrier, planned_log=log)

    @property
    def reached(self) -> frozenset[UUID]:
        """The files that the row reaches, or may reach: a commit may be applied before its answer is here."""
        return self._reached | self._reaching

    def plan(self, batch: int, *, metadata: bytes, offset_log: bytes) -> None:
        """Record the batch as planned; the first one on a state that was found waits for `begin`.

        Raises FenceError, PathInvalid for another batch than the following one.
        """
        if self._planned is not None or batch != self._following:
            raise PathInvalid(f"batch {batch} cannot be planned: {self._expected()}")
        planned = Planned(batch=batch, metadata=_text(metadata), offset_log=_text(offset_log))
        self._due = self._facts.planned(planned.offset_log, self._row), planned.pack()
        self._planned = planned
        if self._fits:
            self.begin()

    def begin(self) -> None:
        """Record what is due as planned: Spark's query fits the state. Raises FenceError."""
        self._fits = True
        if self._due is None:
            return
        facts, log = self._due
        self._row = self._fence.plan(
            self._row,
            offsets=facts.offsets,
            planned=facts.planned,
            growth_barrier=facts.growth_barrier,
            log_ends=facts.log_ends,
            planned_log=log,
        )
        self._due = None

    def commit(self, batch: int, *, commit_log: bytes, tree: Tree) -> None:
        """Commit the planned batch together with its state. Raises FenceError, PathInvalid for another batch."""
        planned = self._planned
        if planned is None or self._due is not None or batch != planned.batch:
            raise PathInvalid(f"batch {batch} cannot be committed: {self._expected()}")
        self._reaching = tree.ids
        file = self._store(tree)
        after = committed(self._committed, planned, commit_log=_text(commit_log), tree=file)
        facts = self._facts.written(batch)
        self._row = self._fence.commit(
            self._row,
            offsets=self._row.planned,
            planned=self._row.planned,
            records=facts.records,
            duration_ms=facts.duration_ms,
            leader_epochs=facts.leader_epochs,
            epoch_starts=facts.epoch_starts,
            log_ends=facts.log_ends,
            event_time=facts.event_time,
            record_times=facts.record_times,
            checkpoint=after.pack(),
            state_bytes=tree.size,
            figures={**facts.figures, Figure.STATE_CHUNKS.value: tree.chunks},
        )
        self._committed, self._planned, self.size = after, None, tree.size
        self._reached, self._reaching = self._reaching, frozenset()
        self._facts.committed(self._row)

    @property
    def _following(self) -> int:
        return 0 if self._committed is None else self._committed.batch + 1

    def _expected(self) -> str:
        step = "planned" if self._planned is None else "committed" if self._due is None else "begun"
        return f"batch {self._following} is to be {step} next"

    def _check_order(self) -> None:
        if self._planned is not None and self._planned.batch != self._following:
            raise CheckpointDamaged(f"the fence row has batch {self._planned.batch} planned, and {self._expected()}")

    def _store(self, tree: Tree) -> StoredFile:
        packed = tree.pack()
        id = self._ids.next()  # noqa: A001 - the file's
        self._reaching |= {id}
        write_file(self._chunks, id, io.BytesIO(packed), limit=LARGEST)
        return StoredFile(id, len(packed))


def reopened(
    fence: Fence,
    row: FenceRow,
    *,
    facts: BatchFacts,
    chunks: ChunkStore,
    ids: FileIds,
    now: Callable[[], int],
    ended: Callable[[BaseException], object],
) -> tuple[Checkpoint, FenceCommitter]:
    """Return the checkpoint of the epoch that this driver claimed, as the row has it.

    Files that the row's tree does not name are not in it, nor are temporary ones: their writers are of an older epoch.
    Where the claim has moved the offsets, past what was accepted as lost or back to the start of another topic, the
    offset logs move too: the row says where a batch begins and ends.
    `chunks` are patient.
    Raises FenceError, CheckpointDamaged.
    """
    done, planned = unpack_committed(row.checkpoint), unpack_planned(row.planned_log)
    tree = Tree() if done is None else tree_of(done, chunks)
    committer = FenceCommitter(fence, row, tree, facts=facts, chunks=chunks, ids=ids)
    directory = _without_temporary(tree)
    for path, log in _logs(done, planned, row, facts):
        directory.put(path, LogFile(log.encode(), max(now(), directory.newest)))
    return Checkpoint(directory, ids, committer, now=now, ended=ended), committer


def directory_of(done: Committed, chunks: ChunkStore) -> Directory:
    """Return the directory of a row or a snapshot, without what is planned. Raises FenceError, CheckpointDamaged."""
    directory = _without_temporary(tree_of(done, chunks))
    for path, log in (*_committed_logs(done, done.offset_logs), (METADATA, done.metadata)):
        directory.put(path, LogFile(log.encode(), directory.newest))
    return directory


def reached_by(checkpoint: bytes, chunks: ChunkStore) -> frozenset[UUID]:
    """Return the files that a row or a snapshot with this checkpoint needs. Raises FenceError, CheckpointDamaged."""
    done = unpack_committed(checkpoint)
    return frozenset() if done is None else _reached(done, tree_of(done, chunks))


def tree_of(done: Committed, chunks: ChunkStore, *, most: int = LARGEST) -> Tree:
    """Return the files of a checkpoint, whose list has at most `most` bytes. Raises FenceError, CheckpointDamaged."""
    if done.tree.length > most:
        raise CheckpointDamaged(f"the list of files has more than {most} bytes")
    return unpack(b"".join(read_file(chunks, done.tree.id, done.tree.length)), most)


def _without_temporary(tree: Tree) -> Directory:
    files = {path: file for path, file in tree.files.items() if not _TEMPORARY.fullmatch(path)}
    return Directory(replace(tree, files=files))


def _reached(done: Committed | None, tree: Tree) -> frozenset[UUID]:
    return tree.ids if done is None else tree.ids | {done.tree.id}


def _logs(
    done: Committed | None, planned: Planned | None, row: FenceRow, facts: BatchFacts
) -> Iterator[tuple[str, str]]:
    """Yield the log files by path; of a batch that is planned and not committed only its offsets."""
    if done is not None:
        logs = done.offset_logs
        moved = {done.batch: facts.logged(logs[done.batch], row.offsets)}
        yield from _committed_logs(done, {**logs, **moved})
    if planned is not None:
        yield f"offsets/{planned.batch}", facts.logged(planned.offset_log, row.planned)
    if (last := planned or done) is not None:
        yield METADATA, last.metadata


def _committed_logs(done: Committed, offset_logs: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    yield from ((f"offsets/{batch}", log) for batch, log in offset_logs.items())
    yield f"commits/{done.batch}", done.commit_log


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise PathInvalid(f"a log file of the checkpoint is not text ({error})") from error
