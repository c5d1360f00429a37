"""A loss that ends a run is made exact, and recorded at the fence for the user who may accept it.

Its acceptance skips records, so nothing is recorded because a task, an author's code or a sink says so: the driver asks
Kafka's log itself.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from fencepost.batch import Range, Watermarks, between
from fencepost.contract import Reason, ReportedLoss, split_offset_key
from fencepost.driver.planning import plan
from fencepost.driver.planning.log_polling import LogPolling
from fencepost.driver.planning.plan import Position
from fencepost.driver.ports import Records
from fencepost.driver.recovery import lost_ranges
from fencepost.errors import BatchFailed, DataLoss, DriverError
from fencepost.fence import Fence, FenceError, FenceRow, FenceUnauthorized, FenceUnavailable


def recorded(
    error: Exception,
    row: FenceRow | None,
    *,
    is_claimed: bool,
    epoch: int,
    fence: Fence,
    polling: LogPolling,
    records: Records,
    topics: Sequence[str],
) -> Exception:
    """Return what ends the run: `error` itself unless it is a loss.

    Before the claim the driver alone has looked at the log. After it, whatever a batch raises is checked against the
    log, and the ranges that are recorded are those that the driver sees.
    """
    if not isinstance(error, DataLoss) or row is None:
        return error
    seen = _seen(row, error, polling, records, topics) if is_claimed else error
    if isinstance(seen, DataLoss) and seen.reason is Reason.LOG_TRUNCATED:
        seen = _from_the_cut(seen, row, polling, records, topics)
    if not isinstance(seen, DataLoss):
        return seen
    lost = lost_ranges.completed(seen, row)
    if lost.loss is None:
        return lost
    report = ReportedLoss(loss=lost.loss, epoch=epoch, at=datetime.now(UTC))
    try:
        fence.report_loss(report)
    except FenceError as refused:
        if isinstance(refused, FenceUnavailable) and not isinstance(refused, FenceUnauthorized):
            return refused  # the next run finds the loss again
        return lost_ranges.unrecorded(lost, refused)
    return lost


def _seen(row: FenceRow, claimed: DataLoss, polling: LogPolling, records: Records, topics: Sequence[str]) -> Exception:
    """Return what the log has lost of what was read, as it is now; a failure where the log holds all of it."""
    position = Position(offsets=row.offsets, barrier=row.growth_barrier, log_ends=row.log_ends, growths=row.growths)
    known = [topic for topic in topics if topic in row.topic_ids]
    try:
        log = polling.insist()
        plan.advance(position, row.topic_ids, log, known)
        if claimed.reason is Reason.LOG_TRUNCATED:
            lost_ranges.check_begun(row, log, known)
            records.check(_grown_again(row, log, known))
    except DriverError as found:
        return found
    return BatchFailed(
        f"{claimed.reason} is not confirmed: {claimed.message}; but Kafka's log holds all that follows the committed"
        f" offsets: {lost_ranges.held(row, log, known)}",
        remedy="Nothing is lost or skipped; the next run repeats the batch. If it fails in the same way, see what in"
        " the transform or in a sink raises DataLoss.",
    )


def _from_the_cut(
    lost: DataLoss, row: FenceRow, polling: LogPolling, records: Records, topics: Sequence[str]
) -> DriverError:
    """Return the loss from where each log was truncated on; a failure where Kafka does not answer.

    A log's end shows that only until it grows again: what was written between is not what was read before.
    """
    try:
        records.check(_grown_again(row, polling.insist(), topics, beyond=lost.loss.ranges if lost.loss else ()))
    except DataLoss as found:
        return lost_ranges.joined(lost, found, row)
    except DriverError as error:
        return error
    return lost


def _grown_again(
    row: FenceRow, log: Watermarks, topics: Sequence[str], *, beyond: Container[str] = ()
) -> tuple[Range, ...]:
    """Return the next record of each partition whose log may have been cut and have grown beyond the offset since.

    The offsets do not show that; a read under the leader epoch of the committed offset does.  Of a log that is known to
    end before the offset, which `beyond` names, the read finds where it was cut.
    """
    wanted = set(topics)
    until = {
        key: at + 1
        for key, at in row.offsets.items()
        if split_offset_key(key)[0] in wanted and key in log.ends and (log.ends[key] > at or key in beyond)
    }
    found = between(row.offsets, until, row.leader_epochs, epoch_starts=row.epoch_starts)
    return replace(found, leader_epochs=log.leader_epochs).since_other_leaders
