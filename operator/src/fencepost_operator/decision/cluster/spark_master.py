"""Whether a Spark master is the one that a run registered with: another one does not know it."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from fencepost.contract import SESSION_LIMIT
from fencepost_operator.api import RunStatus
from fencepost_operator.observation import SparkCluster

REGISTERED_WITHIN: Final = timedelta(seconds=SESSION_LIMIT + 60.0)
"""A driver that has no session by then has ended; with what its start takes, and what clocks of nodes differ."""


def is_another_master(run: RunStatus, seen: SparkCluster) -> bool:
    """Return whether the run registered with a master that is gone.

    Where that record was lost, a master that is younger than a run that holds the fence proves it: the driver would
    have ended before that master existed.  A master that followed sooner may be the run's, or not.
    """
    if seen.master_uid is None:
        return False
    if run.master_uid is not None:
        return seen.master_uid != run.master_uid
    if not run.is_active or run.claimed_at is None or run.started_at is None or seen.master_created_at is None:
        return False
    return seen.master_created_at - run.started_at > REGISTERED_WITHIN
