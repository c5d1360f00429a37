"""Answers that stand for a few seconds, so that many pipelines that need the same one ask once.

Only an answer that has come is shared.  Whoever asks while none has waits alone, as it would without others: a queue or
a failure of one pipeline is never another one's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")

_LONGEST: Final = 10.0
"""Seconds after which an answer is dropped, whatever age is asked for."""


class RecentAnswers(Generic[Q, A]):
    """The newest answer to each question, and when that was asked, in seconds of a monotonic clock.

    All answers together weigh `most` at most: tenants decide how large theirs are.
    """

    def __init__(
        self, monotonic: Callable[[], float], *, most: int = 10_000, weigh: Callable[[A], int] = lambda _: 1
    ) -> None:
        self._monotonic = monotonic
        self._most, self._weigh, self._weight = most, weigh, 0
        self._known: OrderedDict[Q, tuple[float, A]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many answers are remembered."""
        return len(self._known)

    def find(self, question: Q, age: float) -> A | None:
        """Return the answer, None without one to a question that was asked within `age` seconds."""
        known = self._known.get(question)
        return known[1] if known is not None and self._monotonic() - known[0] < age else None

    def keep(self, question: Q, answer: A, asked_at: float) -> None:
        """Note an answer, and drop those that are old or too much."""
        if question in self._known:
            self._drop(question)
        self._known[question] = (asked_at, answer)
        self._weight += self._weigh(answer)
        while self._known and self._is_surplus():
            self._drop(next(iter(self._known)))

    def _drop(self, question: Q) -> None:
        _, answer = self._known.pop(question)
        self._weight -= self._weigh(answer)

    def _is_surplus(self) -> bool:
        asked_at, _ = next(iter(self._known.values()))
        return self._weight > self._most or self._monotonic() - asked_at > _LONGEST
