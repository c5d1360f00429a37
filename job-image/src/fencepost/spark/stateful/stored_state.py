"""The stores of a checkpoint's state as DataFrames, by Spark's state reader."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from fencepost.state.questions import JOIN_SIDES, TIMERS, Operator, Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

_JOIN: Final = "symmetricHashJoin"
_PROCESSOR: Final = "transformWithState"
_OF_TIMERS: Final = "$"
"""How Spark's own variables begin, which hold the timers: an author's cannot."""


class NotChosen(Exception):
    """No operator or store is meant, or more than one. `option` is what has to name it."""

    def __init__(self, message: str, *, option: str) -> None:
        super().__init__(message)
        self.option = option


class TooManyBytes(Exception):
    """The rows take more bytes than are read."""


def operators_of(spark: SparkSession, location: str) -> tuple[Operator, ...]:
    """Return the operators of the state with their stores, in the order of their numbers."""
    found: dict[int, list[Row]] = {}
    for row in spark.read.format("state-metadata").load(location).collect():
        found.setdefault(row.operatorId, []).append(row)
    return tuple(
        Operator(
            id=number,
            name=rows[0].operatorName,
            partitions=rows[0].numPartitions,
            stores=tuple(Store(name=name) for name in _store_names(rows)),
        )
        for number, rows in sorted(found.items())
    )


def operator_of(operators: tuple[Operator, ...], asked: int | None) -> Operator:
    """Return the operator that is meant. Raises NotChosen."""
    found = [each for each in operators if asked in {None, each.id}]
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"{each.id} ({each.name})" for each in operators) or "none"
    what = "more than one operator" if asked is None else f"no operator {asked}"
    raise NotChosen(f"the state has {what}; it has: {there}", option="operator")


def store_of(operator: Operator, asked: str | None) -> str:
    """Return the store that is meant. Raises NotChosen."""
    found = [each.name for each in operator.stores if asked in {None, each.name}]
    if len(found) == 1:
        return found[0]
    there = ", ".join(each.name for each in operator.stores) or "none"
    what = "more than one store" if asked is None else f"no store {asked!r}"
    raise NotChosen(f"operator {operator.id} ({operator.name}) has {what}; it has: {there}", option="store")


def frame_of(spark: SparkSession, location: str, operator: Operator, store: str) -> DataFrame:
    """Return the rows of a store, lazily: columns `key` and `value`, or those of a list, a map or timers."""
    return spark.read.format("statestore").options(operatorId=operator.id, **_options(operator, store)).load(location)


def collected(frame: DataFrame, most: int) -> DataFrame:
    """Return the rows as they are now, held by the driver: at most `most` bytes of Arrow. Raises TooManyBytes."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    found, size = list[pa.Table](), 0
    for (content,) in frame.mapInArrow(partial(_packed, most=most), "content binary").toLocalIterator():
        size += len(content)
        if size > most:
            raise TooManyBytes(f"the rows take more than {most >> 20} MiB")
        found.append(pa.ipc.open_stream(content).read_all())
    spark, schema = frame.sparkSession, frame.schema
    return spark.createDataFrame(pa.concat_tables(found), schema) if found else spark.createDataFrame([], schema)


def _packed(batches: Iterable[pa.RecordBatch], *, most: int) -> Iterator[pa.RecordBatch]:
    """Yield each batch as the bytes of a stream, until they are too many."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    size = 0
    for batch in batches:
        content = io.BytesIO()
        with pa.ipc.new_stream(content, batch.schema) as stream:
            stream.write_batch(batch)
        size += content.tell()
        yield pa.RecordBatch.from_pydict({"content": pa.array([content.getvalue()], pa.binary())})
        if size > most:
            return


def _store_names(rows: list[Row]) -> list[str]:
    """Return the names of the stores of one operator, from the rows of its metadata."""
    if rows[0].operatorName == _JOIN:
        return list(JOIN_SIDES)
    if not rows[0].operatorName.startswith(_PROCESSOR):
        return sorted(row.stateStoreName for row in rows)
    variables = {each["stateName"] for each in json.loads(rows[0].operatorProperties)["stateVariables"]}
    authors = {name for name in variables if not name.startswith(_OF_TIMERS)}
    return sorted(authors | ({TIMERS} if variables > authors else set()))


def _options(operator: Operator, store: str) -> dict[str, str]:
    """Return how Spark's state reader is given a store."""
    if operator.name == _JOIN:
        return {"joinSide": store}
    if not operator.name.startswith(_PROCESSOR):
        return {"storeName": store}
    return {"readRegisteredTimers": "true"} if store == TIMERS else {"stateVarName": store}
