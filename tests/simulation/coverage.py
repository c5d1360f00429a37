"""Which precondition or rule decided in which phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fencepost_operator.api import State
from fencepost_operator.decision import decide
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.outcome import Outcome
from fencepost_operator.decision.rules import failover, preconditions, start
from simulation.shortcuts import swapped

STEPS = (start.fence_is_held, start.require_cluster, start.cluster_is_not_ready, start.epoch_is_used, start.start_run)
"""What decides when no rule does."""
OF_SEVERAL_CLUSTERS = frozenset({failover.move_is_asked_for.__name__})
"""What decides in the histories of `simulation.failover` alone."""
RICHER = (preconditions.require_spec, preconditions.require_fence)


def deciders() -> tuple[str, ...]:
    """Return the names of all that can decide, in their order."""
    chains: tuple[Callable[..., Any], ...] = (
        *decide.PRECONDITIONS, RICHER[0], *decide.SPEC_PRECONDITIONS, RICHER[1], *decide.RULES, *STEPS,
    )  # fmt: skip
    return tuple(check.__name__ for check in chains)


@dataclass(slots=True)
class Coverage:
    """How often each (phase before, decider) pair, and each (decider, reason), was reached."""

    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    """How often what a promise is about happened."""

    def add(self, context: Context, check: str, outcome: Outcome) -> None:
        """Count a decision."""
        self.pairs[context.pipeline.status.state, check] += 1
        self.outcomes[check, outcome.reason] += 1

    def update(self, other: Coverage) -> None:
        """Add another one's counts."""
        self.pairs.update(other.pairs)
        self.outcomes.update(other.outcomes)
        self.met.update(other.met)

    def missing(self) -> tuple[str, ...]:
        """Return the deciders that never decided."""
        reached = {check for _, check in self.pairs} | OF_SEVERAL_CLUSTERS
        return tuple(name for name in deciders() if name not in reached)

    def missing_pairs(self) -> tuple[tuple[str, str], ...]:
        """Return the pairs of a phase and a decider that never met."""
        return tuple((state, name) for state in State for name in deciders() if (state, name) not in self.pairs)


@dataclass(frozen=True, slots=True)
class Counting:
    """Stands in for what the chain calls, and counts what that concludes."""

    coverage: Coverage

    def first(self, checks: tuple[Callable[[Any], Outcome | None], ...], context: Any) -> Outcome | None:
        """Return the first outcome."""
        for check in checks:
            if outcome := check(context):
                self.coverage.add(context, check.__name__, outcome)
                return outcome
        return None

    def concludes(self, name: str, check: Callable[..., Any]) -> Callable[..., Any]:
        """Return a check that returns a richer context, or a value after which the next check runs, or an outcome."""

        def counting(context: Any, *more: Any) -> Any:
            found = check(context, *more)
            if isinstance(found, Outcome):
                self.coverage.add(context, name, found)
            return found

        return counting


@contextmanager
def counted(coverage: Coverage | None) -> Generator[None]:
    """Count decisions while in here."""
    if coverage is None:
        yield
        return
    counting = Counting(coverage)
    checks = (
        (module, check.__name__) for module, found in ((start, STEPS), (preconditions, RICHER)) for check in found
    )
    counts = [(module, name, counting.concludes(name, getattr(module, name))) for module, name in checks]
    with swapped([(decide, "_first", counting.first), *counts]):
        yield
