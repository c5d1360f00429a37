"""`python -m brokers`: a pipeline on three brokers with faults; ends with 1 if a promise breaks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from brokers.campaign import PLANS, Result, run
from harness.campaign_command import chosen_plans, counted, say, say_broken
from testbed.environment import load


def main(words: Sequence[str] | None = None) -> int:
    """Play the named campaigns, or all of them."""
    plans = chosen_plans(
        words,
        {plan.name: plan for plan in PLANS},
        prog="brokers",
        description="A pipeline on three brokers of Kafka, with faults.",
        faults="60",
    )
    environment = load()
    failed = [name for name, plan in plans.items() if not _reported(name, run(plan, environment, say))]
    return 1 if failed else 0


def _reported(name: str, result: Result) -> bool:
    """Print what was seen; return whether it is as it must be."""
    say(
        f"{name}: {sum(result.faults.values())} faults ({counted(result.faults)}) in {result.seconds:.0f} s;"
        f" {result.sent} records sent, {result.acknowledged} acknowledged, of which Kafka lost {result.lost};"
        f" {result.losses} losses accepted, {result.commits} commits, {result.epochs} epochs,"
        f" ends of drivers: {counted(result.ends)}"
    )
    say_broken(name, result.broken)
    return not result.broken


if __name__ == "__main__":
    sys.exit(main())
