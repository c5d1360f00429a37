"""The data service beside a worker: it serves holders of the driver's tickets, and ends with its supervisor."""

from __future__ import annotations

import http.client
import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from fencepost.contract import DATA_SERVICE_FILE, CassandraEndpoint, DataServiceConfig
from fencepost.fence import FenceUnavailable
from fencepost.fence.patience import Patience
from fencepost.state.chunks import PatientChunks, write_file
from fencepost.state.memory import MemoryChunks
from fencepost.state.webhdfs.authentication import Keys, ReadTicket
from fencepost.worker import data_service_process
from fencepost.worker.data_service import SECRET, credentials_of, server
from fencepost.worker.data_service_process import DataServiceProcess
from harness.processes import free_port
from harness.waiting import eventually
from present import present

CONFIG = DataServiceConfig(
    pipeline="default/shop/orders",
    cassandra=CassandraEndpoint(contact_points=("127.0.0.1",), port=free_port(), local_datacenter="datacenter1"),
    keyspace="fencepost",
    consistency="LOCAL_QUORUM",
    port=0,
    cache_bytes=1 << 20,
)
DRIVER = Keys("of the generation")


def asked(port: int, ticket: str) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request("GET", f"/?ticket={ticket}")
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_the_ticket_of_a_driver_with_the_generations_secret_opens_a_file(tmp_path: Path) -> None:
    chunks, file = MemoryChunks(), uuid4()
    length = write_file(chunks, file, io.BytesIO(b"state"), limit=10)
    service = server(CONFIG, chunks, tmp_path, Keys("of the generation"), address="127.0.0.1")
    service.start("data")
    try:
        ticket = ReadTicket(file=str(file), length=length, report_to="127.0.0.1:1", patience=0.0)
        assert asked(service.port, DRIVER.ticket(ticket)) == (200, b"state")
        assert asked(service.port, Keys("of another generation").ticket(ticket))[0] == 403
        assert asked(service.port, "")[0] == 403
    finally:
        service.stop()


def test_a_chunk_is_asked_for_again_while_cassandra_does_not_answer() -> None:
    answers = iter([FenceUnavailable("no answer"), FenceUnavailable("no answer"), None])

    def fail(_: str) -> None:
        if error := next(answers):
            raise error

    chunks, file = MemoryChunks(before=fail), uuid4()
    patient = PatientChunks(chunks, Patience(30.0, sleep=lambda _: None))
    patient.write(file, {0: b"state"})
    assert chunks.files == {file}


def test_the_account_is_read_from_the_mounted_secret(tmp_path: Path) -> None:
    assert credentials_of(tmp_path) is None
    (tmp_path / "username").write_text("orders")
    (tmp_path / "password").write_text("hunter2")
    assert credentials_of(tmp_path) == ("orders", "hunter2")


def test_a_worker_of_a_stateless_pipeline_has_none(tmp_path: Path) -> None:
    assert data_service_process.of({"SPARK_CONF_DIR": str(tmp_path)}, tmp_path) is None
    (tmp_path / DATA_SERVICE_FILE).write_text(CONFIG.to_json())
    assert data_service_process.of({"SPARK_CONF_DIR": str(tmp_path)}, tmp_path) is not None


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """The program itself, which waits for a Cassandra that is not there."""
    monkeypatch.setenv(SECRET, "of the generation")
    (tmp_path / DATA_SERVICE_FILE).write_text(CONFIG.to_json())
    config, cache = str(tmp_path / DATA_SERVICE_FILE), str(tmp_path / "state")
    command = [sys.executable, "-m", "fencepost.worker.data_service", config, cache]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        yield running
        running.kill()


def test_it_ends_with_its_supervisor(process: subprocess.Popen[bytes]) -> None:
    logged = iter(present(process.stderr).readline, b"")
    assert any(b"waits for Cassandra" in line for line in logged)
    present(process.stdin).close()
    assert process.wait(30) == 0


def test_it_starts_again_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_service_process, "START_AGAIN", 0.1)
    supervised = DataServiceProcess([sys.executable, "-c", "import sys; sys.stdin.read(1)"])
    supervised.look()
    first = present(supervised.id)
    supervised.look()
    assert supervised.id == first
    present(supervised._process).communicate(b"x")

    def another() -> int | None:
        supervised.look()
        return supervised.id if supervised.id not in {None, first} else None

    eventually("another one runs", another, seconds=30)
    present(supervised._process).communicate(b"x")
