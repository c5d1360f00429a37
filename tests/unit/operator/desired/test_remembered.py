"""Values that are kept for as long as their object lives."""

from __future__ import annotations

import gc
import itertools
from dataclasses import dataclass

from fencepost_operator.desired.identity.remembered import Remembered


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Owner:
    number: int = 0


def test_a_value_is_computed_once_for_an_object_and_its_arguments() -> None:
    known, counted = Remembered[str, int](), itertools.count(1)

    def value(of: Owner, arguments: str) -> int:
        return known.value(of, arguments, lambda: next(counted))

    one, equal = Owner(), Owner()
    assert [value(one, "a"), value(one, "a"), value(equal, "a"), value(one, "b"), value(one, "a")] == [1, 1, 2, 3, 4]


def test_a_value_goes_with_its_object() -> None:
    known = Remembered[str, int]()
    numbers = iter(range(100))
    for number in range(100):
        assert known.value(Owner(number), "", lambda: next(numbers)) == number
    gc.collect()
    assert len(known) == 0


def test_the_end_of_an_object_leaves_the_value_of_another_one_in_its_place() -> None:
    """An id is used again; the callback of the object before may come after the next one is known."""
    known, owner = Remembered[str, int](), Owner()
    known.value(owner, "a", lambda: 1)
    first = known._known[id(owner)][0]
    known.value(owner, "b", lambda: 2)
    known._forget(id(owner), first)
    assert known.value(owner, "b", lambda: 3) == 2
