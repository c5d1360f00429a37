"""Whether a driver's process runs and reaches the fence's database, by its heartbeats.

A driver that is frozen, or whose node or network is lost, changes neither the fence row nor its heartbeat.  Kubernetes
sees a lost node after 40 seconds, and a frozen process never.  A false alarm costs an epoch: the takeover is on
condition of the row's version, and after it the driver can commit nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from fencepost.fence import FenceRow
from fencepost_operator.api import CommittedStatus
from fencepost_operator.observation import Known, Observation

PATIENCE: Final = timedelta(seconds=10)
"""Without a heartbeat, ten of which fit in: a start that was not needed takes longer than that."""
STANDBY_PATIENCE: Final = timedelta(seconds=3)
"""Without a heartbeat, three of which fit in, where a standby is warm: its takeover takes about a second."""


def seen(
    before: CommittedStatus | None, row: FenceRow, observation: Observation
) -> tuple[datetime | None, datetime | None]:
    """Return the newest heartbeat, and when it or a change of the row after it was first seen.

    None before the first one that is read: a driver of an older image has none, and is not judged by them.
    """
    known = (before.heartbeat, before.heartbeat_at) if before is not None else (None, None)
    if not isinstance(observation.heartbeat, Known):
        has_moved = before is not None and before.version != row.version
        return (known[0], observation.now) if has_moved and known[1] is not None else known
    found = observation.heartbeat.value
    if found is None or found.epoch != row.epoch:
        return None, None
    return (found.at, observation.now) if found.at != known[0] else known


def last_seen(committed: CommittedStatus | None, observation: Observation) -> datetime | None:
    """Return when the driver last showed that it runs, None where it is not known to have heartbeats."""
    if committed is None or not isinstance(observation.heartbeat, Known):
        return None
    return committed.heartbeat_at
