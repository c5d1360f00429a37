"""A data service in a process of its own, as beside a worker, so that its memory can be measured.

`python -m integration.driver.data_service_process` reads one line of JSON, prints its port, and serves until its
standard input ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakes.checkpoint_services import MIB, SECRET
from fencepost.contract import CassandraEndpoint
from fencepost.fence.cassandra.session import connect
from fencepost.state.cassandra import CassandraChunks
from fencepost.state.webhdfs.authentication import Keys
from fencepost.state.webhdfs.data_service import DataService
from fencepost.state.webhdfs.file_cache import FileCache
from fencepost.state.webhdfs.http_server import SWEEP, HttpServer
from testbed.environment import Environment


@dataclass(frozen=True, slots=True)
class Service:
    """A running service."""

    port: int
    process: int

    def peak(self) -> int:
        """Return the most bytes that the process has had in memory since `forget_peak`."""
        status = Path(f"/proc/{self.process}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024

    def forget_peak(self) -> int:
        """Measure the peak from here on; return it as it is now."""
        Path(f"/proc/{self.process}/clear_refs").write_text("5")
        return self.peak()


@contextmanager
def data_service(environment: Environment, *, keyspace: str, pipeline: str, cache: Path) -> Iterator[Service]:
    """Run a service over the testbed's Cassandra for the block."""
    config = {
        "host": environment.cassandra_host,
        "port": environment.cassandra_port,
        "account": [environment.cassandra_username, environment.cassandra_password],
        "keyspace": keyspace,
        "pipeline": pipeline,
        "cache": str(cache),
    }
    with subprocess.Popen(
        [sys.executable, "-m", __name__],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(config) + "\n")
        process.stdin.flush()
        yield Service(int(process.stdout.readline()), process.pid)
        process.stdin.close()
        process.wait(30)


def serve(config: dict[str, Any]) -> None:
    """Serve until standard input ends."""
    endpoint = CassandraEndpoint(contact_points=(config["host"],), port=config["port"])
    username, password = config["account"]
    session = connect(endpoint, credentials=(username, password), request_timeout=20)
    chunks = CassandraChunks(session, config["keyspace"], config["pipeline"])
    service = DataService(chunks, FileCache(Path(config["cache"]), most=256 * MIB), Keys(SECRET))
    server = HttpServer(service.handle, address="127.0.0.1", port=0)
    threading.Thread(target=server.serve_forever, args=(SWEEP,), daemon=True).start()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    serve(json.loads(sys.stdin.readline()))
