"""The task's half: the rows of a task as files, each in the folder of its columns' values, and a list of them."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa

from fencepost.errors import PoisonRecord
from fencepost.sinks.files.manifest import SUFFIXES, TASKS, DataFile, Format, encode
from fencepost.sinks.files.store import Place, Store
from fencepost.sinks.interface import BatchToken

if TYPE_CHECKING:
    from fencepost.sinks.files.store import Output

BUFFERED: Final = 64 * 1024 * 1024
"""Bytes in Arrow's format that a task collects before it writes them: the row groups of Parquet."""
LONGEST_FOLDER: Final = 255
"""Bytes of a folder's name."""
LONGEST_NAME: Final = 1024
"""Bytes of an object's key in S3."""
FILE_NAME: Final = 64
"""Bytes that the name of a file in its folder may have."""
NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""In place of a null in the name of a folder, as in Hive and Spark."""
_LINES: Final = msgspec.json.Encoder()

Key = tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """Writes rows to files. The credentials travel in the task's closure, over Spark's encrypted RPC."""

    place: Place
    owner: str
    """`<pipeline>/<sink>`."""
    format: Format
    folders: tuple[str, ...]

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        """Write all rows, then the list of their files.

        Raises PoisonRecord for a value that cannot name a folder, DependencyDown.
        """
        if batch.is_warm_up:
            self._rehearse(batches, batch)
            return
        files: list[DataFile] = []
        waiting, size = dict[Key, list[pa.RecordBatch]](), 0
        store: Store | None = None
        for rows in batches:
            for key, part in self._grouped(rows):
                waiting.setdefault(key, []).append(part)
            size += rows.nbytes
            if size > BUFFERED:
                store = store or self.place.open()
                for file in self._written(store, waiting, batch):
                    files.append(file)
                    yield 0  # so that progress shows: there may be many folders
                waiting, size = {}, 0
            yield rows.num_rows
        if waiting:
            store = store or self.place.open()
            for file in self._written(store, waiting, batch):
                files.append(file)
                yield 0
        if files and store is not None:
            with self.place.reached():
                store.put(f"{task_lists(self.owner, batch)}{_slice()}.json", encode(files))

    def _rehearse(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> None:
        """Read all rows, and fail as a batch would."""
        for rows in batches:
            if batch.is_rehearsal:
                for _ in self._grouped(rows):
                    pass

    def _grouped(self, rows: pa.RecordBatch) -> Iterator[tuple[Key, pa.RecordBatch]]:
        """Yield the rows of each folder. Raises PoisonRecord."""
        if not self.folders or not rows.num_rows:
            if rows.num_rows:
                yield (), rows
            return
        columns = [rows.column(name).cast(pa.string()).to_pylist() for name in self.folders]
        places: dict[Key, list[int]] = {}
        for place, key in enumerate(zip(*columns, strict=True)):
            places.setdefault(key, []).append(place)
        for key, indices in places.items():
            self._check_length(folder_of(self.folders, key))
            yield key, rows if len(places) == 1 else rows.take(pa.array(indices))

    def _check_length(self, folder: str) -> None:
        """Raise PoisonRecord for a folder in which no file's name is short enough for S3."""
        length = len(self.place.path.partition("://")[2].encode()) + 1 + len(folder) + FILE_NAME
        if length > LONGEST_NAME:
            raise PoisonRecord(
                f"the values of columns {', '.join(self.folders)} are too long together: a file's name with its path"
                f" and folders is {length} bytes, and {LONGEST_NAME} is the most"
            )

    def _written(self, store: Store, waiting: dict[Key, list[pa.RecordBatch]], batch: BatchToken) -> Iterator[DataFile]:
        for key, parts in waiting.items():
            folder = folder_of(self.folders, key)
            name = f"{batch.token:020d}-{_slice()}-{uuid.uuid4().hex[:12]}.{SUFFIXES[self.format]}"
            table = pa.Table.from_batches(parts)
            with self.place.reached():
                made = write_table(store, folder + name, table, self.format, dict(zip(self.folders, key, strict=True)))
            yield made


def write_table(store: Store, name: str, table: pa.Table, form: Format, folders: dict[str, str | None]) -> DataFile:
    """Write a file. Raises OSError, pa.ArrowException."""
    with store.writing(name) as file:
        counted = _Counted(file)
        if form == "parquet":
            from pyarrow import parquet  # noqa: PLC0415 - only where it is used

            sink = pa.PythonFile(counted, mode="w")
            parquet.write_table(table, sink, compression="zstd")
        else:
            for part in table.to_batches(max_chunksize=10_000):
                counted.write(_LINES.encode_lines(part.to_pylist(maps_as_pydicts="lossy")))
    return DataFile(path=name, rows=table.num_rows, size=counted.size, folders=folders)


class _Counted:
    """A file that is written, and how many bytes it has."""

    closed = False

    def __init__(self, file: Output) -> None:
        self._file = file
        self.size = 0

    def write(self, data: Any) -> int:  # noqa: ANN401 - what Arrow gives has the buffer protocol
        self._file.write(data)
        written = len(data)
        self.size += written
        return written

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """The file's own block ends with it."""

    def close(self) -> None:
        """The file's own block ends with it."""


def folder_of(columns: Sequence[str], key: Key) -> str:
    """Return the folders' names, each with a slash after it. Raises PoisonRecord for a value that is too long."""
    names = [
        f"{quote(column, safe='')}={NULL if value is None else quote(value, safe='')}"
        for column, value in zip(columns, key, strict=True)
    ]
    for column, name in zip(columns, names, strict=True):
        if len(name) > LONGEST_FOLDER:
            raise PoisonRecord(
                f"the value of column {column} is too long to name a folder: {len(name)} bytes, and {LONGEST_FOLDER}"
                " is the most"
            )
    return "".join(f"{name}/" for name in names)


def task_lists(owner: str, batch: BatchToken) -> str:
    """Return how the names begin with which the tasks of a batch list their files.

    Two attempts of a run may have one token, but not the same records as well.
    """
    return f"{TASKS}/{owner}/{batch.token:020d}-{zlib.crc32(encode(sorted(batch.offsets.items()))):08x}-"


def _slice() -> int:
    """Return the number of this Spark task, which a repetition keeps; 0 outside of Spark."""
    from pyspark import TaskContext  # noqa: PLC0415 - loaded already, where there is a task

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
