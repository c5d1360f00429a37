"""The last word of a run that stops: it ends its epoch, or asks whether it still holds the fence.

Between two batches nothing is in progress that the fence could refuse.  A driver that was frozen and replaced, and that
finds a request to stop when it wakes up, would end as one that stopped in its turn.
"""

from __future__ import annotations

import logging

from fencepost.contract import DriverConfig
from fencepost.fence import Fence, FenceRow, FenceUnavailable

log = logging.getLogger(__name__)


def check_held(fence: Fence, row: FenceRow | None, config: DriverConfig) -> None:
    """Raise Fenced or FenceMissing where the run that claimed `row` holds the fence no more; None: it never claimed.

    A run that hands over ends its epoch by the same request, so that a run that waits for the next epoch may claim it
    before this process has ended.
    It asks for half of the grace period at most.  Without an answer the run ends as one that stopped: it has committed
    what it wrote.
    """
    if row is None:
        return
    last_word = fence.end_epoch if config.hands_over else fence.check_held
    try:
        last_word(row, seconds=min(config.patience, config.termination_grace / 2))
    except FenceUnavailable as error:
        log.warning("the run stops without knowing whether it holds the fence: %s", error)
