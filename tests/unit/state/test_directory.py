"""The directory in memory: what a Hadoop file system shows, and the tree that a commit takes from it."""

from __future__ import annotations

from uuid import UUID

import pytest

from fencepost.state import directory
from fencepost.state.directory import Directory, Entry, LogFile
from fencepost.state.errors import CheckpointFull, PathInvalid, PathMissing, PathTaken
from fencepost.state.tree import StoredFile, Tree

FILE = StoredFile(UUID(int=1), 10, 5)


def test_a_file_makes_the_directories_above_it() -> None:
    found = Directory()
    found.put("state/0/1/7.changelog", FILE)
    assert found.entries("state/0") == (Entry("1", is_directory=True),)
    assert found.entries("state/0/1") == (Entry("7.changelog", is_directory=False, length=10, modified=5),)
    assert found.status("state/0/1/7.changelog").name == "7.changelog"
    assert found.entries("state/0/1/7.changelog")[0].name == ""
    assert found.status("") == Entry("", is_directory=True)


def test_a_tree_has_the_files_in_chunks_and_each_directory() -> None:
    found = Directory()
    found.make("empty")
    found.put("state/0/a", FILE)
    found.put("offsets/0", LogFile(b"v1", 9))
    expected = Tree(files={"state/0/a": FILE}, directories=frozenset({"empty", "state", "state/0", "offsets"}))
    assert found.tree == expected
    assert Directory(found.tree).tree == expected
    assert found.newest == 9


def test_a_path_is_taken_once_unless_it_is_overwritten() -> None:
    found = Directory()
    found.put("a/b", FILE)
    with pytest.raises(PathTaken):
        found.put("a/b", FILE)
    found.put("a/b", StoredFile(UUID(int=2), 3), overwrite=True)
    assert found.file("a/b").length == 3
    with pytest.raises(PathTaken):
        found.put("a", FILE, overwrite=True)
    with pytest.raises(PathTaken):
        found.make("a/b/c")


def test_what_is_removed_is_gone_with_all_that_is_in_it() -> None:
    found = Directory()
    found.put("a/b/c", FILE)
    assert found.remove("a")
    assert not found.remove("a")
    assert not found.remove("a/b/c")
    assert found.tree == Tree()
    with pytest.raises(PathMissing):
        found.file("a/b/c")
    with pytest.raises(PathMissing):
        found.entries("a")


@pytest.mark.parametrize("path", ["/a", "a/", "a//b", ".", "a/..", "a/../b", "a\n", "a\0", "x" * 256, "a/" * 600 + "a"])
def test_a_path_that_a_checkpoint_cannot_have_is_refused(path: str) -> None:
    found = Directory()
    for operation in (found.status, found.make, found.remove, found.find):
        with pytest.raises(PathInvalid):
            operation(path)


def test_the_number_of_entries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MOST_ENTRIES", 3)
    found = Directory()
    found.put("a/b", FILE)
    found.put("c", FILE)
    found.put("c", FILE, overwrite=True)
    with pytest.raises(CheckpointFull):
        found.put("d", FILE)
    assert found.remove("a")
    found.put("d", FILE)
    found.make("e")
    with pytest.raises(CheckpointFull):
        found.make("f")
