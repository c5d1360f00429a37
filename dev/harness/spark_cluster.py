"""A Spark master and a worker of this checkout on this machine, by the job image's own scripts under another root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fencepost.spark.jvm import gateway
from fencepost_operator.desired.cluster.spark_files import spark_files
from harness.processes import end, free_port, running, tail

JOB_IMAGE: Final = Path(__file__).resolve().parents[2] / "job-image"
VENV: Final = Path(__file__).resolve().parents[2] / ".venv"
ROOT: Final = "/opt/fencepost"
"""Of the image; the scripts name it."""
SECRET: Final = "a-secret-of-this-cluster"  # noqa: S105 - of a cluster that lives for minutes


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A folder with a copy of the image's /opt/fencepost, and the settings of its daemons."""

    root: Path
    scratch: Path
    """The worker's volume: its path is short, for Python workers listen on sockets below it."""
    master_port: int
    metrics_port: int

    @classmethod
    def prepare(cls, root: Path, scratch: Path, *, conf: Mapping[str, str] | None = None) -> SparkCluster:
        """Copy the image's files; `conf` are settings of spec.cluster.sparkConf."""
        for folder in ("bin", "executor"):
            shutil.copytree(JOB_IMAGE / folder, root / folder)
        for script in (path for path in root.rglob("*") if path.is_file()):
            script.write_text(script.read_text().replace(ROOT, str(root)))
        options = (JOB_IMAGE / "build" / "java.options").read_text().splitlines()
        (root / "java.options").write_text("\n".join(one for one in options if "hare" not in one))
        for folder in ("conf", "spark", "recovery"):
            (root / folder).mkdir()
        (root / "venv").symlink_to(VENV)
        for name, text in spark_files(conf or {}).items():
            (root / "spark" / name).write_text(text)
        return cls(root=root, scratch=scratch, master_port=free_port(), metrics_port=free_port())

    @property
    def url(self) -> str:
        """The master's address."""
        return f"spark://127.0.0.1:{self.master_port}"

    @property
    def work(self) -> Path:
        """The folders of the executors."""
        return self.scratch / "work"

    @property
    def log(self) -> Path:
        """What the worker's container would write."""
        return self.root / "worker.log"

    def environment(self) -> dict[str, str]:
        """Return the variables of the chart's pods and of the image."""
        java = Path(shutil.which("java") or "java").resolve()
        return {
            "_SPARK_AUTH_SECRET": SECRET,
            "JAVA_HOME": str(java.parent.parent),
            "SPARK_HOME": str(gateway.spark_home()),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_CONF_DIR": str(self.root / "spark"),
            "SPARK_LOCAL_DIRS": str(self.scratch),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_MASTER": self.url,
            "SPARK_MASTER_HOST": "127.0.0.1",
            "SPARK_MASTER_PORT": str(self.master_port),
            "SPARK_MASTER_WEBUI_PORT": str(free_port()),
            "SPARK_WORKER_WEBUI_PORT": str(free_port()),
            "SPARK_WORKER_CORES": "1",
            "SPARK_WORKER_MEMORY": "1g",
            "SPARK_WORKER_DIR": str(self.work),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.deploy.recoveryDirectory={self.root / 'recovery'}",
            "FENCEPOST_METRICS_PORT": str(self.metrics_port),
            "PYSPARK_PYTHON": str(self.root / "venv" / "bin" / "python"),
        }

    @contextmanager
    def master(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the master."""
        script, log = str(self.root / "bin" / "spark-master"), self.root / "master.log"
        with running(script, log=log, ready=f"127.0.0.1:{self.master_port}", env=self.environment()) as process:
            yield process

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the worker and what is beside it, in a session of their own, so that the end takes all of it."""
        script = str(self.root / "bin" / "spark-worker")
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                [script],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment()},
                cwd=self.scratch,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            end(process)
            _end_session(process.pid)

    def said(self) -> str:
        """Return the end of the worker's log, for failures."""
        return tail(self.log)


def _end_session(leader: int) -> None:
    """Kill what is left of a session: the processes beside the worker, and executors."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if os.getsid(int(entry.name)) == leader:
                    os.kill(int(entry.name), signal.SIGKILL)
