"""One promise of a store, and how a check says that it is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


class BrokenPromise(Exception):
    """The store answered, and not as promised; the message says what was expected and what came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise(Generic[T]):
    """A sentence about a store, who relies on it, and its check.

    `check` gets the store and a name that nothing else uses there: the key of the rows that it writes. It may return a
    figure for the report. It raises BrokenPromise, or the store's own errors.
    """

    name: str
    needed_by: str
    check: Callable[[T, str], str | None]


def expect(kept: bool, what: str, found: object) -> None:
    """Raise BrokenPromise unless `kept`; `found` is what came instead."""
    if not kept:
        raise BrokenPromise(f"{what}; found {found}")
