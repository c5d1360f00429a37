"""Runs the operator's coroutines step by step, without an event loop: the same steps in the same order on each machine.

The ports of the simulation answer at once, and suspend only where a history interrupts an operator.  So what asyncio
would do side by side is done one after the other, and nothing waits.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Coroutine, Generator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Self

from fencepost_operator.runtime.passes import observer, reconciler, rewind_observer, signs_of_life
from simulation.shortcuts import kept_results, quick_copies, swapped


@dataclass(frozen=True, slots=True)
class Pause:
    """What a suspended operator waits for: that many seconds."""

    seconds: float

    def __await__(self) -> Generator[Pause, None, None]:
        yield self


class OneAfterTheOther:
    """The part of asyncio that the observer uses."""

    @dataclass(slots=True)
    class Task:
        """A coroutine, and its result once it has run."""

        coroutine: Coroutine[Any, Any, Any]
        value: Any = None

        def result(self) -> Any:
            """Return the result."""
            return self.value

    @dataclass(slots=True)
    class TaskGroup:
        """Runs each task in its turn; closes the others when one raises or the operator dies."""

        tasks: deque[OneAfterTheOther.Task] = field(default_factory=deque)

        async def __aenter__(self) -> Self:
            return self

        def create_task(self, coroutine: Coroutine[Any, Any, Any]) -> OneAfterTheOther.Task:
            """Add a task, to run at the end of the block."""
            self.tasks.append(OneAfterTheOther.Task(coroutine))
            return self.tasks[-1]

        async def __aexit__(self, *_error: object) -> None:
            try:
                while self.tasks:
                    task = self.tasks.popleft()
                    task.value = await task.coroutine
            finally:
                for task in self.tasks:
                    task.coroutine.close()


def _no_limit(_seconds: float) -> AbstractAsyncContextManager[None]:
    return nullcontext()


def _no_signs(*_: object) -> AbstractAsyncContextManager[None]:
    """Give no signs during an action, which takes no time here."""
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
                (signs_of_life.SignsOfLife, "given_meanwhile", _no_signs),
                *kept_results(),
                *quick_copies(),
            ]
        ):
            yield
    finally:
        logging.disable(quiet)
