"""Whether a driver's process runs and reaches the fence's database, by its heartbeats.

A driver that is frozen, or whose node or network is lost, changes neither the fence row nor its heartbeat.  Kubernetes
sees a lost node after 40 seconds, and a frozen process never.  A false alarm costs an epoch: the takeover is on
condition of the row's version, and after it the driver can commit nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from fencepost.fence import FenceRow
from fencepost_operator.api import CommittedStatus, Reason, Status
from fencepost_operator.decision.cluster.silent_nodes import quiet_since
from fencepost_operator.observation import Known, Observation, Unknown

PATIENCE: Final = timedelta(seconds=10)
"""Without a heartbeat, of which there is one per second, or per 8 s of a run that finds nothing to read, and 3 beside a
standby: a start that was not needed takes longer than that."""
STANDBY_PATIENCE: Final = timedelta(seconds=5)
"""The same where a standby is warm, whose takeover takes about a second."""
LOOK: Final = timedelta(seconds=1)
"""Between two looks at a heartbeat that stays the same."""
DOUBT: Final = timedelta(seconds=3)
"""Without a heartbeat, from which on a driver counts as missed: the first one that is lost may be one of many."""
LONGEST_PAUSE: Final = timedelta(seconds=3)
"""Between two looks that belong to one silence.  After a longer one it begins again: the operator was paused, perhaps
together with the driver, or waited for another fact."""


def seen(
    before: CommittedStatus | None, row: FenceRow, observation: Observation
) -> tuple[datetime | None, datetime | None, datetime | None]:
    """Return the newest heartbeat, since when it and the row have been seen to stay, and when it was last asked for.

    None before the first one that is read: a driver of an older image has none, and is not judged by them.  Where it
    cannot be read, the silence begins again: an outage of the database replaces no driver.
    """
    known, since, asked_before = (
        (before.heartbeat, before.heartbeat_at, before.heartbeat_asked) if before is not None else (None, None, None)
    )
    now, asked, fact = observation.now, observation.heartbeat_asked, observation.heartbeat
    has_moved = before is not None and before.version != row.version
    if not isinstance(fact, Known) or asked is None:
        begins = since is not None and (has_moved or isinstance(fact, Unknown))
        return known, now if begins else since, None if begins else asked_before
    found = fact.value
    if found is None or found.epoch != row.epoch:
        return None, None, None
    is_new = found.at != known or since is None or has_moved
    is_late = asked_before is None or asked - asked_before > LONGEST_PAUSE
    return found.at, now if is_new or is_late else since, asked


def silence(committed: CommittedStatus | None, observation: Observation) -> tuple[datetime, datetime] | None:
    """Return since when and until when heartbeat and row were seen to stay; None for a run that is not judged by them.

    It ends when the heartbeat was asked for: other facts of the observation may have taken seconds more.
    """
    asked = observation.heartbeat_asked
    if committed is None or committed.heartbeat_at is None or asked is None:
        return None
    return (committed.heartbeat_at, asked) if isinstance(observation.heartbeat, Known) else None


def is_alive(before: Status, after: Status, observation: Observation) -> bool | None:
    """Return whether the last look has seen the driver alive, or has missed it for DOUBT; None where it shows neither.

    The operator changes the row only while no run is active, and asks for no heartbeat where no record waits.
    """
    run, was, now = after.run, before.committed, after.committed
    if run is None or not run.is_active or run.claimed_at is None or was is None or now is None:
        return None
    found = silence(now, observation)
    if now.version != was.version or (found is not None and was.heartbeat not in {None, now.heartbeat}):
        return True
    if found is None or quiet_since(after) is None or found[1] - found[0] < DOUBT:
        return None
    return False


def given_up(after: Status, observation: Observation) -> int | None:
    """Return the epoch of the run that a decision gives up for want of heartbeats, None where it gives up none."""
    failure = after.failure
    if failure is None or (failure.reason, failure.at) != (Reason.HEARTBEAT_LOST, observation.now):
        return None
    return failure.epoch
