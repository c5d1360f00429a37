"""A pipeline with what flows into it and what came out of it: where every promise is checked, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from fencepost.fence import Fence, FenceRow, FenceSchemaMissing
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost_cli.accepted_loss import AcceptedLoss
from fencepost_cli.history.checks import check_history
from flights.dataset import flights
from flights.expectation import departure
from flights.history import read_history
from flights.ledger import Ledger
from flights.reconciliation import Reconciliation, Writers
from flights.sink import CassandraAddress, CassandraDownError, Table, rows, run_script, session
from harness.fences import read_row
from harness.kubernetes.kubectl import Object
from harness.load import Load
from harness.pipelines import DEPARTURES, KIND, Pipeline, Place, example_file, manifest, pretty
from harness.waiting import eventually

SCOPE: Final = "default"
"""The operator's own, in the testbed."""


def address(place: Place) -> CassandraAddress:
    """Return Cassandra as the host reaches it."""
    environment = place.environment
    return CassandraAddress(
        host=environment.cassandra_host,
        port=environment.cassandra_port,
        username=environment.cassandra_username,
        password=environment.cassandra_password,
    )


@contextmanager
def cassandra(place: Place) -> Iterator[Any]:
    """A session for one look: one that outlives an outage would wait for its own reconnection.

    Right after an outage a ready pod is reached from the host only when its node port leads to it again.
    """
    with ExitStack() as stack:

        def let_in() -> Any:
            try:
                return stack.enter_context(session(address(place)))
            except CassandraDownError:
                return None

        yield eventually("Cassandra lets the host in", let_in, seconds=60)


def create_table(place: Place, table: str, example: str = DEPARTURES) -> None:
    """Make the table of an example with one table, under this name."""
    script = example_file(example, "schema.cql")
    with cassandra(place) as opened:
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        opened.execute(f"CREATE KEYSPACE IF NOT EXISTS {place.tables} WITH replication = {replication}")
        run_script(opened, _renamed(script, place.tables, table))


def _renamed(script: str, keyspace: str, table: str) -> str:
    """Return the CREATE TABLE of the example's script, for another keyspace and name."""
    _, found, rest = script.partition("CREATE TABLE")
    assert found, "the example's script makes no table"
    head, bracket, columns = rest.partition("(")
    assert "." in head
    return f"CREATE TABLE IF NOT EXISTS {keyspace}.{table} {bracket}{columns}"


@dataclass(slots=True)
class Stream:
    """One pipeline over one topic into one table."""

    place: Place
    pipeline: Pipeline
    load: Load
    table: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    example: str = DEPARTURES
    kills: int = 0
    """Drivers ended by force; each may have left one change out of fence_changes, which is written without waiting."""
    lost: list[AcceptedLoss] = field(default_factory=list)
    """What Kafka lost before it was read, and a user accepted: exactly its rows are not there."""

    @property
    def key(self) -> str:
        """The fence row's key."""
        return f"{SCOPE}/{self.place.namespace}/{self.pipeline.name}"

    def manifest(self, **spec: Any) -> Object:
        """Return the pipeline's manifest, with `spec` merged over its own."""
        given = {**self.spec, **spec}
        names = {"name": self.pipeline.name, "topic": self.load.ledger.topic, "table": self.table}
        return manifest(self.place, **names, example=self.example, **given)

    def apply(self, **spec: Any) -> None:
        """`kubectl apply` it."""
        self.pipeline.kubectl.apply(self.manifest(**spec))

    def exists(self) -> bool:
        """Whether the pipeline's object is there."""
        return self.pipeline.kubectl.get(KIND, self.pipeline.name) is not None

    def fence(self) -> FenceRow | None:
        """Return the fence row, read at SERIAL; None when it does not exist, or was released."""
        with cassandra(self.place) as opened:
            return read_row(Fence(CassandraFenceTable.over(opened, self.place.fences), self.key))

    def commits_past(self, row: FenceRow | None, *, seconds: float = 150) -> FenceRow:
        """Wait until the offsets moved past those of `row`; return the row as it is then."""
        before = sum(row.offsets.values()) if row else 0
        with cassandra(self.place) as opened:
            fence = Fence(CassandraFenceTable.over(opened, self.place.fences), self.key)

            def moved() -> FenceRow | None:
                found = read_row(fence)
                return found if found is not None and sum(found.offsets.values()) > before else None

            return eventually(f"{self.pipeline.name} commits", moved, seconds=seconds, pause=0.2)

    def check_every_row(self, *, seconds: float = 180) -> FenceRow:
        """Wait until all that was produced is committed, then compare every row and every commit with the ledger.

        Of what is `lost` there must be no row.

        To be called while nothing is being produced. Return the fence row.
        """
        ends, ledger = self.load.ends(), self._kept()
        with cassandra(self.place) as opened:
            fence = Fence(CassandraFenceTable.over(opened, self.place.fences), self.key)

            def drained() -> FenceRow | None:
                try:
                    row = read_row(fence)
                except FenceSchemaMissing as error:  # the operator creates it
                    raise AssertionError(str(error)) from error
                assert row is not None, f"no fence row {self.key}"
                left = {
                    key: end - row.offsets.get(key, 0) for key, end in ends.items() if row.offsets.get(key, 0) < end
                }
                assert not left, f"epoch {row.epoch}, records to go: {left}"
                return row

            row = eventually(f"{self.pipeline.name} commits all of {self.load.ledger.topic}", drained, seconds=seconds)
            assert {key: row.offsets[key] for key in ends} == ends, "committed past what was produced"
            history = read_history(opened, self.place.fences, self.key)
            story = check_history(history, accepted=self.lost)
            reconciliation = Reconciliation(ledger, flights(), departure, Writers.of(history))
            for values in rows(opened, Table(self.place.tables, self.table), reconciliation.columns):
                reconciliation.row(values)
        report = reconciliation.report()
        assert report.ok, "\n".join(report.lines())
        assert report.found == report.produced == len(ledger)
        assert story.ok, "\n".join(story.lines())
        assert story.gaps <= self.kills, f"{story.gaps} changes not on record, {self.kills} drivers killed"
        assert story.last_epoch == row.epoch
        return row

    def _kept(self) -> Ledger:
        """Return what was produced, without what is lost."""
        ledger = self.load.ledger
        for loss in self.lost:
            ledger = ledger.without(int(loss.partition.rpartition("/")[2]), loss.start, loss.until)
        return ledger

    def describe(self) -> str:
        """Return the pipeline's object and the fence row, for failures."""
        found = self.pipeline.kubectl.get(KIND, self.pipeline.name)
        return f"{pretty(found) if found else 'no pipeline'}\n{self.fence()}"


@dataclass(slots=True)
class Starts:
    """Counts the pods that Jobs made since it was created, by the Job controller's own Events."""

    pipeline: Pipeline
    _before: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._before = frozenset(event["metadata"]["uid"] for event in self._created())

    def by_job(self) -> dict[str, list[str]]:
        """Return, by the Job's name, the uid of the Job for each pod that was made."""
        found: dict[str, list[str]] = {}
        for event in self._created():
            if event["metadata"]["uid"] not in self._before:
                involved = event["involvedObject"]
                found.setdefault(involved["name"], []).extend([involved["uid"]] * int(event.get("count") or 1))
        return found

    def check_one_per_epoch(self, epochs: range) -> None:
        """Assert that each of these epochs had one Job with one pod, and no other epoch had any."""
        made = self.by_job()
        assert {name: len(uids) for name, uids in made.items()} == {
            self.pipeline.run_name(epoch): 1 for epoch in epochs
        }

    def _created(self) -> list[Object]:
        selector = "--field-selector=reason=SuccessfulCreate,involvedObject.kind=Job"
        prefix = f"{self.pipeline.name}-run-"
        return [
            event
            for event in self.pipeline.kubectl.items("events", selector)
            if event["involvedObject"]["name"].startswith(prefix)
        ]


Applied: TypeAlias = Callable[..., Stream]
"""A fixture's answer: makes a pipeline's topic and table and applies it."""
