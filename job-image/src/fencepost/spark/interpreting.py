"""Until a run has written its first batch, Spark interprets expressions; from then on it compiles them to Java.

Compiling loads a compiler into the JVMs of the driver and of an executor, and its work pays off over many rows only.
Without it their start to a second job took 8.0 CPU-s instead of 9.6.  Results are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
MOST_RECORDS: Final = 20_000
"""A larger first batch is worth compiling for."""


class Interpreting:
    """Whether the session interprets; it does until `end`, unless the author's `spark_conf` sets one of SETTINGS."""

    def __init__(self, spark: SparkSession, spark_conf: Mapping[str, str]) -> None:
        self._spark = spark
        self.is_on = not SETTINGS.keys() & spark_conf.keys()
        if self.is_on:
            for name, value in SETTINGS.items():
                spark.conf.set(name, value)

    def end(self) -> bool:
        """Let Spark compile what is planned from now on; return whether it did not so far."""
        was_on, self.is_on = self.is_on, False
        if was_on:
            for name in SETTINGS:
                self._spark.conf.unset(name)
        return was_on
