"""The promises of a store that the fence could be kept in, tried one after another in a place of their own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from typing import Final, TypeVar

from fencepost.contract import CassandraEndpoint, PostgresqlEndpoint
from fencepost.fence import FenceError, FenceTable
from fencepost.fence.cassandra.errors import translated
from fencepost.fence.cassandra.schema import has_keyspace
from fencepost.fence.cassandra.session import connect
from fencepost.fence.cassandra.table import create_schema, new_replication
from fencepost.fence.postgresql.schema import create_schema as create_tables
from fencepost.fence.postgresql.schema import drop_schema
from fencepost.fence.postgresql.session import Session as PostgresqlSession
from fencepost.fence.promises import BrokenPromise, Promise
from fencepost.fence.promises.database import PROMISES as DATABASE_PROMISES
from fencepost.fence.promises.database import Scratch as OfDatabase
from fencepost.fence.promises.keyspace import PROMISES as KEYSPACE_PROMISES
from fencepost.fence.promises.keyspace import Scratch as OfKeyspace
from fencepost.fence.promises.table import PROMISES as OF_A_TABLE
from fencepost_cli.ports import Certificate, Certified, StoreToCertify
from fencepost_cli.stores.fence_errors import Remedies, explained

CREATION: Final = "the fence's tables can be created"
REQUEST_TIMEOUT: Final = 20.0
"""Seconds for one request."""
DROPPED_WITHIN: Final = 60.0
"""Seconds for DROP KEYSPACE, which deletes the files of all tables."""

Subject = TypeVar("Subject")


def certify_store(store: StoreToCertify, show: Callable[[str], object]) -> Certificate:
    """Create a keyspace or a schema, try each promise in it, and drop it, also after an error or an interrupt.

    Only the addresses that the endpoint names are dialled. Raises CliError.
    """
    name = f"fencepost_certify_{uuid.uuid4().hex[:12]}"
    if store.cassandra is not None:
        return _of_cassandra(store, store.cassandra, name, show)
    if store.postgresql is not None:
        return _of_postgresql(store, store.postgresql, name, show)
    raise ValueError("no endpoint")


def _of_cassandra(
    store: StoreToCertify, endpoint: CassandraEndpoint, name: str, show: Callable[[str], object]
) -> Certificate:
    with _explained(store):
        session = connect(
            endpoint,
            credentials=store.credentials,
            request_timeout=REQUEST_TIMEOUT,
            discover=False,
            tls=store.tls,
        )
    scratch = OfKeyspace(session, name)
    try:
        with _explained(store), translated("reading the version"):
            version = session.execute("SELECT release_version FROM system.local").one().release_version
        creation: Promise[OfKeyspace] = Promise(
            name=CREATION, needed_by="createSchema", check=lambda scratch, _: _create_keyspace(scratch, store.replicas)
        )
        removal: Promise[OfKeyspace] = Promise(name=store.removal, needed_by="this command", check=_drop_keyspace)
        promises = [*_tried(scratch, scratch.fence, creation, KEYSPACE_PROMISES, removal, show)]
    finally:
        session.cluster.shutdown()
    return Certificate(version=str(version), protocol=session.cluster.protocol_version, scratch=name, promises=promises)


def _of_postgresql(
    store: StoreToCertify, endpoint: PostgresqlEndpoint, name: str, show: Callable[[str], object]
) -> Certificate:
    user, password = store.credentials or ("", "")
    session = PostgresqlSession(endpoint, credentials=(user, password), tls=store.tls, request_timeout=REQUEST_TIMEOUT)
    scratch = OfDatabase(session, name)
    with closing(session):
        with _explained(store):
            ((version,),) = session.run("reading the version", "SELECT current_setting('server_version')")
        creation: Promise[OfDatabase] = Promise(
            name=CREATION, needed_by="createSchema", check=lambda scratch, _: create_tables(scratch.session, name)
        )
        removal: Promise[OfDatabase] = Promise(
            name=store.removal, needed_by="this command", check=lambda scratch, _: drop_schema(scratch.session, name)
        )
        promises = [*_tried(scratch, scratch.fence, creation, DATABASE_PROMISES, removal, show)]
    return Certificate(version=str(version), protocol=None, scratch=name, promises=promises)


def _tried(
    scratch: Subject,
    table: FenceTable,
    creation: Promise[Subject],
    of_scratch: Sequence[Promise[Subject]],
    removal: Promise[Subject],
    show: Callable[[str], object],
) -> Iterator[Certified]:
    try:
        first = _outcome(creation, scratch, show)
        yield first
        for promise in OF_A_TABLE:
            yield _outcome(promise, table, show) if first.kept else _not_tried(promise)
        for further in of_scratch:
            yield _outcome(further, scratch, show) if first.kept else _not_tried(further)
    finally:
        last = _outcome(removal, scratch, show)
    yield last


def _create_keyspace(scratch: OfKeyspace, replicas: int | None) -> str:
    replication = new_replication(scratch.session, strategy="NetworkTopologyStrategy", factor=replicas)
    create_schema(scratch.session, scratch.keyspace, replication)
    scratch.prepare()
    return ", ".join(f"{name}: {value}" for name, value in replication.items() if name != "class")


def _drop_keyspace(scratch: OfKeyspace, _: str) -> None:
    with translated("dropping the keyspace"):
        if has_keyspace(scratch.session, scratch.keyspace):
            scratch.session.execute(f'DROP KEYSPACE IF EXISTS "{scratch.keyspace}"', timeout=DROPPED_WITHIN)


def _outcome(promise: Promise[Subject], subject: Subject, show: Callable[[str], object]) -> Certified:
    show(promise.name)
    start = time.monotonic()
    kept = True
    try:
        detail = promise.check(subject, f"certify/{uuid.uuid4()}/{promise.name.replace(' ', '-')}") or ""
    except (BrokenPromise, FenceError) as error:
        kept, detail = False, str(error)
    return Certified(
        promise=promise.name,
        needed_by=promise.needed_by,
        kept=kept,
        detail=detail,
        seconds=round(time.monotonic() - start, 1),
    )


def _not_tried(promise: Promise[Subject]) -> Certified:
    return Certified(promise=promise.name, needed_by=promise.needed_by, kept=None, detail="not tried")


def _explained(store: StoreToCertify) -> AbstractContextManager[None]:
    answers = "see whether the store answers at this address, and pass --ca if it needs TLS"
    remedies = Remedies(
        unauthorized=lambda _: store.least_right,
        credentials_rejected="correct --username, or its password",
        unavailable=answers,
        schema_missing=answers,
        other=answers,
    )
    return explained(store.address, store.credentials, remedies)
