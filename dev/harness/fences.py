"""Reading fence rows beside their writers."""

from __future__ import annotations

import time
from typing import Final

from fencepost.fence import Fence, FenceRow, FenceUnavailable

ANSWER_SECONDS: Final = 60.0


def read_row(fence: Fence, *, seconds: float = ANSWER_SECONDS) -> FenceRow | None:
    """Return the row, read at SERIAL, and ask again for up to `seconds` while Cassandra gives no answer.

    A serial read takes part in Paxos, so it may time out while the row is being changed; the operator and the
    drivers ask again too. Raises FenceUnavailable after `seconds`, and the other FenceErrors at once.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return fence.read()
        except FenceUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
