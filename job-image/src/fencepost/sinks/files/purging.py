"""Deletes the rows of ranges of offsets from a sink of files.

One new manifest says what stays; then the other files go.  A batch of which only a part goes is written again without
that part, by the columns topic, partition and offset of its rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.contract import FilesSink, Reason
from fencepost.errors import BadSpec
from fencepost.sinks.files.coordinates import MissingColumnsError, Ranges, are_in, decoded
from fencepost.sinks.files.manifest import SUFFIXES, Batch, DataFile, Entry, Format, Manifest
from fencepost.sinks.files.row_files import write_table
from fencepost.sinks.files.store import Store
from fencepost.sinks.files.stored_manifests import Manifests, View
from fencepost.sinks.interface import PurgeToken


def count(manifests: Manifests, sink: str, ranges: Ranges) -> int:
    """Return how many rows these records have. Raises BadSpec, OSError, pa.ArrowException."""
    rows = 0
    for manifest in manifests.read(manifests.of_newest().visible):
        for batch in manifest.batches:
            if _is_within(batch, ranges):
                rows += batch.rows
            elif _touches(batch, ranges):
                rows += sum(
                    file.rows - _rest(manifests.store, sink, file, batch.format, ranges)[1] for file in batch.files
                )
    return rows


def purge(manifests: Manifests, sink: FilesSink, request: PurgeToken) -> None:
    """Delete the rows of the records. Raises BadSpec, OSError, pa.ArrowException."""
    own = Entry(request.token, None)
    view = manifests.of_committed(request.committed)
    if own not in view.sizes:
        # A fence that has lost the token, as after a restore, says 0 too. What no commit followed is within the ranges.
        committed = request.committed or request.token
        _put(manifests, sink, manifests.of_committed(committed, before=request.token), request, own)
        view = manifests.of_committed(request.committed)
    stale = view.stale(request.token)
    gone = {file.path for file in _files(manifests.read(stale))}
    gone.difference_update(file.path for file in _files(manifests.read(view.visible)))
    manifests.store.delete(gone)
    manifests.delete(stale)


def _files(found: Iterable[Manifest]) -> Iterator[DataFile]:
    return (file for manifest in found for batch in manifest.batches for file in batch.files)


def _put(manifests: Manifests, sink: FilesSink, view: View, request: PurgeToken, own: Entry) -> None:
    """Write what stays of batches of which a part goes, then the manifest.

    A full manifest of which nothing goes is kept.  The batches of any other are copied: a replaced driver may still
    fold it.
    """
    kept, batches = list[Entry](), list[Batch]()
    for entry, manifest in zip(view.visible, manifests.read(view.visible), strict=True):
        rest = (_without(manifests.store, sink.name, batch, request) for batch in manifest.batches)
        left = tuple(batch for batch in rest if batch is not None)
        if view.is_full(entry) and entry.previous is not None and left == manifest.batches:
            kept.append(entry)
        else:
            batches += left
    made = Manifest(
        pipeline=request.pipeline,
        sink=sink.name,
        batches=tuple(batches),
        kept=tuple(entry.name for entry in kept),
    )
    manifests.put(own, made)


def _is_within(batch: Batch, ranges: Ranges) -> bool:
    """Return whether all records of a batch are in the ranges."""
    return bool(batch.offsets) and all(
        key in ranges and ranges[key][0] <= start and until <= ranges[key][1]
        for key, (start, until) in batch.offsets.items()
    )


def _touches(batch: Batch, ranges: Ranges) -> bool:
    """Return whether a batch may have rows of the ranges: one without offsets may, such as of a window that closed."""
    return not batch.offsets or any(
        key in ranges and start < ranges[key][1] and ranges[key][0] < until
        for key, (start, until) in batch.offsets.items()
    )


def _without(store: Store, sink: str, batch: Batch, request: PurgeToken) -> Batch | None:
    """Return a batch without the rows of the ranges: itself where it has none, None where nothing is left."""
    if not _touches(batch, request.offsets):
        return batch
    if _is_within(batch, request.offsets):
        return None
    rest = (_file_without(store, sink, file, batch.format, request) for file in batch.files)
    files = tuple(file for file in rest if file is not None)
    return msgspec.structs.replace(batch, files=files) if files else None


def _file_without(store: Store, sink: str, file: DataFile, form: Format, request: PurgeToken) -> DataFile | None:
    """Return a file without the rows of the ranges: itself where it has none, None where nothing is left."""
    rest, rows = _rest(store, sink, file, form, request.offsets)
    if rows in {0, file.rows}:
        return file if rows else None
    folder = "".join(f"{part}/" for part in PurePosixPath(file.path).parent.parts)
    name = f"{folder}{request.token:020d}-purge-{uuid.uuid4().hex[:12]}.{SUFFIXES[form]}"
    if isinstance(rest, pa.Table):
        return write_table(store, name, rest, form, file.folders)
    store.put(name, rest)
    return DataFile(path=name, rows=rows, size=len(rest), folders=file.folders)


def _rest(store: Store, sink: str, file: DataFile, form: Format, ranges: Ranges) -> tuple[pa.Table | bytes, int]:
    """Return what is left of a file without the rows of the ranges, and how many rows that is. Raises BadSpec."""
    rows = decoded(store.read(file.path), form)
    try:
        gone = are_in(rows, ranges)
    except MissingColumnsError as error:
        raise BadSpec(
            f"sink {sink!r}: a batch is deleted in part, and its files have no column {', '.join(error.args)}",
            reason=Reason.SINK_INVALID,
            remedy="Choose a target at which batches end, or set deleteOutput to false. With topic, partition and"
            " offset as columns of the frame, what is written from then on can be deleted in part.",
        ) from error
    if isinstance(rows, pa.Table):
        left = rows.filter(pc.invert(gone))
        return left, left.num_rows
    lines = [line for line, is_gone in zip(rows, gone.to_pylist(), strict=True) if not is_gone]
    return b"".join(lines), len(lines)
