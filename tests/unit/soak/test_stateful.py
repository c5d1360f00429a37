"""What the soak of a stateful pipeline says of departures that are missing."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from soak.stateful import accounted

HOURS = [("JFK", datetime(2013, 1, 1, hour, tzinfo=UTC)) for hour in range(3)]


@pytest.mark.parametrize(
    ("found", "late_rows", "said"),
    [
        ((10, 20, 30), 6, "0 departures are missing, 0 too many, and 6 are weeks late by design; 6 rows"),
        ((10, 20, 28), 8, "2 departures are missing, 0 too many, and 6 are weeks late by design; 8 rows"),
        ((10, 21, 30), 5, "0 departures are missing, 1 too many"),
        ((10, 20, 30), 4, "0 departures are missing, 0 too many, and 6 are weeks late by design; 4 rows"),
    ],
)
def test_what_is_missing_was_dropped_as_late(found: tuple[int, ...], late_rows: int, said: str) -> None:
    line = line_of(found, late_rows)
    assert line.startswith(said)
    assert line.endswith("at most 0 departures are lost")


def test_what_is_missing_and_was_not_dropped_is_lost() -> None:
    assert line_of((10, 15, 30), 7).endswith("at most 4 departures are lost")


def line_of(found: tuple[int, ...], late_rows: int) -> str:
    return accounted(
        produced=dict(zip(HOURS, (12, 22, 32), strict=True)),
        expected=dict(zip(HOURS, (10, 20, 30), strict=True)),
        found=dict(zip(HOURS, found, strict=True)),
        late_rows=late_rows,
    )
