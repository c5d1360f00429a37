"""The fence of a pipeline in PostgreSQL: its row, its history by the hour, and what is kept beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from fencepost.contract import PostgresqlEndpoint, offset_key
from fencepost.fence import FenceRow, FenceUnauthorized
from fencepost.fence.history import NO_CHANGE, Change
from fencepost.fence.left_out import LeftOut
from fencepost.fence.letters import DeadLetter
from fencepost.fence.patience import Patience
from fencepost.fence.postgresql.dead_letters import DeadLetters
from fencepost.fence.postgresql.history import changes_after, changes_of_hour
from fencepost.fence.postgresql.left_out import LeftOutRecords
from fencepost.fence.postgresql.schema import name_of
from fencepost.fence.postgresql.session import Session
from fencepost.fence.postgresql.snapshots import SnapshotTable
from fencepost.fence.postgresql.table import PostgresqlFenceTable, named
from fencepost.fence.snapshots import Snapshot
from fencepost.state.chunks import ChunkStore
from fencepost_cli.accepted_loss import AcceptedLoss
from fencepost_cli.access import postgresql_tls_by_name
from fencepost_cli.errors import CliError
from fencepost_cli.ports import Column, PostgresqlAccess
from fencepost_cli.stores.bounded_history import bounded
from fencepost_cli.stores.fence_errors import Remedies, explained
from fencepost_cli.stores.kubernetes.cluster_names import dialled
from fencepost_operator.adapters.postgresql.relay import relayed

REQUEST_TIMEOUT: Final = 20.0
"""Seconds for one request."""
PATIENCE: Final = 20.0
"""Seconds for which a read is tried again."""
LARGEST_ANSWER: Final = 64 * 1024 * 1024
"""Bytes of one answer: the server may be whatever a pipeline's author names."""
MOST_ACCEPTED: Final = 100_000
"""Accepted ranges of one pipeline that are read."""
_ACCEPTED: Final = ("topic", "partition", "from_offset", "until_offset", "reason", "choice", "at", "topic_id")

T = TypeVar("T")


@contextmanager
def open_store(access: PostgresqlAccess) -> Iterator[PostgresqlStore]:
    """Connect for the block. Raises CliError."""
    session = Session(
        _reached(access),
        credentials=access.credentials,
        tls=access.tls,
        request_timeout=REQUEST_TIMEOUT,
        reach=lambda _name, address, port: relayed(address, port, most=LARGEST_ANSWER, longest=2 * REQUEST_TIMEOUT),
    )
    with closing(session):
        with _explained(access):
            session.open()
        yield PostgresqlStore(session, access)


def _reached(access: PostgresqlAccess) -> PostgresqlEndpoint:
    """Return the endpoint as this machine reaches it, by one host where none has an address here.

    Raises CliError, for the first of them.
    """
    endpoint = access.endpoint
    unnamed = CliError("no host is named", remedy="name one with --postgresql HOST:PORT")
    found = dialled(endpoint.hosts, endpoint.port, access.dial, without_names=unnamed)
    if found is None:
        return endpoint
    name, host, port = found
    return replace(endpoint, hosts=(host,), port=port, tls=postgresql_tls_by_name(endpoint, name))


@dataclass(frozen=True, slots=True)
class PostgresqlStore:
    """Implements the Store port. No sink and no state is in this database."""

    session: Session
    access: PostgresqlAccess

    def row(self) -> FenceRow | None:
        """Return the fence row. Raises CliError."""
        table = PostgresqlFenceTable(self.session, self.access.schema)
        return self._patiently(lambda: table.read(self.access.pipeline))

    def changes(self, hour: datetime, *, after: tuple[int, int] = NO_CHANGE) -> Sequence[Change]:
        """Return the changes of an hour that came after this epoch and version. Raises CliError."""
        read = partial(changes_of_hour, *self._place, hour, after=after)
        return self._patiently(lambda: bounded(read()))

    def first_change(self, hour: datetime, *, epoch: int = 0) -> Change | None:
        """Return the first change of an hour, of this epoch or a later one. Raises CliError."""
        read = partial(changes_after, *self._place, hour, epoch=epoch, version=NO_CHANGE[1], limit=1)
        return next(iter(self._patiently(read)), None)

    def accepted(self) -> Sequence[AcceptedLoss]:
        """Return the ranges that users accepted as lost, and the records that they left out. Raises CliError."""
        table = name_of(self.access.schema, "accepted_losses")
        select = f"SELECT {', '.join(_ACCEPTED)} FROM {table} WHERE pipeline = %s LIMIT {MOST_ACCEPTED}"  # noqa: S608 - constants, and a name that cannot be bound

        def read() -> list[AcceptedLoss]:
            found = self.session.run("reading the accepted losses", select, (self.access.pipeline,))
            return [_accepted(vars(named(_ACCEPTED, row))) for row in found[:MOST_ACCEPTED]]

        return self._patiently(read) + self._left_out()

    def _left_out(self) -> list[AcceptedLoss]:
        return [AcceptedLoss.of_left_out(one) for one in self._patiently(self._left_out_records.all)]

    def snapshots(self) -> Sequence[Snapshot]:
        """Return the pipeline's snapshots with their offsets, the newest first. Raises CliError."""
        table = SnapshotTable(self.session, self.access.schema)
        return self._patiently(lambda: table.newest(self.access.pipeline, with_offsets=True))

    def snapshot(self, found: Snapshot) -> Snapshot | None:
        """Return one of them with all that it holds; None when it is gone. Raises CliError."""
        table = SnapshotTable(self.session, self.access.schema)
        return self._patiently(lambda: table.read(self.access.pipeline, found.id))

    def chunks(self) -> ChunkStore:
        """Raise CliError: no state is here."""
        raise CliError("the pipeline has no state", remedy="name a pipeline with spec.job.mode Stateful")

    def columns(self, keyspace: str, table: str) -> Sequence[Column]:
        """Return none: no table of a sink is here."""
        del keyspace, table
        return ()

    def positions(self, *_: object) -> NoReturn:
        """Raise CliError: no table of a sink is here."""
        raise _no_sink()

    def rows(self, *_: object, **__: object) -> NoReturn:
        """Raise CliError: no table of a sink is here."""
        raise _no_sink()

    def letters(self, topic: str, partition: int, *, start: int, until: int) -> Iterator[DeadLetter]:
        """Yield the dead letters of offsets [start, until), as a list has them. Raises CliError."""
        with _explained(self.access):
            yield from self._letters.of_partition(topic, partition, start=start, until=until)

    def letter(self, listed: DeadLetter) -> DeadLetter | None:
        """Return one with all that it holds, None when it is gone. Raises CliError."""
        return self._patiently(lambda: self._letters.read(listed))

    def mark_retried(self, letter: DeadLetter, *, by: str, at: datetime, to: str) -> None:
        """Record who sent its record to Kafka again, when, and to where. Raises CliError."""
        self._patiently(lambda: self._letters.mark_retried(letter, by=by, at=at, to=to))

    def leave_out(self, record: LeftOut) -> None:
        """Let the pipeline's next runs leave out a record. Raises CliError."""
        self._patiently(lambda: self._left_out_records.add(record))

    @property
    def _place(self) -> tuple[Session, str, str]:
        return self.session, self.access.schema, self.access.pipeline

    @property
    def _letters(self) -> DeadLetters:
        return DeadLetters(*self._place)

    @property
    def _left_out_records(self) -> LeftOutRecords:
        return LeftOutRecords(*self._place)

    def _patiently(self, read: Callable[[], T]) -> T:
        with _explained(self.access):
            return Patience(PATIENCE).ask(read, final=FenceUnauthorized)  # waiting does not grant a permission


def _accepted(values: dict[str, Any]) -> AcceptedLoss:
    """Return the range in a row. Raises CliError for values that no acceptance has."""
    kinds: dict[str, Any] = {
        **dict.fromkeys(("topic", "reason", "choice"), str),
        **dict.fromkeys(("partition", "from_offset", "until_offset"), int),
        "at": datetime,
        "topic_id": str | None,
    }
    for name, kind in kinds.items():
        if not isinstance(values[name], kind):
            raise CliError(
                f"column {name} of accepted_losses holds {type(values[name]).__name__}", remedy="correct the row"
            )
    return AcceptedLoss(
        partition=offset_key(values["topic"], values["partition"]),
        start=values["from_offset"],
        until=values["until_offset"],
        reason=values["reason"],
        choice=values["choice"],
        at=values["at"],
        topic_id=values["topic_id"],
    )


def _no_sink() -> CliError:
    return CliError("the tables of sinks are not in the fence's PostgreSQL", remedy="leave the sinks out")


def _explained(access: PostgresqlAccess) -> AbstractContextManager[None]:
    remedies = Remedies(
        unauthorized=lambda _: (
            f"as the owner of {access.place}: GRANT USAGE ON it, and SELECT on its tables, to the account"
        ),
        credentials_rejected="correct the Secret in checkpoint.postgresql.credentialsFrom",
        unavailable="see whether PostgreSQL answers at this address; --postgresql names another one",
        schema_missing="wait until the operator has created it, or check checkpoint.postgresql.schema",
        other="compare the table with docs/fence-schema.sql",
    )
    return explained(f"PostgreSQL at {access.endpoint.address}", access.credentials, remedies)
