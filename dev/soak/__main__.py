"""`python -m soak`: long loads on the testbed; prints the trend of every resource, and asserts nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.samples import Result
from demo.scene import SceneError
from fencepost.fence import FenceError
from flights.console import Console
from flights.loader import LoadError
from harness.kubernetes.kubectl import KubectlError
from harness.kubernetes.nodes import NodeError
from harness.waiting import NotInTimeError
from soak import large_records, stateful, steady
from testbed.environment import NotUpError

SOAKS: Final[Mapping[str, Callable[[Console, argparse.Namespace], Result]]] = {
    "large-records": lambda console, given: large_records.run(console, gigabytes=given.gigabytes),
    "stateful": lambda console, given: stateful.run(console, hours=given.hours, kill_minutes=given.kill_minutes),
    "steady": lambda console, given: steady.run(console, hours=given.hours),
}


def main(words: Sequence[str] | None = None) -> int:
    """Run some soaks; 1 when one could not be run to its end."""
    top = argparse.ArgumentParser(prog="soak", description="Long loads; the trend of every resource.")
    top.add_argument("names", nargs="*", metavar="NAME", help=f"{' or '.join(SOAKS)} (default: each of them)")
    length = "steady, stateful: length after the warm-up (default: %(default)s)"
    top.add_argument("--hours", type=float, default=2.0, help=length)
    killing = "stateful: time between two kills of the driver (default: %(default)s)"
    top.add_argument("--kill-minutes", type=float, default=20.0, help=killing)
    top.add_argument("--gigabytes", type=float, default=24.0, help="large-records: the backlog (default: %(default)s)")
    top.add_argument("--into", type=Path, default=Path(".cache/bench"), help="folder for the JSON")
    arguments = top.parse_args(words)
    if unknown := set(arguments.names) - SOAKS.keys():
        top.error(f"unknown soak {', '.join(sorted(unknown))}; choose from {' and '.join(SOAKS)}")
    console = Console(line_seconds=10.0)
    failed = 0
    for name in arguments.names or SOAKS:
        try:
            result = SOAKS[name](console, arguments)
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
            console.line(f"{name}: not finished: {error}")
            continue
        for note in result.notes:
            console.plain(note)
        console.line(f"{name}: {result.save(arguments.into)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
