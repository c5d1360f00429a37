"""Transforms of the integration tests."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as every Spark program has it

from fencepost.context import BatchContext


def transform(batch: DataFrame, context: BatchContext) -> DataFrame:
    """One row a record; args: records in a bucket."""
    size = int(context.args[0])
    value = F.from_json(F.col("value").cast("string"), "n long, x double, city string").alias("v")
    rows = batch.select("partition", "offset", F.col("timestamp").alias("at"), value)
    return rows.select("partition", (F.col("offset") / size).cast("long").alias("bucket"), "offset", "at", "v.*")


def placed(batch: DataFrame, context: BatchContext) -> DataFrame:
    """The rows of `transform` with their topic, without the time."""
    rows = transform(batch, context).drop("at")
    return rows.withColumn("topic", F.lit(next(iter(context.offsets), "none/0").rpartition("/")[0]))


def priced(batch: DataFrame, context: BatchContext) -> DataFrame:
    """The rows of `placed`, of which args change one, leave one out, add one for another, and refuse one, each by n."""
    changed, left_out, added, refused = (int(number) for number in context.args)
    rows = placed(batch, replace(context, args=("1000",))).where(F.col("n") != left_out)
    price = F.when(F.col("n") == changed, F.col("x") + 1).when(F.col("n") == refused, F.raise_error(F.lit("refused")))
    rows = rows.withColumn("x", price.otherwise(F.col("x")).cast("double"))
    twice = F.when(F.col("n") == added, F.array(F.col("offset"), F.col("offset") + 1_000_000))
    return rows.withColumn("offset", F.explode(twice.otherwise(F.array(F.col("offset")))))


def two(batch: DataFrame, context: BatchContext) -> Mapping[str, DataFrame]:
    """The same rows to two sinks."""
    rows = transform(batch, context)
    return {"rows": rows, "even": rows.where("n % 2 = 0")}


def structs(batch: DataFrame, context: BatchContext) -> Mapping[str, DataFrame]:
    """The same rows, and rows of structs: one for a type, without its field `unit`, and one for a tuple."""
    rows = transform(batch, context)
    nested = rows.select(
        "partition", "offset", F.struct("city", "n").alias("reading"), F.struct("city", "x").alias("place")
    )
    return {"rows": rows, "structs": nested}


def summary(batch: DataFrame, context: BatchContext) -> DataFrame:
    """One row per batch, and one of an empty batch: with null in its key."""
    rows = transform(batch, context)
    return rows.agg(
        F.max("partition").alias("partition"),
        F.lit(0).cast("long").alias("bucket"),
        F.max("offset").alias("offset"),
        F.count("*").alias("n"),
    )


def wrong_column(batch: DataFrame, context: BatchContext) -> DataFrame:
    return transform(batch, context).withColumnRenamed("city", "town")


def null_key(batch: DataFrame, context: BatchContext) -> DataFrame:
    return transform(batch, context).withColumn("bucket", F.lit(None).cast("long"))


def failing(batch: DataFrame, context: BatchContext) -> DataFrame:
    if context.offsets:
        raise ArithmeticError("the author's own mistake")
    return transform(batch, context)


def brittle(batch: DataFrame, context: BatchContext) -> DataFrame:
    """Break at offset 300."""
    rows = transform(batch, context)
    return rows.withColumn("n", F.when(F.col("offset") < 300, F.col("n")).otherwise(F.col("city").cast("long")))


def slow(batch: DataFrame, context: BatchContext) -> DataFrame:
    """Take some seconds in the executors."""

    def sleep(rows: Iterator[Any]) -> Iterator[Any]:
        import time  # noqa: PLC0415

        for part in rows:
            time.sleep(3)
            yield part

    rows = transform(batch, context)
    return rows.mapInArrow(sleep, rows.schema)


def keyed(batch: DataFrame, context: BatchContext) -> DataFrame:
    """One row a record, under the bucket that args name; the marker file of args holds up every task but the first.

    The tasks that are held fail once the file says so.

    A task that is held has written nothing: what it yields waits in the buffers of Spark until it ends. The warm-up's
    empty batch has several tasks too, and is not held.
    """
    bucket, marker = context.args
    is_warm_up = not context.offsets

    def hold(parts: Iterator[Any]) -> Iterator[Any]:
        import time  # noqa: PLC0415
        from pathlib import Path  # noqa: PLC0415

        from pyspark import TaskContext  # noqa: PLC0415

        task = TaskContext.get()
        assert task is not None
        while not is_warm_up and task.partitionId() > 0 and Path(marker).exists():
            assert Path(marker).read_text() != "fail"
            time.sleep(0.1)
        yield from parts

    rows = placed(batch, replace(context, args=("1000",))).withColumn("bucket", F.lit(int(bucket)).cast("long"))
    return rows.mapInArrow(hold, rows.schema)


def trickle(batch: DataFrame, context: BatchContext) -> DataFrame:
    """Give five rows per second and task, so that a batch takes long and makes progress all the time."""

    def dribble(parts: Iterator[Any]) -> Iterator[Any]:
        import time  # noqa: PLC0415

        for part in parts:
            for row in range(part.num_rows):
                time.sleep(0.2)
                yield part.slice(row, 1)

    rows = transform(batch, context)
    return rows.mapInArrow(dribble, rows.schema)


def picky(batch: DataFrame, context: BatchContext) -> DataFrame:
    """Refuse records in two ways: a cast in the JVM, and a Python worker's exception."""

    def check(parts: Iterator[Any]) -> Iterator[Any]:
        for part in parts:
            if any(b"unreadable" in value for value in part.column("value").to_pylist()):
                raise ValueError("this record is unreadable")
            yield part

    rows = transform(batch.mapInArrow(check, batch.schema), context)
    return rows.withColumn("n", F.when(F.col("city") == "nowhere", F.col("city").cast("long")).otherwise(F.col("n")))


def picky_placed(batch: DataFrame, context: BatchContext) -> DataFrame:
    """The rows of `picky` as `placed` has them."""
    rows = picky(batch, replace(context, args=("1000",))).drop("at")
    return rows.withColumn("topic", F.lit(next(iter(context.offsets), "none/0").rpartition("/")[0]))


def greedy(batch: DataFrame, context: BatchContext) -> DataFrame:
    """Want more than there are addresses for a record of over 100,000 bytes, in a Python worker."""

    def hold(parts: Iterator[Any]) -> Iterator[Any]:
        for part in parts:
            kept = [bytes(1 << 62) for value in part.column("value").to_pylist() if len(value) > 100_000]
            assert not kept
            yield part

    return transform(batch.mapInArrow(hold, batch.schema), context)


def to_topic(batch: DataFrame, context: BatchContext) -> DataFrame:
    """The records as they came, with their coordinates."""
    assert context.pipeline
    return batch.select("topic", "partition", "offset", "key", "value")


def numbered(batch: DataFrame, context: BatchContext) -> DataFrame:
    """One row a record: in `city` the batch and the task, in `x` the place within the task."""
    rows = transform(batch, context)
    task = F.concat_ws("/", F.lit(str(context.version)), F.spark_partition_id().cast("string"))
    return rows.withColumns({"city": task, "x": F.monotonically_increasing_id().cast("double")})


def importing(batch: DataFrame, context: BatchContext) -> DataFrame:
    """The rows of `transform`, in Python workers that take 20 s for their imports."""

    def imported(batches: Iterator[Any]) -> Iterator[Any]:
        import time  # noqa: PLC0415

        time.sleep(20)
        yield from batches

    return transform(batch.mapInArrow(imported, batch.schema), context)


def texts(batch: DataFrame, context: BatchContext) -> Mapping[str, DataFrame]:
    """The keys and the values as text, to a table and to a topic: Spark's cast leaves bytes that are not UTF-8."""
    assert context.pipeline
    key, value = F.col("key").cast("string"), F.col("value").cast("string")
    return {
        "names": batch.select(key.alias("name"), "offset"),
        "out": batch.select("topic", "partition", "offset", value.alias("value")),
    }
