"""A Prometheus with settings of the test's own, which needs no cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from harness.monitoring.prometheus import Prometheus
from harness.processes import free_port, running
from testbed.home import Home


@contextmanager
def at(folder: Path, settings: Mapping[str, Any]) -> Iterator[Prometheus]:
    """Run Prometheus in a folder while the block runs."""
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(dict(settings)))
    address = f"127.0.0.1:{free_port()}"
    command = (
        str(Home.of_user().bin / "prometheus"),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    )
    with running(*command, log=folder / "prometheus.log", ready=f"http://{address}/-/ready"):
        yield Prometheus(f"http://{address}")
