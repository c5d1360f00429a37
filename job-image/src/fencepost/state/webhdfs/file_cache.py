"""Recently stored and read files on the scratch volume, so that a restart on the same node reads no chunk."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final
from uuid import UUID, uuid4

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
        self._lengths: OrderedDict[UUID, int] = OrderedDict()
        self._total = 0
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*/*"):
            if path.parent != self._folder or path.suffix:
                path.unlink(missing_ok=True)
        found = [(path.stat().st_mtime, path) for path in self._folder.iterdir()]
        for _, path in sorted(found):
            self._add(UUID(path.name), path.stat().st_size)

    def open(self, file: UUID, length: int) -> IO[bytes] | None:
        """Return the open file, or None."""
        with self._lock:
            if self._lengths.get(file) != length:
                return None
            self._lengths.move_to_end(file)
            try:
                return (self._folder / str(file)).open("rb")
            except OSError:
                return None

    @contextmanager
    def writing(self, file: UUID) -> Iterator[Copy]:
        """Write a file for the block; it is kept where the block ends without an exception and the disk took it all."""
        path = self._folder / f"{uuid4()}.part"
        copy = Copy(path, most=self._most)
        try:
            yield copy
            if copy.close():
                self._keep(path, file, copy.length)
        finally:
            copy.close()
            path.unlink(missing_ok=True)

    def _keep(self, path: Path, file: UUID, length: int) -> None:
        try:
            path.rename(self._folder / str(file))
        except OSError:  # a disk that fails makes a restart slower, as a full one does
            return
        with self._lock:
            self._add(file, length)

    def _add(self, file: UUID, length: int) -> None:
        self._total += length - self._lengths.pop(file, 0)
        self._lengths[file] = length
        while self._total > self._most:
            gone, freed = self._lengths.popitem(last=False)
            self._total -= freed
            with suppress(OSError):
                (self._folder / str(gone)).unlink()


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
