"""Plans and commits in order, and a checkpoint that is rebuilt from the fence row."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from uuid import UUID

import pytest

from fencepost.fence import Fenced
from fencepost.fence.patience import Patience
from fencepost.fence.row import LARGEST_CHECKPOINT
from fencepost.spark.stateful.stream_source import offsets_text
from fencepost.state.checkpoint import LARGEST_LOG, Checkpoint
from fencepost.state.directory import LogFile
from fencepost.state.errors import CheckpointDamaged, EpochOver, LogTooLong, PathInvalid
from fencepost.state.fence_committer import FenceCommitter, reopened
from fencepost.state.file_ids import FileIds
from fencepost.state.progress import Committed, Planned, committed, unpack_committed, unpack_planned
from fencepost.state.tree import StoredFile, Tree
from present import present
from unit.state.world import KEY, Facts, World, start_at_zero

QUERY = '{"id":"q"}'


def opened(world: World) -> tuple[Checkpoint, FenceCommitter]:
    """Take over and claim, and open the checkpoint that the row has."""
    taken = world.fence().take_over(world.row, owner=world.row.owner)
    row = world.fence().claim(epoch=taken.epoch, driver=f"pod-{taken.epoch}", code="c", start=start_at_zero)
    return reopened(
        world.fence(),
        row,
        facts=Facts(),
        chunks=world.chunks,
        ids=FileIds(world.index, Patience(1, world.clock.monotonic, world.clock.sleep)),
        now=lambda: 1,
        ended=lambda _error: None,
    )


def log(end: int) -> bytes:
    return f'v1\n{{"{KEY}":{end}}}'.encode()


def batch(checkpoint: Checkpoint, number: int, end: int) -> None:
    checkpoint.keep(f"offsets/{number}", log(end))
    checkpoint.begin()
    checkpoint.complete(checkpoint.create(f"state/0/0/{number}_a.changelog"), 7)
    checkpoint.keep(f"commits/{number}", f"commit {number}".encode())


@pytest.fixture
def world() -> World:
    return World(random.Random(1))


def test_the_first_batch_on_a_state_is_planned_once_spark_has_compared_them(world: World) -> None:
    """Code that does not fit ends before that, and the row is as it was."""
    checkpoint, _ = opened(world)
    checkpoint.keep("metadata", QUERY.encode())
    batch(checkpoint, 0, 10)
    successor, committer = opened(world)
    before = committer.row
    successor.keep("offsets/1", log(20))
    assert committer.row is before is world.row
    assert committer.coming.planned == {KEY: 20}
    with pytest.raises(PathInvalid, match="batch 1 is to be begun next"):
        committer.commit(1, commit_log=b"", tree=Tree())
    successor.begin()
    assert committer.row is committer.coming is world.row
    assert world.row.planned == {KEY: 20}
    successor.keep("commits/1", b"commit 1")
    successor.keep("offsets/2", log(30))
    assert world.row.planned == {KEY: 30}, "it was compared once"


def test_the_row_has_the_size_of_the_committed_files(world: World) -> None:
    checkpoint, _ = opened(world)
    checkpoint.keep("metadata", QUERY.encode())
    batch(checkpoint, 0, 10)
    assert world.row.state_bytes == 7
    batch(checkpoint, 1, 20)
    assert world.row.state_bytes == 14
    checkpoint.delete("state/0/0/0_a.changelog")
    batch(checkpoint, 2, 30)
    assert world.row.state_bytes == 14, "what Spark has deleted does not count"
    assert world.row.figures["state_chunks"] == 2


def test_a_successor_has_the_logs_and_the_files_of_the_last_commit(world: World) -> None:
    checkpoint, _ = opened(world)
    checkpoint.keep("metadata", QUERY.encode())
    checkpoint.make_directory("state/empty")
    for number in range(4):
        batch(checkpoint, number, number * 10)
    checkpoint.keep("offsets/4", log(40))
    checkpoint.complete(checkpoint.create("state/0/0/4_lost.changelog"), 7)
    successor, committer = opened(world)
    assert [entry.name for entry in successor.entries("offsets")] == ["2", "3", "4"]
    assert [entry.name for entry in successor.entries("commits")] == ["3"]
    assert [entry.name for entry in successor.entries("state/0/0")] == [f"{number}_a.changelog" for number in range(4)]
    assert successor.entries("state/empty") == ()
    assert (committer.row.offsets, committer.row.planned) == ({KEY: 30}, {KEY: 40})
    successor.keep("commits/4", b"commit 4")
    assert committer.row.offsets == {KEY: 40}


def test_the_offset_logs_of_a_successor_are_the_offsets_of_the_row(world: World) -> None:
    """A claim moves them past what is accepted as lost, and back where a topic was recreated."""
    checkpoint, _ = opened(world)
    checkpoint.keep("metadata", QUERY.encode())
    batch(checkpoint, 0, 30)
    checkpoint.keep("offsets/1", log(40))
    world.table.rows[world.row.pipeline] = replace(world.row, offsets={KEY: 5}, planned={KEY: 5})
    successor, _ = opened(world)
    for path in ("offsets/0", "offsets/1"):
        assert present(successor.open(path)) == LogFile(log(5), 1)


def test_temporary_files_of_an_older_epoch_are_left_out(world: World) -> None:
    checkpoint, _ = opened(world)
    checkpoint.keep("metadata", QUERY.encode())
    checkpoint.complete(checkpoint.create("state/0/0/.1_b.changelog.123.tmp"), 7)
    batch(checkpoint, 0, 5)
    successor, _ = opened(world)
    assert [entry.name for entry in successor.entries("state/0/0")] == ["0_a.changelog"]


@pytest.mark.parametrize("path", ["offsets/1", "commits/0", "offsets/7", "commits/1"])
def test_a_batch_out_of_order_is_refused_before_the_fence_moves(world: World, path: str) -> None:
    checkpoint, committer = opened(world)
    checkpoint.keep("metadata", QUERY.encode())
    before = committer.row
    with pytest.raises(PathInvalid, match="batch 0 is to be planned next"):
        checkpoint.keep(path, log(1))
    assert world.row == before


@pytest.mark.parametrize("path", ["offsets/1", "commits/1"])
def test_a_planned_batch_is_the_only_one_that_can_be_committed(world: World, path: str) -> None:
    checkpoint, committer = opened(world)
    checkpoint.keep("metadata", QUERY.encode())
    checkpoint.keep("offsets/0", log(1))
    before = committer.row
    with pytest.raises(PathInvalid, match="batch 0 is to be committed next"):
        checkpoint.keep(path, log(1))
    assert world.row == before


def test_the_list_of_files_is_reached_while_it_is_written(world: World) -> None:
    """A slow Cassandra may take longer than the collector waits."""
    checkpoint, committer = opened(world)
    checkpoint.keep("metadata", QUERY.encode())
    checkpoint.keep("offsets/0", log(1))
    written = []

    def look(call: str) -> None:
        written.append(call)
        assert world.chunks.files <= committer.reached

    world.chunks.after = look
    checkpoint.keep("commits/0", b"own")
    assert written == ["write"]


def test_a_driver_that_was_replaced_plans_and_commits_nothing(world: World) -> None:
    checkpoint, _ = opened(world)
    checkpoint.keep("metadata", QUERY.encode())
    checkpoint.keep("offsets/0", log(1))
    successor, committer = opened(world)
    with pytest.raises(Fenced):
        checkpoint.keep("commits/0", b"late")
    with pytest.raises(EpochOver):
        checkpoint.delete("state")
    successor.keep("commits/0", b"own")
    assert present(unpack_committed(committer.row.checkpoint)).commit_log == "own"


def test_a_damaged_row_is_never_an_empty_checkpoint(world: World) -> None:
    checkpoint, committer = opened(world)
    checkpoint.keep("metadata", QUERY.encode())
    batch(checkpoint, 0, 5)
    row = committer.row
    late = Planned(batch=7, metadata=QUERY, offset_log="").pack()
    for damaged in (b"x", present(row.checkpoint)[:-1]):
        world.table.rows[row.pipeline] = replace(row, checkpoint=damaged)
        with pytest.raises(CheckpointDamaged):
            opened(world)
    world.table.rows[row.pipeline] = replace(row, planned_log=late)
    with pytest.raises(CheckpointDamaged, match="7 planned"):
        opened(world)
    world.table.rows[row.pipeline] = row
    world.chunks.chunks.clear()
    with pytest.raises(CheckpointDamaged):
        opened(world)


def test_what_is_packed_is_unpacked() -> None:
    planned = Planned(batch=3, metadata=QUERY, offset_log="v1\n{}\né")
    assert unpack_planned(planned.pack()) == planned
    before = Committed(
        batch=2, metadata=QUERY, offset_logs={1: "one", 2: "two"}, commit_log="c", tree=StoredFile(UUID(int=9), 5)
    )
    assert unpack_committed(before.pack()) == before
    after = committed(before, planned, commit_log="d", tree=StoredFile(UUID(int=10), 6))
    assert after.offset_logs == {2: "two", 3: planned.offset_log}
    assert unpack_committed(after.pack()) == after
    assert unpack_planned(None) is None
    assert unpack_committed(None) is None
    with pytest.raises(CheckpointDamaged):
        unpack_planned(before.pack())
    with pytest.raises(CheckpointDamaged):
        unpack_committed(planned.pack())


def test_logs_that_a_row_cannot_keep_are_refused() -> None:
    noise = random.Random(1).randbytes(LARGEST_CHECKPOINT).hex()
    with pytest.raises(LogTooLong):
        Planned(batch=0, metadata=QUERY, offset_log=noise * 2).pack()


@pytest.mark.parametrize("topic", ["orders", "t" * 249])
def test_logs_of_ten_thousand_partitions_are_kept(topic: str) -> None:
    """Of Kafka, with two hundred of the state in four stores."""
    dice = random.Random(1)
    first, second = (
        "v1\n{}\n" + offsets_text({f"{topic}/{number}": dice.randrange(10**10) for number in range(10_000)})
        for _ in range(2)
    )
    commit_log = json.dumps([str(UUID(int=dice.getrandbits(128))) for _ in range(200 * 4)])
    planned = Planned(batch=1, metadata=QUERY, offset_log=second)
    assert LARGEST_LOG > 2 * len(second) > 0
    assert unpack_planned(planned.pack()) == planned
    tree = StoredFile(UUID(int=1), 1)
    before = Committed(batch=0, metadata=QUERY, offset_logs={0: first}, commit_log=commit_log, tree=tree)
    after = committed(before, planned, commit_log=commit_log, tree=tree)
    assert len(after.pack()) < LARGEST_CHECKPOINT // 4
