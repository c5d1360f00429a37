"""A run that starts beside the one that works: it gets warm, waits until its epoch begins, and claims that.

Until then it may change nothing, so a run that never gets there costs what it uses and nothing else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from fencepost.contract import DriverConfig
from fencepost.driver.planning.log_polling import Stopping
from fencepost.fence import Fence, Fenced, FenceMissing, FenceRow, FenceUnavailable

log = logging.getLogger(__name__)

LOOK: Final = 0.05
"""Seconds between two reads of the epoch: a part of the pause at the change of the run."""
STANDBY_LOOK: Final = 0.25
"""The same of a standby, which looks for as long as the run beside it works: half of it is added to each takeover.

A look reads one integer at a local quorum: four per second of each of 1,000 standbys are 4,000 reads.
"""
EXERCISE: Final = 45.0
"""Seconds between two exercises of idle workers: Spark ends Python workers that idle for a minute."""

FIRST_EXERCISED: Final = 10
"""Records of the first exercise: each may take a request of the author's function."""
MOST_EXERCISED: Final = 200
"""Records of an exercise."""
MOST_EXERCISED_BYTES: Final = 4 * 1024 * 1024
"""The same in bytes."""
SHORT_EXERCISE: Final = 0.5
"""Seconds; after a shorter exercise, the next one has twice the records."""
LONG_EXERCISE: Final = 1.0
"""Seconds; after a longer exercise, the next one has a quarter of the records: a takeover would wait for it."""


def exercised_next(records: int, seconds: float) -> int:
    """Return how many records the next exercise has, after one of `records` that took so long; 0 for none."""
    if seconds > LONG_EXERCISE:
        return max(1, records // 4) if records > 1 else 0
    return min(2 * records, MOST_EXERCISED) if seconds < SHORT_EXERCISE else records


def has_begun(row: FenceRow | None, config: DriverConfig) -> bool:
    """Return whether the run's epoch has begun.

    Raises FenceMissing without a row, Fenced once the epoch is over.
    """
    if row is None:
        raise FenceMissing(f"no fence row for {config.pipeline!r}")
    if row.epoch > config.epoch:
        raise Fenced(f"epoch {config.epoch} is over: the fence is at epoch {row.epoch}", seen=row)
    return row.epoch == config.epoch


def refuse_open_batch(row: FenceRow, config: DriverConfig) -> None:
    """Raise Fenced where other code began a batch that is not committed.

    That code finishes it, in an epoch of its own.  The operator starts no other run over such a batch either, but it
    cannot know at the start of a run that waits how the one before ends.
    """
    if config.awaits_epoch and row.code != config.code and (row.written_until or row.planned_log is not None):
        raise Fenced(f"epoch {config.epoch} begins with a batch that other code began, and finishes", seen=row)


def await_epoch(
    fence: Fence,
    config: DriverConfig,
    *,
    stop: threading.Event,
    exercise: Callable[[FenceRow | None], None],
    wait: Callable[[float], object],
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Return when the run's epoch begins; at once for a run that awaits none.

    `exercise` keeps the workers warm meanwhile; it gets the row as it was one exercise before.  A database that does
    not answer is asked again: the run that works may need it just as little.  A look is a cheap read, which takes no
    part in the transactions of the run that works; what it finds is confirmed by a linearizable one, as is with each
    exercise that nothing was missed.
    Raises Stopping once `stop` is set, Fenced, FenceMissing.
    """
    row: FenceRow | None = None
    exercised, is_certain = now(), True
    while config.awaits_epoch:
        try:
            if is_certain or fence.read_epoch() != config.epoch - 1:
                row = fence.read()
                if has_begun(row, config):
                    return
            is_certain = False
        except FenceUnavailable as error:
            log.warning("the fence row cannot be read: %s", error)
        wait(STANDBY_LOOK if config.stands_by else LOOK)
        if stop.is_set():
            raise Stopping
        if now() - exercised >= EXERCISE:
            exercise(row)
            exercised, is_certain = now(), True
