"""The step engine: what is there already is kept, what is missing is made, in the order of what needs what.

A step's key is the hash of its inputs and of the keys of the steps it needs. Whether its result is there is asked of
the result itself (an image's label, a pod's annotation), never of a note that says so: a note outlives what it speaks
of. So an `up` that was killed resumes where it was, and a second one only checks.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Protocol

from testbed.console import Console
from testbed.home import Home
from testbed.keys import content_key
from testbed.process import CommandError, Transcript, terminate_children


class StepError(Exception):
    """A step cannot do its work; the message says why and what helps."""


class Step(Protocol):
    """One thing `up` sees to."""

    @property
    def name(self) -> str:
        """Short, unique, the name of its log file and of `--until`."""

    @property
    def doing(self) -> str:
        """What it does when it has to, as a participle: `building …`."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the steps that come before."""

    def inputs(self) -> Mapping[str, str]:
        """What its result is made from, the results of other steps left out."""

    def present(self, key: str) -> bool:
        """Whether the result for `key` is there and works."""

    def make(self, key: str, log: Transcript) -> None:
        """Make the result, whatever a killed earlier try left.  Raises StepError or CommandError."""


@dataclass(frozen=True, slots=True)
class Milestone:
    """Step without work of its own: a name for other steps together."""

    name: str
    needs: tuple[str, ...]
    doing: str = "waiting for its parts"

    def inputs(self) -> Mapping[str, str]:
        """Nothing of its own."""
        return {}

    def present(self, key: str) -> bool:  # noqa: ARG002
        """Always: its parts are done before."""
        return True

    def make(self, key: str, log: Transcript) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class StepFailure(Exception):
    """A step failed; carries what its user needs to see."""

    step: str
    reason: str
    transcript: Transcript

    def __str__(self) -> str:
        return f"{self.step}: {self.reason}"

    def last_lines(self, count: int = 25) -> str:
        """The end of the step's log."""
        try:
            return "\n".join(self.transcript.path.read_text(errors="replace").splitlines()[-count:])
        except OSError:
            return ""


def closure(steps: Sequence[Step], until: str | None) -> list[Step]:
    """The steps that `until` stands on and itself, in the order given; all of them without `until`.

    Raises StepError for an unknown name.
    """
    if until is None:
        return list(steps)
    by_name = {step.name: step for step in steps}
    if until not in by_name:
        raise StepError(f"no step is called {until}; there are {', '.join(by_name)}")
    wanted: set[str] = set()
    pending = [until]
    while pending:
        name = pending.pop()
        if name not in wanted:
            wanted.add(name)
            pending.extend(by_name[name].needs)
    return [step for step in steps if step.name in wanted]


@dataclass(slots=True)
class Runner:
    """Runs steps on a few threads; a step begins when all it needs are done."""

    home: Home
    console: Console
    lanes: int = 2
    beside: frozenset[str] = frozenset()
    """Names of steps that take turns on a thread of their own: long builds that nothing waits for but the end."""
    keys: dict[str, str] = field(default_factory=dict)

    def run(self, steps: Sequence[Step]) -> None:
        """Bring every step's result about.  Raises StepFailure for the first one that fails; the rest is ended."""
        waiting = list(steps)
        running: dict[Future[str], Step] = {}
        with (
            ThreadPoolExecutor(self.lanes, thread_name_prefix="step") as lanes,
            ThreadPoolExecutor(1, thread_name_prefix="beside") as beside,
        ):
            try:
                while waiting or running:
                    for step in [step for step in waiting if all(need in self.keys for need in step.needs)]:
                        waiting.remove(step)
                        pool = beside if step.name in self.beside else lanes
                        running[pool.submit(self._see_to, step)] = step
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        self.keys[running.pop(future).name] = future.result()
            except BaseException:
                for future in running:
                    future.cancel()
                terminate_children()
                raise

    def _see_to(self, step: Step) -> str:
        log = Transcript(self.home.logs / f"{step.name}.log")
        started = self.console.clock()
        try:
            key = content_key({**step.inputs(), **{f"needs {need}": self.keys[need] for need in step.needs}})
            if step.present(key):
                self.console.say(step.name, "there already")
                return key
            log.path.write_text(f"# {step.name} {key}\n")
            self.console.say(step.name, step.doing)
            with self.console.beating(step.name, step.doing):
                step.make(key, log)
            there = step.present(key)
        except (StepError, CommandError, OSError) as error:
            raise StepFailure(step.name, str(error), log) from error
        if not there:
            raise StepFailure(step.name, "it was made, and yet its result is not there", log)
        self.console.say(step.name, f"done in {self.console.clock() - started:.1f} s")
        return key
