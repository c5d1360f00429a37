"""PySpark's call sites: with them an error of Spark names the author's line, without them a frame takes half the time.

Building the frame of the departures example took 814 round trips to the JVM and 203 ms with call sites, 414 and 94 ms
without.  So they are recorded until the first batch of a run is written.  A record that breaks an expression breaks it
again in the first batch of the next run, and then the verdict names the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SETTING: Final = "spark.python.sql.dataFrameDebugging.enabled"
"""Spark's own setting, on by default. A value set by the author takes precedence."""


def stop_recording(spark_conf: Mapping[str, str]) -> None:
    """Stop recording in this process, unless the author's `spark_conf` sets SETTING."""
    if SETTING in spark_conf:
        return
    from pyspark.errors import utils  # noqa: PLC0415 - Spark's imports overlap the JVM's start

    # PySpark reads the setting once and keeps the answer here; a running session has no public way to change it.
    setattr(utils, "_enable_debugging_cache", False)  # noqa: B010 - private there, and typed as always None
