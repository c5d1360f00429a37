"""Queries that are planned once and run for each batch, for as long as the function that they carry stays the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    Function = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class PreparedQueries:
    """One query per number of tasks, each a `mapInArrow` over the numbers of the tasks.

    Spark runs a frame again as often as it is asked, and plans it the first time only.
    """

    def __init__(self, spark: SparkSession, columns: str, *, returned: tuple[str, ...]) -> None:
        self._spark = spark
        self._columns = columns
        self._returned = returned
        self._function = b""
        self._frames: dict[int, DataFrame] = {}

    def forget(self) -> None:
        """Plan all of them again at their next use, under the settings that the session has then."""
        self._frames.clear()

    def of(self, function: Function, tasks: int) -> DataFrame:
        """Return the frame of the `returned` columns that so many tasks make with `function`.

        A function that is not the last one, byte for byte as it travels, is planned again.
        """
        from pyspark import cloudpickle  # noqa: PLC0415 - Spark's imports overlap the JVM's start

        pickled: bytes = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
        if pickled != self._function:
            self._function = pickled
            self._frames.clear()
        if tasks not in self._frames:
            numbers = self._spark.range(0, tasks, 1, tasks)
            self._frames[tasks] = numbers.mapInArrow(function, self._columns).select(*self._returned)
        return self._frames[tasks]
