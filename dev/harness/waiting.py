"""Waiting for a condition, up to a deadline; a test never waits for time to pass unless time itself is the fault."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class NotInTimeError(AssertionError):
    """What was waited for did not come; the message ends with the last that was seen."""


class _Waiting:
    """What was last seen, until a deadline; as a context it takes an AssertionError for something that was seen."""

    def __init__(self, what: str, seconds: float) -> None:
        self._what, self._seconds = what, seconds
        self._deadline = time.monotonic() + seconds
        self._seen: object = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if isinstance(error, AssertionError):
            self._seen = error
            return True
        return False

    def saw(self, answer: T) -> T:
        """Note an answer, and return it."""
        self._seen = answer
        return answer

    def check(self) -> None:
        """Raise NotInTimeError after the deadline."""
        if time.monotonic() > self._deadline:
            raise NotInTimeError(f"{self._what}not within {self._seconds:.0f} s; last seen: {self._seen!r}")


def eventually(what: str, probe: Callable[[], T | None], *, seconds: float, pause: float = 0.5) -> T:
    """Return the first truthy answer of `probe`, asked every `pause` seconds for at most `seconds`.

    Raises NotInTimeError that says `what` was waited for and what `probe` last answered or raised.
    """
    waiting = _Waiting(f"{what}: ", seconds)
    while True:
        with waiting:
            if answer := waiting.saw(probe()):
                return answer
        waiting.check()
        time.sleep(pause)


async def eventually_async(look: Callable[[], Awaitable[T]], *, seconds: float = 90.0, pause: float = 0.5) -> T:
    """Return the first truthy answer of `look`, asked every `pause` seconds.

    Raises NotInTimeError that says what `look` last answered or raised.
    """
    waiting = _Waiting("", seconds)
    while True:
        with waiting:
            if answer := waiting.saw(await look()):
                return answer
        waiting.check()
        await asyncio.sleep(pause)


async def answered(ask: Callable[[], Awaitable[T]], silence: type[Exception], *, seconds: float = 180.0) -> T:
    """Return the answer of `ask`, asked again while it raises `silence`: a busy machine may answer too late.

    Raises `silence` after that time.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await ask()
        except silence:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.2)


def throughout(seconds: float, check: Callable[[], None], *, pause: float = 2.0) -> None:
    """Call `check`, which asserts, over and over for `seconds`: for faults that are a length of time."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        check()
        time.sleep(min(pause, max(left, 0.0)))
