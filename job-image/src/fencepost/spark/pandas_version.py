"""PySpark's check of the version of pandas, put off until pandas is imported.

PySpark imports pandas to check it before each plan with Arrow batches, also where nothing of pandas is used.  The
import takes 0.4 CPU-s of a driver's start and 30 MiB of its memory.  What uses pandas imports it itself.
"""

from __future__ import annotations

import sys
from functools import wraps


def check_once_imported() -> None:
    """Have PySpark skip its check while pandas is not imported."""
    from pyspark.sql import udf  # noqa: PLC0415 - Spark's imports overlap the JVM's start
    from pyspark.sql.pandas import functions, utils  # noqa: PLC0415

    check = utils.require_minimum_pandas_version

    @wraps(check)
    def if_imported() -> None:
        if "pandas" in sys.modules:
            check()

    for module in (utils, functions, udf):
        setattr(module, check.__name__, if_imported)
