"""Plays many histories of two regions on two processes, or one seed; see `simulation.campaign`.

`python -m simulation.failover --count 10000`, `python -m simulation.failover --seed 4711`.
"""

from __future__ import annotations

import sys

from simulation.campaign import Model
from simulation.failover.history import History
from simulation.failover.playing import Reached, play

MODEL = Model(random=History.random, play=play, reached=Reached)


def _summary(reached: Reached, everything: bool) -> str:
    del everything
    return ", ".join(f"{count} {name}" for name, count in sorted(reached.met.items()))


if __name__ == "__main__":
    sys.exit(MODEL.main("simulation.failover", __doc__, count=2_000, summary=_summary))
