"""`python -m replicas`: the fence on three and six nodes of Cassandra with faults; ends with 1 if a promise breaks."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from replicas.campaign import APART, PLANS, Result, run
from testbed.home import Home

MOST_SHOWN: Final = 10
"""Broken promises of one campaign that are printed."""


def main(words: Sequence[str] | None = None) -> int:
    """Play the named campaigns, or all of them."""
    plans = {plan.name: plan for plan in (*PLANS, APART)}
    top = argparse.ArgumentParser(
        prog="replicas", description="The fence on a Cassandra of several nodes, with faults."
    )
    top.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(plans)} (default: all)")
    top.add_argument("--faults", type=int, help="faults of each campaign (default: 100; 10 where it has to break)")
    top.add_argument("--seed", type=int, default=1, help="draws the same faults again (default: %(default)s)")
    arguments = top.parse_args(words)
    if unknown := set(arguments.names) - plans.keys():
        top.error(f"unknown campaigns: {', '.join(sorted(unknown))}; known: {', '.join(plans)}")
    failed = 0
    for name in arguments.names or plans:
        plan = replace(plans[name], seed=arguments.seed)
        if arguments.faults is not None:
            plan = replace(plan, faults=arguments.faults)
        result = run(plan, _say, docker=str(Home.of_user().bin / "docker"))
        failed += not _reported(name, result)
    return 1 if failed else 0


def _reported(name: str, result: Result) -> bool:
    """Print what was seen; return whether it is as it must be."""
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(result.faults.items()))
    _say(
        f"{name}: {sum(result.faults.values())} faults ({faults}) in {result.seconds:.0f} s;"
        f" {result.versions} versions, {result.epochs} epochs, {result.commits} commits,"
        f" {result.calls} requests, {result.unknown} without an answer"
    )
    for sentence in result.broken[:MOST_SHOWN]:
        _say(f"{name}: {sentence}")
    if name == APART.name:
        _say(f"{name}: {'two histories, as docs/fence-protocol.md says' if result.broken else 'nothing broke'}")
        return bool(result.broken)
    _say(f"{name}: {f'{len(result.broken)} promises do not hold' if result.broken else 'every promise holds'}")
    return not result.broken


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
