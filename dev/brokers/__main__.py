"""`python -m brokers`: a pipeline on three brokers with faults; ends with 1 if a promise breaks."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from brokers.campaign import PLANS, Result, run
from testbed.environment import load

MOST_SHOWN: Final = 10
"""Broken promises of one campaign that are printed."""


def main(words: Sequence[str] | None = None) -> int:
    """Play the named campaigns, or all of them."""
    plans = {plan.name: plan for plan in PLANS}
    top = argparse.ArgumentParser(prog="brokers", description="A pipeline on three brokers of Kafka, with faults.")
    top.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(plans)} (default: all)")
    top.add_argument("--faults", type=int, help="faults of each campaign (default: 60)")
    top.add_argument("--seed", type=int, default=1, help="draws the same faults again (default: %(default)s)")
    arguments = top.parse_args(words)
    if unknown := set(arguments.names) - plans.keys():
        top.error(f"unknown campaigns: {', '.join(sorted(unknown))}; known: {', '.join(plans)}")
    environment, failed = load(), 0
    for name in arguments.names or plans:
        plan = replace(plans[name], seed=arguments.seed)
        if arguments.faults is not None:
            plan = replace(plan, faults=arguments.faults)
        failed += not _reported(name, run(plan, environment, _say))
    return 1 if failed else 0


def _reported(name: str, result: Result) -> bool:
    """Print what was seen; return whether it is as it must be."""
    _say(
        f"{name}: {sum(result.faults.values())} faults ({_counted(result.faults)}) in {result.seconds:.0f} s;"
        f" {result.sent} records sent, {result.acknowledged} acknowledged, of which Kafka lost {result.lost};"
        f" {result.losses} losses accepted, {result.commits} commits, {result.epochs} epochs,"
        f" ends of drivers: {_counted(result.ends)}"
    )
    for sentence in result.broken[:MOST_SHOWN]:
        _say(f"{name}: {sentence}")
    _say(f"{name}: {f'{len(result.broken)} promises do not hold' if result.broken else 'every promise holds'}")
    return not result.broken


def _counted(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
