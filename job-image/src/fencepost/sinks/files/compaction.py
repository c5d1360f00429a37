"""Writes the rows of many small files to few larger ones, in steps between batches.

What is compacted is a full manifest: no driver folds it any more.  The one with the larger files has its token and its
previous one, so that it counts in its place, whatever a replaced driver still does, and the name ends with the token
of the compaction: the last one counts.  So a driver may end anywhere.  The manifest that was replaced is kept with its
files for GRACE, for readers that have read it.

A file is merged only if the offsets of its rows are within those of its batch.  Then a purge, which deletes from a
larger file row by row, deletes exactly the rows that it would have deleted of whole batches.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import PurePosixPath
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.sinks.files.coordinates import MissingColumnsError, Rows, are_in, decoded
from fencepost.sinks.files.manifest import SUFFIXES, Batch, DataFile, Entry, Format, Manifest
from fencepost.sinks.files.row_files import write_table
from fencepost.sinks.files.store import Store
from fencepost.sinks.files.stored_manifests import Manifests, View

SMALL: Final = 1024 * 1024
"""Bytes from which a file stays as it is. A later version may merge more files, but no fewer."""
LARGE: Final = 32 * 1024 * 1024
"""Bytes, in Arrow's format, of a larger file: the driver holds as many."""
GRACE: Final = 24 * 3600 * 1_000_000
"""µs, which the unit of tokens is, until replaced files go."""
STEP: Final = 16
"""Files that are read, or deleted, at the same time."""
ERRORS: Final = (OSError, pa.ArrowException, msgspec.MsgspecError)
"""What a store, or a file in it, may raise."""


def chores(
    manifests: Manifests, view: View, seen: frozenset[Entry], failed: set[Entry], token: Callable[[], int]
) -> Iterator[None]:
    """Delete what was replaced long ago, then compact what is full, in steps. Raises one of ERRORS.

    `seen` is what this driver had listed before its last commit.  A purge, and a driver of another epoch, begin after
    that commit: they found it too, and refer to nothing that goes.  `failed` is left out, and gets what fails.
    `token` returns that of the batch before which a step is.
    """
    for replaced, by in view.compacted.items():
        if by in seen and token() - by.compacted >= GRACE:
            yield from _delete(manifests, replaced, by)
    for entry in reversed(view.led_to[1:]):  # the newest manifest stays, as in a fold
        if entry.previous is not None and not entry.compacted and view.is_full(entry) and entry not in failed:
            try:
                yield from _compact(manifests, entry, token)
            except ERRORS:
                failed.add(entry)
                raise


def _delete(manifests: Manifests, replaced: Entry, by: Entry) -> Iterator[None]:
    """Delete a manifest and the files that it alone names."""
    old, new = manifests.read([replaced, by])
    gone = sorted({file.path for file in _files(old)} - {file.path for file in _files(new)})
    for start in range(0, len(gone), STEP):
        manifests.store.delete(gone[start : start + STEP])
        yield
    manifests.delete([replaced])


def _compact(manifests: Manifests, entry: Entry, token: Callable[[], int]) -> Iterator[None]:
    """Write the larger files, then their manifest."""
    (manifest,) = manifests.read([entry])
    larger, merged = list[tuple[Format, DataFile]](), set[str]()
    try:
        for (form, folder, _), members in _groups(manifest).items():
            collected = _Collected(manifests.store, form, folder, token(), larger, merged)
            for start in range(0, len(members), STEP):
                part = members[start : start + STEP]
                with ThreadPoolExecutor(STEP) as threads:
                    contents = list(threads.map(manifests.store.read, (file.path for _, file in part)))
                for (batch, file), content in zip(part, contents, strict=True):
                    if (rows := _own_rows(content, form, batch)) is not None:
                        collected.add(file, rows, len(content))
                yield
            collected.write()
    except ERRORS:
        manifests.store.delete(file.path for _, file in larger)
        raise
    # What follows may be stored even if it fails: the larger files stay.
    manifests.put(
        Entry(entry.token, entry.previous, token()),
        msgspec.structs.replace(manifest, batches=_batches(manifest, entry, larger, merged)),
    )


def _groups(manifest: Manifest) -> Mapping[tuple[Format, str, object], list[tuple[Batch, DataFile]]]:
    """Return the small files that may be merged with each other, the oldest first: those of one folder."""
    found: dict[tuple[Format, str, object], list[tuple[Batch, DataFile]]] = {}
    for batch in reversed(manifest.batches):
        for file in batch.files if batch.offsets else ():
            if file.size < SMALL:
                key = (batch.format, str(PurePosixPath(file.path).parent), tuple(file.folders.items()))
                found.setdefault(key, []).append((batch, file))
    return {key: members for key, members in found.items() if len(members) > 1}


def _own_rows(content: bytes, form: Format, batch: Batch) -> Rows | None:
    """Return the rows of a file, None where one of them is not of its batch's records."""
    with suppress(MissingColumnsError, pa.ArrowException, msgspec.DecodeError):
        rows = decoded(content, form)
        if pc.all(are_in(rows, batch.offsets), min_count=0).as_py():
            return rows
    return None


@dataclass(slots=True)
class _Collected:
    """Rows of one folder that go to one file."""

    store: Store
    form: Format
    folder: str
    token: int
    larger: list[tuple[Format, DataFile]]
    """What is written."""
    merged: set[str]
    """Paths of files whose rows are in `larger`."""
    _files: list[DataFile] = field(default_factory=list)
    _rows: list[Rows] = field(default_factory=list)
    _size: int = 0
    _schema: pa.Schema | None = None

    def add(self, file: DataFile, rows: Rows, size: int) -> None:
        """Take the rows of one file; write before that if they do not fit."""
        schema = rows.schema if isinstance(rows, pa.Table) else None
        more = rows.nbytes if isinstance(rows, pa.Table) else size
        if schema != self._schema or self._size + more > LARGE:
            self.write()
            self._schema = schema
        self._files.append(file)
        self._rows.append(rows)
        self._size += more

    def write(self) -> None:
        """Write what is collected, unless it is one file already."""
        files, rows = self._files, self._rows
        self._files, self._rows, self._size = [], [], 0
        if not files[1:]:
            return
        folder = "" if self.folder == "." else f"{self.folder}/"
        name = f"{folder}{self.token:020d}-compacted-{uuid.uuid4().hex[:12]}.{SUFFIXES[self.form]}"
        if self.form == "parquet":
            made = write_table(self.store, name, pa.concat_tables(rows), self.form, files[0].folders)
        else:
            content = b"".join(chain.from_iterable(rows))
            self.store.put(name, content)
            number = sum(file.rows for file in files)
            made = DataFile(path=name, rows=number, size=len(content), folders=files[0].folders)
        self.larger.append((self.form, made))
        self.merged.update(file.path for file in files)


def _batches(
    manifest: Manifest, entry: Entry, larger: Sequence[tuple[Format, DataFile]], merged: set[str]
) -> tuple[Batch, ...]:
    """Return one batch for each format of the larger files, and those that have other files."""
    found = list[Batch]()
    for form in sorted({form for form, _ in larger}):
        same = (batch for batch in manifest.batches if batch.format == form)
        origins = [batch for batch in same if any(file.path in merged for file in batch.files)]
        offsets: dict[str, tuple[int, int]] = {}
        for key, (start, until) in chain.from_iterable(batch.offsets.items() for batch in origins):
            first, last = offsets.get(key, (start, until))
            offsets[key] = (min(first, start), max(last, until))
        files = tuple(file for one, file in larger if one == form)
        epoch = max(batch.epoch for batch in origins)
        found.append(Batch(epoch=epoch, token=entry.token, offsets=offsets, format=form, files=files))
    for batch in manifest.batches:
        if files := tuple(file for file in batch.files if file.path not in merged):
            found.append(msgspec.structs.replace(batch, files=files))
    return tuple(found)


def _files(manifest: Manifest) -> Iterator[DataFile]:
    return (file for batch in manifest.batches for file in batch.files)
