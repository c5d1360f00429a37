"""`python -m campaign`: faults at random moments on the testbed; ends with 1 if a promise breaks."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from campaign.run import Result, run
from testbed.environment import load

MOST_SHOWN: Final = 20
"""Broken promises that are printed."""


def main(words: Sequence[str] | None = None) -> int:
    """Play one campaign."""
    top = argparse.ArgumentParser(prog="campaign", description="Faults at random moments on the testbed.")
    top.add_argument("--minutes", type=float, default=30.0, help="of load and faults (default: %(default)s)")
    top.add_argument("--faults", type=int, help="end as soon as so many faults were injected")
    top.add_argument("--seed", type=int, default=1, help="draws the same faults and actions again")
    arguments = top.parse_args(words)
    result = run(load(), seed=arguments.seed, minutes=arguments.minutes, count=arguments.faults, report=_say)
    _say(
        f"seed {arguments.seed}: {result.records} records, {result.letters} letters, {result.commits} commits,"
        f" {result.epochs} epochs; {_counted('faults', result.faults)}; {_counted('without a target', result.missed)};"
        f" {_counted('actions', result.actions)}"
    )
    return 0 if _reported(result) else 1


def _counted(what: str, kinds: Counter[str]) -> str:
    return f"{sum(kinds.values())} {what} ({', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))})"


def _reported(result: Result) -> bool:
    for sentence in result.broken[:MOST_SHOWN]:
        _say(sentence)
    _say(f"{len(result.broken)} promises do not hold" if result.broken else "every promise holds")
    return not result.broken


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
