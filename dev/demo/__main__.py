"""`python -m demo`: see the package's docstring. The testbed has to be up; `make demo` sees to that."""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from demo.play import DemoError, Outcome, Plan, Play
from demo.scene import Scene, SceneError
from fencepost.fence import FenceError
from flights.console import Console
from flights.dataset import flights
from flights.loader import LoadError
from flights.sink import CassandraDownError
from harness.kubernetes.kubectl import KubectlError
from harness.kubernetes.nodes import NodeError
from harness.waiting import NotInTimeError
from testbed.environment import NotUpError, load

DIAGNOSIS_LINES: Final = 30
"""Of each thing that is shown after a failure, its end."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="demo", description="A pipeline on real flights whose driver is killed halfway.")
    top.add_argument("--rows", type=int, default=len(flights()), help="flights in all (default: the year's 336,776)")
    top.add_argument("--rate", type=float, default=4_000, help="flights a second while it streams (default: 4,000)")
    top.add_argument("--keep", action="store_true", help="leave the pipeline running, with its topic and its table")
    return top


def perform(plan: Plan, console: Console, *, keep: bool) -> int:
    """Set the stage, play, print the result, and clear the stage; 0 when every row is there once."""
    with Scene.of(load()) as scene:
        console.line("stage: an empty namespace, topic and table")
        scene.clear()
        scene.prepare()
        try:
            outcome = Play(scene, console, plan).run()
        except (DemoError, SceneError, LoadError, NotInTimeError, NodeError, KubectlError, FenceError) as error:
            for what, text in scene.diagnosis():
                console.plain(f"\n--- {what}")
                console.plain("\n".join(text.rstrip().splitlines()[-DIAGNOSIS_LINES:]))
            console.plain()
            console.line(f"FAILED: {error}")
            console.plain(f"everything is left as it is: kubectl -n {scene.kubectl.namespace} get all,spl")
            return 1
        print_outcome(outcome, console)
        if keep:
            console.line(f"left running: kubectl -n {scene.kubectl.namespace} get spl {scene.name}")
        else:
            console.line("clearing the stage")
            scene.clear()
    return 0 if outcome.ok else 1


def print_outcome(outcome: Outcome, console: Console) -> None:
    """The result."""
    console.plain()
    for line in outcome.report.lines():
        console.plain(f"  {line}")
    console.plain(f"  {'the fence':<14}" + "\n                ".join(outcome.history.lines()))
    console.plain(f"  {'first commit':<14}{outcome.to_first_commit:.1f} s after apply")
    console.plain(f"  {'recovery':<14}{outcome.to_recover:.1f} s from SIGKILL to the next commit")
    console.plain()
    console.line(
        "every flight is there once" if outcome.ok else "FAILED: not every flight is there once, see the counts"
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run it; its exit code."""
    arguments = parser().parse_args(words)
    try:
        return perform(Plan(rows=arguments.rows, rate=arguments.rate), Console(), keep=arguments.keep)
    except (NotUpError, SceneError, LoadError, KubectlError, FenceError, CassandraDownError) as error:
        sys.stderr.write(f"demo: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("demo: interrupted; the next demo clears what this one left\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
