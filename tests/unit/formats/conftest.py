from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from fencepost.contract.formats import Format, RecordFormat
from fencepost.errors import DriverError, WorkerError, from_text
from fencepost.formats.access import Access
from fencepost.formats.decoding import Decoding, decoded_column
from fencepost.kafka.reader import ARROW_SCHEMA
from harness.schema_registry import Schemas, handler
from harness.web_server import serving

PATIENCE = 0.0


@dataclass
class Served:
    schemas: Schemas
    url: str

    def register(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self.schemas.register(subject, text, kind, references)

    def decoding(
        self,
        kind: Format,
        version: int = 1,
        *,
        subject: str = "value",
        message: str = "",
        texts: tuple[tuple[str, str], ...] = (),
        column: str = "value",
    ) -> Decoding:
        declared = RecordFormat(format=kind, subject=subject, version=version, message=message)
        return Decoding((decoded_column(column, declared, Access(url=self.url, texts=texts), patience=PATIENCE),))

    def rows(self, kind: Format, version: int, records: Sequence[bytes | None], *, message: str = "") -> list[Any]:
        """Return the decoded values."""
        decoded: list[Any] = self.decoding(kind, version, message=message)(batch(records)).column("value").to_pylist()
        return decoded


@pytest.fixture
def registry() -> Iterator[Served]:
    schemas = Schemas()
    with serving(handler(schemas)) as port:
        yield Served(schemas, f"http://127.0.0.1:{port}")


def batch(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> pa.RecordBatch:
    rows = [
        {"topic": "flights", "partition": 3, "offset": 40 + position, "timestamp": 0, "key": key, "value": value}
        for position, (value, key) in enumerate(zip(values, keys or [None] * len(values), strict=True))
    ]
    return pa.RecordBatch.from_pylist(rows, ARROW_SCHEMA)


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def avro(schema_id: int, schema: Any, value: Any) -> bytes:
    file = BytesIO()
    schemaless_writer(file, parse_schema(schema), value)
    return framed(schema_id, file.getvalue())


def failure(decoding: Decoding, records: Sequence[bytes | None]) -> DriverError:
    """Return what the driver sees."""
    with pytest.raises(WorkerError) as raised:
        decoding(batch(records))
    found = from_text(str(raised.value))
    assert found is not None
    return found
