"""Files of records: JSON lines that are records or plain values, and Parquet.

A line is a record where the first line of its file is an object with the field `value` and none but those of FIELDS.
Otherwise each line is the value of a record, as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from fencepost.local.record_lines import FIELDS, FileRecord, is_record, read_line, record_of

PARQUET: Final = ".parquet"
CHUNK: Final = 10_000
"""Records of a file that are held at once while it is copied."""


class RecordsInvalid(Exception):
    """A file has something else than records. The message names the file and the line."""


def read_file(path: Path) -> Iterator[FileRecord]:
    """Yield the records of a file in their order. Raises RecordsInvalid, OSError."""
    yield from _of_parquet(path) if path.suffix == PARQUET else _of_lines(path)


def copy_to_parquet(source: Path, to: Path) -> None:
    """Write the records of a file to a Parquet file. Raises RecordsInvalid, OSError."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    from pyarrow import parquet  # noqa: PLC0415

    from fencepost.kafka.reader import ARROW_SCHEMA  # noqa: PLC0415

    records = read_file(source)
    with parquet.ParquetWriter(to, ARROW_SCHEMA) as writer:
        while rows := list(islice(records, CHUNK)):
            writer.write_batch(pa.RecordBatch.from_pylist([_row(record) for record in rows], ARROW_SCHEMA))


def _row(record: FileRecord) -> dict[str, object]:
    headers = [{"key": name, "value": value} for name, value in record.headers]
    return {**{name: getattr(record, name) for name in FIELDS}, "headers": headers or None}


def _of_lines(path: Path) -> Iterator[FileRecord]:
    are_records: bool | None = None
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            text = line.rstrip(b"\r\n")
            if not text:
                continue
            if are_records is None:
                are_records = is_record(text)
            if not are_records:
                yield FileRecord(value=text)
                continue
            try:
                yield read_line(text)
            except (ValueError, TypeError, KeyError) as error:
                raise RecordsInvalid(f"{path}, line {number}: not a record: {error}") from error


def _of_parquet(path: Path) -> Iterator[FileRecord]:
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    from pyarrow import parquet  # noqa: PLC0415

    try:
        with parquet.ParquetFile(path) as file:
            if "value" not in file.schema_arrow.names or not FIELDS.issuperset(file.schema_arrow.names):
                raise RecordsInvalid(
                    f"{path}: its columns are {', '.join(file.schema_arrow.names)}, and those of records are"
                    f" {', '.join(sorted(FIELDS))}"
                )
            for batch in file.iter_batches():
                yield from map(record_of, batch.to_pylist())
    except (pa.ArrowException, ValueError, TypeError, KeyError) as error:
        raise RecordsInvalid(f"{path}: {error}") from error
