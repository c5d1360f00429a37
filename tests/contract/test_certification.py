"""`fencepost certify` on a real Cassandra: what it tries, what it finds, and what it leaves behind."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from cassandra.cluster import Session
from cassandra.query import SimpleStatement

from fencepost.contract import CassandraEndpoint
from fencepost.fence.cassandra.table import create_schema
from fencepost.fence.promises import BrokenPromise, Promise
from fencepost.fence.promises.keyspace import PROMISES, Scratch
from fencepost_cli.errors import CliError
from fencepost_cli.ports import StoreToCertify
from fencepost_cli.stores.certification import certify_store
from testbed import environment

pytestmark = pytest.mark.integration

KEYSPACE = "fencepost_promises"
BY_NAME = {promise.name: promise for promise in PROMISES}


@pytest.fixture(scope="module")
def scratch(session: Session) -> Iterator[Scratch]:
    create_schema(session, KEYSPACE, {"class": "SimpleStrategy", "replication_factor": 1})
    scratch = Scratch(session, KEYSPACE)
    scratch.prepare()
    yield scratch
    session.execute(f"DROP KEYSPACE {KEYSPACE}", timeout=60)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name.replace(" ", "-"))
def test_cassandra_keeps_its_promises(scratch: Scratch, promise: Promise[Scratch]) -> None:
    promise.check(scratch, f"contract/{uuid.uuid4()}")


class Altered:
    """A session whose statements are changed on their way: a store that ignores what it does not know."""

    def __init__(self, session: Session, *changes: tuple[str, str], page: int | None = None) -> None:
        self._session, self._changes, self._page = session, changes, page

    def execute(self, statement: Any, *arguments: Any, **options: Any) -> Any:
        text = statement.query_string if isinstance(statement, SimpleStatement) else statement
        for pattern, new in self._changes:
            text = re.sub(pattern, new, text)
        answer = self._session.execute(text, *arguments, **options)
        return answer if self._page is None else answer.all()[: self._page]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.mark.parametrize(
    ("name", "session_changes", "page"),
    [
        ("a write with an earlier timestamp loses", [(r" USING TIMESTAMP \d+", "")], None),
        ("a deletion may lie a day ahead", [(r"^(DELETE .*) USING TIMESTAMP \d+", r"\1")], None),
        ("a row with a TTL expires", [("USING TTL 2", "USING TTL 3000")], None),
        ("pages hold each row once", [], 40),
    ],
)
def test_a_store_without_it_is_found(
    session: Session,
    scratch: Scratch,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    session_changes: list[tuple[str, str]],
    page: int | None,
) -> None:
    monkeypatch.setattr("fencepost.fence.promises.keyspace.EXPIRED_WITHIN", 4.0)
    altered = Scratch(Altered(session, *session_changes, page=page), scratch.keyspace)
    with pytest.raises(BrokenPromise):
        BY_NAME[name].check(altered, f"contract/{uuid.uuid4()}")


def store(password: str | None = None) -> StoreToCertify:
    place = environment.load()
    return StoreToCertify(
        cassandra=CassandraEndpoint(contact_points=(place.cassandra_host,), port=place.cassandra_port),
        credentials=(place.cassandra_username, password or place.cassandra_password),
    )


def keyspaces(session: Session) -> set[str]:
    found = session.execute("SELECT keyspace_name FROM system_schema.keyspaces")
    return {row.keyspace_name for row in found if row.keyspace_name.startswith("fencepost_certify_")}


def test_a_store_that_keeps_all_is_certified_and_left_as_it_was(session: Session) -> None:
    before, shown = keyspaces(session), list[str]()
    found = certify_store(store(), shown.append)
    assert [one for one in found.promises if not one.kept] == []
    assert shown == [one.promise for one in found.promises]
    assert found.version
    assert keyspaces(session) == before


def test_an_account_without_the_right_breaks_one_promise_and_tries_no_other(session: Session) -> None:
    name = f"stranger_{uuid.uuid4().hex[:8]}"
    session.execute(f"CREATE ROLE {name} WITH PASSWORD = 'secret' AND LOGIN = true", timeout=60)
    place = environment.load()
    theirs = StoreToCertify(
        cassandra=CassandraEndpoint(contact_points=(place.cassandra_host,), port=place.cassandra_port),
        credentials=(name, "secret"),
    )
    try:
        found = certify_store(theirs, lambda _: None)
    finally:
        session.execute(f"DROP ROLE {name}", timeout=60)
    first, *others, _last = found.promises
    assert first.kept is False
    assert "CREATE" in first.detail
    assert {one.kept for one in others} == {None}


def test_a_wrong_password_is_an_error_that_does_not_show_it() -> None:
    with pytest.raises(CliError) as caught:
        certify_store(store("a-wrong-password"), lambda _: None)
    assert "--username" in caught.value.remedy
    assert "a-wrong-password" not in str(caught.value)
