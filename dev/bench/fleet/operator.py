"""The operator as a process of this machine: what it uses, and what it says of itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from harness.kubernetes.control_plane import ControlPlane
from harness.processes import free_port, running
from harness.waiting import eventually
from testbed.home import Home
from testbed.images.built_images import REPOSITORY

NAMESPACE: Final = "fencepost-system"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_READY: Final = re.compile(r"^fencepost_pipeline_ready\{.*\} 1.0$", re.MULTILINE)
_PASSES: Final = re.compile(r'^fencepost_reconcile_total\{outcome="(\w+)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds so far, of the process and of the processes that it started; resident memory in MiB, now and most."""

    own: float
    started: float
    memory: float
    most_memory: float

    @classmethod
    def of(cls, process: int) -> Self:
        """Read them from /proc."""
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
        user, system, waited_user, waited_system = (int(field) / _TICKS for field in fields[11:15])
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":" in line
        )
        memory, most = (int(status[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
        return cls(user + system, waited_user + waited_system, memory, most)


@dataclass(slots=True)
class Operator:
    """An operator that runs; `restart` puts another process in the place of the first one."""

    metrics: str
    log: Path
    environment: Mapping[str, str]
    stack: ExitStack
    process: subprocess.Popen[bytes] = field(init=False)

    @classmethod
    @contextmanager
    def at_work(cls, plane: ControlPlane, folder: Path) -> Iterator[Self]:
        """Run this code's operator, as an administrator, while the block runs."""
        metrics, probes = free_port(), free_port()
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("KUBE", "FENCEPOST_"))}
        environment = {
            **kept,
            "KUBECONFIG": str(plane.kubeconfig),
            "FENCEPOST_NAMESPACE": NAMESPACE,
            "FENCEPOST_HELM": str(Home.of_user().bin / "helm"),
            "FENCEPOST_CHART": str(REPOSITORY / "charts" / "spark-cluster"),
            "FENCEPOST_METRICS_PORT": str(metrics),
            "FENCEPOST_PROBES_PORT": str(probes),
            "FENCEPOST_LOG_LEVEL": "WARNING",
        }
        with ExitStack() as stack:
            operator = cls(f"http://127.0.0.1:{metrics}/metrics", folder / "operator.log", environment, stack)
            operator._start()
            yield operator

    def _start(self) -> None:
        command = (sys.executable, "-m", "fencepost_operator")
        process = running(*command, log=self.log, ready=self.metrics, env=self.environment, seconds=120)
        self.process = self.stack.enter_context(process)

    def restart(self, count: int) -> float:
        """Kill it and start it again; return the seconds from then on until it has reconciled so many pipelines."""
        self.process.kill()
        self.process.wait()
        began = time.monotonic()
        self._start()
        eventually(f"{count} reconciled", lambda: self.reconciled() >= count, seconds=60 + count, pause=1.0)
        return time.monotonic() - began

    def reconciled(self) -> int:
        """Return how many pipelines have had a pass that recorded that they are ready."""
        return len(_READY.findall(self.scrape()[1]))

    def usage(self) -> Usage:
        """Return what it has used so far."""
        return Usage.of(self.process.pid)

    def scrape(self) -> tuple[float, str]:
        """Return for how many ms a scrape of the metrics lasts, and their text."""
        began = time.monotonic()
        with urllib.request.urlopen(self.metrics, timeout=30) as answer:  # noqa: S310 - a process of ours
            text = answer.read().decode()
        return 1000 * (time.monotonic() - began), text

    def passes(self) -> dict[str, float]:
        """Return the passes so far by their outcome."""
        return {outcome: float(count) for outcome, count in _PASSES.findall(self.scrape()[1])}
