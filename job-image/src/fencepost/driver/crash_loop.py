"""Whether executors end as fast as Spark launches them: Spark itself never gives up.

`spark.deploy.maxExecutorRetries` does not bound it: an executor counts as running once its process was launched, which
resets that count.  An option that Java refuses gave 724 launches in 195 s.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from fencepost.contract import Reason
from fencepost.contract.guidance.ends import EXECUTORS_OUTPUT
from fencepost.errors import NoExecutors

ENDED: Final = re.compile(r"Executor updated: \S+ is now (?:EXITED|FAILED) \((Command exited with code (?!143\b).*)\)")
"""What Spark's client of the master logs when an executor's process exits.

One that is asked to end is KILLED; one whose worker ends is FAILED (Worker shutting down), or exits on SIGTERM: 143.
"""
WINDOW: Final = 120.0
"""Seconds in which ends count together."""
ENDS: Final = 10
"""Ends in WINDOW, per executor that the run should have, from which it is a loop."""
REMEDY: Final = (
    "Correct the options of the executors in spec.cluster.sparkConf (spark.executor.*), or raise"
    " spec.cluster.worker.memory. The executor's own output is in its worker's pod:"
    f" kubectl exec POD -- {EXECUTORS_OUTPUT}."
)


class CrashLoop:
    """Counts the ends of executors. `executors` is how many the run should have."""

    def __init__(self, executors: int, *, now: Callable[[], float] = time.monotonic) -> None:
        self._most = ENDS * max(1, executors)
        self._now = now
        self._ends: deque[float] = deque()

    def see(self, lines: Iterable[str]) -> NoExecutors | None:
        """Return why to end the run, None while the executors last."""
        how = ""
        for line in lines:
            if (found := ENDED.search(line)) is not None:
                self._ends.append(self._now())
                how = found.group(1)
        while self._ends and self._now() - self._ends[0] > WINDOW:
            self._ends.popleft()
        if len(self._ends) < self._most:
            return None
        took = self._now() - self._ends[0]
        return NoExecutors(
            f"{len(self._ends)} executors ended within {took:.0f} s{f', the last one with: {how}' if how else ''}",
            reason=Reason.EXECUTOR_CRASH_LOOP,
            remedy=REMEDY,
        )
