"""What a PostgreSQL promises beside the fence's rows: that a commit survives a crash, and the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from fencepost.fence.history import Change, hour_of
from fencepost.fence.postgresql.history import changes_of_hour
from fencepost.fence.postgresql.session import Session
from fencepost.fence.postgresql.table import PostgresqlFenceTable
from fencepost.fence.promises.promise import Promise, expect
from fencepost.fence.promises.table import history_is_kept

_DURABLE: Final = ("fsync", "full_page_writes", "synchronous_commit")
_WEAK: Final = ("off", "local")


@dataclass(frozen=True, slots=True)
class Scratch:
    """A schema with the fence's tables."""

    session: Session
    schema: str

    @property
    def fence(self) -> PostgresqlFenceTable:
        """The fence table of the schema."""
        return PostgresqlFenceTable(self.session, self.schema)


def _commits_are_durable(scratch: Scratch, _: str) -> str:
    asked = ", ".join("current_setting(%s)" for _ in _DURABLE)
    (found,) = scratch.session.run("reading the settings", f"SELECT {asked}", _DURABLE)
    settings = [f"{name} = {value}" for name, value in zip(_DURABLE, found, strict=True)]
    expect(not {*_WEAK} & {*found}, "settings with which a commit survives a crash", ", ".join(settings))
    return settings[-1]


def _history_is_kept(scratch: Scratch, pipeline: str) -> None:
    def read() -> Sequence[Change]:
        hours = {hour_of(datetime.now(UTC) - timedelta(minutes=ago)) for ago in (0, 10)}
        return [change for hour in hours for change in changes_of_hour(scratch.session, scratch.schema, pipeline, hour)]

    history_is_kept(scratch.fence, pipeline, read)


PROMISES: Final[tuple[Promise[Scratch], ...]] = (
    Promise(name="a commit survives a crash", needed_by="each commit", check=_commits_are_durable),
    Promise(name="the history is kept, and deleted", needed_by="fencepost fence history", check=_history_is_kept),
)
