"""A loss that ends a run is made exact, and recorded at the fence for the person who may accept it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from fencepost.contract import Reason, ReportedLoss
from fencepost.driver import losses, plan
from fencepost.driver.looks import Looks
from fencepost.driver.plan import Position
from fencepost.errors import BatchFailed, DataLoss, DriverError, from_text
from fencepost.fence import Fence, FenceError, FenceRow, FenceUnauthorized, FenceUnavailable


def recorded(
    error: Exception, row: FenceRow | None, *, epoch: int, fence: Fence, looks: Looks, topics: Sequence[str]
) -> Exception:
    """Return what ends the run: `error` itself unless it is a loss.

    A reader whose offset Kafka refuses does not know what the log holds instead, so the log is asked again.
    """
    lost = error if isinstance(error, DataLoss) else from_text(str(error))
    if not isinstance(lost, DataLoss) or row is None:
        return error
    if lost.loss is None and lost.reason is Reason.OFFSET_OUT_OF_RANGE:
        seen = _seen_again(row, lost, looks, topics)
        if not isinstance(seen, DataLoss):
            return seen
        lost = seen
    lost = losses.completed(lost, row)
    if lost.loss is None:
        return lost
    report = ReportedLoss(loss=lost.loss, epoch=epoch, at=datetime.now(UTC))
    try:
        fence.report_loss(report)
    except FenceError as refused:
        if isinstance(refused, FenceUnavailable) and not isinstance(refused, FenceUnauthorized):
            return refused  # the next run finds the loss again
        return losses.unrecorded(lost, refused)
    return lost


def _seen_again(row: FenceRow, refused: DataLoss, looks: Looks, topics: Sequence[str]) -> Exception:
    """Return what the log lost as it is now; a failure of the batch where it holds all that comes next."""
    position = Position(offsets=row.offsets, barrier=row.growth_barrier, log_ends=row.log_ends)
    known = [topic for topic in topics if topic in row.topic_ids]
    try:
        plan.advance(position, row.topic_ids, looks.insist(), known)
    except DriverError as found:
        return found
    return BatchFailed(f"Kafka refused an offset that its log holds: {refused.message}")
