"""`python -m bench NAME…|all`: measure on the testbed, print tables, write .cache/bench/NAME.json."""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench import apply, backlog, batch, commit, growth, image_sizes, latency, operator_memory, peers, recovery, zombie
from bench.figures import Result
from demo.scene import SceneError
from fencepost.fence import FenceError
from flights.console import Console
from flights.loader import LoadError
from harness.kubectl import KubectlError
from harness.nodes import NodeError
from harness.waiting import NotInTimeError
from testbed.environment import NotUpError

BENCHES: Final[Mapping[str, Callable[[Console], Result]]] = {
    "images": image_sizes.measure,
    "commit": commit.measure,
    "apply": apply.measure,
    "batch": batch.measure,
    "backlog": backlog.measure,
    "long-backlog": backlog.measure_long,
    "latency": latency.measure,
    "growth": growth.measure,
    "peers": peers.measure,
    "recovery": recovery.measure,
    "zombie": zombie.measure,
    "operator-memory": operator_memory.measure,
}
LINE_SECONDS: Final = 10.0


def main(words: Sequence[str] | None = None) -> int:
    """Run some; 1 when one could not be run to its end."""
    top = argparse.ArgumentParser(prog="bench", description="Figures of the testbed's pipeline; nothing is asserted.")
    top.add_argument("names", nargs="+", choices=[*BENCHES, "all"], metavar="NAME", help=f"{', '.join(BENCHES)} or all")
    top.add_argument("--into", type=Path, default=Path(".cache/bench"), help="folder for the JSON (.cache/bench)")
    arguments = top.parse_args(words)
    console = Console(line_seconds=LINE_SECONDS)
    failed = 0
    for name in BENCHES if "all" in arguments.names else arguments.names:
        begun = time.monotonic()
        try:
            result = BENCHES[name](console)
        except (
            NotUpError,
            SceneError,
            LoadError,
            KubectlError,
            NodeError,
            NotInTimeError,
            FenceError,
            OSError,
        ) as error:
            failed += 1
            console.line(f"{name}: not measured: {error}")
            continue
        result.tell(console)
        console.line(f"{name}: {result.save(arguments.into)}, {time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
