"""For readers of a sink of files: which files are visible. Needs pyarrow and msgspec alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from pyarrow.fs import FileSelector, FileSystem, FileType

from fencepost.sinks.files.manifest import MANIFESTS, DataFile, Entry, Manifest, chain, decode, gap, head

ATTEMPTS: Final = 5
"""A manifest that is replaced goes while it is read."""
PAUSE: Final = 0.1
"""Seconds between them."""


def visible_files(path: str, filesystem: FileSystem | None = None) -> list[str]:
    """Return the files of rows below the path of a sink, each with the path before it: `spark.read.parquet(*files)`.

    Of several sinks with this path, all files.  `filesystem` is that of the path; without it, it follows from the path,
    which is 'file:///…', 's3://…' or any other that pyarrow.fs.FileSystem.from_uri reads.  The newest batch is among
    them from before its commit on, and until then it may be replaced.  Raises OSError.
    """
    return [f"{path.rstrip('/')}/{file.path}" for file in visible(path, filesystem)]


def visible(path: str, filesystem: FileSystem | None = None) -> list[DataFile]:
    """Return the same files with their rows, their sizes in bytes and their folders' values. Raises OSError."""
    if filesystem is None:
        filesystem, root = FileSystem.from_uri(path)
    else:
        root = path.partition("://")[2] or path
    root = root.rstrip("/")
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE)
        try:
            return _visible(filesystem, f"{root}/{MANIFESTS}", is_last=attempt == ATTEMPTS - 1)
        except FileNotFoundError:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _visible(filesystem: FileSystem, folder: str, *, is_last: bool) -> list[DataFile]:
    """Return the files of all sinks. Raises FileNotFoundError for a manifest that was replaced meanwhile.

    A manifest that is not there in the last attempt was not replaced, and ends what is visible.
    """
    selector = FileSelector(folder, recursive=True, allow_not_found=True)
    paths = sorted(file.path for file in filesystem.get_file_info(selector) if file.type == FileType.File)
    files = list[DataFile]()
    for owner, names in groupby(paths, key=lambda path: path.rpartition("/")[0]):
        entries = [entry for name in names if (entry := Entry.of_name(name.rpartition("/")[2])) is not None]
        led_to = chain(entries, head(entries))
        if gap(led_to) and not is_last:
            raise FileNotFoundError(f"{owner}: the manifest before {led_to[-1].name} is missing")
        for manifest in _read(filesystem, owner, led_to):
            files += [file for batch in manifest.batches for file in batch.files]
    return files


def _read(filesystem: FileSystem, owner: str, led_to: list[Entry]) -> Iterator[Manifest]:
    """Yield manifests, newest first, then those that a purge has kept."""

    def read(name: str) -> Manifest:
        with filesystem.open_input_stream(f"{owner}/{name}") as file:
            return decode(file.read())

    manifest = None
    for entry in led_to:
        manifest = read(entry.name)
        yield manifest
    yield from map(read, manifest.kept if manifest else ())
