"""A dependency that answers slowly is not mistaken for a frozen process."""

from __future__ import annotations

import pytest

from fakes.clock import Clock
from fencepost.fence.patience import Deadline, Patience


def given_up_after(clock: Clock, deadline: Deadline, *, first: float, others: float) -> float:
    """Return after how many seconds it raises; the first attempt takes `first`, each other one `others`."""
    clock.seconds += first
    while True:
        try:
            deadline.pause_or_raise(TimeoutError())
        except TimeoutError:
            return clock.seconds
        clock.seconds += others


@pytest.mark.parametrize(
    ("longest", "first", "others", "is_frozen"),
    [
        (10.0, 9.0, 9.0, False),
        (30.0, 29.0, 29.0, False),  # three requests of Kafka's, each of which times out
        (10.0, 60.0, 5.0, True),
    ],
)
def test_the_patience_begins_once_more_only_for_a_process_that_was_frozen(
    longest: float, first: float, others: float, is_frozen: bool
) -> None:
    clock = Clock()
    deadline = Patience(48.0, clock.monotonic, clock.sleep, longest=longest).begin()
    took = given_up_after(clock, deadline, first=first, others=others)
    assert (took > 48.0 + longest) is is_frozen
    assert took < first + 48.0 + longest
