"""Answers one question about a checkpoint that another process serves; run it with `python -m`.

It reads a `fencepost.state.questions.Request` on its standard input, and writes the `Answer` to its standard output.
Spark runs in this process alone, in local mode, and has no access to Cassandra.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fencepost.errors import DriverError
from fencepost.spark.jvm.gateway import Gateway
from fencepost.spark.session import STATE_STORE, first_line
from fencepost.spark.stateful.stored_state import NotChosen, frame_of, operator_of, operators_of, store_of
from fencepost.state.questions import (
    Answer,
    Export,
    ExportFormat,
    Operator,
    Refusal,
    Request,
    Rows,
    RowsQuestion,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

HEAP: Final = "1g"
LARGEST_RESULT: Final = "64m"
"""Of the rows of one answer."""
_TOO_LARGE: Final = re.compile(
    r"(?:Caused by)?(?:: )?(?:[\w.$]+: )?Job aborted due to stage failure: "
    r"Total size of serialized results of \d+ tasks"
)
"""How Spark's error begins where they take more; further on, an error may quote the state."""
START: Final = 120.0
"""Seconds for the JVM to start."""
_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.maxResultSize": LARGEST_RESULT,
    "spark.master": "local[*]",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class Refused(Exception):
    """The question cannot be answered as it is asked."""

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(message=message, remedy=remedy)


def main() -> None:
    """Answer the request on the standard input; the process ends with its JVM."""
    request = Request.from_json(sys.stdin.read())
    sys.stdout.write(answered(request, session_of).to_json())
    sys.stdout.flush()
    os._exit(0)


def answered(request: Request, start: Callable[[Request], SparkSession]) -> Answer:
    """Return the answer, a refusal where Spark cannot give another one."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - slow to import
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        spark = start(request)
        operators = operators_of(spark, request.location)
        if request.rows is not None:
            return Answer(rows=_rows(spark, request.location, operators, request.rows))
        counted = request.operators is not None and request.operators.counted
        return Answer(
            operators=tuple(_counted(spark, request.location, each) for each in operators) if counted else operators
        )
    except Refused as error:
        return Answer(refusal=error.refusal)
    except NotChosen as error:
        return Answer(refusal=Refusal(message=str(error), remedy=f"add --{error.option} with one of these"))
    except (DriverError, PySparkException, Py4JError) as error:
        return Answer(refusal=_refusal(first_line(error)))


def session_of(request: Request) -> SparkSession:
    """Start Spark for the request. Raises DriverError where the JVM does not start."""
    gateway = Gateway.start(memory=HEAP, options=[f"-Djava.io.tmpdir={request.scratch}"])
    gateway.connect(START)
    from pyspark.sql import SparkSession  # noqa: PLC0415 - its import overlaps the JVM's start

    builder = SparkSession.builder.appName("fencepost state")
    for name, value in {**_SETTINGS, **STATE_STORE, "spark.local.dir": request.scratch, **request.settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _rows(spark: SparkSession, location: str, operators: tuple[Operator, ...], question: RowsQuestion) -> Rows:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and slow to import

    operator = operator_of(operators, question.operator)
    store = store_of(operator, question.store)
    frame = _selected(frame_of(spark, location, operator, store), question.key)
    found = Rows(operator=operator.id, store=store)
    if question.export is not None:
        return replace(found, exported=_exported(frame, question.export))
    shown = _readable(frame)
    as_json = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
    rows = [text for (text,) in shown.limit(question.limit + 1).select(as_json).collect()]
    return replace(
        found,
        columns=tuple(_paths(shown.schema)),
        rows=tuple(rows[: question.limit]),
        more=len(rows) > question.limit,
    )


def _counted(spark: SparkSession, location: str, operator: Operator) -> Operator:
    stores = [replace(each, rows=frame_of(spark, location, operator, each.name).count()) for each in operator.stores]
    return replace(operator, stores=tuple(stores))


def _selected(frame: DataFrame, key: Mapping[str, str]) -> DataFrame:
    """Return the rows whose key has these values, compared as text: bytes as UTF-8, times in UTC. Raises Refused."""
    there = {".".join(path[1:]): path for path in _paths(frame.schema) if path[0] == "key"}
    for name, value in key.items():
        if name not in there:
            raise Refused(
                f"--key {name}: the key has no such field; it has: {', '.join(there)}",
                remedy="name one of these fields",
            )
        frame = frame.where(_at(there[name]).cast("string") == value)
    return frame


def _exported(frame: DataFrame, export: Export) -> int:
    """Write all rows, and return how many they are."""
    from pyspark.sql import Observation  # noqa: PLC0415 - slow to import
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name

    counter = Observation()
    folder = f"file://{export.folder}"
    if export.format is ExportFormat.PARQUET:
        frame.observe(counter, F.count(F.lit(1)).alias("rows")).write.parquet(folder)
    else:
        written = _readable(frame).observe(counter, F.count(F.lit(1)).alias("rows"))
        written.write.json(folder, ignoreNullFields=False)
    return int(counter.get["rows"])


def _readable(frame: DataFrame) -> DataFrame:
    """Return the rows with bytes as text where they are UTF-8, otherwise as '0x' and their hexadecimal digits."""
    return frame.select(*(_text((name,), frame.schema[name].dataType).alias(name) for name in frame.columns))


def _text(path: tuple[str, ...], kind: Any) -> Column:  # noqa: ANN401 - a type of Spark
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name
    from pyspark.sql.types import BinaryType, StructType  # noqa: PLC0415

    column = _at(path)
    if isinstance(kind, StructType):
        fields = F.struct(*(_text((*path, each.name), each.dataType).alias(each.name) for each in kind.fields))
        return F.when(column.isNotNull(), fields)
    if isinstance(kind, BinaryType):
        text = column.cast("string")
        return F.when(F.is_valid_utf8(text), text).otherwise(F.concat(F.lit("0x"), F.hex(column)))
    return column


def _at(path: tuple[str, ...]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and slow to import

    column = F.col(f"`{path[0]}`")
    for name in path[1:]:
        column = column.getField(name)
    return column


def _paths(schema: StructType, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each field that is not a struct."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - slow to import

    for each in schema.fields:
        if isinstance(each.dataType, StructType):
            yield from _paths(each.dataType, (*above, each.name))
        else:
            yield *above, each.name


def _refusal(message: str) -> Refusal:
    if _TOO_LARGE.match(message):
        return Refusal(message=f"the rows take more than {LARGEST_RESULT}iB", remedy="lower --limit, or export them")
    return Refusal(
        message=f"Spark cannot read the state: {message}", remedy="see `fencepost state show` for what there is"
    )


if __name__ == "__main__":
    main()
