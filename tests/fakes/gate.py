"""What every call of an operator's ports passes, where tests let it fail before or after its effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import pytest

T = TypeVar("T")

SIDES: Final = (pytest.param("before", marks=pytest.mark.long), "after")
"""The sides of a write at which a fault strikes.

Before a write the cluster is as it was after the one before it, so `make test` strikes after each, and `make soak`
before each too.
"""


def failing_at(number: int, fault: type[BaseException]) -> Callable[[int, str], None]:
    """Return what fails at the write with this number."""

    def strike(seen: int, name: str) -> None:
        if seen == number:
            raise fault(f"at write {seen}, {name}")

    return strike


class Gate:
    """What every call of one operator passes: a point before its effect and a point after it, where others may move.

    Here no other operator moves (see `fakes.interleaving`).  Writes are counted; `before` and `after` see each one's
    number and name and may raise.
    """

    def __init__(self) -> None:
        self.writes: list[str] = []
        self.before: Callable[[int, str], None] = lambda _number, _name: None
        self.after: Callable[[int, str], None] = lambda _number, _name: None

    async def point(self) -> None:
        """Let others move."""

    async def read(self, name: str, fact: Callable[[], T]) -> T:
        """Read at one moment, and answer at a later one."""
        del name
        await self.point()
        found = fact()
        await self.point()
        return found

    async def write(self, name: str, effect: Callable[[], object]) -> None:
        """Write at one moment, and answer at a later one."""
        await self.point()
        number = len(self.writes)
        self.writes.append(name)
        self.before(number, name)
        self.apply(name, effect)
        self.after(number, name)
        await self.point()

    def apply(self, name: str, effect: Callable[[], object]) -> None:
        """Let a write take effect."""
        del name
        effect()
