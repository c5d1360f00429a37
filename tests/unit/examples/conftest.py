"""One small Spark session for all tests of the examples; starting it is most of their time."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle

from fencepost.testing import local_session
from present import present

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    """A session in a time zone that has nothing to do with the data: a transform must not lean on it."""
    with local_session({"spark.sql.session.timeZone": "Asia/Tokyo"}) as session:
        yield session


def example(folder: str, module: str) -> ModuleType:
    """Import an example's module from where a user finds it."""
    spec = present(importlib.util.spec_from_file_location(f"example_{module}", EXAMPLES / folder / f"{module}.py"))
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    # Spark's Python workers cannot import it by this name.
    cloudpickle.register_pickle_by_value(loaded)  # type: ignore[no-untyped-call]
    return loaded


@pytest.fixture(scope="session")
def departures() -> ModuleType:
    """The first example's transform."""
    return example("departures", "departures")


@pytest.fixture(scope="session")
def departures_arrow() -> ModuleType:
    """The same, as a function of record batches."""
    return example("departures", "departures_arrow")


@pytest.fixture(scope="session")
def flights_and_weather() -> ModuleType:
    """The second example's transform."""
    return example("flights-and-weather", "flights_and_weather")
