"""`python -m testbed`: up, status, down, logs, env, load."""

import argparse
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from testbed import cluster, engine
from testbed.console import Console
from testbed.engine import KEY_LABEL, Docker
from testbed.environment import NotUpError, load
from testbed.home import AlreadyRunningError, Home
from testbed.images import built_images
from testbed.keys import content_key
from testbed.plan import BESIDE, IMAGE_STEPS, READY, steps
from testbed.process import CommandError, Transcript, terminate_children
from testbed.release import NAMESPACE as OPERATOR_NAMESPACE
from testbed.services.kafka_and_cassandra import NAMESPACE
from testbed.steps import Runner, Step, StepError, StepFailure, closure

POD_LOGS = {
    "kafka": (NAMESPACE, "statefulset/kafka"),
    "cassandra": (NAMESPACE, "statefulset/cassandra"),
    "operator": (OPERATOR_NAMESPACE, "deployment/fencepost"),
}


def up(home: Home, arguments: argparse.Namespace) -> int:
    """Bring the testbed up; what is there is kept."""
    console = Console()
    home.prepare()
    runner = Runner(home, console, beside=BESIDE)
    every = steps(home, lambda: runner.keys)
    if arguments.only_images:
        wanted = {step.name for name in IMAGE_STEPS for step in closure(every, name)}
        chosen = [step for step in every if step.name in wanted]
    else:
        chosen = closure(every, arguments.until)
    try:
        runner.run(chosen)
    except StepFailure as failure:
        retry = shlex.join(["python", "-m", "testbed", *sys.argv[1:]])
        sys.stderr.write(
            f"\n{failure.last_lines()}\n\ntestbed: {failure}\n"
            f"whole log: {failure.transcript.path}\ntry again: {retry}\n"
        )
        return 1
    console.say("up", "everything is there")
    return 0


def status(home: Home, arguments: argparse.Namespace) -> int:  # noqa: ARG001
    """Say what is there; 0 when all of it is."""
    keys: dict[str, str] = {}
    missing = 0
    for step in closure(steps(home, lambda: keys), READY):
        keys[step.name] = content_key({**step.inputs(), **{f"needs {need}": keys[need] for need in step.needs}})
        there = _present(step, keys[step.name])
        missing += not there
        print(f"{step.name:24} {'there' if there else 'missing'}")
    return 1 if missing else 0


def _present(step: Step, key: str) -> bool:
    try:
        return step.present(key)
    except (StepError, OSError):
        return False


def down(home: Home, arguments: argparse.Namespace) -> int:
    """Delete the cluster and stop the engine that was started here; with --all, images and cache too."""
    console = Console()
    docker = Docker(home)
    home.logs.mkdir(parents=True, exist_ok=True)
    log = Transcript(home.logs / "down.log")
    if arguments.all and not docker.answers() and engine.was_started(home):
        console.say("engine", "starting it again: it holds the images")
        engine.Engine(home).make("", log)
    if docker.answers():
        console.say("cluster", "deleted" if cluster.delete(home, docker, log) else "none there")
        if arguments.all:
            built_images.remove_made(docker, KEY_LABEL, log)
            if engine.was_started(home):
                # The layers live on in the cache; an engine that was started elsewhere keeps its own.
                log.note(docker.ask("builder", "prune", "--all", "--force", seconds=300) or "")
            console.say("images", "removed")
    console.say("engine", "stopped" if engine.stop(home) else "not started here, left alone")
    if arguments.all:
        shutil.rmtree(home.root)
        console.say("cache", f"removed {home.root}")
    return 0


def logs(home: Home, arguments: argparse.Namespace) -> int:
    """Print a step's log, and the pods' where the step runs some; without a name, say which there are."""
    if arguments.component is None:
        for file in sorted(home.logs.glob("*.log")):
            print(f"{file.stem:24} {file}")
        return 0
    file = home.logs / f"{arguments.component}.log"
    if file.is_file():
        print(file.read_text(errors="replace"))
    if arguments.component in POD_LOGS:
        namespace, workload = POD_LOGS[arguments.component]
        print(
            cluster.Kubectl(home).ask("-n", namespace, "logs", workload, "--tail=500", seconds=30)
            or f"no log of {workload}"
        )
    elif not file.is_file():
        raise StepError(f"no log of {arguments.component}; `logs` without a name lists them")
    return 0


def env(home: Home, arguments: argparse.Namespace) -> int:
    """Print shell exports: `eval "$(python -m testbed env)"`; with --tool, the path of one tool that is there."""
    if arguments.tool:
        path = home.bin / arguments.tool
        if not path.is_file():
            raise StepError(f"{path} is not built yet: `make check` builds vale and helm, `make test` all tools")
        print(path)
        return 0
    for name, value in load(home).variables(os.environ.get("PATH", "")).items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def load_image(home: Home, arguments: argparse.Namespace) -> int:
    """Load a local image into the workers that lack it."""
    log = Transcript(home.logs / "load.log")
    built_images.load_one(home, arguments.image, log)
    print(f"{arguments.image} is in {' and '.join(cluster.WORKERS)}")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="testbed", description="A real kind cluster, Kafka and Cassandra from nothing.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: object, summary: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary, description=summary)
        added.set_defaults(function=function, locks=name in {"up", "down", "load"})
        return added

    starting = command("up", up, "bring everything up; what is there already is kept")
    part = starting.add_mutually_exclusive_group()
    part.add_argument("--until", metavar="STEP", default=READY, help="stop after this step (`status` names them)")
    part.add_argument("--only-images", action="store_true", help="make all images, no cluster")
    command("status", status, "say what is there; exit code 0 when all of it is")
    stopping = command("down", down, "delete the cluster, and stop the engine if it was started here")
    stopping.add_argument("--all", action="store_true", help="remove the images made here and the cache too")
    command("logs", logs, "print a step's log and its pods'").add_argument("component", nargs="?")
    exporting = command("env", env, "print shell exports for the testbed")
    exporting.add_argument(
        "--tool",
        choices=["kubectl", "helm", "kind", "docker", "go", "vale", "promtool", "amtool"],
        help="print where this tool is instead",
    )
    command("load", load_image, "load a local image into the workers").add_argument("image")
    return top


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    raise KeyboardInterrupt


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    arguments = parser().parse_args(words)
    home = Home.of_user()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if arguments.locks:
            with home.locked():
                return int(arguments.function(home, arguments))
        return int(arguments.function(home, arguments))
    except (StepError, CommandError, NotUpError, AlreadyRunningError) as error:
        sys.stderr.write(f"testbed: {error}\n")
        return 1
    except KeyboardInterrupt:
        terminate_children()
        sys.stderr.write("testbed: interrupted; the same command resumes from here\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
