"""The checkpoint directory: what each operation allows, what a plan or a commit means, and what a failed one ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from fencepost.fence import FenceUnavailable
from fencepost.fence.patience import Patience
from fencepost.state import checkpoint as module
from fencepost.state.checkpoint import LARGEST_LOG, Checkpoint
from fencepost.state.directory import Directory, LogFile
from fencepost.state.errors import (
    EpochOver,
    LogTooLong,
    PathInvalid,
    PathMissing,
    PathTaken,
    UploadUnknown,
)
from fencepost.state.file_ids import FileIds
from fencepost.state.memory import MemoryFileIndex
from fencepost.state.tree import StoredFile, Tree


@dataclass
class Committer:
    """Notes each plan and commit. `fault` may raise before."""

    calls: list[tuple[str, int, bytes]] = field(default_factory=list)
    tree: Tree = field(default_factory=Tree)
    fault: Callable[[], None] = lambda: None

    def plan(self, batch: int, *, metadata: bytes, offset_log: bytes) -> None:
        self.fault()
        assert metadata == b"query"
        self.calls.append(("plan", batch, offset_log))

    def begin(self) -> None:
        self.fault()

    def commit(self, batch: int, *, commit_log: bytes, tree: Tree) -> None:
        self.fault()
        self.calls.append(("commit", batch, commit_log))
        self.tree = tree


@dataclass
class Scene:
    """A checkpoint with its metadata, and a clock that a test sets."""

    committer: Committer = field(default_factory=Committer)
    directory: Directory = field(default_factory=Directory)
    now: int = 1000
    ended: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        ids = FileIds(MemoryFileIndex(), Patience(0))
        self.checkpoint = Checkpoint(self.directory, ids, self.committer, now=lambda: self.now, ended=self.ended.append)
        self.checkpoint.keep("metadata", b"query")

    def upload(self, path: str, length: int = 5) -> UUID:
        file = self.checkpoint.create(path)
        self.checkpoint.complete(file, length)
        return file

    def log(self, path: str, content: bytes = b"log") -> None:
        """Place a log file as Spark does."""
        self.checkpoint.keep("offsets/.1.tmp", content)
        self.checkpoint.rename("offsets/.1.tmp", path)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_file_is_listed_once_it_is_complete(scene: Scene) -> None:
    file = scene.checkpoint.create("state/0/1/a")
    with pytest.raises(PathMissing):
        scene.checkpoint.status("state/0/1/a")
    assert file in scene.checkpoint.reached
    scene.checkpoint.complete(file, 5)
    assert scene.checkpoint.open("state/0/1/a") == StoredFile(file, 5, 1000)
    assert file in scene.checkpoint.reached
    with pytest.raises(UploadUnknown):
        scene.checkpoint.complete(file, 5)


def test_an_upload_that_is_abandoned_is_never_listed(scene: Scene) -> None:
    file = scene.checkpoint.create("state/a")
    scene.checkpoint.abandon(file)
    scene.checkpoint.abandon(file)
    assert file not in scene.checkpoint.reached
    with pytest.raises(UploadUnknown):
        scene.checkpoint.complete(file, 5)


def test_of_two_uploads_to_one_path_the_first_that_is_complete_stays(scene: Scene) -> None:
    first, second = scene.checkpoint.create("state/a"), scene.checkpoint.create("state/a")
    scene.checkpoint.complete(second, 5)
    with pytest.raises(PathTaken):
        scene.checkpoint.complete(first, 5)
    with pytest.raises(PathTaken):
        scene.checkpoint.create("state/a")
    assert scene.checkpoint.moved == 1, "the other one was not stored"
    third = scene.checkpoint.create("state/a", overwrite=True)
    scene.checkpoint.complete(third, 6)
    assert scene.checkpoint.status("state/a").length == 6


def test_files_count_when_they_are_stored_and_first_opened_in_a_batch(scene: Scene) -> None:
    for name in "ab":
        scene.upload(f"state/{name}")
    assert scene.checkpoint.moved == 2
    for name in "aba":  # a task that is tried again opens the same files
        scene.checkpoint.open(f"state/{name}")
    scene.checkpoint.open("metadata")
    assert scene.checkpoint.moved == 4
    scene.log("offsets/0")
    scene.log("commits/0")
    assert scene.checkpoint.moved == 4
    scene.checkpoint.open("state/a")
    assert scene.checkpoint.moved == 5


def test_the_oldest_of_too_many_uploads_is_forgotten(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_UPLOADS", 2)
    files = [scene.checkpoint.create(f"state/{name}") for name in "abc"]
    with pytest.raises(UploadUnknown):
        scene.checkpoint.complete(files[0], 1)
    scene.checkpoint.complete(files[2], 1)


def test_a_plan_and_a_commit_happen_before_their_file_is_seen(scene: Scene) -> None:
    scene.upload("state/a")
    scene.log("offsets/0", b"v1")
    scene.log("commits/0", b"done")
    assert scene.committer.calls == [("plan", 0, b"v1"), ("commit", 0, b"done")]
    assert scene.committer.tree.files.keys() == {"state/a"}
    assert scene.checkpoint.open("commits/0") == LogFile(b"done", 1000)
    assert [entry.name for entry in scene.checkpoint.entries("offsets")] == ["0"]


def test_a_log_file_that_is_written_in_place_is_planned_too(scene: Scene) -> None:
    scene.checkpoint.keep("offsets/0", b"v1")
    assert scene.committer.calls == [("plan", 0, b"v1")]
    with pytest.raises(PathTaken):
        scene.checkpoint.keep("offsets/0", b"v2", overwrite=True)
    scene.checkpoint.keep("offsets/.0.tmp", b"")
    with pytest.raises(PathTaken):
        scene.checkpoint.rename("offsets/.0.tmp", "offsets/0")
    assert scene.committer.calls == [("plan", 0, b"v1")]


@pytest.mark.parametrize("path", ["offsets/0", "commits/0", "begin"])
def test_a_plan_or_a_commit_that_fails_ends_the_epoch_here(scene: Scene, path: str) -> None:
    waiting = scene.checkpoint.create("state/b")
    scene.checkpoint.keep("offsets/.x.tmp", b"")
    error = FenceUnavailable("no answer")

    def fail() -> None:
        raise error

    scene.committer.fault = fail
    with pytest.raises(FenceUnavailable):
        scene.checkpoint.begin() if path == "begin" else scene.log(path)
    assert scene.ended == [error]
    scene.committer.fault = lambda: None
    with pytest.raises(PathMissing):
        scene.checkpoint.status(path)
    for change in (
        lambda: scene.checkpoint.create("state/a"),
        lambda: scene.checkpoint.complete(waiting, 1),
        lambda: scene.checkpoint.keep("offsets/.y.tmp", b""),
        lambda: scene.checkpoint.rename("offsets/.x.tmp", path),
        scene.checkpoint.begin,
        lambda: scene.checkpoint.delete("state"),
        lambda: scene.checkpoint.make_directory("d"),
    ):
        with pytest.raises(EpochOver):
            change()
    assert scene.committer.calls == []
    assert scene.checkpoint.open("metadata") == LogFile(b"query", 1000)


def test_no_batch_is_planned_before_the_metadata(scene: Scene) -> None:
    scene.checkpoint.delete("metadata")
    with pytest.raises(PathInvalid, match="metadata"):
        scene.log("offsets/0")
    assert scene.committer.calls == []
    assert scene.ended == []


def test_modification_times_never_run_backwards() -> None:
    """Spark takes a file that is older than the files in use for an orphan, and deletes it."""
    before = Directory(Tree(files={"state/old": StoredFile(UUID(int=1), 1, 5000)}))
    scene = Scene(directory=before)
    scene.upload("state/a")
    assert scene.checkpoint.status("state/a").modified == 5000
    scene.now = 6000
    scene.upload("state/b")
    scene.now = 5500
    scene.upload("state/c")
    assert scene.checkpoint.status("state/c").modified == 6000


def test_log_files_and_files_in_chunks_do_not_mix(scene: Scene) -> None:
    scene.upload("state/a")
    with pytest.raises(PathInvalid):
        scene.checkpoint.create("offsets/.1.tmp")
    with pytest.raises(PathInvalid):
        scene.checkpoint.keep("state/a", b"")
    with pytest.raises(PathInvalid):
        scene.checkpoint.rename("state/a", "offsets/1")
    with pytest.raises(PathInvalid):
        scene.checkpoint.rename("metadata", "state/metadata")
    with pytest.raises(LogTooLong, match=r"offsets/\.1\.tmp"):
        scene.checkpoint.keep("offsets/.1.tmp", bytes(LARGEST_LOG + 1))


def test_a_directory_that_is_not_empty_needs_a_recursive_deletion(scene: Scene) -> None:
    file = scene.upload("state/0/a")
    with pytest.raises(PathInvalid):
        scene.checkpoint.delete("state", recursive=False)
    with pytest.raises(PathInvalid):
        scene.checkpoint.delete("")
    assert scene.checkpoint.delete("state")
    assert not scene.checkpoint.delete("state")
    assert file not in scene.checkpoint.reached
