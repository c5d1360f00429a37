"""A driver whose author does not use pandas does not import it, and PySpark still refuses one that is too old."""

from __future__ import annotations

import subprocess
import sys

DRIVER = """
import sys
import pyspark.sql
from fencepost.spark import pandas_version

pandas_version.check_once_imported()
import pyspark.testing.utils
from fencepost.spark import python_workers

spark = pyspark.sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert python_workers.nothing(spark, 1, "id long").count() == 0
assert "pandas" not in sys.modules
import pandas

pandas.__version__ = "1.0.0"
try:
    python_workers.nothing(spark, 1, "id long")
except ImportError as error:
    assert "1.0.0" in str(error), error
else:
    raise AssertionError("an old pandas is accepted")
print("seen")
"""


def test_pandas_is_imported_by_those_who_use_it_and_then_its_version_is_checked() -> None:
    done = subprocess.run([sys.executable, "-c", DRIVER], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "seen"), done.stderr
