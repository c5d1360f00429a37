"""Whether a snapshot's state is there."""

from __future__ import annotations

import io
import random
from dataclasses import replace

import pytest

from fencepost.fence import EMPTY
from fencepost.state import state_check
from fencepost.state.chunks import write_file
from fencepost.state.fence_committer import tree_of
from fencepost.state.progress import unpack_committed
from fencepost.state.state_check import StateCheck, check_files
from fencepost.state.tree import LARGEST, Tree
from present import present
from unit.state.world import World


def committed() -> tuple[World, bytes, Tree]:
    """Return a pipeline that has committed some batches, its checkpoint, and the files of that."""
    world = World(random.Random(1))
    driver = world.take_over()
    for _ in driver.steps:
        if driver.committed == 5:
            break
    checkpoint = present(world.row.checkpoint)
    return world, checkpoint, tree_of(present(unpack_committed(checkpoint)), world.chunks)


@pytest.mark.parametrize("checkpoint", [None, EMPTY])
def test_empty_state_has_no_files(checkpoint: bytes | None) -> None:
    assert check_files(checkpoint, World(random.Random(1)).chunks) == StateCheck()


def test_files_are_checked_a_slice_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world, checkpoint, tree = committed()
    monkeypatch.setattr(state_check, "SLICE", 2)
    seen, calls = check_files(checkpoint, world.chunks), 1
    while not seen.is_done:
        assert seen.checked == 2 * calls
        seen, calls = check_files(checkpoint, world.chunks, start=seen.checked), calls + 1
    assert seen == StateCheck(files=len(tree.files), checked=len(tree.files))
    assert calls == -(-len(tree.files) // 2) > 1


def test_each_file_that_is_gone_is_missing() -> None:
    world, checkpoint, tree = committed()
    kept = dict(world.chunks.chunks)
    for path, file in tree.files.items():
        world.chunks.chunks = {key: content for key, content in kept.items() if key[0] != file.id}
        assert check_files(checkpoint, world.chunks).missing == f"chunks of {path}"
    world.chunks.chunks = {key: content for key, content in kept.items() if key[0] not in tree.ids}
    first, *_ = sorted(tree.files)
    found = check_files(checkpoint, world.chunks).missing
    assert found.startswith(f"chunks of {first}, ")
    assert found.endswith(f" and {len(tree.files) - 3} more")


def test_a_list_of_files_that_is_gone_is_missing() -> None:
    world, checkpoint, _ = committed()
    file = present(unpack_committed(checkpoint)).tree.id
    world.chunks.chunks = {key: content for key, content in world.chunks.chunks.items() if key[0] != file}
    assert check_files(checkpoint, world.chunks).missing.startswith("the list of its files: ")
    assert "the list of its files" in check_files(b"not a checkpoint", world.chunks).missing


@pytest.mark.parametrize("length", [-1, 2**62])
def test_a_length_that_no_file_has_is_missing(length: int) -> None:
    """A tenant writes the table: nothing is counted up to such a length."""
    world, checkpoint, tree = committed()
    (path, file), *_ = tree.files.items()
    packed = replace(tree, files={**tree.files, path: replace(file, length=length)}).pack()
    done = present(unpack_committed(checkpoint))
    write_file(world.chunks, done.tree.id, io.BytesIO(packed), limit=LARGEST)
    other = replace(done, tree=replace(done.tree, length=len(packed))).pack()
    assert check_files(other, world.chunks).missing == f"chunks of {path}"
