"""The step engine keeps what is there, makes what is not, continues after a kill, and says what failed."""

import io
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testbed.console import Console
from testbed.home import AlreadyRunningError, Home
from testbed.process import Transcript
from testbed.steps import Milestone, Runner, StepError, StepFailure, closure

World = dict[str, str]
"""By the name of each step that was made, the key for which it was made."""


@dataclass
class FakeStep:
    """A step whose result is an entry of `world`: its name to the key it was made for."""

    world: World
    name: str
    needs: tuple[str, ...] = ()
    value: str = "1"
    doing: str = "making"
    effect: Callable[[Transcript], None] = lambda _: None
    made: list[str] = field(default_factory=list)

    def inputs(self) -> Mapping[str, str]:
        return {"value": self.value}

    def present(self, key: str) -> bool:
        return self.world.get(self.name) == key

    def make(self, key: str, log: Transcript) -> None:
        self.made.append(key)
        self.effect(log)
        self.world[self.name] = key


@pytest.fixture
def world() -> World:
    return {}


def run(home: Home, *steps: FakeStep | Milestone) -> str:
    stream = io.StringIO()
    Runner(home, Console(stream)).run(steps)
    return stream.getvalue()


def chain(world: dict[str, str], value: str = "1") -> tuple[FakeStep, FakeStep, FakeStep]:
    return (
        FakeStep(world, "base", value=value),
        FakeStep(world, "image", ("base",)),
        FakeStep(world, "pod", ("image",)),
    )


def test_a_second_run_makes_nothing(home: Home, world: World) -> None:
    run(home, *chain(world))
    again = chain(world)
    printed = run(home, *again)
    assert [step.made for step in again] == [[], [], []]
    assert printed.count("there already") == 3


def test_a_changed_input_makes_everything_that_stands_on_it(home: Home, world: World) -> None:
    run(home, *chain(world))
    changed = chain(world, value="2")
    run(home, *changed)
    assert [len(step.made) for step in changed] == [1, 1, 1]


def test_a_result_that_vanished_is_recreated_and_the_rest_is_kept(home: Home, world: World) -> None:
    run(home, *chain(world))
    del world["image"]
    again = chain(world)
    run(home, *again)
    assert [len(step.made) for step in again] == [0, 1, 0]


@pytest.mark.parametrize("killed", range(3))
def test_a_run_that_was_killed_continues_where_it_was(home: Home, killed: int, world: World) -> None:
    steps = chain(world)

    def kill(_: Transcript) -> None:
        raise KeyboardInterrupt

    steps[killed].effect = kill
    with pytest.raises(KeyboardInterrupt):
        run(home, *steps)
    again = chain(world)
    run(home, *again)
    assert [len(step.made) for step in again] == [int(position >= killed) for position in range(3)]


def test_the_order_of_the_list_does_not_matter(home: Home, world: World) -> None:
    run(home, *reversed(chain(world)))
    assert set(world) == {"base", "image", "pod"}


def test_independent_steps_run_side_by_side(home: Home) -> None:
    meeting = threading.Barrier(2, timeout=10)
    world: World = {}

    def meet(_: Transcript) -> None:
        meeting.wait()

    run(home, *(FakeStep(world, name, effect=meet) for name in ("one", "two")))
    assert set(world) == {"one", "two"}


def test_a_failure_names_the_step_and_shows_the_end_of_its_log(home: Home) -> None:
    program = [sys.executable, "-c", "print('first'); print('the reason'); raise SystemExit(3)"]
    step = FakeStep({}, "broken", effect=lambda log: log.run(program))
    after = FakeStep({}, "after", ("broken",))
    with pytest.raises(StepFailure) as caught:
        run(home, step, after)
    assert caught.value.step == "broken"
    assert "ended with code 3" in str(caught.value)
    assert caught.value.last_lines(1) == "the reason"
    assert after.made == []


def test_a_program_that_does_not_exist_is_a_failure_of_its_step(home: Home) -> None:
    step = FakeStep({}, "broken", effect=lambda log: log.run(["/no/such/program"]))
    with pytest.raises(StepFailure, match="No such file"):
        run(home, step)


def test_a_step_that_made_nothing_is_a_failure(home: Home) -> None:
    class Idle(FakeStep):
        def make(self, key: str, log: Transcript) -> None:
            pass

    with pytest.raises(StepFailure, match="its result is not there"):
        run(home, Idle({}, "idle"))


def test_a_failure_ends_what_runs_beside_it(home: Home) -> None:
    started = threading.Event()

    def refuse(_: Transcript) -> None:
        started.wait(10)
        raise StepError("no")

    def wait(log: Transcript) -> None:
        program = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
        threading.Timer(0.3, started.set).start()
        log.run(program)

    with pytest.raises(StepFailure, match="bad: no"):
        run(home, FakeStep({}, "long", effect=wait), FakeStep({}, "bad", effect=refuse))


def test_a_milestone_stands_for_its_parts(home: Home, world: World) -> None:
    base, image, pod = chain(world)
    run(home, base, image, Milestone("half", ("image",)))
    assert set(world) == {"base", "image"}
    assert pod.made == []


def test_until_takes_what_a_step_stands_on() -> None:
    base, image, pod = chain({})
    other = FakeStep({}, "other")
    assert closure([base, other, image, pod], "image") == [base, image]
    assert closure([base, other, image, pod], None) == [base, other, image, pod]


def test_until_an_unknown_step_is_refused() -> None:
    with pytest.raises(StepError, match="no step is called nope; there are base"):
        closure([FakeStep({}, "base")], "nope")


def test_long_steps_say_that_they_are_alive() -> None:
    stream = io.StringIO()
    console = Console(stream, heartbeat=0.01)
    with console.beating("kubernetes", "building"):
        threading.Event().wait(0.2)
    assert "kubernetes: still building" in stream.getvalue()


def test_records_survive_and_a_broken_one_counts_as_none(home: Home) -> None:
    home.write("cluster", {"id": "1"})
    assert home.read("cluster") == {"id": "1"}
    (home.keys / "cluster.json").write_text("{")
    assert home.read("cluster") == {}


def test_scratch_of_a_killed_run_is_dropped(home: Home) -> None:
    (home.scratch / "half-made").write_text("")
    home.prepare()
    assert list(home.scratch.iterdir()) == []


def test_two_commands_do_not_run_at_once(home: Home) -> None:
    with home.locked(), pytest.raises(AlreadyRunningError), home.locked():
        pass


@pytest.mark.parametrize(
    ("variables", "root"),
    [
        ({"FENCEPOST_TESTBED_HOME": "/data/bed", "HOME": "/home/u"}, "/data/bed"),
        ({"XDG_CACHE_HOME": "/cache", "HOME": "/home/u"}, "/cache/fencepost-testbed"),
        ({"HOME": "/home/u"}, "/home/u/.cache/fencepost-testbed"),
    ],
)
def test_the_home_is_where_the_user_says(variables: dict[str, str], root: str) -> None:
    assert Home.of_user(variables).root == Path(root)


def test_a_long_step_beside_the_others_keeps_no_lane_from_them(home: Home, world: World) -> None:
    others = threading.Event()

    def wait(_: Transcript) -> None:
        assert others.wait(10), "the other steps waited for the long ones"

    def last(_: Transcript) -> None:
        others.set()

    long = [FakeStep(world, f"long-{n}", effect=wait) for n in range(3)]
    chain = [FakeStep(world, "first"), FakeStep(world, "last", ("first",), effect=last)]
    Runner(home, Console(io.StringIO()), beside=frozenset(step.name for step in long)).run([*long, *chain])
    assert world.keys() == {"long-0", "long-1", "long-2", "first", "last"}
