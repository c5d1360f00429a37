"""Spark: the query as MicroBatchExecution runs it, the tasks of its state stores, and the maintenance of executors.

Only what reaches the checkpoint directory is here, in Spark's order: the metadata, `offsets/N`, then a changelog per
store from each attempt of a task, the rows, `commits/N` with the ids of the attempts that won, and the purge of old
logs.  A store's version is read from the newest snapshot among its ancestors, and the changelogs since.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from simulation.failure import require
from simulation.stateful.hadoop import Asking, Client, RequestFailed
from simulation.stateful.job import STORES, Ends, Past, Row, State, expected_state, updated, watermark_after
from simulation.stateful.stage import Actor, Process, Stage

RETAINED_LOGS: Final = 2
RETAINED_VERSIONS: Final = 2
"""Both are spark.sql.streaming.minBatchesToRetain."""
PURGES: Final = 0.3
"""How often old logs are purged: Spark does it beside the next batches."""
FAILURES: Final = 4
"""spark.task.maxFailures."""
SPECULATES_AFTER: Final = 40
"""Turns."""
MAINTAINS_EVERY: Final = 100
"""Turns."""


@dataclass(slots=True, kw_only=True)
class Task:
    """What the tasks of one batch share. `watermark` is that of the batch; `token` its write timestamp."""

    batch: int
    start: Ends
    end: Ends
    watermark: int
    closed: int
    """The watermark of the batch before."""
    before: Mapping[int, str]
    past: Past
    """Of the state before."""
    token: int
    winners: dict[int, str] = field(default_factory=dict)
    failures: dict[int, int] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether each store has an attempt that ended."""
        return len(self.winners) == STORES


class Application(Protocol):
    """The driver, as Spark knows it."""

    stage: Stage
    dice: random.Random
    met: Counter[str]

    @property
    def client(self) -> Client:
        """The driver's file system."""
        ...

    def start_of(self) -> Ends:
        """Return where a query without a checkpoint starts."""
        ...

    @property
    def past(self) -> Past:
        """What the state that this run has found is made of."""
        ...

    def read(self, task: Task, store: int) -> None:
        """Read the records of a task. Raises RequestFailed where one is lost, or fails and is not left out."""
        ...

    def next_end(self, start: Ends) -> Ends:
        """Return where the next batch ends, `start` when there is nothing to read."""
        ...

    def is_behind(self, end: Ends) -> bool:
        """Return whether there is anything to read beyond."""
        ...

    def text_of(self, end: Ends) -> str:
        """Return offsets as Spark writes them."""
        ...

    def end_of(self, log: str) -> Ends:
        """Return where the batch of an offset log ends."""
        ...

    def begin(self) -> None:
        """Let the batch whose offsets have appeared be planned. Raises QueryEnded."""
        ...

    def token(self) -> int:
        """Return the write timestamp of the batch that is planned."""
        ...

    def write(self, rows: Mapping[Row, int], token: int) -> None:
        """Write output."""
        ...

    def executor(self) -> Executor:
        """Return an executor that lives."""
        ...

    def written_task(self, task: Task) -> None:
        """The rows of the batch are written."""
        ...


class QueryEnded(Exception):
    """The query fails, or is asked to stop between two batches."""


@dataclass(slots=True)
class Query:
    """The query of one run."""

    app: Application
    setup: Any
    wants_stop: Callable[[], bool]
    ends: dict[int, Ends] = field(default_factory=dict)
    watermarks: dict[int, int] = field(default_factory=dict)
    """Of each batch that is planned."""
    watermark: int = 0
    """Of the batch that is planned next."""
    winners: Mapping[int, str] = field(default_factory=dict)

    def run(self) -> Asking[None]:
        """Run until something fails. Raises RequestFailed, QueryEnded."""
        batch = yield from self._resume()
        while True:
            if batch not in self.ends:
                yield from self._construct(batch)
            yield from self._run_batch(batch)
            batch += 1

    def _resume(self) -> Asking[int]:
        """Read what the checkpoint has; return the batch to be run."""
        client = self.app.client
        for folder in ("", "offsets", "commits", "state"):
            yield from client.make(folder)
        if not (yield from client.status("metadata")):
            yield from self._log("metadata", '{"id":"query"}')
        planned = max((yield from self._batches("offsets")), default=-1)
        committed = max((yield from self._batches("commits")), default=-1)
        require(committed in {planned, planned - 1}, "the logs of a checkpoint do not follow each other")
        for batch in range(max(planned - 1, 0), planned + 1):
            log = yield from self._read(f"offsets/{batch}")
            self.ends[batch] = self.app.end_of(log)
            self.watermarks[batch] = json.loads(log.splitlines()[1])["batchWatermarkMs"]
        if committed >= 0:
            found = json.loads((yield from self._read(f"commits/{committed}")).partition("\n")[2])
            self.watermark = found["nextBatchWatermarkMs"]
            self.winners = {int(store): unique for store, unique in found["stateUniqueIds"].items()}
        return planned if committed < planned else planned + 1

    def _construct(self, batch: int) -> Asking[None]:
        """Plan a batch once there is something to read, or the watermark has moved."""
        start = self._start(batch)
        while True:
            if self.wants_stop():
                raise QueryEnded("stopped")
            end = self.app.next_end(start)
            if end != start or self.watermark != self.watermarks.get(batch - 1, 0):
                break
            yield lambda: self.app.is_behind(start) or self.wants_stop()
        log = f'v1\n{{"batchWatermarkMs":{self.watermark}}}\n{self.app.text_of(end)}'
        yield from self._log(f"offsets/{batch}", log)
        self.ends[batch], self.watermarks[batch] = end, self.watermark

    def _run_batch(self, batch: int) -> Asking[None]:
        self.app.begin()
        task = Task(
            batch=batch,
            start=self._start(batch),
            end=self.ends[batch],
            watermark=self.watermarks[batch],
            closed=self.watermarks.get(batch - 1, 0),
            before=self.winners,
            past=self.app.past,
            token=self.app.token(),
        )
        yield from self._run_tasks(task)
        self.app.written_task(task)
        after = watermark_after(self.watermark, task.end)
        log = json.dumps({"nextBatchWatermarkMs": after, "stateUniqueIds": task.winners})
        yield from self._log(f"commits/{batch}", f"v2\n{log}")
        self.watermark, self.winners = after, task.winners
        for name in ("offsets", "commits") if self.app.dice.random() < PURGES else ():
            for old in sorted((yield from self._batches(name))):
                if old < batch - RETAINED_LOGS:
                    yield from self.app.client.delete(f"{name}/{old}")

    def _run_tasks(self, task: Task) -> Asking[None]:
        """Run each store's task until an attempt of it has ended."""
        attempts: dict[int, list[Actor]] = {store: [] for store in range(STORES)}
        look = 0
        while not task.is_done:
            if max(task.failures.values(), default=0) >= FAILURES:
                raise QueryEnded("a task failed four times")
            for store, running in attempts.items():
                live = [actor for actor in running if not actor.is_over]
                duplicates = not running and self.app.dice.random() < self.setup.duplicates
                late = bool(live) and self.app.stage.turn >= look and look > 0
                if store not in task.winners and (not live or late):
                    for _ in range(2 if duplicates else 1):
                        executor = self.app.executor()
                        running.append(self.app.stage.start(executor.process, executor.attempt(task, store)))
            look = self.app.stage.turn + SPECULATES_AFTER
            yield self._until(task, attempts, look)

    def _until(self, task: Task, attempts: Mapping[int, list[Actor]], look: int) -> Callable[[], bool]:
        def is_due() -> bool:
            return (
                task.is_done
                or self.app.stage.turn >= look
                or any(
                    store not in task.winners and all(each.is_over for each in running)
                    for store, running in attempts.items()
                )
            )

        return is_due

    def _start(self, batch: int) -> Ends:
        return self.ends[batch - 1] if batch else self.app.start_of()

    def _log(self, path: str, text: str) -> Asking[None]:
        unique = f"{self.app.dice.getrandbits(60):x}"
        return self.app.client.write_atomically(path, text.encode(), unique, overwrite=False)

    def _read(self, path: str) -> Asking[str]:
        return (yield from self.app.client.read(path)).decode()

    def _batches(self, log: str) -> Asking[list[int]]:
        return [int(name) for name in (yield from self.app.client.entries(log)) if name.isdecimal()]


@dataclass(eq=False, slots=True)
class Executor:
    """An executor on a worker: its tasks, and the maintenance of the stores that it has."""

    app: Application
    process: Process
    client: Client
    full_every: int
    snapshots: list[tuple[int, int, str, State]] = field(default_factory=list)
    """Snapshots of stores that the maintenance uploads: store, version, unique id, content."""

    def attempt(self, task: Task, store: int) -> Asking[None]:
        """Run a task."""
        unique = f"{self.app.dice.getrandbits(64):016x}"
        try:
            state = yield from self._load(store, task.batch, task.before.get(store))
            expected = expected_state(store, task.past, task.start, task.closed)
            require(state == expected, f"the state is not that of the records before: batch {task.batch}, {state}")
            self.app.read(task, store)
            update = updated(state, store, task.start, task.end, task.watermark, task.past.unread)
            writes_first = self.app.dice.random() < 0.5
            if writes_first:
                self.app.write(update.rows, task.token)
            content = {"before": task.before.get(store), "puts": update.puts, "removed": update.removed}
            path = f"state/0/{store}/{task.batch + 1}_{unique}.changelog"
            yield from self._place(path, content)
            if not writes_first:
                self.app.write(update.rows, task.token)
        except RequestFailed:
            task.failures[store] = task.failures.get(store, 0) + 1
            return
        if task.winners.setdefault(store, unique) == unique and (task.batch + 1) % self.full_every == 0:
            after = {key: value for key, value in (state | update.puts).items() if key not in update.removed}
            self.snapshots.append((store, task.batch + 1, unique, after))

    def maintain(self) -> Asking[None]:
        """Upload snapshots, and delete what the last versions do not need, until the driver is gone."""
        while True:
            due = self.app.stage.turn + MAINTAINS_EVERY
            yield lambda due=due: bool(self.snapshots) or self.app.stage.turn >= due  # type: ignore[misc]
            try:
                while self.snapshots:
                    yield from self._upload(*self.snapshots.pop(0))
                for store in range(STORES):
                    yield from self._clean(store)
            except RequestFailed as error:
                if error.status in {0, 403}:
                    return

    def _load(self, store: int, version: int, unique: str | None) -> Asking[State]:
        """Return a version of a store."""
        if unique is None:
            return {}
        there = (yield from self.client.entries(f"state/0/{store}")) if version >= self.full_every else {}
        changes: list[Any] = []
        state: State = {}
        while unique is not None:
            if f"{version}_{unique}.zip" in there:
                state = yield from self._snapshot(store, f"{version}_{unique}")
                break
            found = json.loads((yield from self.client.read(f"state/0/{store}/{version}_{unique}.changelog")))
            changes.append(found)
            version, unique = version - 1, found["before"]
        for change in reversed(changes):
            state |= change["puts"]
            for key in change["removed"]:
                state.pop(key, None)
        return state

    def _snapshot(self, store: int, name: str) -> Asking[State]:
        self.app.met["state read from a snapshot of a store"] += 1
        table = (yield from self.client.read(f"state/0/{store}/{name}.zip")).decode()
        found: State = json.loads((yield from self.client.read(f"state/0/{store}/SSTs/{table}")))
        return found

    def _upload(self, store: int, version: int, unique: str, state: State) -> Asking[None]:
        table = f"{version}_{unique}.sst"
        yield from self.client.write(f"state/0/{store}/SSTs/{table}", json.dumps(state).encode())
        path = f"state/0/{store}/{version}_{unique}.zip"
        yield from self.client.write_atomically(path, table.encode(), unique, overwrite=True)

    def _clean(self, store: int) -> Asking[None]:
        """Delete old versions, and tables that no snapshot names and that are older than all that one names."""
        folder = f"state/0/{store}"
        there = [name for name in (yield from self.client.entries(folder)) if name[0].isdecimal()]
        full = sorted(_version(name) for name in there if name.endswith(".zip"))
        kept = [version for version in full if version <= full[-1] - RETAINED_VERSIONS + 1]
        if not kept:
            return
        for name in there:
            if _version(name) < kept[-1]:
                yield from self.client.delete(f"{folder}/{name}")
        used = {name.replace(".zip", ".sst") for name in there if name.endswith(".zip") and _version(name) >= kept[-1]}
        tables = yield from self.client.entries(f"{folder}/SSTs")
        oldest = min((moment for name, moment in tables.items() if name in used), default=0)
        for name, moment in tables.items():
            if name not in used and moment < oldest:
                yield from self.client.delete(f"{folder}/SSTs/{name}")

    def _place(self, path: str, content: Any) -> Asking[None]:
        unique = f"{self.app.dice.getrandbits(60):x}"
        return self.client.write_atomically(path, json.dumps(content).encode(), unique, overwrite=True)


def _version(name: str) -> int:
    return int(name.partition("_")[0])
