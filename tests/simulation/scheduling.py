"""Runs the operator's coroutines step by step, without an event loop: the same steps in the same order on each machine.

The ports of the simulation answer at once, and suspend only where a history interrupts an operator.  So what asyncio
would do side by side is done one after the other, and nothing waits.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from fencepost_operator.runtime import observer, reconciler, rewind_observer
from simulation.shortcuts import kept_results, quick_copies, swapped


@dataclass(frozen=True, slots=True)
class Pause:
    """What a suspended operator waits for: that many seconds."""

    seconds: float

    def __await__(self) -> Generator[Pause, None, None]:
        yield self


class OneAfterTheOther:
    """The part of asyncio that the observer uses."""

    @staticmethod
    async def gather(*awaitables: Any) -> list[Any]:
        """Wait for each in its turn; close the others when one raises or the operator dies."""
        done = 0
        try:
            results = []
            for awaitable in awaitables:
                done += 1
                results.append(await awaitable)
            return results
        finally:
            for awaitable in awaitables[done:]:
                awaitable.close()


def _no_limit(_seconds: float) -> AbstractAsyncContextManager[None]:
    return nullcontext()


def _unspread(seconds: float) -> float:
    return seconds


@contextmanager
def without_event_loop() -> Generator[None]:
    """Let the operator's code run on `OneAfterTheOther`, wait exactly as long as it says, and log nothing."""
    quiet = logging.root.manager.disable
    logging.disable()
    try:
        with swapped(
            [
                (observer, "asyncio", OneAfterTheOther),
                (observer, "time_limit", _no_limit),
                (rewind_observer, "asyncio", OneAfterTheOther),
                (reconciler, "jittered", _unspread),
                *kept_results(),
                *quick_copies(),
            ]
        ):
            yield
    finally:
        logging.disable(quiet)
