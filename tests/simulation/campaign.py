"""Plays many histories on two processes, or one seed.

What broke is printed as the smallest history that breaks it, and at the end what was reached.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from simulation.failure import Failure
from simulation.shrinking import shrink

CHUNK: Final = 250
REPORTS_EVERY: Final = 10.0
"""Seconds between two lines that say how far it is."""
PROCESSES: Final = 2
SHOWN: Final = 3
"""Failures that are shrunk and shown."""


class Reached(Protocol):
    """What histories have reached."""

    def update(self, other: Any, /) -> None:
        """Add another one's counts."""
        ...


R = TypeVar("R", bound=Reached)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model(Generic[R]):
    """What plays histories. Its parts are functions of modules, which pass to another process by their names."""

    random: Callable[[int], Any]
    """Returns the history of a seed."""
    play: Callable[..., Failure | None]
    """Plays a history, and counts in a second argument."""
    reached: Callable[[], R]
    """Returns a counter of nothing."""

    def campaign(self, seeds: Iterable[int]) -> tuple[R, dict[int, Failure]]:
        """Play the histories of some seeds; return what was reached, and what broke."""
        reached, failures = self.reached(), dict[int, Failure]()
        for seed in seeds:
            failure = self.play(self.random(seed), reached)
            if failure is not None:
                failures[seed] = failure
        return reached, failures

    def explained(self, history: Any, failure: Failure) -> str:
        """Return the smallest history that breaks the same thing, with its trace."""

        def breaks(tried: Any) -> bool:
            found = self.play(tried)
            return found is not None and found.kind == failure.kind

        smallest = shrink(history, breaks)
        found = self.play(smallest) or failure
        trace = "\n".join(found.trace)
        return f"seed {history.seed}: {found.why}\n\n{smallest}\n\n{trace}\n{found.at:7.1f}  BROKEN: {found.why}\n"

    def first_failure(self, seeds: Iterable[int]) -> tuple[int, Failure] | None:
        """Return the first seed whose history breaks something, and what that is."""
        return next(((seed, found) for seed in seeds if (found := self.play(self.random(seed)))), None)

    def all(self, first: int, count: int) -> tuple[R, dict[int, Failure]]:
        """Play `count` histories on all processes; say what breaks at once, and now and then how far that is."""
        reached, failures, done = self.reached(), dict[int, Failure](), 0
        began = reported = time.monotonic()
        chunks = [range(start, min(start + CHUNK, first + count)) for start in range(first, first + count, CHUNK)]
        with ProcessPoolExecutor(PROCESSES) as pool:
            playing = {pool.submit(self.campaign, chunk): len(chunk) for chunk in chunks}
            for future in as_completed(playing):
                more, broken = future.result()
                reached.update(more)
                failures.update(broken)
                for seed, failure in broken.items():
                    print(f"seed {seed} broke: {failure.why}", flush=True)
                done += playing[future]
                if time.monotonic() - reported >= REPORTS_EVERY:
                    reported = time.monotonic()
                    rate = done / (reported - began)
                    print(f"{done:>7} of {count} histories, {rate:.0f} per second, {len(failures)} broke", flush=True)
        return reached, failures

    def main(self, name: str, description: str | None, *, count: int, summary: Callable[[R, bool], str]) -> int:
        """Run a command line; return its exit code. `summary` says what was reached, with `--coverage` all of it."""
        parser = argparse.ArgumentParser(prog=name, description=description)
        parser.add_argument("--count", type=int, default=count, help="how many histories")
        parser.add_argument("--first", type=int, default=0, help="the first seed")
        parser.add_argument("--seed", type=int, help="play this one, and print its trace")
        parser.add_argument("--coverage", action="store_true", help="print what was reached")
        asked = parser.parse_args()
        logging.disable()
        if asked.seed is not None:
            history = self.random(asked.seed)
            failure = self.play(history)
            print(history if failure is None else self.explained(history, failure))
            return int(failure is not None)
        began = time.monotonic()
        reached, failures = self.all(asked.first, asked.count)
        for seed in sorted(failures)[:SHOWN]:
            print(self.explained(self.random(seed), failures[seed]))
        found = summary(reached, asked.coverage)
        end = f"{len(failures)} broke: seeds {sorted(failures)[:20]}" if failures else "all hold"
        print(f"{asked.count} histories, {found}, {(time.monotonic() - began) / 60:.1f} min: {end}")
        return int(bool(failures))
