"""One pytest session for all mutants: it collects once, observes which test reaches which line, then forks."""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import os
import pickle
import signal
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from mutants.mutations import Mutation, with_marks
from mutants.patching import apply, put_code

MARK: Final = "_mutants_reached"
PATIENCE: Final = 10.0
"""How many times longer than before a test may take, in CPU time, until a mutant counts as one that loops."""
GRACE: Final = 2.0
"""Seconds of CPU on top of it."""
WAITING: Final = 60.0
"""Seconds by the clock, on top of ten times that, after which a test fails: it may wait for what does not come."""
BROKEN: Final = 3
"""Exit code of a fork that could not do its work; its traceback is on stderr."""
MOST_SECONDS: Final = 45.0
"""Of CPU for the tests of one mutant, the fastest first: the rest would find little, and take most of the time."""

Line = tuple[Path, int]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutation of a file, for one of the modules."""

    module: str
    file: Path
    mutation: Mutation


@dataclass(slots=True)
class Reach:
    """Which tests reach a line, by node id, and how many seconds each test takes."""

    tests: dict[Line, set[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Marks:
    """Where the marks are, and which tests came by each: a number is quicker than a file and a line."""

    lines: list[Line] = field(default_factory=list)
    tests: list[set[str]] = field(default_factory=list)

    def at(self, file: Path) -> Callable[[int], ast.stmt]:
        """Return what makes the mark of a line of `file`."""

        def mark(line: int) -> ast.stmt:
            self.lines.append((file, line))
            self.tests.append(set())
            call = ast.Call(ast.Name(MARK, ast.Load()), [ast.Constant(len(self.lines) - 1)], [])
            return ast.Expr(call)

        return mark

    def by_line(self) -> dict[Line, set[str]]:
        """Return the tests of each line; a line may have several marks."""
        found: dict[Line, set[str]] = defaultdict(set)
        for line, tests in zip(self.lines, self.tests, strict=True):
            found[line] |= tests
        return dict(found)


class Plugin:
    """Runs the collected tests once as they are, then those that reach a mutant, for each mutant.

    `settled(mutant, killed)` is called for each one, in no order; `unsound` names tests that fail without a mutant.
    """

    def __init__(
        self,
        mutants: Sequence[Mutant],
        sources: Mapping[Path, str],
        *,
        allowed: Callable[[str, str], bool],
        jobs: int,
        settled: Callable[[Mutant, bool], None],
    ) -> None:
        self._mutants, self._sources, self._jobs = mutants, sources, jobs
        self._allowed, self._settled = allowed, settled
        self._failed = False
        self.unsound: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the mutants instead of the tests."""
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        with TemporaryDirectory() as folder:
            reach = self._reach(session.items, Path(folder) / "reach")
        self.unsound = reach.failed
        if not reach.failed:
            seconds = sum(reach.seconds.values())
            print(f"{len(session.items)} tests, {seconds:.0f} s of CPU; {len(self._mutants)} mutants", flush=True)
            self._run(session.items, reach)
        return True

    def _reach(self, items: Sequence[pytest.Item], answer: Path) -> Reach:
        child = _fork(lambda: not answer.write_bytes(pickle.dumps(self._observed(items))))
        if os.waitpid(child, 0)[1]:
            raise RuntimeError("the tests could not be run without a mutant")
        found = pickle.loads(answer.read_bytes())  # noqa: S301  # written by the fork
        assert isinstance(found, Reach)
        return found

    def _observed(self, items: Sequence[pytest.Item]) -> Reach:
        reach, marks, current = Reach(), Marks(), ""
        for file, source in self._sources.items():
            put_code(file, compile(with_marks(source, marks.at(file)), str(file), "exec"))
        setattr(builtins, MARK, lambda number: marks.tests[number].add(current))
        for item in items:
            current, self._failed = item.nodeid, False
            begun = time.process_time()
            _run_test(item)
            reach.seconds[current] = time.process_time() - begun
            if self._failed:
                reach.failed.append(current)
        reach.tests = marks.by_line()
        return reach

    def _run(self, items: Sequence[pytest.Item], reach: Reach) -> None:
        running: dict[int, tuple[Mutant, float]] = {}
        waiting = list(reversed(self._mutants))
        try:
            while waiting or running:
                while waiting and len(running) < self._jobs:
                    mutant = waiting.pop()
                    killers = self._killers(mutant, items, reach)
                    child = _fork(functools.partial(self._killed, mutant, killers, reach.seconds))
                    seconds = sum(reach.seconds[each.nodeid] for each in killers)
                    running[child] = mutant, time.monotonic() + PATIENCE * (seconds + WAITING)
                child, status = os.waitpid(-1, os.WNOHANG)
                if child in running:
                    mutant, _ = running.pop(child)
                    _end(child)
                    if os.waitstatus_to_exitcode(status) == BROKEN:
                        raise RuntimeError(f"{mutant.file}, line {mutant.mutation.line}: {mutant.mutation.after}")
                    self._settled(mutant, status != 0)
                else:
                    time.sleep(0.02)
                for late in [each for each, (_, until) in running.items() if time.monotonic() > until]:
                    _end(late)
        finally:
            for child in running:
                _end(child)

    def _killers(self, mutant: Mutant, items: Iterable[pytest.Item], reach: Reach) -> list[pytest.Item]:
        """Return the tests that reach a mutant, the fastest first; for a constant those that reach its file."""
        is_constant = mutant.mutation.function is None
        reached = [
            tests
            for (file, line), tests in reach.tests.items()
            if file == mutant.file and (is_constant or line == mutant.mutation.statement)
        ]
        ids = set().union(*reached)
        found = [each for each in items if each.nodeid in ids and self._allowed(mutant.module, each.nodeid)]
        found.sort(key=lambda each: reach.seconds[each.nodeid])
        return list(_within(MOST_SECONDS, found, reach.seconds))

    def _killed(self, mutant: Mutant, killers: Iterable[pytest.Item], seconds: Mapping[str, float]) -> bool:
        apply(mutant.file, self._sources[mutant.file], mutant.mutation)
        self._failed = False
        for item in killers:
            longest = PATIENCE * seconds[item.nodeid]
            signal.setitimer(signal.ITIMER_PROF, GRACE + longest)  # ends the process
            item.add_marker(pytest.mark.timeout(WAITING + PATIENCE * longest))
            _run_test(item)
            if self._failed:
                return True
        return False


def _within(most: float, items: Iterable[pytest.Item], seconds: Mapping[str, float]) -> Iterator[pytest.Item]:
    taken = 0.0
    for item in items:
        taken += seconds[item.nodeid]
        if taken > most:
            return
        yield item


def _run_test(item: pytest.Item) -> None:
    # Without a next one, what its fixtures set up is taken down: the tests run in another order than collected.
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


def _fork(work: Callable[[], bool]) -> int:
    """Begin a process that ends with 1 when `work` returns True; what it prints is dropped."""
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        errors = os.dup(2)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os._exit(int(work()))
    except BaseException:  # noqa: BLE001  # or the fork would continue as its parent does
        os.write(errors, traceback.format_exc().encode())
        os._exit(BROKEN)


def _end(child: int) -> None:
    """Kill a mutant with what its tests started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
