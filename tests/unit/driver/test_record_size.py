"""A record that alone does not fit into memory is named with its size."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fencepost.batch import EMPTY, Batch, Range, Record, between
from fencepost.driver.sizing.record_size import with_size
from fencepost.errors import DependencyDown, OutOfMemory

ERROR = OutOfMemory("an executor's JVM ran out of memory: exit code 137", remedy="raise it")


class Records:
    def __init__(self, found: Record | Exception | None) -> None:
        self.found = found

    def first(self, part: Range) -> Record | None:
        assert part.key == "t/0"
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


LARGE = Record(
    topic="t", partition=0, offset=7, timestamp=datetime(2026, 1, 1, tzinfo=UTC), key=b"k" * 10, value=b"v" * 5_000_000,
    headers=(("h", b"x" * 4), ("empty", None)),
)  # fmt: skip
ONE = between({"t/0": 7}, {"t/0": 8})


def test_the_size_of_one_record_goes_before_what_spark_says() -> None:
    found = with_size(ERROR, ONE, Records(LARGE))
    assert found.message.startswith("the batch is one record of 5000020 bytes, t/0@7: an executor's JVM ran")
    assert found.remedy == "raise it"


@pytest.mark.parametrize("answer", [None, DependencyDown("no broker")], ids=["no record", "no answer"])
def test_without_an_answer_the_error_stays(answer: Exception | None) -> None:
    assert with_size(ERROR, ONE, Records(answer)) is ERROR


@pytest.mark.parametrize("batch", [EMPTY, between({"t/0": 7}, {"t/0": 9})], ids=["none", "two"])
def test_other_batches_are_not_read_again(batch: Batch) -> None:
    assert with_size(ERROR, batch, Records(AssertionError("read"))) is ERROR
