"""What an author's function gets to know of a batch or a run, and which of the two kinds of transform a function is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from fencepost.contract import Reason
from fencepost.errors import BadSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    Transform = Callable[["DataFrame", "BatchContext"], DataFrame | Mapping[str, DataFrame]]
    """The author's function."""
    RecordTransform = Callable[["pa.RecordBatch", "RecordContext"], pa.RecordBatch | Mapping[str, pa.RecordBatch]]
    """The author's function when it is declared with `record_batches`."""
    Stream = Callable[["DataFrame", "StreamContext"], DataFrame]
    """The author's function of a stateful pipeline: it makes a streaming DataFrame of the streaming DataFrame of
    records."""
    Finish = Callable[["DataFrame", "BatchContext"], DataFrame | Mapping[str, DataFrame]]
    """What an author may do with the rows of each batch of that query, before they are written."""

WARM_TOKEN: Final = 0
"""The token of a warm-up: it holds no fence, so a sink writes nothing under it, whatever rows the transform makes of an
empty batch (a global aggregate makes one). No batch has it: a takeover moves the fence row's clock above it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordContext:
    """One batch, as an author's function of record batches sees it.

    `is_repeated` says whether an earlier run planned some of the batch, and may have written it.
    `token` is the fencing token of the batch and the write timestamp of its rows, in µs: it grows with every batch and
    every takeover, so a store that keeps the highest one it saw refuses a replaced driver.  `version` is that of the
    fence row when the batch began.  `offsets` maps 'topic/partition' to [start, until).  While the session warms up the
    transform gets an empty batch: `offsets` is empty, and `token` is WARM_TOKEN, under which nothing may be written.  A
    run that waits for its epoch, and one that looks for a bad record, gives it records under that token as well.
    """

    pipeline: str
    epoch: int
    version: int
    token: int
    offsets: Mapping[str, tuple[int, int]]
    args: tuple[str, ...]
    is_repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchContext(RecordContext):
    """One batch, as an author's function of DataFrames sees it: the same, Spark's session, and the pinned states."""

    spark: SparkSession
    states: Mapping[str, DataFrame] = field(default_factory=dict, repr=False)

    def state(self, name: str) -> DataFrame:
        """Return the rows of an entry of `spec.source.pinnedStates`, the same ones in each run. Raises BadSpec."""
        return _state(self.states, name)

    def without_spark(self) -> RecordContext:
        """Return what a Python worker may know."""
        return RecordContext(
            pipeline=self.pipeline,
            epoch=self.epoch,
            version=self.version,
            token=self.token,
            offsets=self.offsets,
            args=self.args,
            is_repeated=self.is_repeated,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamContext:
    """One run of a stateful pipeline, as an author's `stream` sees it: it builds the query once, before any batch."""

    pipeline: str
    epoch: int
    args: tuple[str, ...]
    spark: SparkSession
    states: Mapping[str, DataFrame] = field(default_factory=dict, repr=False)

    def state(self, name: str) -> DataFrame:
        """Return the rows of an entry of `spec.source.pinnedStates`, the same ones in each run. Raises BadSpec."""
        return _state(self.states, name)


def _state(states: Mapping[str, DataFrame], name: str) -> DataFrame:
    if name not in states:
        raise BadSpec(
            f"spec.source.pinnedStates has no {name!r}; it has: {', '.join(states) or 'none'}",
            reason=Reason.TRANSFORM_INVALID,
            remedy="Add an entry with this name, or correct the name in the code.",
        )
    return states[name]


_Function = TypeVar("_Function", bound=Callable[..., object])
_MARK: Final = "fencepost_record_batches"


def record_batches(transform: _Function) -> _Function:
    """Declare that a transform takes and returns pyarrow.RecordBatch instead of a DataFrame.

    It is called in the Python workers, once for each part of a batch, and may be called for two parts at once: what it
    makes of a record may not depend on the other records.
    """
    setattr(transform, _MARK, True)
    return transform


def takes_record_batches(transform: object) -> bool:
    """Return whether a transform is declared with `record_batches`."""
    return getattr(transform, _MARK, False) is True
