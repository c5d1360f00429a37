"""The rows of some records, and that they depend on the records alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from $module import transform

if TYPE_CHECKING:
    from fencepost.pytest_plugin import MakeBatchTest

RECORDS = [
    {
        "topic": "$topic",
        "partition": number % 2,
        "offset": 9_998 + number // 2,
        "value": json.dumps({"id": f"id-{number}", "amount": number / 2, "at": "2026-01-01T12:00:00Z"}).encode(),
    }
    for number in range(8)
]


def test_each_record_becomes_a_row(batch_test: MakeBatchTest) -> None:
    """Sinks match the columns by name with those of schema.cql."""
    rows = batch_test(transform).rows(RECORDS)["rows"]
    assert len(rows) == len(RECORDS)
    last = max(rows, key=lambda row: row["id"])
    assert (last["partition"], last["bucket"], last["offset"]) == (1, 1, 10_001)
    assert (last["id"], last["amount"]) == ("id-7", 3.5)


def test_rows_depend_on_the_records_alone(batch_test: MakeBatchTest) -> None:
    """A batch may be repeated, in smaller parts, in another order and on another day."""
    batch_test(transform).assert_deterministic(RECORDS)
