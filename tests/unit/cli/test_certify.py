"""`fencepost certify`: what it asks of the store, and what it prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fencepost.contract import CassandraEndpoint, CassandraTls, PostgresqlEndpoint, PostgresqlTls
from fencepost.fence import FenceCredentialsRejected
from fencepost.fence.postgresql.session import Session
from fencepost_cli.commands.checkpoint.certify import PASSWORD, POSTGRESQL_PASSWORD
from fencepost_cli.errors import CliError
from fencepost_cli.ports import Certified, StoreToCertify
from fencepost_cli.stores import certification
from unit.cli.world import World

KEPT = Certified(promise="a row is inserted once", needed_by="two operators", kept=True, detail="", seconds=0.1)
BROKEN = replace(KEPT, promise="a row with a TTL expires", kept=False, detail="found it after 30 s")
UNTRIED = replace(KEPT, promise="pages hold each row once", kept=None, detail="not tried", seconds=None)


def certifying(*promises: Certified) -> World:
    world = World.usual()
    world.certified = promises
    return world


def test_a_store_that_keeps_all_ends_with_0() -> None:
    world = certifying(KEPT)
    ended = world.run("certify", "--cassandra", "10.0.0.1,10.0.0.2", "--replicas", "3")
    assert ended.exit_code == 0, ended.output
    assert "promises kept: 1 of 1" in ended.stdout
    assert "version 5.0.9, native protocol v5" in ended.stdout
    (asked,) = world.asked
    assert asked.cassandra == CassandraEndpoint(contact_points=("10.0.0.1", "10.0.0.2"), port=9042)
    assert (asked.credentials, asked.tls, asked.replicas) == (None, None, 3)


@pytest.mark.parametrize("other", [BROKEN, UNTRIED])
def test_a_store_that_does_not_ends_with_1(other: Certified) -> None:
    ended = certifying(KEPT, other).run("certify", "--cassandra", "store:19042")
    assert ended.exit_code == 1, ended.output
    assert "promises kept: 1 of 2" in ended.stdout
    assert other.detail in ended.stdout


def test_a_keyspace_that_is_left_is_named() -> None:
    left = replace(KEPT, promise="the keyspace is dropped", kept=False, detail="no answer")
    ended = certifying(KEPT, left).run("certify", "--cassandra", "store")
    assert "keyspace fencepost_certify_1 may still be there: drop it" in ended.stderr
    assert certifying(left).json("certify", "--cassandra", "store", code=1)["keyspace"] == "fencepost_certify_1"
    assert not certifying(KEPT, replace(left, kept=True)).run("certify", "--cassandra", "store").stderr


def test_a_script_gets_each_promise() -> None:
    found = certifying(KEPT, BROKEN).json("certify", "--cassandra", "store", code=1)
    assert found["promises"][1] == {
        "name": BROKEN.promise, "neededBy": "two operators", "kept": False, "detail": BROKEN.detail, "seconds": 0.1,
    }  # fmt: skip


def test_the_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, "secret")
    world = certifying(KEPT)
    world.run("certify", "--cassandra", "store", "--username", "kim")
    assert world.asked[0].credentials == ("kim", "secret")
    assert "secret" not in repr(world.asked[0])
    monkeypatch.delenv(PASSWORD)
    assert PASSWORD in world.refused("certify", "--cassandra", "store", "--username", "kim")


def test_authorities_make_the_connection_one_with_tls(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    world = certifying(KEPT)
    line = ("certify", "--cassandra", "store", "--ca", str(tmp_path / "ca.pem"), "--server-name", "cassandra.example")
    assert world.run(*line).exit_code == 0
    assert world.asked[0].cassandra.tls == CassandraTls(server_name="cassandra.example")
    assert world.asked[0].tls is not None


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--cassandra", "a:9042,b:9043"), "9042 and 9043"),
        (("--cassandra", "a b"), "'a b' is not an address"),
        (("--cassandra", "a:0"), "not an address"),
        (("--cassandra", "a", "--key", "key.pem"), "--ca"),
        (("--cassandra", "a", "--ca", "no-such-file"), "cannot read"),
        ((), "one store is needed"),
        (("--cassandra", "a", "--postgresql", "b"), "one store is needed"),
        (("--postgresql", "a"), "--username"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(words: tuple[str, ...], named: str) -> None:
    assert named in World.usual().refused("certify", *words)


def test_a_refusal_shows_neither_name_nor_password(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise FenceCredentialsRejected('password "secret" of user "kim" is wrong')

    monkeypatch.setattr(Session, "run", refuses)
    store = StoreToCertify(postgresql=PostgresqlEndpoint(hosts=("store",)), credentials=("kim", "secret"))
    with pytest.raises(CliError, match=r'password "\*\*\*" of user "\*\*\*"') as refused:
        certification.certify_store(store, print)
    assert refused.value.remedy == "correct --username, or its password"


def test_a_postgresql_is_certified_in_a_schema(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(POSTGRESQL_PASSWORD, "secret")
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    left = replace(KEPT, promise="the schema is dropped", kept=False, detail="no answer")
    world = certifying(KEPT, left)
    line = ("certify", "--postgresql", "a,b", "--database", "orders", "--username", "kim")
    ended = world.run(*line, "--ca", str(tmp_path / "ca.pem"))
    assert "schema fencepost_certify_1 may still be there: drop it" in ended.stderr
    assert world.asked[0].postgresql == PostgresqlEndpoint(hosts=("a", "b"), database="orders", tls=PostgresqlTls())
    assert world.asked[0].credentials == ("kim", "secret")
    assert certifying(KEPT).json(*line)["schema"] == "fencepost_certify_1"
