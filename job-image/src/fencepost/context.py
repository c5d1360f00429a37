"""What a transform is told about its batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchContext:
    """One batch, as the author's function sees it.

    `token` is the fencing token of the batch and the write timestamp of its rows, in µs: it grows with every batch and
    every takeover, so a store that keeps the highest one it saw refuses a replaced driver.  `version` is that of the
    fence row when the batch began.  `offsets` maps 'topic/partition' to [start, until); it is empty while the session
    warms up, when the transform gets an empty batch.
    """

    pipeline: str
    epoch: int
    version: int
    token: int
    offsets: Mapping[str, tuple[int, int]]
    args: tuple[str, ...]
    spark: SparkSession
