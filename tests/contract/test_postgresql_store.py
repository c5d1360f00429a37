"""The fence in a real PostgreSQL: broken connections, frozen clients, accounts without rights, hostile rows."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from contract.conftest import POSTGRESQL_SCHEMA
from contract.postgresql import endpoint_of, session_with
from fakes.tls_proxy import Authority
from fencepost.contract import Acceptance, Loss, PostgresqlTls, Reason, ReportedLoss, TopicChange
from fencepost.fence import (
    Fence,
    FenceCredentialsRejected,
    FenceEndpointInvalid,
    FenceRow,
    FenceRowInvalid,
    FenceSchemaInvalid,
    FenceSchemaMissing,
    FenceTlsFailed,
    FenceUnauthorized,
    FenceUnavailable,
    Starting,
)
from fencepost.fence.history import hour_of, restored
from fencepost.fence.postgresql.history import changes_of_hour
from fencepost.fence.postgresql.schema import check_there, create_schema
from fencepost.fence.postgresql.session import Session
from fencepost.fence.postgresql.snapshots import SnapshotTable
from fencepost.fence.postgresql.table import PostgresqlFenceTable
from fencepost.fence.promises import BrokenPromise
from fencepost.fence.promises.database import PROMISES, Scratch
from fencepost.fence.snapshots import Trigger, snapshot_id, snapshot_of
from fencepost.fence.tls import TlsMaterial
from fencepost_cli.ports import StoreToCertify
from fencepost_cli.stores.certification import certify_store
from postgresql_server import USER, Server, free_port, running
from present import present

pytestmark = pytest.mark.integration

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def row() -> FenceRow:
    return FenceRow(pipeline=f"contract/{uuid.uuid4()}/p", owner="cluster/cr")


def admin(server: Server, statement: str) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def check(session: Session) -> None:
    """Connect once."""
    with closing(session):
        session.open()


def start(_row: FenceRow) -> Starting:
    return Starting(offsets={"a/0": 1, "a/1": 0}, planned={"a/0": 2, "a/1": 0}, topic_ids={"a": "id"})


def test_the_history_gives_back_every_row_of_a_run(postgresql: PostgresqlFenceTable, row: FenceRow) -> None:
    fence = Fence(postgresql, row.pipeline)
    rows = [fence.create("cluster/cr")]
    rows.append(fence.take_over(rows[-1], owner="cluster/cr"))
    rows.append(fence.claim(epoch=1, driver="pod", code="image", start=start))
    for planned in ({"a/0": 9, "a/1": 0}, {"a/0": 9, "a/1": 4}):
        offsets = rows[-1].planned
        rows.append(fence.commit(rows[-1], offsets=offsets, planned=planned, records=4, duration_ms=3))
    session, schema = postgresql.session, postgresql.schema
    records = [*changes_of_hour(session, schema, row.pipeline, hour_of(datetime.now(UTC)))]
    assert [record.base for record in records] == [True, True, True, False, False]
    read = [(seen.epoch, seen.version, seen.driver, dict(seen.offsets)) for _, seen in restored(row.pipeline, records)]
    assert read == [(made.epoch, made.version, made.driver, dict(made.offsets)) for made in rows]
    assert all(record.written_at for record in records)


@pytest.mark.usefixtures("postgresql")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork in a process with threads
def test_a_client_that_is_frozen_in_a_change_holds_no_lock(server: Server, row: FenceRow) -> None:
    """It is stopped while it commits without a pause; whoever takes over needs the row's lock."""
    with closing(session_with(server)) as session:
        fence = Fence(PostgresqlFenceTable(session, POSTGRESQL_SCHEMA), row.pipeline)
        fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
        for _ in range(5):
            before = present(fence.read())
            reading, writing = os.pipe()
            if (child := os.fork()) == 0:
                _commit_for_ever(server, row.pipeline, before.epoch, writing)
            os.read(reading, 1)  # it has committed once
            os.kill(child, signal.SIGSTOP)
            try:
                after = fence.take_over_epoch(before.epoch, owner="cluster/cr")
            finally:
                os.kill(child, signal.SIGCONT)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 50
            assert fence.read() == after
            os.close(reading)
            os.close(writing)


def test_a_change_that_waits_for_a_lock_leaves_no_connection_waiting(
    postgresql: PostgresqlFenceTable, server: Server, row: FenceRow
) -> None:
    """Another client holds the row, as a commit does that waits for a standby; each attempt is given up."""
    assert postgresql.insert(row)
    with closing(session_with(server, request_timeout=0.5)) as session, psycopg.connect(server.dsn) as holder:
        table = PostgresqlFenceTable(session, POSTGRESQL_SCHEMA)
        locked = sql.SQL("SELECT 1 FROM {} WHERE pipeline = %s FOR UPDATE").format(
            sql.Identifier(POSTGRESQL_SCHEMA, "fence")
        )
        holder.execute(locked, (row.pipeline,))
        for _ in range(3):
            with pytest.raises(FenceUnavailable):
                table.swap(row, replace(row, epoch=1, version=1, clock=1))
        with psycopg.connect(server.dsn, autocommit=True) as other:
            until = time.monotonic() + 10
            while (waiting := _waiting(other)) and time.monotonic() < until:
                time.sleep(0.1)
            assert not waiting


def _waiting(connection: psycopg.Connection[tuple[int, ...]]) -> int:
    """How many connections wait for a lock."""
    ((count,),) = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall()
    return count


def _commit_for_ever(server: Server, pipeline: str, epoch: int, ready: int) -> None:
    try:
        table = PostgresqlFenceTable(session_with(server), POSTGRESQL_SCHEMA)
        fence = Fence(table, pipeline)
        last = fence.claim(epoch=epoch, driver=f"pod-{epoch}", code="c", start=start)
        while True:
            last = fence.commit(last, offsets=last.offsets, planned=last.planned, records=0, duration_ms=0)
            os.write(ready, b".")
    except BaseException as error:  # noqa: BLE001 - the child ends here
        os._exit(50 if type(error).__name__ == "Fenced" else 1)


def test_a_server_that_dies_loses_no_acknowledged_change(tmp_path: Path, row: FenceRow) -> None:
    """SIGQUIT to all its processes, thrice while a driver commits."""
    with (
        running(tmp_path / "log") as server,
        closing(session_with(server, request_timeout=5.0)) as session,
    ):
        create_schema(session, "f")
        table = PostgresqlFenceTable(session, "f")
        fence = Fence(table, row.pipeline, patience=60)
        fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
        last = fence.claim(epoch=1, driver="pod", code="c", start=start)
        for _ in range(3):
            crash = threading.Timer(0.05, lambda: server.control("-m", "immediate", "restart"))
            crash.start()
            while crash.is_alive():
                last = fence.commit(last, offsets={"a/0": last.version}, planned={"a/0": 0}, records=1, duration_ms=1)
            crash.join()
            assert present(fence.read()).is_held_as(last)
        records = changes_of_hour(session, "f", row.pipeline, hour_of(datetime.now(UTC)))
        versions = [record.version for record in records]
        assert versions == [*range(versions[0], last.version + 1)]


def test_a_server_that_falls_silent_leaves_the_outcome_open(tmp_path: Path, row: FenceRow) -> None:
    with running(tmp_path / "log") as server, closing(session_with(server, request_timeout=0.5)) as session:
        with closing(session_with(server)) as patient:  # 0.5 s are too few for it on a busy machine
            create_schema(patient, "f")
        table = PostgresqlFenceTable(session, "f")
        table.insert(row)
        ((process,),) = session.run("asking", "SELECT pg_backend_pid()")
        os.kill(process, signal.SIGSTOP)
        with pytest.raises(FenceUnavailable):
            table.swap(row, replace(row, version=1))
        assert table.read(row.pipeline) == row  # by another connection
        os.kill(process, signal.SIGCONT)
        fence = Fence(table, row.pipeline)
        assert fence.take_over_epoch(0, owner="cluster/cr").epoch == 1


@pytest.mark.usefixtures("postgresql")
def test_a_change_whose_answer_is_lost_and_that_is_applied_late_counts_once(server: Server, row: FenceRow) -> None:
    """Its connection is given up while the change waits for the row's lock; two more tries wait behind it."""
    with (
        psycopg.connect(server.dsn) as holder,
        psycopg.connect(server.dsn, autocommit=True) as watcher,
        closing(session_with(server, request_timeout=0.5)) as session,
        ThreadPoolExecutor(1) as pool,
    ):
        fence = Fence(PostgresqlFenceTable(session, POSTGRESQL_SCHEMA), row.pipeline, patience=60)
        fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
        held = fence.claim(epoch=1, driver="pod", code="c", start=start)
        lock = f"SELECT 1 FROM {POSTGRESQL_SCHEMA}.fence WHERE pipeline = %s FOR UPDATE"  # noqa: S608 - a constant
        holder.execute(lock.encode(), (row.pipeline,))
        ends = {"a/0": 2, "a/1": 0}
        made = pool.submit(lambda: fence.commit(held, offsets=ends, planned=ends, records=1, duration_ms=1))
        while present(watcher.execute(b"SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone())[0] < 2:
            assert not made.done()
            time.sleep(0.05)
        holder.rollback()
        after = made.result()
        assert present(fence.read()).is_held_as(after)
        records = changes_of_hour(session, POSTGRESQL_SCHEMA, row.pipeline, hour_of(datetime.now(UTC)))
        assert [record.version for record in records] == [*range(after.version + 1)]


def test_a_loss_and_its_acceptance_are_rows(postgresql: PostgresqlFenceTable, row: FenceRow) -> None:
    ranges = {f"a/{number}": (number, 2 * number) for number in range(1500)}
    loss = Loss(reason=Reason.TOPIC_RECREATED, ranges=ranges, topics={"a": TopicChange("old", "new")}, committed_ms=5)
    postgresql.report_loss(row.pipeline, ReportedLoss(loss=loss, epoch=3, at=AT))
    acceptance = Acceptance(by="kim", choice="earliest", at=AT)
    for _ in range(2):
        postgresql.accept_loss(row.pipeline, loss, acceptance)
    (found,) = postgresql.read_losses(row.pipeline, 5)
    assert (found.loss, found.acceptance) == (loss, acceptance)
    table = f"{POSTGRESQL_SCHEMA}.accepted_losses"
    select = f"SELECT topic || '/' || partition, from_offset, until_offset FROM {table}"  # noqa: S608 - a constant
    rows = postgresql.session.run("asking", f"{select} WHERE pipeline = %s", (row.pipeline,))
    assert {key: (start, until) for key, start, until in rows} == ranges
    postgresql.forget(row.pipeline)
    assert not postgresql.session.run("asking", f"{select} WHERE pipeline = %s", (row.pipeline,))


def test_a_snapshot_is_written_once_and_never_changed(postgresql: PostgresqlFenceTable, row: FenceRow) -> None:
    snapshots = SnapshotTable(postgresql.session, postgresql.schema)
    ids = [snapshot_id(AT.replace(minute=minute), row.pipeline) for minute in range(3)]
    full = replace(row, epoch=3, version=7, offsets={"a/0": 5}, topic_ids={"a": "id"}, leader_epochs={"a/0": 3})
    made = [snapshot_of(full, id=one, trigger=Trigger.ON_DEMAND, name="v1") for one in ids]
    assert [snapshots.insert(row.pipeline, one) for one in made] == [True] * 3
    assert not snapshots.insert(row.pipeline, replace(made[0], version=8))
    assert snapshots.read(row.pipeline, ids[0]) == made[0]
    assert [one.id for one in snapshots.newest(row.pipeline)] == [*reversed(ids)]
    assert [one.offsets for one in snapshots.newest(row.pipeline, with_offsets=True)] == [{"a/0": 5}] * 3
    snapshots.delete(row.pipeline, ids[:2])
    assert [one.id for one in snapshots.newest(row.pipeline)] == [ids[2]]
    postgresql.forget(row.pipeline)
    assert snapshots.newest(row.pipeline) == ()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("offsets = '{\"a/0\": -1}'", "offsets"),
        ("offsets = '[]'", "offsets"),
        ("planned = '{\"a\": 1}'", "planned"),
        ("epoch = -1", "epoch"),
        ("growths = '{\"a/0@2\": 1}'", "growths"),
    ],
)
def test_a_row_that_was_changed_by_hand_is_named(
    postgresql: PostgresqlFenceTable, row: FenceRow, change: str, named: str
) -> None:
    postgresql.insert(row)
    update = f"UPDATE {POSTGRESQL_SCHEMA}.fence SET {change} WHERE pipeline = %s"  # noqa: S608 - constants
    postgresql.session.run("changing", update, (row.pipeline,))
    with pytest.raises(FenceRowInvalid, match=named):
        postgresql.read(row.pipeline)


def test_a_number_that_python_refuses_ends_no_process(postgresql: PostgresqlFenceTable) -> None:
    with pytest.raises(FenceRowInvalid, match="cannot be read"):
        postgresql.session.run("asking", f"SELECT '{'[' * 5000}{']' * 5000}'::json")
    with pytest.raises(FenceRowInvalid, match="cannot be read"):
        postgresql.session.run("asking", f"SELECT '{'9' * 5000}'::json")


def test_sessions_that_create_one_schema_at_once_all_find_it(server: Server) -> None:
    schema, failures = f"s{uuid.uuid4().hex[:8]}", list[BaseException]()
    gate = threading.Barrier(6)

    def create() -> None:
        with closing(session_with(server)) as session:
            session.open()
            gate.wait()
            try:
                create_schema(session, schema)
            except BaseException as error:  # noqa: BLE001 - compared below
                failures.append(error)

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with closing(session_with(server)) as session:
        check_there(session, schema)


@contextmanager
def account(server: Server) -> Iterator[str]:
    name = f"kim{uuid.uuid4().hex[:8]}"
    admin(server, f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    yield name
    admin(server, f"DROP OWNED BY {name}")
    admin(server, f"DROP ROLE {name}")


def test_an_account_without_rights_is_named_and_one_with_the_least_works(server: Server, row: FenceRow) -> None:
    schema = f"s{uuid.uuid4().hex[:8]}"
    with account(server) as name, closing(session_with(server, user=name)) as session:
        with pytest.raises(FenceUnauthorized, match="permission denied"):
            create_schema(session, schema)
        with pytest.raises(FenceSchemaMissing):
            PostgresqlFenceTable(session, schema).read(row.pipeline)
        with closing(session_with(server)) as owner:
            create_schema(owner, schema)
        with pytest.raises(FenceUnauthorized):
            PostgresqlFenceTable(session, schema).read(row.pipeline)
        admin(server, f"GRANT USAGE ON SCHEMA {schema} TO {name}")
        rights = "SELECT, INSERT, UPDATE, DELETE"
        admin(server, f"GRANT {rights} ON ALL TABLES IN SCHEMA {schema} TO {name}")
        create_schema(session, schema)  # nothing is missing
        table = PostgresqlFenceTable(session, schema)
        fence = Fence(table, row.pipeline)
        fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
        table.report_progress(row.pipeline, epoch=1, version=1, done=0)
        table.forget(row.pipeline)


def test_a_deleted_pipeline_leaves_no_report_under_its_name(postgresql: PostgresqlFenceTable, row: FenceRow) -> None:
    """Whichever cluster deletes it last: signs of life of both, heartbeats, and reports of trials."""
    fence, other = Fence(postgresql, row.pipeline), f"{row.pipeline}-2"
    fence.create("cluster/cr")
    keys = [
        row.pipeline,
        *(f"{row.pipeline}#{kind}" for kind in ("heartbeat", "cluster-east", "cluster-west", "trial-1")),
    ]
    for key in (*keys, other, f"{other}#cluster-east"):
        postgresql.report_progress(key, epoch=0, version=0, done=1)
    fence.release(present(fence.read()))
    assert [key for key in keys if postgresql.read_progress(key) is not None] == []
    assert None not in {postgresql.read_progress(key) for key in (other, f"{other}#cluster-east")}


def test_the_settings_of_an_account_do_not_weaken_a_commit(server: Server) -> None:
    with account(server) as name:
        for setting in ("synchronous_commit = off", "statement_timeout = 500", "timezone = 'Asia/Tokyo'"):
            admin(server, f"ALTER ROLE {name} SET {setting}")
        with closing(session_with(server, user=name)) as session:
            names = ("synchronous_commit", "statement_timeout", "timezone")
            found = [session.run("asking", "SELECT current_setting(%s)", (one,))[0][0] for one in names]
    assert found == ["on", "0", "UTC"]


def test_a_table_of_another_shape_is_named(server: Server, row: FenceRow) -> None:
    schema = f"s{uuid.uuid4().hex[:8]}"
    with closing(session_with(server)) as session:
        create_schema(session, schema)
        session.run("changing", f"ALTER TABLE {schema}.fence DROP COLUMN figures")
        with pytest.raises(FenceSchemaInvalid, match="figures"):
            PostgresqlFenceTable(session, schema).read(row.pipeline)


def test_what_stands_against_a_connection_is_told_apart(tmp_path: Path, server: Server) -> None:
    absent = Session(replace(endpoint_of(server), database="absent"), credentials=(USER, ""))
    with pytest.raises(FenceEndpointInvalid) as caught:
        check(absent)
    assert "spec.checkpoint.postgresql.database" in caught.value.remedy
    for host in ("no-such-host.invalid", "a..b"):
        with pytest.raises(FenceUnavailable, match=host):
            check(session_with(server, host=host))
    with pytest.raises(FenceUnavailable):
        check(Session(replace(endpoint_of(server, host="127.0.0.1"), port=free_port()), credentials=(USER, "")))
    with running(tmp_path / "log", port=free_port()) as other:
        (other.folder / "data" / "pg_hba.conf").write_text("host all all all scram-sha-256\nlocal all all trust\n")
        admin(other, "CREATE ROLE kim LOGIN PASSWORD 'right'")
        other.control("reload")
        check(session_with(other, user="kim", password="right", host="127.0.0.1"))  # noqa: S106 - of this test
        for user, password in (("kim", "wrong"), ("kim", ""), ("stranger", "x")):
            with pytest.raises(FenceCredentialsRejected) as refused:
                check(session_with(other, user=user, password=password, host="127.0.0.1"))
            assert "wrong" not in str(refused.value)


@pytest.mark.usefixtures("postgresql")
def test_a_standby_is_passed_over(server: Server, tmp_path: Path) -> None:
    port = present(server.port)
    with running(tmp_path / "log", port=port, listen_addresses="", default_transaction_read_only="on") as standby:
        with pytest.raises(FenceUnavailable, match="read-only"):
            check(session_with(standby))
        both = replace(endpoint_of(standby), hosts=(str(standby.folder), str(server.folder)))
        with closing(Session(both, credentials=(USER, ""))) as session:
            check_there(session, POSTGRESQL_SCHEMA)


def test_each_connection_with_tls_checks_the_server(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    folder.mkdir()
    authority, stranger = Authority.make(folder / "a"), Authority.make(folder / "b")
    signed = authority.sign("postgresql", names="DNS:postgresql.example,DNS:localhost")
    with running(tmp_path / "log", port=free_port()) as server:
        data = server.folder / "data"
        for name, text in (("server.crt", signed.certificate), ("server.key", signed.key)):
            (data / name).write_text(text.read_text())
            (data / name).chmod(0o600)
            os.chown(data / name, data.stat().st_uid, data.stat().st_gid)
        material = TlsMaterial.of({"ca.crt": authority.text})
        with pytest.raises(FenceTlsFailed, match="offers no TLS"):
            session_with(server, host="localhost", tls=(PostgresqlTls(), material)).open()
        admin(server, "ALTER SYSTEM SET ssl = on")
        server.control("reload")
        secured = PostgresqlTls()
        with closing(session_with(server, host="localhost", tls=(secured, material))) as session:
            assert session.run("asking", "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == [(True,)]
        for options in (PostgresqlTls(server_name="postgresql.example"), PostgresqlTls(verify_hostname=False)):
            check(session_with(server, host="127.0.0.1", tls=(options, material)))
        with pytest.raises(FenceTlsFailed, match="another name") as caught:
            check(session_with(server, host="127.0.0.1", tls=(secured, material)))
        assert "serverName" in caught.value.remedy
        with pytest.raises(FenceTlsFailed, match="cannot be verified"):
            session_with(server, host="localhost", tls=(secured, TlsMaterial.of({"ca.crt": stranger.text}))).open()
        with pytest.raises(FenceTlsFailed, match=r"ca\.crt"):
            session_with(server, host="localhost", tls=(secured, TlsMaterial.of({"ca.crt": "none"}))).open()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name.replace(" ", "-"))
def test_postgresql_keeps_its_promises(postgresql: PostgresqlFenceTable, promise: object) -> None:
    promise.check(Scratch(postgresql.session, postgresql.schema), f"contract/{uuid.uuid4()}")  # type: ignore[attr-defined]


def test_a_server_that_may_lose_commits_is_found(tmp_path: Path) -> None:
    durable = PROMISES[0]
    with (
        running(tmp_path / "log", fsync="off") as server,
        closing(session_with(server)) as session,
        pytest.raises(BrokenPromise, match="fsync = off"),
    ):
        durable.check(Scratch(session, "f"), "p")


def test_a_store_that_keeps_all_is_certified_and_left_as_it_was(server: Server) -> None:
    shown = list[str]()
    store = StoreToCertify(postgresql=endpoint_of(server), credentials=(USER, ""))
    found = certify_store(store, shown.append)
    assert [one for one in found.promises if not one.kept] == []
    assert shown == [one.promise for one in found.promises]
    assert found.version
    with psycopg.connect(server.dsn) as connection:
        left = connection.execute(sql.SQL("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'fencepost_c%'"))
        assert left.fetchall() == []
