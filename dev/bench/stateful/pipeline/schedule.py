"""How many records each batch has: the same for every contestant, whatever a batch before took."""

from __future__ import annotations

from fencepost.batch import Batch, Written
from fencepost.driver.sizing.batch_limit import Limit


def install(text: str) -> None:
    """Follow a schedule such as '16x100000,140x1000': so many batches of so many records, the last size to the end."""
    left = [[int(number) for number in part.split("x")] for part in text.split(",")]

    def records(_: Limit) -> int:
        return left[0][1]

    def measure(_: Limit, batch: Batch, written: Written, *, seconds: float) -> None:  # noqa: ARG001 - as Limit's
        left[0][0] -= 1
        if left[0][0] <= 0 and len(left) > 1:
            del left[0]

    Limit.records = property(records)  # type: ignore[assignment, method-assign]
    Limit.measure = measure  # type: ignore[assignment, method-assign]
