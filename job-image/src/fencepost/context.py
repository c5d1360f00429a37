"""What a transform is told about its batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Transform = Callable[["DataFrame", "BatchContext"], DataFrame | Mapping[str, DataFrame]]
    """The author's function."""

WARM_TOKEN: Final = 0
"""The token of a warm-up: it holds no fence, so a sink writes nothing under it, whatever rows the transform makes of an
empty batch (a global aggregate makes one). No batch has it: a takeover moves the fence row's clock above it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchContext:
    """One batch, as the author's function sees it.

    `token` is the fencing token of the batch and the write timestamp of its rows, in µs: it grows with every batch and
    every takeover, so a store that keeps the highest one it saw refuses a replaced driver.  `version` is that of the
    fence row when the batch began.  `offsets` maps 'topic/partition' to [start, until).  While the session warms up the
    transform gets an empty batch: `offsets` is empty, and `token` is WARM_TOKEN, under which nothing may be written.
    """

    pipeline: str
    epoch: int
    version: int
    token: int
    offsets: Mapping[str, tuple[int, int]]
    args: tuple[str, ...]
    spark: SparkSession
