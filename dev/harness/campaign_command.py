"""The command line of a campaign of faults: which plans, which seed, and what is printed of a result."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    PlanT = TypeVar("PlanT", bound=DataclassInstance)

MOST_SHOWN: Final = 20
"""Broken promises of one campaign that are printed."""


def chosen_plans(
    words: Sequence[str] | None, plans: Mapping[str, PlanT], *, prog: str, description: str, faults: str
) -> Mapping[str, PlanT]:
    """Return the plans that the command line names, or all, with its seed and number of faults.

    A plan has the fields `seed` and `faults`; the text `faults` says how many it has by default.
    """
    top = argparse.ArgumentParser(prog=prog, description=description)
    top.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(plans)} (default: all)")
    top.add_argument("--faults", type=int, help=f"faults of each campaign (default: {faults})")
    top.add_argument("--seed", type=int, default=1, help="draws the same faults again (default: %(default)s)")
    arguments = top.parse_args(words)
    if unknown := set(arguments.names) - plans.keys():
        top.error(f"unknown campaigns: {', '.join(sorted(unknown))}; known: {', '.join(plans)}")
    chosen = {name: replace(plans[name], seed=arguments.seed) for name in arguments.names or plans}
    if arguments.faults is None:
        return chosen
    return {name: replace(plan, faults=arguments.faults) for name, plan in chosen.items()}


def counted(kinds: Mapping[str, int]) -> str:
    """Return '2 kill, 1 pause'."""
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def say(text: str) -> None:
    """Print a line with the time."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def say_broken(name: str, broken: Sequence[str]) -> None:
    """Print the first broken promises, and how many they are."""
    for sentence in broken[:MOST_SHOWN]:
        say(f"{name}: {sentence}")
    say(f"{name}: {f'{len(broken)} promises do not hold' if broken else 'every promise holds'}")
