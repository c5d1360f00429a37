"""Plays many histories on two processes, or one seed; prints what broke as the smallest history, and what was reached.

`python -m simulation --count 100000`, `python -m simulation --seed 4711`.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed

from simulation.coverage import Coverage, deciders
from simulation.history import History
from simulation.playing import Failure, play
from simulation.shrinking import shrink

CHUNK = 250
REPORTS_EVERY = 10.0
"""Seconds between two lines that say how far it is."""
PROCESSES = 2
SHOWN = 3
"""Failures that are shrunk and shown."""


def campaign(seeds: Iterable[int]) -> tuple[Coverage, dict[int, Failure]]:
    """Play the histories of some seeds; return what was reached, and what broke."""
    coverage, failures = Coverage(), dict[int, Failure]()
    for seed in seeds:
        failure = play(History.random(seed), coverage)
        if failure is not None:
            failures[seed] = failure
    return coverage, failures


def explained(history: History, failure: Failure) -> str:
    """Return the smallest history that breaks the same thing, with its trace."""

    def breaks(tried: History) -> bool:
        found = play(tried)
        return found is not None and found.kind == failure.kind

    smallest = shrink(history, breaks)
    found = play(smallest) or failure
    trace = "\n".join(found.trace)
    return f"seed {history.seed}: {found.why}\n\n{smallest}\n\n{trace}\n{found.at:7.1f}  BROKEN: {found.why}\n"


def _all(first: int, count: int) -> tuple[Coverage, dict[int, Failure]]:
    """Play `count` histories on all processes; say what breaks at once, and now and then how far that is."""
    coverage, failures, done = Coverage(), dict[int, Failure](), 0
    began = reported = time.monotonic()
    chunks = [range(start, min(start + CHUNK, first + count)) for start in range(first, first + count, CHUNK)]
    with ProcessPoolExecutor(PROCESSES) as pool:
        playing = {pool.submit(campaign, chunk): len(chunk) for chunk in chunks}
        for future in as_completed(playing):
            reached, broken = future.result()
            coverage.update(reached)
            failures.update(broken)
            for seed, failure in broken.items():
                print(f"seed {seed} broke: {failure.why}", flush=True)
            done += playing[future]
            if time.monotonic() - reported >= REPORTS_EVERY:
                reported = time.monotonic()
                rate = done / (reported - began)
                print(f"{done:>7} of {count} histories, {rate:.0f} per second, {len(failures)} broke", flush=True)
    return coverage, failures


def _print_coverage(coverage: Coverage) -> None:
    for name, count in sorted(coverage.met.items()):
        print(f"  {name}: {count}")
    for name in deciders():
        phases = ", ".join(sorted(state for state, check in coverage.pairs if check == name))
        print(f"  {name}: {phases or 'NEVER'}")
    print("never met:", ", ".join(f"{state}/{name}" for state, name in coverage.missing_pairs()))


def main() -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="play this one, and print its trace")
    parser.add_argument("--coverage", action="store_true", help="print which rule decided in which phase")
    asked = parser.parse_args()
    logging.disable()
    if asked.seed is not None:
        history = History.random(asked.seed)
        failure = play(history)
        print(history if failure is None else explained(history, failure))
        return int(failure is not None)
    began = time.monotonic()
    coverage, failures = _all(asked.first, asked.count)
    for seed in sorted(failures)[:SHOWN]:
        print(explained(History.random(seed), failures[seed]))
    if asked.coverage:
        _print_coverage(coverage)
    minutes, decisions = (time.monotonic() - began) / 60, sum(coverage.pairs.values())
    print(
        f"{asked.count} histories, {decisions} decisions, {len(coverage.pairs)} pairs of phase and rule,"
        f" {minutes:.1f} min: " + (f"{len(failures)} broke: seeds {sorted(failures)[:20]}" if failures else "all hold")
    )
    if missing := coverage.missing():
        print(f"rules that never decided: {', '.join(missing)}", file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
