"""The departures transform, whose executor is killed once in each batch, behind a shuffle of some MB.

The module runs in a pipeline's pods.
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from fencepost.context import BatchContext

PADDING: Final = 40_000
"""Characters of a row, at random: shuffle files do not shrink."""
KILLED: Final = Path("/tmp/killed")  # noqa: S108 - the worker's volume, which outlives its executors
"""A file for each batch that killed its executor."""


def transform(batch: DataFrame, context: BatchContext) -> DataFrame:
    """Return the rows as the example does."""
    made: DataFrame = importlib.import_module("departures").transform(batch, context)
    if not context.offsets:
        return made
    padded = made.selectExpr("*", f"randstr({PADDING}) AS padding").repartition(1, "offset")
    return padded.mapInArrow(killing(context.token), made.schema)


def killing(token: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what hands the rows on, and kills the executor at their end, once for a token."""

    def run(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for each in rows:
            yield each.drop_columns(["padding"])
        KILLED.mkdir(exist_ok=True)
        mark = KILLED / str(token)
        if not mark.exists():
            mark.touch()
            os.kill(_jvm(), signal.SIGKILL)

    return run


def _jvm() -> int:
    """Return the id of the executor's JVM: the parent of the daemon that forked this Python worker."""
    stat = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8")
    return int(stat.rpartition(")")[2].split()[1])
