"""The counts of some records, late ones included, and that they depend on the records alone."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from fencepost.testing.streams import disordered

from $module import stream

if TYPE_CHECKING:
    from fencepost.pytest_plugin import MakeStreamTest

EVENTS = [{"id": f"id-{number % 3}", "at": f"2026-01-01T{number // 4:02}:00:00Z"} for number in range(60)]


def test_the_counts_of_late_records_depend_on_the_records_alone(stream_test: MakeStreamTest) -> None:
    """Runs end at random places and resume, on another day too."""
    records = [{"topic": "$topic", "value": json.dumps(event).encode()} for event in EVENTS]
    counts = stream_test(stream, sinks=("$table",))
    rows = counts.assert_deterministic(disordered(records, batch=20, by=20), keys=["id", "hour"])["$table"]
    table = {(row["id"], row["hour"].hour): row["records"] for row in rows}
    assert table == Counter((event["id"], int(event["at"][11:13])) for event in EVENTS)
