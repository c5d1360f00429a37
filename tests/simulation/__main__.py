"""Plays many histories of the operator on two processes, or one seed; see `simulation.campaign`.

`python -m simulation --count 100000`, `python -m simulation --seed 4711`.
"""

from __future__ import annotations

import sys

from simulation.campaign import Model
from simulation.coverage import Coverage, deciders
from simulation.history import History
from simulation.playing import play

MODEL = Model(random=History.random, play=play, reached=Coverage)


def _summary(coverage: Coverage, everything: bool) -> str:
    if everything:
        _print_coverage(coverage)
    if missing := coverage.missing():
        print(f"rules that never decided: {', '.join(missing)}", file=sys.stderr)
    return f"{sum(coverage.pairs.values())} decisions, {len(coverage.pairs)} pairs of phase and rule"


def _print_coverage(coverage: Coverage) -> None:
    for name, count in sorted(coverage.met.items()):
        print(f"  {name}: {count}")
    for name in deciders():
        phases = ", ".join(sorted(state for state, check in coverage.pairs if check == name))
        print(f"  {name}: {phases or 'NEVER'}")
    print("never met:", ", ".join(f"{state}/{name}" for state, name in coverage.missing_pairs()))


if __name__ == "__main__":
    sys.exit(MODEL.main("simulation", __doc__, count=100_000, summary=_summary))
