"""What breaks a history."""

from __future__ import annotations

from dataclasses import dataclass


class Broken(Exception):
    """Something does not hold."""


def require(holds: object, why: str) -> None:
    """Raise Broken unless it holds."""
    if not holds:
        raise Broken(why)


@dataclass(frozen=True, slots=True)
class Failure:
    """What does not hold, and when; `trace` is what happened until then."""

    why: str
    at: float
    trace: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Return what it is about, the same for histories that break the same thing."""
        return self.why.partition(":")[0]
