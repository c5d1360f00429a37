"""Whether a pipeline restarts again and again: commits in between hide that from the count of failures in a row."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from fencepost_operator.api import Reason, Status

LOOP: Final = 4
"""So many failed runs that were replaced within WINDOW are a loop, as the alert FencepostRestartLoop has it."""
WINDOW: Final = timedelta(minutes=30)
BY_HAND: Final = frozenset({Reason.DRAINED})
"""Ends of runs that an administrator asked for, as nodes are drained one after another."""


def restarted_at(before: Status, after: Status, now: datetime) -> tuple[datetime, ...]:
    """Return when the last runs replaced one that failed, at most LOOP; `after` is what is to be recorded.

    It begins again with another spec.  Runs that fail without progress have a count of their own.
    """
    known, failure = before.restarted_at, after.failure
    if before.run is not None and after.run is not None and before.run.spec_hash != after.run.spec_hash:
        return ()
    if after.restarts <= before.restarts or (failure is not None and (failure.reason in BY_HAND or failure.count > 1)):
        return known
    return (*known, now.replace(microsecond=0))[-LOOP:]


def is_looping(status: Status, now: datetime) -> bool:
    """Return whether the last LOOP failures were within WINDOW."""
    times = status.restarted_at
    return len(times) >= LOOP and now - times[-LOOP] < WINDOW


def loop_message(status: Status) -> str:
    """Return what happens, with how the newest failed run ended."""
    minutes = int(WINDOW.total_seconds() // 60)
    failure = status.failure
    last = f". The last one: {failure.reason}: {failure.message}" if failure is not None else ""
    return f"{LOOP} runs failed within {minutes} min, with progress in between{last}"
