"""Whether a frame asks Spark for the current time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def asks_for_the_time(frame: DataFrame) -> bool:
    """Return whether the plan has current_timestamp, current_date, now, localtimestamp, or the like."""
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001 - PySpark shows no plan otherwise
    pattern = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    plan: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - as above
    return bool(plan.containsPattern(pattern))
