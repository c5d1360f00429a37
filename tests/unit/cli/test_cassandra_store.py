"""What the command line takes from a Cassandra that an author names, and what it tells of a refusal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost_cli import cassandra_store
from fencepost_cli.cassandra_store import _bounded, _grant
from fencepost_cli.errors import CliError
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


def test_an_endless_hour_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: a server that always has another change."""
    (record,) = history(story()[-1:])
    monkeypatch.setattr(cassandra_store, "MOST_ENTRIES", 100)

    def endless() -> object:
        while True:
            yield replace(record)

    with pytest.raises(CliError, match="more than 100 offsets"):
        _bounded(endless())  # type: ignore[arg-type]
