"""Fixtures for tests of an author's function. pytest finds them once the package is installed.

`spark` is one local session for the whole test run. `batch_test(transform, args=…, states=…)` makes a BatchTest,
`stream_test(stream, sinks=…, …)` a StreamTest.

Imports nothing that costs time: pytest loads this module in each run, whatever it tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from fencepost.context import takes_record_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.context import RecordTransform, Stream, Transform
    from fencepost.testing import BatchTest
    from fencepost.testing.streams import StreamTest


class MakeBatchTest(Protocol):
    """The type of the fixture `batch_test`."""

    def __call__(
        self,
        transform: Transform | RecordTransform,
        *,
        args: tuple[str, ...] = (),
        states: Mapping[str, DataFrame] | None = None,
    ) -> BatchTest:
        """Return the test of a transform."""
        ...


class MakeStreamTest(Protocol):
    """The type of the fixture `stream_test`."""

    def __call__(self, stream: Stream, **options: Any) -> StreamTest:  # noqa: ANN401 - those of StreamTest
        """Return the test of a function of a stateful pipeline."""
        ...


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local Spark session, which starts with the first test that needs it."""
    from fencepost.testing.sessions import local_session  # noqa: PLC0415 - costs a second

    with local_session() as session:
        yield session


@pytest.fixture(scope="session")
def batch_test(request: pytest.FixtureRequest) -> MakeBatchTest:
    """Make tests of transforms; only one of DataFrames starts Spark."""
    from fencepost.testing import BatchTest  # noqa: PLC0415 - costs a second

    def make(
        transform: Transform | RecordTransform,
        *,
        args: tuple[str, ...] = (),
        states: Mapping[str, DataFrame] | None = None,
    ) -> BatchTest:
        session = None if takes_record_batches(transform) else request.getfixturevalue("spark")
        return BatchTest(session, transform, args=args, states=states or {})

    return make


@pytest.fixture(scope="session")
def stream_test(spark: SparkSession) -> MakeStreamTest:
    """Make tests of functions of stateful pipelines."""
    from fencepost.testing.streams import StreamTest  # noqa: PLC0415 - costs a second

    def make(stream: Stream, **options: Any) -> StreamTest:  # noqa: ANN401 - those of StreamTest
        return StreamTest(spark, stream, **options)

    return make
