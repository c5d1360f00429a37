"""`fencepost purge` as the pod of a rewind runs it, on the testbed's Cassandra."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from fencepost.contract import DriverConfig, Variable
from fencepost.contract.purge_request import PURGE_FILE, PurgeRequest
from testbed.environment import load


def run(
    folder: Path, config: DriverConfig, ranges: Mapping[str, tuple[int, int]], timestamp: int | None
) -> tuple[int, str]:
    """Run `fencepost purge` as the pod does; return its exit code and its last words."""
    environment = load()
    (folder / "config.json").write_text(config.to_json())
    (folder / PURGE_FILE).write_text(PurgeRequest(ranges=ranges, timestamp=timestamp).to_json())
    last = folder / "last-words"
    variables = {
        Variable.CONFIG_FILE: str(folder / "config.json"),
        Variable.CASSANDRA_USERNAME: environment.cassandra_username,
        Variable.CASSANDRA_PASSWORD: environment.cassandra_password,
    }
    command = [sys.executable, "-m", "fencepost", "purge", f"--termination-log={last}"]
    ended = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, check=False, timeout=120)
    assert last.exists(), ended.stderr.decode()[-2000:]
    return ended.returncode, last.read_text()
