"""The model finds faults: each rule that is broken here, on purpose, is found within some histories."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from uuid import UUID

import pytest

from fencepost.fence import Fence, Fenced, FenceRow, FenceUnavailable
from fencepost.state import collector, fence_committer
from fencepost.state.checkpoint import Checkpoint
from fencepost.state.chunks import LARGEST_FILE, ChunkStore, write_file
from fencepost.state.collector import Collector
from fencepost.state.fence_committer import FenceCommitter
from fencepost.state.file_ids import FileIds, FileIndex, FileRange, FileSet
from fencepost.state.webhdfs.authentication import StoredTicket, UploadTicket
from fencepost.state.webhdfs.data_service import DataService
from fencepost.state.webhdfs.http_server import Answer
from fencepost.state.webhdfs.name_service import STORED
from simulation.broken_fence import commits_are_unconditional, zombies_write_later
from simulation.stateful import drivers, events, operators
from simulation.stateful.__main__ import MODEL
from simulation.stateful.history import History, Setup
from simulation.stateful.playing import play

HISTORIES = 300
"""In which each broken rule is found."""

Patch = pytest.MonkeyPatch


def no_answer_is_an_answer(patch: Patch) -> None:
    """Take a change without an answer for one that is applied."""

    def hopeful(self: Any, before: FenceRow, after: FenceRow) -> FenceRow:
        try:
            if self._table.swap(before, after):
                return after
        except FenceUnavailable:
            return after
        raise Fenced("refused", seen=None)

    patch.setattr(Fence, "_change", hopeful)


def no_answer_is_a_refusal_to_be_repeated(patch: Patch) -> None:
    """Change the row that is there now, after a change without an answer."""

    def again(self: Any, before: FenceRow, after: FenceRow) -> FenceRow:
        while True:
            try:
                if self._table.swap(before, after):
                    return after
                before = self._table.read(self._pipeline)
                after = replace(after, epoch=before.epoch, version=before.version + 1)
            except FenceUnavailable:
                self._patience.sleep(1.0)

    patch.setattr(Fence, "_change", again)


def rewinds_keep_the_state(patch: Patch) -> None:
    """Set the offsets back, and not the state."""
    usual = Fence.rewind

    def rewind(self: Fence, before: FenceRow, **options: Any) -> FenceRow:
        return usual(self, before, **{**options, "checkpoint": before.checkpoint})

    patch.setattr(Fence, "rewind", rewind)


def plans_keep_no_log(patch: Patch) -> None:
    """Record where a batch ends, and not Spark's log of it."""
    usual = Fence.plan
    patch.setattr(Fence, "plan", lambda self, before, **given: usual(self, before, **{**given, "planned_log": None}))


def lists_are_not_stored(patch: Patch) -> None:
    """Commit the id of a list of files that is not written."""
    patch.setattr(fence_committer, "write_file", lambda _store, _id, content, limit: len(content.read(limit)))


def files_are_listed_before_they_are_durable(patch: Patch) -> None:
    """Report a file before its chunks are stored."""

    def store(self: Any, ticket: UploadTicket, body: Any) -> Answer:
        content = body.whole(most=LARGEST_FILE)
        self._report(ticket.report_to, STORED, StoredTicket(file=ticket.file, length=len(content)))
        write_file(self._store, UUID(ticket.file), io.BytesIO(content), limit=LARGEST_FILE)
        return Answer.of(HTTPStatus.CREATED)

    patch.setattr(DataService, "_store_file", store)


def ids_are_not_indexed(patch: Patch) -> None:
    """Use the ids of a range that is not stored."""
    patch.setattr(FileIds, "_new_range", lambda self: UUID(int=self._random().int // 8 * 8))


def collectors_wait_for_nothing(patch: Patch) -> None:
    """Delete a file as soon as it is seen unreached."""
    defaults: Any = Collector.__init__.__kwdefaults__
    patch.setitem(defaults, "grace", 0.0)


def collectors_forget_snapshots(patch: Patch) -> None:
    patch.setattr(Collector, "_reached_by", lambda *_: frozenset())


def uploads_are_unreached(patch: Patch) -> None:
    patch.setattr(Checkpoint, "reached", property(lambda self: self._directory.tree.ids))


def open_commits_are_unreached(patch: Patch) -> None:
    patch.setattr(FenceCommitter, "reached", property(lambda self: self._reached))


def each_run_waits_again(patch: Patch) -> None:
    """Let the grace period of all files begin with each run."""

    class Everything(FileSet):
        def missing(self, found: FileRange) -> frozenset[int]:
            del found
            return frozenset()

    usual = Collector.__init__

    def init(self: Collector, *given: Any, **named: Any) -> None:
        usual(self, *given, **named)
        self._inherited = Everything()

    patch.setattr(Collector, "__init__", init)


def logs_stay_before_what_is_lost(patch: Patch) -> None:
    """Let Spark continue where the last batch ended, whatever the claim has accepted as lost."""
    patch.setattr(drivers, "with_end", lambda log, _: log)


def the_index_forgets_first(patch: Patch) -> None:
    """Forget the ids of files before these are deleted."""

    def leave(found: FileRange, due: Sequence[int], chunks: ChunkStore, index: FileIndex) -> None:
        since = {number: at for number, at in found.unreached.items() if number not in due}
        index.leave(replace(found, left=found.numbers - set(due), unreached=since))
        if due:
            chunks.delete(found.ids(due))

    patch.setattr(collector, "_leave", leave)


def output_is_deleted_as_the_next_run_writes(patch: Patch) -> None:
    """Delete at the timestamp of a run that begins on the same row."""
    patch.setattr(operators, "deleted_at", lambda row: row.write_timestamp)


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change, its message, and histories of which one shows it, where random ones rarely do."""

    breaks: Callable[[Patch], None]
    said: str
    histories: Sequence[History] = ()


SLOW_SNAPSHOT = History(
    0,
    Setup(),
    (
        events.Snapshot(60),
        events.Interrupt(60, call="insert_snapshot", how="freeze", who="operator", seconds=100),
        events.Pass(130, jump=70.0),
    ),
)
CUT_COLLECTION = History(
    0,
    Setup(),
    (
        events.Pass(100, jump=200.0),
        events.Interrupt(110, call="delete", who="driver"),
        events.Pass(120, jump=1000.0),
    ),
)
CANCELLED_REWINDS = [
    History(
        5,
        Setup(largest=1, duplicates=0.5, full_every=5),
        (
            events.Kill(at),
            events.Rewind(at, same=True, delete_output=True),
            events.CancelRewinds(at + later),
        ),
    )
    for at in range(60, 120, 6)
    for later in (16, 20)
]
"""Of a batch that the killed driver left open, rows are deleted and then written again."""

SHORT_RUNS = History(
    0,
    Setup(),
    (
        events.Replace(50),
        events.Pass(110, jump=70.0),
        events.Replace(150),
        events.Pass(210, jump=200.0),
    ),
)
LOSSES = [History(0, Setup(), (events.Lose(at), events.Replace(at + 1))) for at in range(100, 130, 5)]

MUTATIONS = {
    mutation.breaks.__name__: mutation
    for mutation in (
        Mutation(commits_are_unconditional, "a driver of an older epoch changes the row"),
        Mutation(no_answer_is_an_answer, "the directory shows another version than the row says"),
        Mutation(no_answer_is_a_refusal_to_be_repeated, "a driver of an older epoch changes the row"),
        Mutation(zombies_write_later, "version or clock runs backwards"),
        Mutation(rewinds_keep_the_state, "the offsets are not those of the state"),
        Mutation(plans_keep_no_log, "the directory shows another version than the row says"),
        Mutation(lists_are_not_stored, "the list of files of a checkpoint is gone"),
        Mutation(files_are_listed_before_they_are_durable, "files of a new state are not there"),
        Mutation(ids_are_not_indexed, "a collection leaves what nothing has reached"),
        Mutation(collectors_wait_for_nothing, "a snapshot is taken whose files are gone", [SLOW_SNAPSHOT]),
        Mutation(collectors_forget_snapshots, "files are deleted that are reached"),
        Mutation(uploads_are_unreached, "files of a new state are not there"),
        Mutation(open_commits_are_unreached, "the list of files of a checkpoint is gone"),
        Mutation(each_run_waits_again, "a collection leaves what nothing has reached", [SHORT_RUNS]),
        Mutation(logs_stay_before_what_is_lost, "not arrived", LOSSES),
        Mutation(the_index_forgets_first, "a collection leaves what nothing has reached", [CUT_COLLECTION]),
        Mutation(output_is_deleted_as_the_next_run_writes, "two values at one timestamp", CANCELLED_REWINDS),
    )
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_found(name: str, monkeypatch: Patch) -> None:
    mutation = MUTATIONS[name]
    assert not any(play(history) for history in mutation.histories)
    mutation.breaks(monkeypatch)
    histories = mutation.histories or [MODEL.random(seed) for seed in range(HISTORIES)]
    others = set[str]()
    for history in histories:
        failure = play(history)
        if failure is not None and mutation.said in failure.why:
            return
        others |= {failure.why} if failure is not None else set()
    pytest.fail(f"not found in {len(histories)} histories, but {others}")
