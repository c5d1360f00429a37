"""What the author's function and the sinks get to know of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fencepost.batch import EMPTY, Batch
from fencepost.context import WARM_TOKEN, BatchContext
from fencepost.contract import DriverConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.fence import FenceRow


def of_batch(
    config: DriverConfig,
    spark: SparkSession,
    batch: Batch,
    row: FenceRow,
    *,
    is_repeated: bool,
    states: Mapping[str, DataFrame],
) -> BatchContext:
    """Return the context of a batch whose rows are written at the row's timestamp."""
    return _context(
        config, spark, batch, version=row.version, token=row.write_timestamp, is_repeated=is_repeated, states=states
    )


def of_warm_up(
    config: DriverConfig, spark: SparkSession, batch: Batch = EMPTY, *, states: Mapping[str, DataFrame]
) -> BatchContext:
    """Return the context of a batch under which no sink writes."""
    return _context(config, spark, batch, version=0, token=WARM_TOKEN, is_repeated=False, states=states)


def _context(
    config: DriverConfig,
    spark: SparkSession,
    batch: Batch,
    *,
    version: int,
    token: int,
    is_repeated: bool,
    states: Mapping[str, DataFrame],
) -> BatchContext:
    return BatchContext(
        pipeline=config.pipeline,
        epoch=config.epoch,
        version=version,
        token=token,
        offsets=batch.spans(),
        args=config.args,
        is_repeated=is_repeated,
        spark=spark,
        states=states,
    )
