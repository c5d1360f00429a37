"""What was computed of an object that never changes, kept for as long as the object lives.

Equal objects are not looked for: a spec has some hundred fields, and the same object is looked at for minutes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

A = TypeVar("A", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[A, V]):
    """For each object the newest value, and the arguments that it was computed with."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], A, V]] = {}

    def __len__(self) -> int:
        """Return for how many objects there is a value."""
        return len(self._known)

    def value(self, of: object, arguments: A, compute: Callable[[], V]) -> V:
        """Return the value for the object with these arguments; it is computed where they have changed."""
        place = id(of)
        known = self._known.get(place)
        if known is not None and known[0]() is of and known[1] == arguments:
            return known[2]
        found = compute()
        owner = weakref.ref(of, lambda gone: self._forget(place, gone))
        self._known[place] = (owner, arguments, found)
        return found

    def _forget(self, place: int, gone: weakref.ref[Any]) -> None:
        """Drop the value of an object that is gone, unless another object has its place by now."""
        known = self._known.get(place)
        if known is not None and known[0] is gone:
            del self._known[place]
