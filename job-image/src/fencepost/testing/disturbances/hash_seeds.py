"""Another order of sets, and other hashes: Python's hash seed, in a process of its own or in Spark's workers."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast

from fencepost.testing.disturbances.authors_modules import forget_functions, modules_of, sent_by_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS: Final = (1, 2)
_VARIABLE: Final = "PYTHONHASHSEED"
_CHILD: Final = """
import pickle, sys
folder, sys.path[:] = sys.argv[1], sys.argv[2:]
with open(folder + "/call", "rb") as call, open(folder + "/result", "wb") as result:
    pickle.dump(pickle.load(call)(), result)
"""

T = TypeVar("T")


@contextmanager
def of_workers(spark: SparkSession, seed: int, function: object) -> Iterator[None]:
    """Start Python workers with this seed for what Spark runs of an author's function in the block."""
    variables = spark.sparkContext.environment
    usual = variables[_VARIABLE]
    variables[_VARIABLE] = str(seed)
    forget_functions(function)
    try:
        yield
    finally:
        variables[_VARIABLE] = usual
        forget_functions(function)


def called_with_seed(seed: int, call: Callable[[], T], function: object) -> T:
    """Return what `call` returns in a new Python process, which gets the modules of the author's function by value.

    Raises AssertionError with the error of the process.
    """
    from pyspark import cloudpickle  # noqa: PLC0415 - Spark's imports take a second

    with tempfile.TemporaryDirectory() as folder:
        with sent_by_value(modules_of(function)):
            Path(folder, "call").write_bytes(cloudpickle.dumps(call))  # type: ignore[no-untyped-call]
        ended = subprocess.run(
            [sys.executable, "-c", _CHILD, folder, *sys.path],
            env={**os.environ, _VARIABLE: str(seed)},
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise AssertionError(f"the function fails in another process: {ended.stderr.strip()}")
        return cast("T", pickle.loads(Path(folder, "result").read_bytes()))  # noqa: S301 - written by our own process
