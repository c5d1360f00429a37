"""Plays many histories of a stateful pipeline on two processes, or one seed; see `simulation.campaign`.

`python -m simulation.stateful --count 10000`, `python -m simulation.stateful --seed 4711`.
"""

from __future__ import annotations

import sys
from collections import Counter

from simulation.campaign import Model
from simulation.stateful.history import History
from simulation.stateful.playing import play

MODEL: Model[Counter[str]] = Model(random=History.random, play=play, reached=Counter)


def _summary(met: Counter[str], everything: bool) -> str:
    if everything:
        for name, count in sorted(met.items()):
            print(f"  {name}: {count}")
    return f"{met['batch committed']} batches, {met['driver started']} drivers"


if __name__ == "__main__":
    sys.exit(MODEL.main("simulation.stateful", __doc__, count=10_000, summary=_summary))
