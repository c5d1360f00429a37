"""The tree as bytes: what is packed is unpacked, and anything else is damage."""

from __future__ import annotations

import random
import zlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fencepost.state.errors import CheckpointDamaged
from fencepost.state.tree import StoredFile, Tree, unpack

NAMES = some.text(alphabet="abc0._-é€", min_size=1, max_size=5)
PATHS = some.lists(NAMES, min_size=1, max_size=4).map("/".join)
FILES = some.builds(StoredFile, some.uuids(), some.integers(0, 2**62), some.integers(0, 2**62))


@given(some.dictionaries(PATHS, FILES, max_size=30), some.frozensets(PATHS, max_size=5))
def test_what_is_packed_is_unpacked(files: dict[str, StoredFile], directories: frozenset[str]) -> None:
    found = Tree(files=files, directories=directories)
    assert unpack(found.pack()) == found
    assert Tree(files=dict(reversed(files.items())), directories=directories).pack() == found.pack()
    assert found.ids == {file.id for file in files.values()}


def test_damaged_bytes_are_never_a_tree() -> None:
    packed = Tree(files={"state/0/a": StoredFile(UUID(int=1), 2, 3)}).pack()
    for end in range(len(packed)):
        with pytest.raises(CheckpointDamaged):
            unpack(packed[:end])
    for content in (
        b"[]",
        b"{}",
        b"1",
        b'{"files":{"a":{"b":[1]}},"directories":[]}',
        b'{"files":[],"directories":[]}',
    ):
        with pytest.raises(CheckpointDamaged):
            unpack(zlib.compress(content))
    generator = random.Random(1)
    for _ in range(200):
        with pytest.raises(CheckpointDamaged):
            unpack(generator.randbytes(generator.randrange(100)))


def test_a_bomb_is_refused() -> None:
    with pytest.raises(CheckpointDamaged, match="more than 1000"):
        unpack(zlib.compress(b" " * 10**7 + b"{}"), 1000)
