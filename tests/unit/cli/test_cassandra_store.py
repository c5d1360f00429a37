"""What the command line takes from a Cassandra that an author names, and how it reports a refusal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost.contract import CassandraEndpoint, CassandraTls
from fencepost.fence import FenceUnauthorized, FenceUnavailable
from fencepost_cli.errors import CliError
from fencepost_cli.ports import CassandraAccess
from fencepost_cli.stores import bounded_history
from fencepost_cli.stores.bounded_history import bounded
from fencepost_cli.stores.cassandra import CassandraStore, _grant, _reached
from present import present
from unit.cli.world import history, story


@pytest.mark.parametrize(
    ("refusal", "grant"),
    [
        ("User reader has no SELECT permission on <table fencepost.snapshots> or any of its parents",
         "GRANT SELECT ON TABLE fencepost.snapshots TO the role"),
        ("User reader has no MODIFY permission on <keyspace fencepost> or any of its parents",
         "GRANT MODIFY ON KEYSPACE fencepost TO the role"),
        ("no SELECT permission on <table x; DROP KEYSPACE y>", "GRANT SELECT ON that table TO the role"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_grant(refusal: str, grant: str) -> None:
    assert grant in _grant(f'[Unauthorized] code=2100 message="{refusal}"')


def test_an_answer_that_is_late_is_asked_for_again_and_a_refusal_is_final() -> None:
    endpoint = CassandraEndpoint(contact_points=("c",))
    access = CassandraAccess(
        pipeline="p", keyspace="k", endpoint=endpoint, consistency="ONE", credentials=None, dial=lambda *at: at
    )
    asked = list[str]()

    def late() -> int:
        asked.append("late")
        if len(asked) == 1:
            raise FenceUnavailable("no answer")
        return 7

    def refused() -> int:
        asked.append("refused")
        raise FenceUnauthorized("no SELECT permission")

    store = CassandraStore(None, access)
    assert store._patiently(late) == 7
    with pytest.raises(CliError, match="no SELECT permission"):
        store._patiently(refused)
    assert asked == ["late", "late", "refused"]


def test_an_endless_hour_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: a server that always has another change."""
    (record,) = history(story()[-1:])
    monkeypatch.setattr(bounded_history, "MOST_ENTRIES", 100)

    def endless() -> object:
        while True:
            yield replace(record)

    with pytest.raises(CliError, match="more than 100 offsets"):
        bounded(endless())  # type: ignore[arg-type]


def test_a_forwarded_contact_point_keeps_its_name_for_tls() -> None:
    """The certificate is that of the name, whatever is dialled; the second point is tried where the first fails."""
    tls = CassandraTls()
    points = ("gone.data.svc", "cassandra-1.cassandra.data.svc")

    def dial(host: str, port: int) -> tuple[str, int]:
        if host == "gone.data.svc":
            raise CliError("gone.data.svc has no address", remedy="correct it")
        return "127.0.0.1", port + 1

    endpoint = CassandraEndpoint(contact_points=points, tls=tls)
    access = CassandraAccess(
        pipeline="default/shop/orders", keyspace="k", endpoint=endpoint, consistency="ONE", credentials=None, dial=dial
    )
    reached = _reached(access)
    assert (reached.contact_points, reached.port) == (("127.0.0.1",), 9043)
    assert reached.tls == CassandraTls(server_name=points[1])
    own = replace(endpoint, tls=replace(tls, server_name="cassandra.corp"))
    named = present(_reached(replace(access, endpoint=own)).tls)
    assert named.server_name == "cassandra.corp"
    with pytest.raises(CliError, match="gone"):
        _reached(replace(access, endpoint=replace(endpoint, contact_points=points[:1])))
