"""A sink that keeps the rows of each batch, whatever their columns, in Arrow files of a folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fencepost.sinks import BatchToken, Sink, SinkTask

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RowFiles(Sink):
    """The driver's half; the folder must exist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check(self, schema: StructType) -> None:
        """Accept any columns."""

    def task(self) -> SinkTask:
        """Return the task's half."""
        return _RowFilesTask(str(self._folder))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield all rows in the order of their batches; a batch that was written again has its rows again."""
        for path in sorted(self._folder.iterdir()):
            with pa.ipc.open_file(path) as file:
                yield from file.read_all().to_pylist()


@dataclass(frozen=True, slots=True)
class _RowFilesTask:
    """Writes a file for each task that has rows, whose name begins with the batch's token."""

    folder: str

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        """Write all rows at once: a task that fails leaves no file."""
        rows = [found for found in batches if found.num_rows]
        if rows and not batch.is_warm_up:
            path = Path(self.folder) / f"{batch.token:020}-{uuid.uuid4()}"
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows[0].schema) as writer:
                for found in rows:
                    writer.write_batch(found)
        yield sum(found.num_rows for found in rows)
