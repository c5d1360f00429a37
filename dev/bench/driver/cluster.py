"""A Spark cluster of the job image in containers on this machine's network: master, one worker, drivers."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fencepost.contract import Variable
from integration.driver.support import CODE, Pipeline
from testbed.environment import Environment

SECRET = "a-secret-of-this-run"  # noqa: S105 - of a cluster that lives for minutes
MASTER = "spark://127.0.0.1:7077"
CONF = """spark.authenticate true
spark.network.crypto.enabled true
spark.network.crypto.cipher AES/GCM/NoPadding
spark.master.rest.enabled false
spark.executor.heartbeatInterval 5s
"""


@dataclass(frozen=True, slots=True)
class Containers:
    """Containers of one run, by a common prefix. They run as a uid that no image knows, on a read-only root."""

    docker: str
    image: str
    prefix: str
    conf: Path

    def start(self, name: str, command: list[str], environment: Mapping[str, str]) -> str:
        """Start a container; return its name."""
        full = f"{self.prefix}-{name}"
        options = [f"--env={key}={value}" for key, value in environment.items()]
        subprocess.run(
            [
                self.docker, "run", "--detach", "--name", full, "--network", "host", "--read-only", "--tmpfs", "/tmp",  # noqa: S108 - inside the container
                "--user", "1000660000:0", "--cap-drop", "ALL", "--volume", f"{CODE}:/opt/fencepost/code:ro",
                "--volume", f"{self.conf}:/etc/fencepost/spark:ro", *options, self.image, *command,
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        return full

    def kill(self, name: str) -> None:
        """End all processes of a container by SIGKILL."""
        subprocess.run([self.docker, "kill", f"{self.prefix}-{name}"], check=True, capture_output=True)

    def logs(self, name: str) -> str:
        """What a container wrote."""
        ran = subprocess.run([self.docker, "logs", name], capture_output=True, text=True, check=True)
        return ran.stdout + ran.stderr

    def remove(self) -> None:
        """Remove all."""
        listed = subprocess.run(
            [self.docker, "ps", "-aq", "--filter", f"name={self.prefix}-"], capture_output=True, text=True, check=True
        )
        if listed.stdout.split():
            subprocess.run([self.docker, "rm", "-f", *listed.stdout.split()], check=True, capture_output=True)


@contextmanager
def spark_cluster(environment: Environment, folder: Path, *, cores: int) -> Iterator[Containers]:
    """Run a master and a worker."""
    conf = folder / "conf"
    conf.mkdir()
    conf.chmod(0o755)
    (conf / "spark-defaults.conf").write_text(CONF)
    containers = Containers(str(environment.docker), environment.job_image, f"bench-{uuid.uuid4().hex[:6]}", conf)
    common = {
        "_SPARK_AUTH_SECRET": SECRET,
        "SPARK_CONF_DIR": "/etc/fencepost/spark",
        "SPARK_MASTER_HOST": "127.0.0.1",
        "SPARK_MASTER": MASTER,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_MASTER_WEBUI_PORT": "18080",
        "SPARK_WORKER_WEBUI_PORT": "18081",
        "SPARK_WORKER_CORES": str(cores),
        "SPARK_WORKER_MEMORY": "1500m",
        "SPARK_WORKER_DIR": "/tmp/work",  # noqa: S108 - inside the container
        "SPARK_DAEMON_MEMORY": "256m",
    }
    try:
        containers.start("master", ["/opt/fencepost/bin/spark-master"], common)
        containers.start("worker", ["/opt/fencepost/bin/spark-worker"], common)
        time.sleep(10)
        yield containers
    finally:
        containers.remove()


def start_driver(containers: Containers, pipeline: Pipeline, number: int) -> str:
    """Start a driver under a new epoch; return its container."""
    pipeline.take_over()
    config = replace(
        pipeline.config, spark_master=MASTER, spark_conf={"spark.executor.memory": "1g"}, batch_interval=0.1
    )
    return containers.start(
        f"driver-{number}",
        ["fencepost", "run", "--termination-log", "/tmp/last-words"],  # noqa: S108 - inside the container
        {
            Variable.CONFIG: config.to_json(),
            Variable.POD_UID: f"pod-{number}",
            Variable.POD_IP: "127.0.0.1",
            Variable.SPARK_AUTH_SECRET: SECRET,
            Variable.CASSANDRA_USERNAME: pipeline.credentials[0],
            Variable.CASSANDRA_PASSWORD: pipeline.credentials[1],
        },
    )


def lines(log: str) -> Iterator[dict[str, Any]]:
    """Yield the driver's own log lines."""
    for line in log.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def percentile(values: list[float], share: float) -> float:
    """Return the value below which `share` of the values lie (nearest rank)."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]
