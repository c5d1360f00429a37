"""The batch on Spark: read, the author's transform, the sinks; one Spark job a batch however many sinks there are.

Several sinks read Kafka once each, in one job: reading is several times cheaper than writing (1 M records in 2.4 s
against 20 s), so a cached batch would cost more than it saves.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from fencepost.batch import Batch, Written
from fencepost.context import WARM_TOKEN, BatchContext
from fencepost.contract import DriverConfig, Reason
from fencepost.errors import BadSpec, BatchFailed, DriverError, from_text
from fencepost.spark import call_sites, source
from fencepost.spark.tasks import slices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.batch import Range
    from fencepost.context import Transform
    from fencepost.fence import FenceRow
    from fencepost.sinks.cassandra import CassandraSinkWriter


class SparkEngine:
    """Runs batches in a session. The transform's frame is checked against the tables once, on an empty batch."""

    def __init__(
        self,
        *,
        spark: SparkSession,
        config: DriverConfig,
        transform: Transform,
        sinks: Sequence[CassandraSinkWriter],
        properties: Mapping[str, str],
    ) -> None:
        self._spark = spark
        self._config = config
        self._transform = transform
        self._sinks = {sink.name: sink for sink in sinks}
        self._properties = properties

    def warm(self) -> None:
        """Run an empty batch on every core: analysis, code generation, Python workers, sessions of the sinks.

        Nothing is written: the fence is not held yet.
        Raises BadSpec when the transform or its columns do not fit.
        """
        self._run([()] * self._cores(), self._context({}, version=0, token=WARM_TOKEN), check=True)

    def keep_warm(self) -> None:
        """Run an empty batch, and write nothing."""
        self._run([()] * self._cores(), self._context({}, version=0, token=WARM_TOKEN), check=False)

    def write(self, batch: Batch, row: FenceRow) -> Written:
        """Read, transform and write a batch. Raises DriverError."""
        before = time.monotonic()
        context = self._context(batch.spans(), version=row.version, token=row.write_timestamp)
        written = self._run(slices(batch.ranges, self._cores()), context, check=False, since=before)
        call_sites.stop_recording(self._config.spark_conf)
        return written

    def _run(
        self, parts: Sequence[tuple[Range, ...]], context: BatchContext, *, check: bool, since: float | None = None
    ) -> Written:
        from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark's imports overlap the JVM's start
        from pyspark.errors import PySparkException  # noqa: PLC0415

        started = time.monotonic() if since is None else since
        try:
            outputs = self._outputs(source.frame(self._spark, parts, self._properties), context)
            if check:
                for name, frame in outputs.items():
                    self._sinks[name].check(frame)
            written = [self._sinks[name].write(frame, context.token) for name, frame in outputs.items()]
            prepared = time.monotonic()
            found = reduce(lambda left, right: left.union(right), written).collect()
        except (PySparkException, Py4JError) as error:
            raise from_text(str(error)) or BatchFailed(_short(error)) from error
        rows = dict.fromkeys(outputs, 0)
        for name, count in found:
            rows[name] += count
        phases = {
            "transform": round((prepared - started) * 1000),
            "job": round((time.monotonic() - prepared) * 1000),
        }
        return Written(rows=rows, phases=phases)

    def _outputs(self, batch: DataFrame, context: BatchContext) -> dict[str, DataFrame]:
        """Call the author's function and name its frames. Raises BadSpec, or BatchFailed around its error."""
        from pyspark.errors import AnalysisException  # noqa: PLC0415

        try:
            result = self._transform(batch, context)
        except DriverError:
            raise
        except AnalysisException as error:
            raise BadSpec(f"transform: {_short(error)}", reason=Reason.TRANSFORM_INVALID) from error
        except Exception as error:
            raise BatchFailed(
                f"the transform raised {type(error).__name__}: {_short(error)}", reason=Reason.TRANSFORM_FAILED
            ) from error
        return name_outputs(result, tuple(self._sinks))

    def _context(self, offsets: Mapping[str, tuple[int, int]], *, version: int, token: int) -> BatchContext:
        return BatchContext(
            pipeline=self._config.pipeline,
            epoch=self._config.epoch,
            version=version,
            token=token,
            offsets=offsets,
            args=self._config.args,
            spark=self._spark,
        )

    def _cores(self) -> int:
        """Cores of the executors that are there now."""
        return max(1, int(self._spark.sparkContext.defaultParallelism))


def name_outputs(result: object, sinks: Sequence[str]) -> dict[str, DataFrame]:
    """Return {sink: frame} of a transform's result. Raises BadSpec when the names do not match the declared sinks."""
    from pyspark.sql import DataFrame  # noqa: PLC0415

    if isinstance(result, DataFrame):
        if len(sinks) != 1:
            raise BadSpec(
                f"the transform returned one DataFrame, and {len(sinks)} sinks are declared: {', '.join(sinks)}",
                reason=Reason.TRANSFORM_INVALID,
                remedy="Return {sink name: DataFrame}.",
            )
        return {sinks[0]: result}
    if not isinstance(result, Mapping) or not all(isinstance(frame, DataFrame) for frame in result.values()):
        raise BadSpec(
            f"the transform returned {type(result).__name__}, not a DataFrame or a mapping of DataFrames",
            reason=Reason.TRANSFORM_INVALID,
        )
    if set(result) != set(sinks):
        raise BadSpec(
            f"the transform returned frames for {sorted(map(str, result))}, the declared sinks are {sorted(sinks)}",
            reason=Reason.TRANSFORM_INVALID,
            remedy="Make the mapping's keys the names of spec.sinks.",
        )
    return dict(result)


def _short(error: BaseException) -> str:
    """Return what matters of an error: Spark's carry pages of Java stack after the Python traceback."""
    text = str(error).partition("\n\nJVM stacktrace:")[0].partition("\n\tat ")[0].strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 3]} … {text[-2 * _LONGEST // 3 :]}"


_LONGEST = 1500
