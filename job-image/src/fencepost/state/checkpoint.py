"""The checkpoint directory of one epoch: what Spark does to its files, and what that means for the fence.

Files at the root and in `offsets` and `commits` are log files: they are small, this process keeps them, and the fence
row holds those that a successor needs.  All other files are in chunks: `create` gives the id under which the chunks are
written, `complete` lists the file once all of them are durable.

That `offsets/N` appears plans batch N, and that `commits/N` appears commits it with every file that is listed then.
The first batch of an epoch that finds a state waits for `begin`: Spark compares its query with the state before that.
When a plan or a commit fails the epoch is over for this process: only a successor, which reads the fence row, knows
what the outcome is.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol
from uuid import UUID

from fencepost.state.directory import Directory, Entry, LogFile
from fencepost.state.errors import EpochOver, LogTooLong, PathInvalid, UploadUnknown
from fencepost.state.tree import StoredFile, Tree

LARGEST_LOG: Final = 8 * 1024 * 1024
"""Bytes of a log file: offsets of 10,000 partitions take 0.3 MB, and 2.7 MB where the topic has the longest name."""
MOST_UPLOADS: Final = 4096
"""Uploads in progress; the oldest one is forgotten, as the process that began it may be gone."""
METADATA: Final = "metadata"
_LOG: Final = re.compile(r"(?:(?:offsets|commits)/)?[^/]+")
_NUMBERED: Final = re.compile(r"(?P<log>offsets|commits)/(?P<batch>0|[1-9][0-9]{0,17})")


class Committer(Protocol):
    """The fence of this epoch's driver. The methods raise FenceError, CheckpointError for a batch out of order."""

    def plan(self, batch: int, *, metadata: bytes, offset_log: bytes) -> None:
        """Record the batch as planned, or wait for `begin` with that: nothing of it is written before."""
        ...

    def begin(self) -> None:
        """Record as planned what waits for that."""
        ...

    def commit(self, batch: int, *, commit_log: bytes, tree: Tree) -> None:
        """Commit the planned batch together with its state."""
        ...


class Ids(Protocol):
    """Gives each new file its id; see `fencepost.state.file_ids`. Raises FenceError."""

    def next(self) -> UUID:
        """Return an id that no other file has."""
        ...


class Checkpoint:
    """The directory. From any thread; a plan or a commit delays no other operation.

    `now` is the wall time in ms.  `ended` is called with the error when a plan or a commit fails: Fenced must end the
    process at once.
    Every method raises PathInvalid; every one that changes something raises EpochOver once the epoch has ended here.
    """

    def __init__(
        self,
        directory: Directory,
        ids: Ids,
        committer: Committer,
        *,
        now: Callable[[], int],
        ended: Callable[[BaseException], object],
    ) -> None:
        self._directory = directory
        self._ids = ids
        self._committer = committer
        self._now = now
        self._ended = ended
        # Spark takes a file for an orphan that is older than the files in use: time must not run backwards.
        self._newest = directory.newest
        self._uploads: dict[UUID, tuple[str, bool]] = {}
        self._opened: set[UUID] = set()
        self._moved = 0
        self._is_over = False
        self._lock = threading.Lock()
        self._committing = threading.Lock()

    @property
    def reached(self) -> frozenset[UUID]:
        """The files that are listed or being uploaded."""
        with self._lock:
            return self._directory.tree.ids | self._uploads.keys()

    @property
    def moved(self) -> int:
        """How many files were stored, or opened for the first time in a batch: it grows while a state is loaded."""
        with self._lock:
            return self._moved

    def close(self) -> None:
        """End the epoch for this process: nothing changes from here on."""
        with self._lock:
            self._is_over = True

    def is_log(self, path: str) -> bool:
        """Return whether a file at this path is kept whole (`keep`), and not in chunks (`create`)."""
        return bool(_LOG.fullmatch(path))

    def create(self, path: str, *, overwrite: bool = False) -> UUID:
        """Return the id under which the chunks of a new file are to be written. Raises PathTaken, FenceError."""
        if self.is_log(path):
            raise PathInvalid(f"{path!r} is a log file")
        with self._lock:
            self._check_open()
            self._directory.check_free(path, overwrite=overwrite)
        file = self._ids.next()
        with self._lock:
            self._uploads[file] = path, overwrite
            if len(self._uploads) > MOST_UPLOADS:
                del self._uploads[next(iter(self._uploads))]
        return file

    def complete(self, file: UUID, length: int) -> None:
        """List the file of `create`, of `length` bytes: all its chunks are durable.

        Raises UploadUnknown, PathTaken when another one was listed meanwhile, CheckpointFull.
        """
        with self._lock:
            self._check_open()
            if file not in self._uploads:
                raise UploadUnknown(str(file))
            path, overwrite = self._uploads.pop(file)
            self._directory.put(path, StoredFile(file, length, self._moment()), overwrite=overwrite)
            self._moved += 1

    def abandon(self, file: UUID) -> None:
        """Forget an upload that failed; nothing to do for one that is not in progress."""
        with self._lock:
            self._uploads.pop(file, None)

    def keep(self, path: str, content: bytes, *, overwrite: bool = False) -> None:
        """Place a log file. Raises PathTaken, LogTooLong, CheckpointFull, FenceError as `rename` does."""
        if not self.is_log(path):
            raise PathInvalid(f"{path!r} is not a log file")
        if len(content) > LARGEST_LOG:
            raise LogTooLong(f"log file {path} of the checkpoint has more than {LARGEST_LOG} bytes")
        with self._committing:
            with self._lock:
                self._check_open()
                overwrite = overwrite and not _NUMBERED.fullmatch(path)
                self._directory.check_free(path, overwrite=overwrite)
            self._appear(path, content)
            with self._lock:
                self._directory.put(path, LogFile(content, self._moment()), overwrite=overwrite)

    def rename(self, source: str, destination: str) -> None:
        """Move a file; one that becomes `offsets/N` plans batch N, one that becomes `commits/N` commits it.

        Another file that is there is replaced, but for these: Hadoop's client looks before where it must not be.

        Raises PathMissing, PathTaken, FenceError: then the batch is as a successor finds it, and the epoch is over.
        """
        if self.is_log(source) != self.is_log(destination):
            raise PathInvalid(f"{source!r} does not become {destination!r}: only one of them is a log file")
        with self._committing:
            with self._lock:
                self._check_open()
                file = self._directory.file(source)
                overwrite = not _NUMBERED.fullmatch(destination)
                self._directory.check_free(destination, overwrite=overwrite)
            if isinstance(file, LogFile):
                self._appear(destination, file.content)
            with self._lock:
                self._directory.put(destination, file, overwrite=overwrite)
                self._directory.remove(source)

    def begin(self) -> None:
        """Record the batch whose offsets have appeared as planned, before its first task. Raises FenceError."""
        with self._committing:
            with self._lock:
                self._check_open()
            self._ending(self._committer.begin)

    def delete(self, path: str, *, recursive: bool = True) -> bool:
        """Remove a file or a directory from the listing; return whether it was there. Its chunks go later, or never.

        Raises PathInvalid for a directory that is not empty, unless it is recursive, and for the root.
        """
        with self._lock:
            self._check_open()
            found = self._directory.find(path)
            if path == "" or (isinstance(found, dict) and found and not recursive):
                raise PathInvalid(f"directory {path!r} is not empty")
            return self._directory.remove(path)

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; nothing to do where it is there. Raises PathTaken, CheckpointFull."""
        with self._lock:
            self._check_open()
            self._directory.make(path)

    def status(self, path: str) -> Entry:
        """Return the entry of one path. Raises PathMissing."""
        with self._lock:
            return self._directory.status(path)

    def entries(self, path: str) -> tuple[Entry, ...]:
        """Return what is in a directory, by name; of a file its own entry, without a name. Raises PathMissing."""
        with self._lock:
            return self._directory.entries(path)

    def open(self, path: str) -> StoredFile | LogFile:
        """Return a file: its content, or where its chunks are. Raises PathMissing."""
        with self._lock:
            file = self._directory.file(path)
            if isinstance(file, StoredFile) and file.id not in self._opened:
                self._opened.add(file.id)
                self._moved += 1
            return file

    def _appear(self, path: str, content: bytes) -> None:
        """Plan or commit before the file can be seen. Raises FenceError, CheckpointError."""
        match = _NUMBERED.fullmatch(path)
        if match is None:
            return
        with self._lock:
            metadata, tree = self._directory.find(METADATA), self._directory.tree
        if not isinstance(metadata, LogFile):
            raise PathInvalid(f"{path!r} comes before {METADATA!r}")
        batch = int(match["batch"])
        if match["log"] == "offsets":
            self._ending(partial(self._committer.plan, batch, metadata=metadata.content, offset_log=content))
        else:
            self._ending(partial(self._committer.commit, batch, commit_log=content, tree=tree))
            with self._lock:
                self._opened.clear()

    def _ending(self, change: Callable[[], None]) -> None:
        """Change the fence; end the epoch where that fails."""
        try:
            change()
        except BaseException as error:
            self.close()
            self._ended(error)
            raise

    def _check_open(self) -> None:
        if self._is_over:
            raise EpochOver("the epoch of this checkpoint is over: another driver serves it, or the outcome is open")

    def _moment(self) -> int:
        self._newest = max(self._now(), self._newest)
        return self._newest
