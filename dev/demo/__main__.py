"""`python -m demo`: see the package's docstring. The testbed has to be up; `make demo` sees to that."""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaException

from demo.example import Departures, Example
from demo.play import DemoError, Outcome, Plan, Play
from demo.scene import Scene, SceneError
from demo.sessions import Sessions
from fencepost.fence import FenceError
from fencepost_cli.errors import CliError
from flights.console import Console
from flights.loader import LoadError
from flights.sink import CassandraDownError
from harness.kubernetes.kubectl import KubectlError
from harness.kubernetes.nodes import NodeError
from harness.waiting import NotInTimeError
from testbed.environment import NotUpError, load

DIAGNOSIS_LINES: Final = 30
"""Of each thing that is shown after a failure, its end."""
FAILURES: Final = (
    DemoError,
    SceneError,
    LoadError,
    NotInTimeError,
    NodeError,
    KubectlError,
    FenceError,
    CliError,
    KafkaException,
)


EXAMPLES: Final[dict[str, type[Example]]] = {"departures": Departures, "sessions": Sessions}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="demo", description="A pipeline whose driver is killed halfway.")
    top.add_argument("example", nargs="?", choices=EXAMPLES, default="departures", help="what is played")
    top.add_argument("--rows", type=int, help="records in all (default: 336,776 flights, or 120,000 views)")
    top.add_argument("--rate", type=float, help="records per second while it streams (default: 4,000)")
    top.add_argument("--keep", action="store_true", help="leave the pipeline running, with its topic and its table")
    return top


def perform(example: Example, plan: Plan, console: Console, *, keep: bool) -> int:
    """Set the stage, play, print the result, and clear the stage; 0 when all is as it has to be."""
    with Scene.of(load(), example.folder) as scene:
        console.line("stage: an empty namespace, topic and table")
        scene.clear()
        scene.prepare()
        try:
            outcome = Play(scene, example, console, plan).run()
        except FAILURES as error:
            for what, text in scene.diagnosis():
                console.plain(f"\n--- {what}")
                console.plain("\n".join(text.rstrip().splitlines()[-DIAGNOSIS_LINES:]))
            console.plain()
            console.line(f"FAILED: {error}")
            console.plain(f"everything is left as it is: kubectl -n {scene.kubectl.namespace} get all,spl")
            return 1
        print_outcome(example, outcome, console)
        if keep:
            console.line(f"left running: kubectl -n {scene.kubectl.namespace} get spl {scene.name}")
        else:
            console.line("clearing the stage")
            scene.clear()
    return 0 if outcome.ok else 1


def print_outcome(example: Example, outcome: Outcome, console: Console) -> None:
    """The result."""
    console.plain()
    for line in outcome.account.lines():
        console.plain(f"  {line}")
    console.plain(f"  {'the fence':<14}" + "\n                ".join(outcome.history.lines()))
    console.plain(f"  {'first commit':<14}{outcome.to_first_commit:.1f} s after apply")
    console.plain(f"  {'recovery':<14}{outcome.to_recover:.1f} s from SIGKILL to the next commit")
    console.plain()
    console.line(example.promise if outcome.ok else f"FAILED: not {example.promise}, see the counts")


def main(words: Sequence[str] | None = None) -> int:
    """Run it; its exit code."""
    arguments = parser().parse_args(words)
    try:
        example = EXAMPLES[arguments.example]()
        plan = Plan(rows=arguments.rows or example.amount, rate=arguments.rate or example.rate)
        return perform(example, plan, Console(), keep=arguments.keep)
    except (NotUpError, CassandraDownError, *FAILURES) as error:
        sys.stderr.write(f"demo: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("demo: interrupted; the next demo clears what this one left\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
