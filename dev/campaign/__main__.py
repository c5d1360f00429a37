"""`python -m campaign`: faults at random moments on the testbed; ends with 1 if a promise breaks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from campaign.run import run
from harness.campaign_command import counted, say, say_broken
from testbed.environment import load


def main(words: Sequence[str] | None = None) -> int:
    """Play one campaign."""
    top = argparse.ArgumentParser(prog="campaign", description="Faults at random moments on the testbed.")
    top.add_argument("--minutes", type=float, default=30.0, help="of load and faults (default: %(default)s)")
    top.add_argument("--faults", type=int, help="end as soon as so many faults were injected")
    top.add_argument("--seed", type=int, default=1, help="draws the same faults and actions again")
    arguments = top.parse_args(words)
    result = run(load(), seed=arguments.seed, minutes=arguments.minutes, count=arguments.faults, report=say)
    name = f"seed {arguments.seed}"
    say(
        f"{name}: {result.records} records, {result.letters} letters, {result.commits} commits, {result.epochs} epochs;"
        f" {result.faults.total()} faults ({counted(result.faults)});"
        f" {result.missed.total()} without a target ({counted(result.missed)});"
        f" {result.actions.total()} actions ({counted(result.actions)})"
    )
    say_broken(name, result.broken)
    return 1 if result.broken else 0


if __name__ == "__main__":
    sys.exit(main())
