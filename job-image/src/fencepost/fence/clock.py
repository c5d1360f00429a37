"""Write timestamps, held against the database's own time.

A timestamp decides for good which write wins.  A node whose clock runs a year ahead would hide a year of later writes,
so a timestamp that is minutes ahead of the database is refused before it is written.  Rows of a node that is behind
would lose to deletions from before they were written, so timestamps follow the database's time up to MOST_APART.
Further apart, either clock may be the wrong one, and a driver writes with neither.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from fencepost.fence.errors import FenceClockSkew, FenceUnavailable

MOST_APART: Final = 300_000_000
"""µs by which this node's clock and the database's may differ, and that a timestamp may be ahead of the latter."""
MOST_BEHIND: Final = 5_000_000
"""µs that a timestamp may be behind the database's time: the time of an answer makes the measurement that wrong."""
MEASURE_EVERY: Final = 300.0
"""Seconds between two comparisons with the database's time."""


def wall_clock() -> int:
    """Return the wall time in µs since 1970."""
    return time.time_ns() // 1000


class ServerClock:
    """The database's time, measured now and then and carried on by the monotonic clock in between. Times in µs."""

    def __init__(self, ask: Callable[[], int], *, now: Callable[[], int], monotonic: Callable[[], float]) -> None:
        self._ask = ask
        self._now = now
        self._monotonic = monotonic
        self._measured: tuple[int, float] | None = None

    @property
    def skew_ms(self) -> int | None:
        """By how many ms this node's clock is ahead of the database's; None before the first measurement."""
        server = self._server()
        return None if server is None else round((self._now() - server) / 1000)

    def measure(self) -> None:
        """Ask the database. Raises FenceUnavailable."""
        before = self._monotonic()
        server = self._ask()
        after = self._monotonic()
        # The answer is from some moment in between.
        self._measured = (server + round((after - before) / 2 * 1e6), after)

    def check(self, floor: int) -> None:
        """Raise FenceClockSkew when the clocks are too far apart or `floor` is too far ahead, and FenceUnavailable."""
        self.measure()
        self._refuse(floor)

    def stamp(self, floor: int) -> int:
        """Return the wall time, at least `floor`.

        Raises FenceClockSkew as `check` does.  A database that gives no time
        leaves `floor`: the smallest step that keeps the order.
        """
        if self._is_due():
            self._try_to_measure()
        if self._is_refused(floor):
            self._try_to_measure()  # a machine that was suspended stopped the monotonic clock, and nothing is wrong
        self._refuse(floor)
        server = self._server()
        return floor if server is None else max(floor, self._following(server))

    def lenient_stamp(self, floor: int) -> int:
        """Return the wall time, no later than the database's and at least `floor`; refuse nothing.

        For a takeover: fencing a driver matters more than this node's clock.
        """
        if self._is_due():
            self._try_to_measure()
        server = self._server()
        return floor if server is None else max(floor, min(self._following(server), server))

    def _following(self, server: int) -> int:
        """Return this node's time, or one close to the database's where this node's clock is seconds behind it."""
        now = self._now()
        return server - MOST_BEHIND if MOST_BEHIND < server - now <= MOST_APART else now

    def _server(self) -> int | None:
        if self._measured is None:
            return None
        server, at = self._measured
        return server + round((self._monotonic() - at) * 1e6)

    def _is_due(self) -> bool:
        return self._measured is None or self._monotonic() - self._measured[1] >= MEASURE_EVERY

    def _try_to_measure(self) -> None:
        try:
            self.measure()
        except FenceUnavailable:
            return  # the change itself waits for the database, and the last measurement is good enough

    def _is_refused(self, floor: int) -> bool:
        server = self._server()
        return server is not None and (abs(self._now() - server) > MOST_APART or floor - server > MOST_APART)

    def _refuse(self, floor: int) -> None:
        server = self._server()
        if server is None or not self._is_refused(floor):
            return
        if server - self._now() > MOST_APART:
            raise FenceClockSkew(
                f"this node's clock is {_seconds(server - self._now())} s behind Cassandra's time; more than"
                f" {_seconds(MOST_APART)} s is refused: rows would lose to what was deleted before they are written",
                remedy=f"Correct the clock of the node that runs pod {os.uname().nodename} (see its NTP service), or of"
                " the Cassandra nodes if theirs is ahead.",
            )
        if self._now() - server > MOST_APART:
            raise FenceClockSkew(
                f"this node's clock is {_seconds(self._now() - server)} s ahead of Cassandra's time; more than"
                f" {_seconds(MOST_APART)} s is refused",
                remedy=f"Correct the clock of the node that runs pod {os.uname().nodename} (see its NTP service), or of"
                " the Cassandra nodes if theirs is behind.",
            )
        raise FenceClockSkew(
            f"the fence row's clock is {_seconds(floor - server)} s ahead of Cassandra's time: a node whose clock ran"
            " ahead wrote it, and output written with these timestamps hides every later write until then",
            remedy="Rewrite or truncate the output tables, then set the row's clock back: in table fence, SET clock ="
            f" {server} for this pipeline, IF clock = {floor - 1}. Otherwise wait until that time has passed.",
        )


def _seconds(micros: int) -> int:
    return round(micros / 1e6)
