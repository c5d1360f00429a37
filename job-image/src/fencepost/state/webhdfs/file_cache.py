"""Recently stored and read files on the scratch volume, so that a restart on the same node reads no chunk.

Other processes can write to the volume.  The name of a file holds its inode, its time of change and its length as they
were when it was complete, and a file that differs from its name is removed.  That costs one system call, where a digest
of a gigabyte would cost seconds.  What is inside has the checksums of Spark and RocksDB.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final
from uuid import UUID, uuid4

log = logging.getLogger(__name__)

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class FileCache:
    """Keeps `most` bytes of files in a folder; the least recently used go first.

    Files of an earlier boot of the node are removed: the disk may have lost their last blocks.
    """

    def __init__(self, folder: Path, *, most: int) -> None:
        boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else "unknown"
        self._folder = folder / boot
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[UUID, _Kept] = OrderedDict()
        self._total = 0
        self._folder.mkdir(parents=True, exist_ok=True)
        found: list[_Kept] = []
        for path in folder.glob("*/*"):
            kept = _Kept.of(path) if path.parent == self._folder else None
            if kept is None:
                path.unlink(missing_ok=True)
            else:
                found.append(kept)
        for kept in sorted(found, key=lambda one: one.changed):
            self._add(kept)

    def open(self, file: UUID, length: int) -> IO[bytes] | None:
        """Return the open file; None where it is not there, or is not as it was written."""
        with self._lock:
            kept = self._kept.get(file)
            if kept is None or kept.length != length:
                return None
            self._kept.move_to_end(file)
            path = self._folder / kept.name
        try:
            stream = path.open("rb")
        except OSError:
            return None
        if kept.is_of(os.fstat(stream.fileno())):
            return stream
        log.warning("the copy of file %s on the scratch volume was changed: it is read from the database", file)
        stream.close()
        self._forget(kept)
        return None

    @contextmanager
    def writing(self, file: UUID) -> Iterator[Copy]:
        """Write a file for the block; it is kept where the block ends without an exception and the disk took it all."""
        path = self._folder / f"{uuid4()}.part"
        copy = Copy(path, most=self._most)
        try:
            yield copy
            if copy.close():
                self._keep(path, file)
        finally:
            copy.close()
            path.unlink(missing_ok=True)

    def _keep(self, path: Path, file: UUID) -> None:
        try:
            kept = _Kept.now(file, path.stat())
            path.rename(self._folder / kept.name)
        except OSError:  # a disk that fails makes a restart slower, as a full one does
            return
        with self._lock:
            self._add(kept)

    def _add(self, kept: _Kept) -> None:
        self._remove(self._kept.pop(kept.file, None))
        self._total += kept.length
        self._kept[kept.file] = kept
        while self._total > self._most:
            self._remove(self._kept.popitem(last=False)[1])

    def _remove(self, kept: _Kept | None) -> None:
        if kept is not None:
            self._total -= kept.length
            with suppress(OSError):
                (self._folder / kept.name).unlink()

    def _forget(self, kept: _Kept) -> None:
        with self._lock:
            if self._kept.get(kept.file) == kept:
                self._remove(self._kept.pop(kept.file))


@dataclass(frozen=True, slots=True)
class _Kept:
    """A complete file as it was when it became one: `changed` in ns since 1970, `length` in bytes."""

    file: UUID
    inode: int
    changed: int
    length: int

    @classmethod
    def now(cls, file: UUID, status: os.stat_result) -> _Kept:
        return cls(file, status.st_ino, status.st_mtime_ns, status.st_size)

    @classmethod
    def of(cls, path: Path) -> _Kept | None:
        """Return the file at a path; None where the name is none of a complete file, or the file differs from it."""
        try:
            name, *numbers = path.name.split(".")
            found = cls(UUID(name), *map(int, numbers))
            return found if found.name == path.name and found.is_of(path.stat()) else None
        except (ValueError, TypeError, OSError):
            return None

    @property
    def name(self) -> str:
        return f"{self.file}.{self.inode}.{self.changed}.{self.length}"

    def is_of(self, status: os.stat_result) -> bool:
        return self.now(self.file, status) == self


class Copy:
    """A file that is written as long as the disk takes it, and up to `most` bytes.

    A full disk makes a restart slower, and fails nothing.
    """

    def __init__(self, path: Path, *, most: int) -> None:
        self.length = 0
        self._most = most
        self._stream: IO[bytes] | None = None
        with suppress(OSError):
            self._stream = path.open("wb")

    def write(self, piece: bytes) -> None:
        """Append bytes."""
        if self.length + len(piece) > self._most:
            self.close()
        if self._stream is not None:
            try:
                self._stream.write(piece)
                self.length += len(piece)
            except OSError:
                self.close()

    def close(self) -> bool:
        """Return whether everything was written, at the first call."""
        stream, self._stream = self._stream, None
        if stream is None:
            return False
        try:
            stream.close()
        except OSError:
            return False
        return True
