"""`python -m replicas`: the fence on three and six nodes of Cassandra with faults; ends with 1 if a promise breaks."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from harness.campaign_command import MOST_SHOWN, chosen_plans, counted, say, say_broken
from replicas.campaign import APART, PLANS, REGIONS, Result, run
from testbed.home import Home


def main(words: Sequence[str] | None = None) -> int:
    """Play the named campaigns, or all of them."""
    plans = chosen_plans(
        words,
        {plan.name: plan for plan in (*PLANS, *REGIONS, APART)},
        prog="replicas",
        description="The fence on a Cassandra of several nodes, with faults.",
        faults="100; 10 where it has to break",
    )
    docker = str(Home.of_user().bin / "docker")
    failed = [name for name, plan in plans.items() if not _reported(name, run(plan, say, docker=docker))]
    return 1 if failed else 0


def _reported(name: str, result: Result) -> bool:
    """Print what was seen; return whether it is as it must be."""
    say(
        f"{name}: {sum(result.faults.values())} faults ({counted(result.faults)}) in {result.seconds:.0f} s;"
        f" {result.versions} versions, {result.epochs} epochs, {result.commits} commits,"
        f" {result.calls} requests, {result.unknown} without an answer"
    )
    if (losses := result.losses) is not None:
        pauses = sorted(losses.pauses)
        say(
            f"{name}: in {len(losses.without)} of {len(losses.kinds)} losses nothing was committed at their end"
            f" ({counted(Counter(losses.without))});"
            f" commits of another region after the loss of the owner, {len(pauses)} times:"
            + (f" {pauses[len(pauses) // 2]:.1f} s in the median, {pauses[-1]:.1f} s at most" if pauses else " none")
        )
    if name != APART.name:
        say_broken(name, result.broken)
        return not result.broken
    for sentence in result.broken[:MOST_SHOWN]:
        say(f"{name}: {sentence}")
    say(f"{name}: {'two histories, as docs/fence-protocol.md says' if result.broken else 'nothing broke'}")
    return bool(result.broken)


if __name__ == "__main__":
    sys.exit(main())
