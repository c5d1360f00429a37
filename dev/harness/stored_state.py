"""The state of a stateful pipeline, as its fence row has committed it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cassandra.cluster import Session

from fencepost.fence import FenceRow
from fencepost.fence.patience import Patience
from fencepost.state.cassandra import CassandraChunks
from fencepost.state.chunks import PatientChunks
from fencepost.state.progress import Committed, unpack_committed
from fencepost.state.questions import Export, ExportFormat, RowsQuestion
from fencepost_cli.stores.state_reader import ask_state

PATIENCE: Final = Patience(20.0)


def state_rows(
    session: Session, keyspace: str, row: FenceRow, *, operator: int | None = None, store: str | None = None
) -> list[dict[str, Any]]:
    """Return the rows of a store as `fencepost state export` writes them: objects with `key` and `value`.

    `keyspace` has the fence row; `operator` and `store` may be None where there is only one. Raises CliError.
    """
    chunks = PatientChunks(CassandraChunks(session, keyspace, row.pipeline), PATIENCE)
    with _folder() as folder:
        export = Export(format=ExportFormat.JSONL, folder=str(folder))
        ask_state(_committed(row), chunks, RowsQuestion(operator=operator, store=store, export=export))
        return [json.loads(line) for file in folder.glob("*.json") for line in file.read_text().splitlines()]


def batch_watermark(row: FenceRow) -> datetime | None:
    """Return the watermark by which the last committed batch closed windows; None before the first."""
    if row.checkpoint is None:
        return None
    committed = _committed(row)
    _, settings, *_ = committed.offset_logs[committed.batch].splitlines()
    return datetime.fromtimestamp(json.loads(settings)["batchWatermarkMs"] / 1000, UTC)


def _committed(row: FenceRow) -> Committed:
    committed = unpack_committed(row.checkpoint)
    assert committed is not None, f"{row.pipeline} has committed no state"
    return committed


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as above:
        yield Path(above) / "state"
